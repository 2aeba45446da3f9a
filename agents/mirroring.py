"""Takes over into a task of ours what its remote task has said and delivered: each thing once, marked as a stranger's.

What is there is on the leg; what is here already, too. It may be run again at any time.
"""

import base64
import json
from typing import Any

from django.conf import settings
from django.db import transaction

from agents import legs
from agents.exceptions import AgentError, Stopped
from agents.legs import Phase
from agents.models import RemoteLeg
from agents.turn import Turn
from directory.wire import TERMINAL, joined
from tasks import files
from tasks.content import Incoming
from tasks.exceptions import Superseded
from tasks.messages import wire_message
from tasks.models import Message
from tasks.results import ArtifactDraft, deliver, hold, say

# What a row costs beside what it holds.
ROW_BYTES = 1000


class SaidTooMuch(AgentError):
    """All that one remote task has sent is more than BUREAU_TASK_BYTES."""


class Scale:
    """Weighs what is taken over of one leg, before it is kept."""

    def __init__(self, before: int) -> None:
        self.total = before

    def add(self, value: Any) -> None:
        """Raises SaidTooMuch."""
        self.total += ROW_BYTES + len(json.dumps(value))
        if self.total > settings.BUREAU_TASK_BYTES:
            raise SaidTooMuch


def mirror(turn: Turn, leg: RemoteLeg) -> None:
    """Take over messages and artifacts that are not here yet. Raises Stopped, SaidTooMuch."""
    answer = leg.answer
    if not answer:
        return
    known: dict[str, Any] = {"messages": [], "artifacts": {}, "texts": {}, "bytes": 0} | leg.mirrored
    seen, versions, texts = dict.fromkeys(known["messages"]), dict(known["artifacts"]), dict(known["texts"])
    scale = Scale(known["bytes"])
    messages = [one for one in answer["history"] if one["role"] == Message.Role.AGENT]
    last = answer.get("message")
    if last and leg.phase == Phase.FOLLOWING:
        messages.append(last)
    # What is said with the state becomes our task's own last word.
    own = message_key(last) if last and leg.phase != Phase.FOLLOWING else None
    said = []
    for message in messages:
        key = message_key(message)
        if key not in seen and key != own:
            seen[key] = None
            scale.add(message)
            said.append(_marked(turn, message))
    drafts = _artifacts(turn, leg, versions, texts, scale)
    if own:
        seen[own] = None
    if not said and not drafts and len(seen) == len(known["messages"]):
        return
    try:
        with transaction.atomic():
            hold(turn.claim)
            for wire in said:
                say(turn.claim, wire)
            deliver(turn.claim, drafts)
            leg.mirrored = {"messages": list(seen), "artifacts": versions, "texts": texts, "bytes": scale.total}
            RemoteLeg.objects.filter(pk=leg.pk).update(mirrored=leg.mirrored)
    except Superseded:
        raise Stopped from None


def _marked(turn: Turn, message: dict[str, Any]) -> dict[str, Any]:
    parts = [_keepable(turn, part) for part in message["parts"]]
    return wire_message(Message.Role.AGENT, Incoming(parts=parts, metadata={"untrusted": turn.agent.slug}))


def _artifacts(
    turn: Turn, leg: RemoteLeg, versions: dict[str, str], texts: dict[str, list[Any]], scale: Scale
) -> list[ArtifactDraft]:
    """Artifacts that are new, have changed, or are over with their task; `versions` and `texts` are brought up to date.

    `texts` holds of each text its length, its digest, and whether there may be more of it.
    """
    answer = leg.answer
    found = list(answer["artifacts"])
    last = answer.get("message")
    if not found and answer["state"] == "completed" and last and last["parts"]:
        # What it delivers is what it says.
        found = [{"artifactId": "answer", "name": "answer", "parts": last["parts"]}]
    drafts: list[ArtifactDraft] = []
    names: set[str] = set()
    is_over = answer["state"] in TERMINAL
    for artifact in found:
        name = unused(artifact.get("name") or artifact["artifactId"], names)
        version = legs.digest(artifact | {"parts": joined(artifact["parts"], [])})
        is_here = versions.get(name) == version
        is_to_close = is_here and is_over and _is_open(texts.get(name))
        if not artifact["parts"] or (is_here and not is_to_close):
            continue
        versions[name] = version
        text = _plain_text(artifact["parts"])
        tail = _grown_by(text, texts.pop(name, None))
        if not is_to_close:
            scale.add(tail or artifact)
        parts = [_keepable(turn, part) for part in artifact["parts"]]
        metadata = {"untrusted": turn.agent.slug, "artifactId": artifact["artifactId"]}
        draft = ArtifactDraft(name, parts, str(artifact.get("description", "")), metadata)
        draft.tail, draft.is_streamed, draft.is_growing = tail, is_to_close, bool(text) and not is_over
        if text:
            texts[name] = [len(text), legs.digest(text), draft.is_growing]
        drafts.append(draft)
    return drafts


def _plain_text(parts: list[dict[str, Any]]) -> str:
    """The whole text, when there is nothing else. Streams tell it in one part, and looks in as many as there were."""
    return "".join(part["text"] for part in parts) if all(part.keys() == {"text"} for part in parts) else ""


def _grown_by(text: str, before: list[Any] | None) -> str:
    """What is new of a text that had this length and digest before; "" when it did not just grow."""
    if not before:
        return ""
    length, digest = before[:2]
    return text[length:] if legs.digest(text[:length]) == digest else ""


def _is_open(before: list[Any] | None) -> bool:
    """Whether a text went out as one that may still grow."""
    return before is not None and before[2:] == [True]


def _keepable(turn: Turn, part: dict[str, Any]) -> dict[str, Any]:
    if "raw" not in part:
        return part
    content = base64.b64decode(part["raw"])
    name, media_type = part.get("filename", ""), part.get("mediaType", "")
    return files.file_part(files.store_file(turn.claim.owner, name, media_type, content))


def message_key(message: dict[str, Any]) -> str:
    return message.get("messageId") or legs.digest(message)


def unused(name: str, names: set[str]) -> str:
    """The name, numbered when another artifact of the task has it."""
    number, found = 1, name
    while found in names:
        number += 1
        found = f"{name[:190]} ({number})"
    names.add(found)
    return found
