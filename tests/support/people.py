"""The cast as users of the pages: Alice owns the missions, Bob may not see them, Olga operates the place."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.utils import timezone

from directory.identity import Caller
from directory.models import Agent, Skill
from directory.services import forget_agents
from tasks.claims import Claim, claim_next
from tasks.content import Incoming
from tasks.models import PushConfig, PushEndpoint
from tasks.results import ArtifactDraft, finish, plain
from tasks.services import send_message

PASSWORD = "a-long-way-to-tipperary"
# Quick to check, and one that a web process with its own settings can check too.
HASH = PBKDF2PasswordHasher().encode(PASSWORD, "salt", iterations=1)


def make_user(name: str, *, is_staff: bool = False) -> User:
    return User.objects.create(username=name, password=HASH, is_staff=is_staff, is_superuser=is_staff)


def make_agent() -> Agent:
    """The assistant, with one skill and one example."""
    forget_agents()
    agent = Agent.objects.create(slug="assistant", name="Assistant", handler="assistant")
    Skill.objects.create(agent=agent, skill_id="plants", name="Water plants", examples=["Water the plants"])
    return agent


def start(user: User, agent: Agent, text: str = "Water the plants") -> Claim:
    """A mission of theirs that a worker has just taken up."""
    sent = send_message(Caller.from_user(user), agent, Incoming.from_text(text))
    claim = claim_next("default", "test-worker")
    assert claim is not None and claim.task_id == sent.task_id
    return claim


def end(claim: Claim, state: str = "completed", text: str = "Done.", *artifacts: ArtifactDraft) -> None:
    finish(claim, state, message=plain(text), artifacts=artifacts)


def make_push(task_id: UUID, **fields: Any) -> PushConfig:
    """A push configuration of that task, with an attempt that failed, at a place that fails."""
    now = timezone.now()
    url = f"https://{uuid4()}.example.org/hook"
    config = PushConfig.objects.create(
        task_id=task_id, config_id="mine", url=url, version="1.0", cursor=1, created_at=now, **fields
    )
    config.attempts.create(seq=2, status=500, error="The receiver answered with HTTP 500.", seconds=0.1, created_at=now)
    PushEndpoint.objects.create(origin=url, failures=1, failing_since=now)
    return config
