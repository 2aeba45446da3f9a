"""Does a task by passing it on to a remote agent, and mirrors what happens there. Holds no worker meanwhile.

A turn sends what is to be sent, or takes over what the follower has heard (`agents.following`), and ends.
"""

import base64
import logging
import secrets
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from agents import legs
from agents.dialogue import answered, is_no, is_yes, without_control
from agents.exceptions import Stopped
from agents.legs import Phase
from agents.mirroring import SaidTooMuch, mirror
from agents.models import RemoteLeg
from agents.outcomes import Auth, Blocked, Error, Ok, Outcome, Rejected, Waiting
from agents.registry import Handler, register
from agents.turn import Turn
from directory import calls, health, rules
from directory.addresses import is_loopback
from directory.exceptions import (
    CredentialUnreadable,
    DelegationRefused,
    DirectoryError,
    NotRemote,
    OperationNotSupported,
    ProtocolError,
    RemoteError,
    RemoteTaskNotFound,
)
from directory.models import Agent
from directory.services import hash_key
from directory.wire import Answer, Outgoing, Push, RemoteTask
from tasks import doorbell, files
from tasks.content import MAX_REFERENCES, text_of
from tasks.exceptions import Superseded, TaskNotFound
from tasks.models import Message, Task
from tasks.results import hold

logger = logging.getLogger(__name__)

NAME = "remote"
SEND_TRIES = 3
# Of the tasks there, the newest ones are searched for a message of unknown end.
SEARCHED = 20


@register
class RemoteHandler(Handler):
    """Every agent of the kind `remote` has it, whatever its `handler` says."""

    name = NAME
    takes_sub_plans = True

    def run(self, turn: Turn) -> Outcome:
        if not turn.agent.is_remote:
            return Error("not_remote", f"{turn.agent.slug} is not a remote agent.")
        return Errand(turn).run()


class Errand:
    """One turn of a task that is done elsewhere."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.agent = turn.agent
        self.requests = [one for one in without_control(turn.messages) if one["role"] == Message.Role.USER]

    def run(self) -> Outcome:
        leg = RemoteLeg.objects.filter(task_id=self.turn.claim.task_id).first()
        if leg is None:
            leg = RemoteLeg(task_id=self.turn.claim.task_id, progress_at=timezone.now())
        if leg.phase == Phase.SENDING and (outcome := self._find_out(leg)):
            return outcome
        while leg.phase != Phase.ENDED and leg.sent < len(self.requests):
            self.turn.check()
            if outcome := self._send(leg):
                return outcome
        try:
            mirror(self.turn, leg)
        except SaidTooMuch:
            self._count(leg, ok=False)
            return Error("too_large", f"{self.agent.name} has sent more than is kept of one task (BUREAU_TASK_BYTES).")
        return self._outcome(leg)

    # --- Sending ---------------------------------------------------------------------------------

    def _send(self, leg: RemoteLeg, *, again: bool = False) -> Outcome | None:
        """Send the next message (or the last one again). None when there was an answer."""
        number = leg.sent if again else leg.sent + 1
        request = self.requests[number - 1]
        secret = secrets.token_urlsafe(32)
        try:
            metadata = self._check(leg, request)
            message = self._outgoing(leg, number, request, metadata)
            push = self._push(leg, secret)
        except DelegationRefused as error:
            return Rejected(str(error))
        except (CredentialUnreadable, NotRemote, TaskNotFound, FileNotFoundError) as error:
            return Error("not_sent", str(error))
        before = Phase.FOLLOWING if leg.remote_task_id else Phase.IDLE
        self._begin(leg, number, hash_key(secret) if push else "")
        try:
            answer, is_told = self._ask(message, push)
        except RemoteError as error:
            return self._not_answered(leg, before, error)
        except (DirectoryError, ValueError) as error:
            # Nothing went out.
            legs.write(leg, {"phase": before, "sent": number - 1, "due_at": None})
            kind = legs.class_of(error) if isinstance(error, DirectoryError) else "not_sent"
            return Error(kind, str(error))
        self._heard(leg, answer, {"callback_hash": ""} if push and not is_told else {})
        return None

    def _check(self, leg: RemoteLeg, request: dict[str, Any]) -> dict[str, Any]:
        """The metadata to send along. Raises DelegationRefused."""
        parent = self.turn.task.parent
        source: Agent | None = parent.agent if parent else None
        rules.check_delegation(source, Agent.objects.prefetch_related("skills").get(pk=self.agent.pk))
        metadata = dict(request.get("metadata", {}))
        if rules.HOPS not in metadata and (path := self._path_here(parent)):
            metadata[rules.HOPS] = path
        return rules.next_hops(metadata, rules.own_id(source.slug if source else self.agent.slug))

    def _path_here(self, parent: Task | None) -> Any:
        """How the request came to this Bureau: what the task, or one above it, was told with it."""
        ids = [self.turn.claim.task_id]
        while parent is not None:
            ids.append(parent.pk)
            parent = parent.parent
        rows = Message.objects.filter(task_id__in=ids, role=Message.Role.USER).order_by("-id")
        found = (row.get(rules.HOPS) for row in rows.values_list("metadata", flat=True))
        return next((path for path in found if path), None)

    def _outgoing(self, leg: RemoteLeg, number: int, request: dict[str, Any], metadata: dict[str, Any]) -> Outgoing:
        is_first = not leg.remote_task_id
        return Outgoing(
            parts=[self._sendable(part) for part in request["parts"]],
            # The same whenever it is sent: whoever keeps it can be asked whether it arrived.
            message_id=sent_id(leg, number),
            context_id=self._context_there() if is_first else leg.remote_context_id,
            task_id=leg.remote_task_id,
            metadata=metadata,
            extensions=request.get("extensions", []),
            references=self._references_there() if is_first else [],
        )

    def _context_there(self) -> str:
        """What the agent calls the conversation that this task belongs to, if it has taken part in it before."""
        before = self._legs_there().filter(task__context_id=self.turn.claim.context_id).exclude(remote_context_id="")
        return before.order_by("-created_at").values_list("remote_context_id", flat=True).first() or ""

    def _references_there(self) -> list[str]:
        """The agent's tasks that were part of the tasks which this one refers to."""
        ours = list(self.turn.task.references.values_list("pk", flat=True))
        if not ours:
            return []
        known = self._legs_there().filter(Q(task__in=ours) | Q(task__root__in=ours)).exclude(remote_task_id="")
        return list(known.order_by("created_at").values_list("remote_task_id", flat=True)[:MAX_REFERENCES])

    def _legs_there(self) -> QuerySet[RemoteLeg]:
        return RemoteLeg.objects.filter(task__agent=self.agent).exclude(task_id=self.turn.claim.task_id)

    def _sendable(self, part: dict[str, Any]) -> dict[str, Any]:
        if "file" not in part:
            return part
        stored = files.fetch_file(self.turn.caller, part["file"])
        raw = base64.b64encode(files.read_file(stored)).decode()
        return {"raw": raw, "filename": stored.name, "mediaType": stored.media_type}

    def _push(self, leg: RemoteLeg, secret: str) -> Push | None:
        if leg.remote_task_id or not calls.target_of(self.agent).pushes or not can_reach_us(self.agent):
            return None
        url = f"{settings.BUREAU_PUBLIC_URL}/callbacks/{leg.pk}/"
        return Push(url, token=secret, scheme="Bearer", credentials=secret)

    def _begin(self, leg: RemoteLeg, number: int, callback_hash: str) -> None:
        """Put on record that it goes out, before it does. Raises Stopped."""
        leg.phase, leg.sent = Phase.SENDING, number
        leg.due_at = timezone.now() + timedelta(seconds=legs.SEND_SECONDS)
        if callback_hash:
            leg.callback_hash = callback_hash
        try:
            with transaction.atomic():
                hold(self.turn.claim)
                # Of an open leg the rest may be somebody else's: whoever hears its stream, say.
                leg.save(update_fields=None if leg._state.adding else ["phase", "sent", "due_at", "callback_hash"])
        except Superseded:
            raise Stopped from None

    def _ask(self, message: Outgoing, push: Push | None) -> tuple[Answer, bool]:
        """The answer, and whether the agent tells us of news. Raises RemoteError, ...

        Where the agent refuses, nothing has begun: perhaps what it does not want is the callback, or to be reminded
        of what it has forgotten.
        """
        ways = [(message, push)]
        if push:
            ways.append((message, None))
        if not message.task_id and (message.context_id or message.references):
            ways.append((replace(message, context_id="", references=[]), None))
        principal, sender = self.turn.claim.owner, self.agent.slug
        while True:
            message, push = ways.pop(0)
            try:
                return calls.send(self.agent, message, principal=principal, sender=sender, push=push), push is not None
            except ProtocolError:
                if not ways:
                    raise

    def _not_answered(self, leg: RemoteLeg, before: str, error: RemoteError) -> Outcome | None:
        if error.may_have_arrived:
            return self._find_out(leg)
        if leg.remote_task_id and isinstance(error, ProtocolError) and not isinstance(error, RemoteTaskNotFound):
            # It works on, without what was said to it meanwhile.
            legs.write(leg, {"phase": before, "due_at": timezone.now()})
            self.turn.say(f"{self.agent.name} did not take the last message: {error}")
            return None
        tries = leg.tries + 1
        fields = {"phase": before, "sent": leg.sent - 1, "tries": tries, "due_at": None}
        legs.write(leg, fields)
        if error.can_retry and tries < SEND_TRIES:
            return Waiting(timezone.now() + timedelta(seconds=2.0**tries))
        return Error(legs.class_of(error), f"{self.agent.name} could not be asked: {error}")

    # --- A message of unknown end ----------------------------------------------------------------

    def _find_out(self, leg: RemoteLeg) -> Outcome | None:
        """A send whose end nobody saw: look there for the message; failing that, ask. None when it is known."""
        answer = answered(self.turn.messages)
        about = answer.about if answer else {}
        if answer and about.get("kind") == "repeat" and about.get("leg") == f"{leg.pk}/{leg.sent}/{leg.tries}":
            if is_yes(answer.text):
                leg.tries += 1
                return self._send(leg, again=True)
            if is_no(answer.text):
                legs.write(leg, legs.lost(leg, "unknown_end", "It was not sent again, as the user asked."))
                return Error("unknown_end", f"Whether {self.agent.name} got the message is not known.")
        if found := find_sent(self.agent, leg):
            self._heard(leg, found, {})
            return None
        return Blocked(
            f"I was interrupted while sending this to {self.agent.name}. It may have arrived.",
            ["Shall I send it again? Answer yes or no."],
            ["repeat"],
            about={"kind": "repeat", "leg": f"{leg.pk}/{leg.sent}/{leg.tries}"},
        )

    def _heard(self, leg: RemoteLeg, answer: Answer, fields: dict[str, Any]) -> None:
        """Kept also when the task has been canceled meanwhile: then the cancel can be sent on."""
        legs.write(leg, legs.heard(leg, answer) | {"progress_at": timezone.now()} | fields)
        if leg.phase == Phase.FOLLOWING:
            # Where there is a stream, it is heard from now on.
            doorbell.ring_follow()

    # --- What it comes to ------------------------------------------------------------------------

    def _outcome(self, leg: RemoteLeg) -> Outcome:
        if leg.phase == Phase.ENDED:
            outcome = self._end(leg)
            self._count(leg, ok=isinstance(outcome, Ok))
            return outcome
        if leg.phase == Phase.ASKING:
            return self._question(leg)
        if legs.is_overdue(leg, self.agent):
            self._count(leg, ok=False)
            seconds = legs.deadline_seconds(self.agent)
            return Error("timed_out", f"{self.agent.name} did not get on for {seconds:g} seconds.")
        return Waiting()

    def _end(self, leg: RemoteLeg) -> Ok | Rejected | Error:
        if leg.error_class:
            return Error(leg.error_class, leg.error)
        name, slug = self.agent.name, self.agent.slug
        text = self._text(leg)
        match leg.answer.get("state"):
            case "completed":
                return Ok(text, untrusted=slug)
            case "rejected":
                return Rejected(text or f"{name} rejected it, and did not say why.", untrusted=slug)
            case "canceled":
                return Error("remote_canceled", text or f"{name} canceled it.", untrusted=slug)
            case _:
                return Error("remote_failed", text or f"{name} failed, and did not say why.", untrusted=slug)

    def _question(self, leg: RemoteLeg) -> Outcome:
        asked = legs.question_digest(leg.answer)
        RemoteLeg.objects.filter(pk=leg.pk).update(asked=asked)
        text, slug = self._text(leg), self.agent.slug
        about = {"kind": "remote", "agent": slug}
        if leg.answer["state"] == "auth-required":
            text = text or f"{self.agent.name} wants you to authenticate."
            return Auth(text, "", self.agent.name, about=about, untrusted=slug)
        return Blocked(
            "", [text or f"{self.agent.name} needs more from you, and did not say what."], about=about, untrusted=slug
        )

    def _text(self, leg: RemoteLeg) -> str:
        message = leg.answer.get("message")
        return text_of(message["parts"]).strip() if message else ""

    def _count(self, leg: RemoteLeg, *, ok: bool) -> None:
        """Once, in the success rates; what a coordinator gave out it counts itself."""
        mine = RemoteLeg.objects.filter(pk=leg.pk, is_counted=False)
        if self.turn.claim.parent_id is None and mine.update(is_counted=True):
            seconds = (timezone.now() - leg.created_at).total_seconds()
            health.record_delegation(self.agent, "", ok=ok, seconds=seconds)


def sent_id(leg: RemoteLeg, number: int) -> str:
    """The id of the message that goes out as this one of the leg."""
    return str(uuid.uuid5(leg.pk, str(number)))


def can_reach_us(agent: Agent) -> bool:
    """Whether our address means us at that agent, too: a loopback address does on this machine only."""
    return not is_loopback(settings.BUREAU_PUBLIC_URL) or is_loopback(agent.url)


def find_sent(agent: Agent, leg: RemoteLeg) -> RemoteTask | None:
    """The remote task that holds the leg's last message, if the agent tells; None says nothing."""
    wanted = sent_id(leg, leg.sent)
    try:
        if leg.remote_task_id:
            found = [leg.remote_task_id]
        else:
            found = [task.id for task in calls.list_tasks(agent, limit=SEARCHED)[0]]
        for task_id in found:
            task = calls.get_task(agent, task_id)
            if any(one.get("messageId") == wanted for one in task.history):
                return task
    except OperationNotSupported:
        return None
    except (RemoteError, CredentialUnreadable, NotRemote) as error:
        logger.info("Whether a message arrived at %s cannot be found out: %s", agent.slug, error)
    return None
