"""One turn of one task, as its agent sees it: what was said, and ways to report while working."""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from agents.exceptions import Stopped
from directory.identity import Caller
from directory.models import Agent
from directory.principals import caller_of
from tasks.claims import Claim
from tasks.content import text_of
from tasks.exceptions import Superseded
from tasks.models import Message, Task
from tasks.plans import references_of, root_of
from tasks.results import ArtifactDraft, plain, say, stream_chunk
from tasks.snapshots import read_messages

# Fewer and larger events: a reader cannot tell, and each one is a commit.
CHUNK_SECONDS = 0.25
CHUNK_CHARACTERS = 2000


class Turn:
    """A claim with what an agent needs around it. Lives in one thread."""

    def __init__(self, claim: Claim, agent: Agent) -> None:
        self.claim = claim
        self.agent = agent
        self.started_at = time.monotonic()
        self.unsettled: list[Callable[[], None]] = []
        """What is still to be written of calls to the model; `agents.budget` does."""
        self.recorded: set[str] | None = None
        """The keys of the choices on record for the task, once `agents.brain` has looked: only this turn adds to it."""
        self._over = threading.Event()

    @cached_property
    def task(self) -> Task:
        return Task.objects.select_related("context").get(pk=self.claim.task_id)

    @cached_property
    def mission_id(self) -> uuid.UUID:
        """The mission that the task belongs to; the task itself when nothing is above it."""
        return self.claim.task_id if self.claim.parent_id is None else root_of(self.claim.task_id)

    @cached_property
    def references(self) -> tuple[uuid.UUID, ...]:
        """The tasks that this one refers to, oldest first."""
        return references_of(self.claim.task_id)

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """All messages of the task, oldest first, as {"messageId", "role", "parts", "metadata"?}."""
        return read_messages(self.claim.task_id) if self.claim.messages is None else self.claim.messages

    @property
    def open_question(self) -> dict[str, Any]:
        """What the task's question to a person is about (`Blocked.about`), while it waits for the answer."""
        return dict((self.task.status_message or {}).get("metadata", {}).get("asks", {}))

    @property
    def request(self) -> dict[str, Any]:
        """The newest message from the user."""
        return next(message for message in reversed(self.messages) if message["role"] == Message.Role.USER)

    @property
    def text(self) -> str:
        """The text of the newest message from the user."""
        return text_of(self.request["parts"])

    @property
    def caller(self) -> Caller:
        """On whose behalf this is done."""
        return Caller(self.claim.owner, self.claim.owner)

    @property
    def standing(self) -> Caller:
        """The same with what they may do at this moment: asked anew each time, because it may have been taken away.

        What a token was good for is what the mission says: no other record of it is ours.
        """
        caller = caller_of(self.claim.owner)
        return replace(caller, agents=self._reach) if caller.is_token else caller

    @property
    def stand_ins(self) -> list[Caller]:
        """Operators who answered in the owner's place, with what they may do at this moment."""
        said = Message.objects.filter(task_id__in={self.claim.task_id, self.mission_id}).exclude(author="")
        return [caller_of(author) for author in said.order_by().values_list("author", flat=True).distinct()]

    @cached_property
    def _reach(self) -> frozenset[str]:
        return frozenset(Task.objects.values_list("reach", flat=True).get(pk=self.mission_id).split())

    def stop(self) -> None:
        """Called from another thread when the claim is lost or the worker shuts down."""
        self._over.set()

    def check(self) -> None:
        """Call between steps that take time. Raises Stopped when the turn must end now."""
        if self._over.is_set():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Wait, unless the turn ends first. Raises Stopped."""
        self._over.wait(seconds)
        self.check()

    def say(self, text: str) -> None:
        """Tell the user of progress. Raises Stopped."""
        self.check()
        try:
            say(self.claim, plain(text))
        except Superseded:
            raise Stopped from None

    def stream(self, name: str) -> "TextStream":
        """A text artifact that is sent while it grows; use as a context manager."""
        return TextStream(self, name)


class TextStream:
    """Collects text and logs it in coalesced chunks. `artifact()` is what the outcome then holds."""

    def __init__(self, turn: Turn, name: str) -> None:
        self._turn = turn
        self.name = name
        self._pending: list[str] = []
        self._all: list[str] = []
        self._flushed_at = 0.0
        self._is_first = True

    @property
    def text(self) -> str:
        return "".join(self._all)

    def write(self, text: str) -> None:
        """Add text. Raises Stopped when the turn must end now."""
        self._turn.check()
        self._pending.append(text)
        self._all.append(text)
        late = time.monotonic() - self._flushed_at >= CHUNK_SECONDS
        if late or sum(map(len, self._pending)) >= CHUNK_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Log what is pending. Raises Stopped."""
        text = "".join(self._pending)
        if not text:
            return
        try:
            stream_chunk(self._turn.claim, self.name, text, is_first=self._is_first)
        except Superseded:
            raise Stopped from None
        self._pending.clear()
        self._is_first = False
        self._flushed_at = time.monotonic()

    def artifact(self, **details: Any) -> ArtifactDraft:
        """The finished artifact, all of whose text has been sent."""
        self.flush()
        return ArtifactDraft(self.name, [{"text": self.text}], is_streamed=not self._is_first, **details)
