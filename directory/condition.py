"""How an agent is, in a word: may it be given work, and if not, why not and until when."""

from django.db.models import TextChoices

from directory.models import Agent, Health


class Condition(TextChoices):
    READY = "ready", "ready"
    DISABLED = "disabled", "disabled"
    QUARANTINE = "quarantine", "in quarantine"
    OPEN = "open", "left alone"
    HALF_OPEN = "half-open", "about to be tried again"


def condition_of(agent: Agent) -> Condition:
    """Select `health` on many."""
    if not agent.is_enabled:
        return Condition.DISABLED
    if agent.quarantined_at:
        return Condition.QUARANTINE
    match health_of(agent):
        case Health(circuit=Health.Circuit.OPEN):
            return Condition.OPEN
        case Health(circuit=Health.Circuit.HALF_OPEN):
            return Condition.HALF_OPEN
        case _:
            return Condition.READY


def health_of(agent: Agent) -> Health | None:
    """Its row, which agents of this Bureau do not have."""
    found: Health | None = getattr(agent, "health", None)
    return found


def in_words(agent: Agent) -> str:
    """For a line of text."""
    condition, health = condition_of(agent), health_of(agent)
    if condition == Condition.OPEN and health and health.retry_at:
        return f"left alone until {health.retry_at:%H:%M:%S} UTC"
    return str(condition.label)
