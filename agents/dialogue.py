"""What was asked last in a task, and what the newest message answers to it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.content import text_of
from tasks.models import Message

# "Repeat" says yes to "shall I run it again?", and "repeat the question" says nothing of the kind.
_YES = re.compile(
    r"^\W*(?:(?:yes|y|yep|yeah|sure|ok|okay|do it|go ahead|proceed|approved?|так)\b"
    r"|(?:repeat|again)\b(?:\s+(?:it|that|please))*\W*$)",
    re.IGNORECASE,
)
_NO = re.compile(
    r"^\W*(?:no(?!\s+(?:problem|worries|objections?|doubts?)\b)|n|nope|don'?t|do not|stop|leave|refused?|cancel|ні)\b",
    re.IGNORECASE,
)


# Questions about how to go on. Their answers say nothing about what is wanted, and so are no requests.
CONTROL = {"budget", "confirm", "confidence", "repeat", "child", "recover"}


LONGEST_REFUSAL = 2
# "Yes, but …" and "no, rather …" are neither: the person wants something else.
_BUT = re.compile(
    r"\b(?:but|instead|except|rather|only|however|але|проте|однак|тільки|лише|краще|замість|натомість|крім|інакше)\b",
    re.IGNORECASE,
)
# Nor is "ok, don't", or "yes, to b.md": who names something may mean something else than what was asked about. Who asks
# back, or agrees to it some day or on some condition, has not agreed yet.
_DOUBT = re.compile(
    r"\b(?:no|not|never|wait|stop|cancel|ні|не|стоп|зачекай(?:те)?)\b|n['\u2019]t\b|\bdont\b|\S[./\\:]\S|[?]"
    r"|\b(?:if|unless|until|(?<!at )once|later|tomorrow|maybe|perhaps|first)\b"
    r"|\b(?:якщо|пізніше|завтра|можливо|спершу|спочатку)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Answered:
    """A question of ours and the message that answers it. `about` is the `Blocked.about` of the question."""

    about: dict[str, Any]
    text: str
    message_id: str
    message: dict[str, Any]


def answered(messages: Sequence[dict[str, Any]]) -> Answered | None:
    """The newest message as the answer to the question right before it; None when nothing was asked.

    An answer in several messages is one, and goes by the id of the first.
    """
    newest = next((n for n in range(len(messages) - 1, -1, -1) if messages[n]["role"] == Message.Role.USER), None)
    if newest is None:
        return None
    first = newest
    while first and messages[first - 1]["role"] == Message.Role.USER:
        first -= 1
    for message in reversed(messages[:first]):
        if message["role"] == Message.Role.USER:
            return None
        about = message.get("metadata", {}).get("asks")
        if about:
            parts = [part for given in messages[first : newest + 1] for part in given["parts"]]
            answer = messages[first] | {"parts": parts}
            return Answered(about, text_of(parts), answer["messageId"], answer)
    return None


def without_control(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without questions about how to go on, and without the answers to them.

    Who neither agrees to an act nor refuses it says what is wanted instead, and that is a request.
    """
    kept: list[dict[str, Any]] = []
    asked: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == Message.Role.USER:
            if not asked or (_kind(asked[-1]) == "confirm" and is_change(text_of(message["parts"]))):
                kept += [*asked[-1:], message]
            asked = []
        elif _kind(message) in CONTROL:
            asked = [message]
        else:
            asked = []
            kept.append(message)
    return kept


def _kind(message: dict[str, Any]) -> str:
    return str(message.get("metadata", {}).get("asks", {}).get("kind", ""))


def answers_about(messages: Sequence[dict[str, Any]], kind: str) -> list[str]:
    """The texts of all answers to questions of one kind, oldest first."""
    found: list[str] = []
    about: dict[str, Any] = {}
    for message in messages:
        if message["role"] != Message.Role.USER:
            about = message.get("metadata", {}).get("asks", {})
            continue
        if about.get("kind") == kind:
            found.append(text_of(message["parts"]))
        about = {}
    return found


def is_yes(text: str) -> bool:
    return bool(_YES.match(text)) and not _BUT.search(text) and not _DOUBT.search(text)


def is_no(text: str) -> bool:
    return bool(_NO.match(text)) and not _BUT.search(text)


def is_refusal(text: str) -> bool:
    """Whether it says no and nothing else: "no, it is too long" says what is wanted."""
    return is_no(text) and len(text.split()) <= LONGEST_REFUSAL


def is_change(text: str) -> bool:
    """Whether it says something, and neither yes nor no."""
    return bool(text.strip()) and not is_yes(text) and not is_no(text)
