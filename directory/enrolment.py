"""Remote agents come, are read again, and go."""

import asyncio
import logging
from dataclasses import dataclass

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, ProtectedError
from django.utils import timezone
from django.utils.text import slugify

from directory import cards, credentials, discovery, revisions
from directory.credentials import Secret
from directory.discovery import Found
from directory.exceptions import (
    AddressRefused,
    AgentExists,
    AgentInUse,
    CardChanged,
    NoCommonInterface,
    NotRemote,
    RemoteError,
    SignatureInvalid,
    SlugTaken,
)
from directory.health import soon
from directory.http import Authorizer, check_url, normal_form
from directory.models import Agent, CardRevision, Health
from directory.services import forget_agents

logger = logging.getLogger(__name__)

SLUG_LENGTH = 64
MAX_BACKOFF = 6
# Not a mishap like a card that cannot be reached or read: it says something else than what was accepted.
SUSPICIOUS = (AddressRefused, NoCommonInterface, SignatureInvalid)


def add_remote_agent(
    url: str, slug: str | None = None, secret: Secret | None = None, *, digest: str = "", by: str = ""
) -> Agent:
    """Look for a card at `url` and take the agent into the directory, with its credential if one is given.

    With `digest` (`cards.digest`) that very card and no other; `by` is the operator's principal. Not from within a
    transaction or an event loop: it asks the network. Raises as `look_up`, and SlugTaken, CardChanged; then nothing
    has changed.
    """
    found = look_up(url, secret)
    if digest and digest != cards.digest(found.card):
        raise CardChanged
    agent = _create(found, slug, secret, by)
    logger.info("Added remote agent %s", agent.slug, extra={"action": "agent.added"})
    return agent


def look_up(url: str, secret: Secret | None = None) -> Found:
    """The card at `url`, if the agent could be added by it now. Changes nothing.

    Raises RemoteError (see `discovery.discover`), AgentExists, CredentialInvalid.
    """
    if secret:
        secret.check()
        credentials.check_encrypted(normal_form(url))
    _refuse_ourselves(url)
    found = asyncio.run(discovery.discover(url, credentials.authorizer(secret, url) if secret else None))
    _refuse_ourselves(found.interface.url)
    known = Agent.objects.filter(card_url=found.url).first()
    if known:
        raise AgentExists(f"That agent is in the directory already, as {known.slug}.")
    if secret:
        _check_secret_for(secret, found)
    return found


def _refuse_ourselves(url: str) -> None:
    own = settings.BUREAU_PUBLIC_URL
    if normal_form(url).startswith(f"{normal_form(own).rstrip('/')}/"):
        raise AgentExists("That is this Bureau itself: its own agents are in the directory already.")


def _check_secret_for(secret: Secret, found: Found) -> None:
    """The credential will be sent to the interface from now on, which may be elsewhere than the card."""
    credentials.check_encrypted(found.interface.url)
    if secret.token_url:
        credentials.check_encrypted(check_url(secret.token_url))


def _create(found: Found, slug: str | None, secret: Secret | None, by: str) -> Agent:
    agent = Agent(slug=slug or _free_slug(found.card["name"]), kind=Agent.Kind.REMOTE, is_published=False)
    revisions.adopt(agent, found.card, found.interface, found.signature)
    agent.card_url = found.url
    agent.is_internal = found.is_internal
    if slug and (slug != slugify(slug) or len(slug) > SLUG_LENGTH):
        raise SlugTaken(f"{slug[:80]!r} cannot be a short name: use small letters, digits and dashes.")
    try:
        with transaction.atomic():
            agent.save(force_insert=True)
            revisions.write_skills(agent, found.card)
            revisions.write_revision(agent, found, CardRevision.State.APPLIED, ["The first card."], [], by)
            Health.objects.create(
                agent=agent,
                last_seen_at=timezone.now(),
                card_read_at=timezone.now(),
                card_etag=found.etag,
                card_modified=found.modified,
                refresh_due_at=soon(settings.BUREAU_CARD_REFRESH_SECONDS),
                probe_due_at=soon(settings.BUREAU_PROBE_SECONDS),
            )
            if secret:
                credentials.store(agent, secret)
    except IntegrityError:
        # Somebody was quicker, or the slug was taken before.
        if Agent.objects.filter(slug=agent.slug).exists():
            raise SlugTaken(f"There is an agent {agent.slug!r} already; choose another short name.") from None
        raise AgentExists from None
    forget_agents()
    return agent


def _free_slug(name: str) -> str:
    wanted = slugify(name)[: SLUG_LENGTH - 4].strip("-_") or "agent"
    if not wanted[0].isalnum():
        wanted = f"agent-{wanted}"[: SLUG_LENGTH - 4]
    taken = set(Agent.objects.filter(slug__startswith=wanted).values_list("slug", flat=True))
    return next(slug for slug in _numbered(wanted.replace("_", "-")) if slug not in taken)


def _numbered(wanted: str) -> list[str]:
    return [wanted, *(f"{wanted}-{number}" for number in range(2, 1000))]


# --- Reading again -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """What it takes to read a card again, loaded beforehand: no database is needed to use it."""

    agent_id: int
    url: str
    is_internal: bool
    etag: str
    modified: str
    authorizer: Authorizer | None


@dataclass(frozen=True, slots=True)
class Reading:
    """How it went: a card, or None if it is the same as before, or an error."""

    found: Found | None = None
    error: RemoteError | None = None


def source_of(agent: Agent) -> Source:
    """Raises NotRemote, CredentialUnreadable."""
    if not agent.card_url:
        raise NotRemote
    health = Health.objects.filter(agent=agent).first()
    return Source(
        agent_id=agent.pk,
        url=agent.card_url,
        is_internal=agent.is_internal,
        etag=health.card_etag if health else "",
        modified=health.card_modified if health else "",
        authorizer=credentials.authorizer_of(agent, agent.card_url),
    )


async def read(source: Source) -> Reading:
    """Ask for the card. Never raises for what the other side does."""
    try:
        found = await discovery.read_again(
            source.url,
            source.authorizer,
            is_internal=source.is_internal,
            etag=source.etag,
            modified=source.modified,
        )
    except RemoteError as error:
        return Reading(error=error)
    return Reading(found=found)


def refresh_agent(agent: Agent) -> CardRevision | None:
    """Read the card again now; the revision that came of it, or None where nothing changed.

    Raises NotRemote, CredentialUnreadable, RemoteError. Not from within a transaction or an event loop.
    """
    reading = asyncio.run(read(source_of(agent)))
    revision = apply_reading(agent.pk, reading)
    if reading.error:
        raise reading.error
    return revision


def apply_reading(agent_id: int, reading: Reading) -> CardRevision | None:
    """Write down how a reading went. Safe to do twice, and when the agent is gone."""
    rows = Health.objects.filter(agent_id=agent_id)
    if isinstance(reading.error, SUSPICIOUS):
        revisions.quarantine(agent_id, f"Its card cannot be used any more: {reading.error}")
    if reading.error:
        rows.update(card_failures=F("card_failures") + 1, last_error=str(reading.error)[:300])
        failures = rows.values_list("card_failures", flat=True).first() or 0
        rows.update(refresh_due_at=soon(settings.BUREAU_CARD_REFRESH_SECONDS * 2 ** min(failures, MAX_BACKOFF)))
        return None
    revision = revisions.consider(agent_id, reading.found) if reading.found else None
    seen = {"card_read_at": timezone.now(), "last_seen_at": timezone.now(), "card_failures": 0}
    if reading.found:
        seen |= {"card_etag": reading.found.etag, "card_modified": reading.found.modified}
    rows.update(**seen, refresh_due_at=soon(settings.BUREAU_CARD_REFRESH_SECONDS))
    return revision


def remove_agent(agent: Agent) -> None:
    """Forget a remote agent and all that is known of it. Raises NotRemote, AgentInUse."""
    if not agent.is_remote:
        raise NotRemote(f"{agent.slug} is an agent of this Bureau; it can be disabled, not removed.")
    try:
        agent.delete()
    except ProtectedError:
        raise AgentInUse from None
    forget_agents()
    logger.info("Removed remote agent %s", agent.slug, extra={"action": "agent.removed"})
