"""Cards that changed: what is harmless is taken over at once, the rest waits for an operator in quarantine."""

import logging
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from directory import cards, credentials
from directory.cards import Change, Interface
from directory.discovery import Found
from directory.exceptions import RevisionNotPending
from directory.http import check_url
from directory.models import Agent, CardRevision, Health, Skill
from directory.services import forget_agents
from directory.signatures import Checked
from directory.untrusted import clean_line, clean_text

logger = logging.getLogger(__name__)

State = CardRevision.State
MAX_CHANGES = 100
CARD_FIELDS = (
    *("name", "description", "version", "url", "binding", "protocol_version", "tenant"),
    *("card", "signature", "signature_note", "input_modes", "output_modes", "updated_at"),
)


def adopt(agent: Agent, card: dict[str, Any], interface: Interface, signature: Checked) -> None:
    """Let the unsaved fields of `agent` say what this card says."""
    agent.name = clean_line(card["name"], cards.NAME_LENGTH)
    agent.description = clean_text(card.get("description", ""), cards.DESCRIPTION_LENGTH)
    agent.version = clean_line(card.get("version", ""), 40)
    agent.url = interface.url
    agent.binding = interface.binding
    agent.protocol_version = interface.version
    agent.tenant = interface.tenant
    agent.card = card
    agent.signature = signature.state
    agent.signature_note = signature.note
    agent.input_modes = card.get("defaultInputModes", [])
    agent.output_modes = card.get("defaultOutputModes", [])


def write_skills(agent: Agent, card: dict[str, Any]) -> None:
    """Make the agent's skill rows those of the card; a skill that stays keeps its row."""
    wanted = cards.skills(card)
    agent.skills.exclude(skill_id__in=[values["skill_id"] for values in wanted]).delete()
    for values in wanted:
        Skill.objects.update_or_create(agent=agent, skill_id=values["skill_id"], defaults=values)


def write_revision(
    agent: Agent, found: Found, state: str, changes: list[str], grounds: list[str], by: str = ""
) -> CardRevision:
    last = agent.revisions.aggregate(last=Max("number"))["last"] or 0
    return CardRevision.objects.create(
        agent=agent,
        number=last + 1,
        state=state,
        digest=cards.digest(found.card),
        card=found.card,
        signature=found.signature.state,
        signature_note=found.signature.note,
        changes=changes[:MAX_CHANGES],
        grounds=grounds,
        decided_at=None if state == State.PENDING else timezone.now(),
        decided_by=by[:80],
    )


# --- A card has been read ------------------------------------------------------------------------


def consider(agent_id: int, found: Found) -> CardRevision | None:
    """Compare a card that was just read with the accepted one; the revision it makes, if it is news.

    Harmless changes are taken over. A change of URL, skills or security puts the agent in quarantine.
    """
    with transaction.atomic():
        agent = Agent.objects.select_for_update().filter(pk=agent_id).first()
        if agent is None:
            return None
        revision = _consider(agent, found)
    forget_agents()
    return revision


def _consider(agent: Agent, found: Found) -> CardRevision | None:
    changes = [*cards.diff(agent.card, found.card), *_signature_changes(agent, found.signature)]
    pending = agent.revisions.filter(state=State.PENDING)
    if not changes:
        # What waited is not what the agent says any more. Its being in quarantine is for the operator to end.
        pending.update(state=State.SUPERSEDED, decided_at=timezone.now())
        return None
    digest = cards.digest(found.card)
    latest = agent.revisions.order_by("-number").first()
    if latest and latest.state in {State.PENDING, State.REJECTED} and _same(latest, digest, found):
        return None
    pending.update(state=State.SUPERSEDED, decided_at=timezone.now())
    grounds = sorted({change.ground for change in changes if change.ground})
    texts = [change.text for change in changes]
    if grounds:
        quarantine(agent.pk, f"Its card changed: {' '.join(texts)}")
        return write_revision(agent, found, State.PENDING, texts, grounds)
    _apply(agent, found.card, found.interface, found.signature)
    return write_revision(agent, found, State.APPLIED, texts, [])


def _same(revision: CardRevision, digest: str, found: Found) -> bool:
    return revision.digest == digest and revision.signature == found.signature.state


def _signature_changes(agent: Agent, now: Checked) -> list[Change]:
    if agent.signature == now.state:
        return []
    words = {Agent.Signature.VERIFIED.value: "verified", Agent.Signature.UNVERIFIED.value: "signed, but unverifiable"}
    text = f"The card was {words.get(agent.signature, 'not signed')}, and is {words.get(now.state, 'not signed')} now."
    weaker = agent.signature == Agent.Signature.VERIFIED
    return [Change(f"{text} {now.note}".strip(), cards.SECURITY if weaker else "")]


def _apply(agent: Agent, card: dict[str, Any], interface: Interface, signature: Checked) -> None:
    adopt(agent, card, interface, signature)
    agent.save(update_fields=CARD_FIELDS)
    write_skills(agent, card)


def quarantine(agent_id: int, reason: str) -> None:
    """Let nobody delegate to this agent until an operator has looked."""
    fields: dict[str, Any] = {"quarantine_reason": clean_line(reason, 500), "updated_at": timezone.now()}
    rows = Agent.objects.filter(pk=agent_id)
    rows.update(**fields)
    if rows.filter(quarantined_at=None).update(quarantined_at=timezone.now()):
        logger.warning("Agent %s is in quarantine: %s", agent_id, reason, extra={"action": "agent.quarantined"})
    forget_agents()


# --- An operator decides -------------------------------------------------------------------------


def accept_revision(revision: CardRevision, by: str) -> Agent:
    """Take the waiting card over and end the quarantine; `by` is the operator's principal.

    Resolves names, so not within a transaction. Raises RevisionNotPending, CredentialInvalid, and
    AddressRefused or Unreachable if the new address cannot be used; then nothing has changed.
    """
    interface = cards.best_interface(revision.card)
    agent = revision.agent
    check_url(interface.url, public_only=not agent.is_internal)
    if hasattr(agent, "credential"):
        credentials.check_encrypted(interface.url)
    with transaction.atomic():
        agent = Agent.objects.select_for_update().get(pk=revision.agent_id)
        _decide(revision, State.ACCEPTED, by)
        moved = agent.url != interface.url
        _apply(agent, revision.card, interface, Checked(revision.signature, revision.signature_note))
        _release(agent)
        if moved:
            # What failed was the old place.
            Health.objects.filter(agent=agent).update(
                failures=0, trips=0, opened_at=None, retry_at=None, probe_due_at=timezone.now()
            )
    forget_agents()
    logger.info("Accepted the changed card of %s", agent.slug, extra={"action": "agent.accepted"})
    return agent


def reject_revision(revision: CardRevision, by: str) -> None:
    """Keep the card that was accepted before. The agent stays in quarantine: it does not say that any more.

    Raises RevisionNotPending.
    """
    _decide(revision, State.REJECTED, by)
    forget_agents()


def _decide(revision: CardRevision, state: str, by: str) -> None:
    rows = CardRevision.objects.filter(pk=revision.pk, state=State.PENDING)
    if not rows.update(state=state, decided_at=timezone.now(), decided_by=by[:80]):
        raise RevisionNotPending


def release_agent(agent: Agent) -> bool:
    """End the quarantine with the card that is accepted; False when there was none.

    Raises RevisionNotPending while a changed card waits to be decided on.
    """
    if agent.revisions.filter(state=State.PENDING).exists():
        raise RevisionNotPending("A changed card waits to be accepted or rejected first.")
    released = _release(agent)
    forget_agents()
    return released


def _release(agent: Agent) -> bool:
    rows = Agent.objects.filter(pk=agent.pk, quarantined_at__isnull=False)
    return bool(rows.update(quarantined_at=None, quarantine_reason="", updated_at=timezone.now()))
