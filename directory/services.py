"""Verbs on the directory: find an agent, make, check and revoke an API client."""

import hashlib
import secrets
import time
from collections.abc import Collection
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from directory.exceptions import AgentNotFound, ClientNameTaken
from directory.identity import SCOPES
from directory.models import Agent, ApiClient

KEY_PREFIX = "bureau_"
# `last_used_at` is for people who tidy up keys; a write per call would cost more than it tells.
LAST_USED_RESOLUTION = timedelta(minutes=1)
AGENT_CACHE_SECONDS = 2.0

_agents: dict[str, tuple[float, Agent]] = {}
_agents_by_id: dict[int, tuple[float, Agent]] = {}


def get_agent(slug: str) -> Agent:
    """The enabled agent of that slug, remembered for two seconds: it is asked for on every call.

    Raises AgentNotFound.
    """
    known = _agents.get(slug)
    if known and known[0] > time.monotonic():
        return known[1]
    agent = Agent.objects.filter(slug=slug, is_enabled=True).first()
    if agent is None:
        _agents.pop(slug, None)
        raise AgentNotFound
    _agents[slug] = (time.monotonic() + AGENT_CACHE_SECONDS, agent)
    return agent


def get_agent_by_id(agent_id: int) -> Agent:
    """The agent of that primary key, enabled or not, remembered as `get_agent` does: for work at hand.

    Raises AgentNotFound.
    """
    known = _agents_by_id.get(agent_id)
    if known and known[0] > time.monotonic():
        return known[1]
    agent = Agent.objects.filter(pk=agent_id).first()
    if agent is None:
        raise AgentNotFound
    _agents_by_id[agent_id] = (time.monotonic() + AGENT_CACHE_SECONDS, agent)
    return agent


def forget_agents() -> None:
    """Drop what is remembered of agents in this process, e.g. after a change made here."""
    _agents.clear()
    _agents_by_id.clear()


def hash_key(key: str) -> str:
    """SHA-256, hexadecimal. A key has 256 random bits, so a slow hash would protect nothing more."""
    return hashlib.sha256(key.encode()).hexdigest()


def create_api_client(
    name: str,
    user: User | None = None,
    expires_at: datetime | None = None,
    *,
    scopes: Collection[str] = SCOPES,
    agents: Collection[str] = (),
) -> tuple[ApiClient, str]:
    """Make a client and its key; the key is returned here and can never be read again.

    `scopes` say what it may do, `agents` (slugs; none for all) with whom.

    Raises ClientNameTaken.
    """
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            client = ApiClient.objects.create(
                name=name,
                user=user,
                prefix=key[:12],
                key_hash=hash_key(key),
                expires_at=expires_at,
                scopes=list(scopes),
                agents=list(agents),
            )
    except IntegrityError:
        raise ClientNameTaken from None
    return client, key


def live_clients() -> QuerySet[ApiClient]:
    """The clients whose keys are good at this moment."""
    return (
        ApiClient.objects.filter(revoked_at=None)
        .filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()))
        .filter(Q(user=None) | Q(user__is_active=True))
    )


def check_api_key(key: str) -> ApiClient | None:
    """The live client that owns this key, or None: unknown, revoked, expired, or its user is inactive."""
    if not key.startswith(KEY_PREFIX):
        return None
    now = timezone.now()
    client = live_clients().filter(key_hash=hash_key(key)).first()
    if client and (client.last_used_at is None or now - client.last_used_at > LAST_USED_RESOLUTION):
        ApiClient.objects.filter(pk=client.pk).update(last_used_at=now)
    return client


def revoke_api_client(client: ApiClient) -> bool:
    """Revoke for good; False when it was revoked before."""
    return bool(ApiClient.objects.filter(pk=client.pk, revoked_at=None).update(revoked_at=timezone.now()))


def set_agents_enabled(agents: QuerySet[Agent], is_enabled: bool) -> int:
    """Enable or disable these agents; returns how many were not so before. Running tasks go on."""
    slugs = list(agents.exclude(is_enabled=is_enabled).values_list("slug", flat=True))
    changed = Agent.objects.filter(slug__in=slugs).update(is_enabled=is_enabled, updated_at=timezone.now())
    forget_agents()
    return changed
