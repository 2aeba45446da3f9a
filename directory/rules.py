"""Who may pass work on to whom, how often, and not in circles.

Open inside: without a rule that fits, any agent here may ask any other. A disabled agent, or one in
quarantine, may not be asked, whatever the rules say.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from directory.exceptions import DelegationDenied, HopLimitReached, LoopDetected
from directory.models import Agent, DelegationRule
from directory.untrusted import clean_line

# The member of a message's metadata that says through whom a request has come.
HOPS = "urn:bureau:hops:v1"
MAX_HOPS = 8
HOP_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Party:
    """An agent as the rules see it."""

    agent_id: int | None
    role: str = ""
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it is allowed, and why."""

    is_allowed: bool
    reason: str


def decide(source: Party, target: Party, rules: Iterable[DelegationRule]) -> Verdict:
    """What the rules say: the highest priority that fits; of equal ones, deny. No database."""
    fitting = [rule for rule in rules if _fits(rule, source, target)]
    if not fitting:
        return Verdict(True, "No rule forbids it.")
    rule = min(fitting, key=lambda rule: (-rule.priority, rule.effect == DelegationRule.Effect.ALLOW, rule.pk or 0))
    note = f": {rule.note}" if rule.note else ""
    allows = rule.effect == DelegationRule.Effect.ALLOW
    return Verdict(allows, f"Rule {rule.pk} {'allows' if allows else 'forbids'} it{note}")


def _fits(rule: DelegationRule, source: Party, target: Party) -> bool:
    return (
        rule.is_enabled
        and rule.source_agent_id in {None, source.agent_id}
        and rule.source_role in {"", source.role}
        and rule.target_agent_id in {None, target.agent_id}
        and rule.target_role in {"", target.role}
        and (not rule.target_tag or rule.target_tag.lower() in target.tags)
    )


def party(agent: Agent) -> Party:
    """Reads the agent's skills."""
    tags = frozenset(tag.lower() for skill in agent.skills.all() for tag in skill.tags)
    return Party(agent.pk, agent.role, tags)


def may_delegate(source: Agent | None, target: Agent) -> Verdict:
    """Whether `source` may pass work on to `target`. None stands for a person, whom no rule on agents binds."""
    return verdicts(source, [target])[target.pk]


def verdicts(source: Agent | None, targets: Sequence[Agent]) -> dict[int, Verdict]:
    """By the id of the target. Prefetch `skills` on many targets."""
    rules = list(DelegationRule.objects.filter(is_enabled=True))
    if not rules:
        return {target.pk: _closed(target) or decide(Party(None), Party(target.pk), ()) for target in targets}
    asker = party(source) if source else Party(None)
    return {target.pk: _closed(target) or decide(asker, party(target), rules) for target in targets}


def _closed(target: Agent) -> Verdict | None:
    if not target.is_enabled:
        return Verdict(False, f"{target.slug} is disabled.")
    if target.quarantined_at is not None:
        return Verdict(False, f"{target.slug} is in quarantine.")
    return None


def check_delegation(source: Agent | None, target: Agent) -> None:
    """Raises DelegationDenied with the reason."""
    verdict = may_delegate(source, target)
    if not verdict.is_allowed:
        asker = source.slug if source else "a person"
        raise DelegationDenied(f"{asker} may not pass work on to {target.slug}. {verdict.reason}")


# --- Hops ----------------------------------------------------------------------------------------


def own_id(slug: str) -> str:
    """An agent of this Bureau as other Bureaus see it in the path of a request."""
    return f"{_instance(settings.SECRET_KEY)}/{slug}"


@lru_cache(maxsize=2)
def _instance(secret_key: str) -> str:
    """The same in every process of this Bureau, and in no other one."""
    kdf = HKDF(algorithm=hashes.SHA256(), length=6, salt=None, info=b"bureau: instance")
    return kdf.derive(secret_key.encode()).hex()


def path_of(metadata: Mapping[str, Any] | None) -> list[str]:
    """Through whom a request has come, first to last; empty where nothing legible is said."""
    hops = (metadata or {}).get(HOPS)
    path = hops.get("path") if isinstance(hops, dict) else None
    if not isinstance(path, list):
        return []
    # One more than is allowed is enough to know.
    return [clean_line(hop, HOP_LENGTH) for hop in path[: MAX_HOPS + 1] if isinstance(hop, str)]


def next_hops(metadata: Mapping[str, Any] | None, own: str, *, limit: int = MAX_HOPS) -> dict[str, Any]:
    """The metadata to send along when `own` (see `own_id`) passes on a request that came with `metadata`.

    Raises LoopDetected if `own` has passed it on before, HopLimitReached after `limit` hops.
    """
    path = path_of(metadata)
    if own in path:
        circle = " → ".join([*path[path.index(own) :], own])
        raise LoopDetected(f"This request has come back to an agent that passed it on before: {circle}.")
    if len(path) >= limit:
        raise HopLimitReached(f"This request has been passed on {len(path)} times already; {limit} is the limit.")
    return {**(metadata or {}), HOPS: {"path": [*path, own]}}
