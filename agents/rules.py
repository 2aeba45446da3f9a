"""The built-in rules: exact forms first, then nearness in meaning to the examples of each tool.

They never make an answer up. What only a language model could do is refused, with a sentence that says how
to get one.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

from agents.brain import A, Brain, Verdict, Written, recording_failure
from agents.conversation import Conversation, Request
from agents.exceptions import ModelError, ToolError
from agents.matching import similarities
from agents.models import Decision
from agents.points import Answer, ChoicePoint, Offer, RouteAnswer, TextPoint, ToolAnswer, Triage, Writing
from agents.safety import find_harm
from agents.tools.base import Risk, Tool
from agents.tools.grammar import core, explicit_form, left_over, mask
from agents.turn import Turn
from directory.models import Agent, Skill

# Calibrated by tests/agents/test_matching.py, which prints what they cost and gain.
ACCEPTED = 0.55
AHEAD = 0.04
HINTED = 0.45
# What a cue word is worth beside the nearness in meaning.
CUE = 0.12
LONGEST_REQUEST = 400
# Before the slug of an agent, among the names of tools.
AGENT = "agent:"

# What people ask for, that no tool here does and no language model could do by itself.
NOBODY = "nobody"
NOBODY_DOES = (
    "Delete the old files",
    "Remove this folder",
    "Create a new file",
    "Save what I wrote on the disk",
    "Rename a file",
    "Move the files to another folder",
    "Copy this file",
    "Edit the file and change a line",
    "Replace a word in all files",
    "Upload the file to the server",
    "Download a file from the internet",
    "Compress the folder into a zip archive",
    "Run the tests",
    "Execute a command",
    "Start the server",
    "Deploy the application",
    "Install a package",
    "Commit my changes",
    "Send an e-mail to somebody",
    "Book a flight",
    "Order something to eat",
    "Call a taxi",
    "Remind me tomorrow",
    "Set an alarm",
    "Play some music",
    "Turn off the light",
    "Search the web",
    "What time is it now?",
    "Delete an agent",
)
NOBODY_CUES = (
    "delete", "remove", "create", "rename", "move", "copy", "edit", "change", "replace", "upload", "download",
    "compress", "run", "execute", "start", "stop", "restart", "deploy", "install", "uninstall", "update", "commit",
    "push", "send", "buy", "book", "order", "call", "remind", "play", "write", "add", "fix",
)  # fmt: skip
# Tools that look at one thing. Whoever wants more than that is not served by the half of it.
ONE_LOOK = ("list_files", "read_file", "list_agents", "summarize")
LAST_LATIN = "\u024f"
_WORD = re.compile(r"\w+")

KEY_HINT = (
    "Set ANTHROPIC_API_KEY and start Bureau again to let Claude do it (or ANTHROPIC_BASE_URL, for another server that "
    "speaks the Messages API)."
)
NO_MODEL = f"No agent here can do that without a language model, and none is set up. {KEY_HINT}"


@dataclass(frozen=True)
class Reading:
    """What the rules make of a conversation: a tool with parameters, an agent, or a refusal with its reason."""

    tool: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    agent: str = ""
    """Slug of the agent that it is to be passed on to."""
    refusal: str = ""
    confidence: float = 1.0
    rationale: str = ""
    scores: list[tuple[str, float]] = field(default_factory=list)
    is_definite: bool = True
    """Whether it stands by itself, or only for want of a model."""


class RulesBrain(Brain):
    """Decides without a model; writes nothing."""

    name = "rules"
    can_write = False

    def judge(self, turn: Turn, point: ChoicePoint[A], triage: Triage) -> Verdict[A]:
        verdict, _ = self.weigh(turn, point, triage)
        return verdict

    def weigh(self, turn: Turn, point: ChoicePoint[A], triage: Triage) -> tuple[Verdict[A], bool]:
        """The rules' answer, and whether it is definite."""
        if found := point.by_rules(turn, triage):
            return Verdict(found[0], self.name), found[1]
        reading = understand(turn, triage)
        candidates = [
            {"agent" if name.startswith(AGENT) else "tool": name.removeprefix(AGENT), "score": round(score, 3)}
            for name, score in reading.scores
        ]
        answer = _as_answer(point, reading)
        return Verdict(cast(A, answer), self.name, candidates), reading.is_definite

    def write(self, turn: Turn, point: TextPoint, writing: Writing, name: str) -> Written:
        with recording_failure(turn, self.name, point, writing):
            raise ModelError("no_model", NO_MODEL, is_final=True)

    def compose(self, turn: Turn, point: TextPoint, writing: Writing, keep: Callable[[str], None]) -> None:
        with recording_failure(turn, self.name, point, writing):
            raise ModelError("no_model", NO_MODEL, is_final=True)


def _as_answer(point: ChoicePoint[Any], reading: Reading) -> Answer:
    why: dict[str, Any] = {"rationale": reading.rationale, "confidence": reading.confidence}
    if point.name == "route":
        if reading.agent:
            return RouteAnswer(decision="agent", agent=reading.agent, **why)
        return RouteAnswer(decision="reject" if reading.refusal else "local", reason=reading.refusal, **why)
    return ToolAnswer(tool=reading.tool or "answer", params=reading.params, **why)


def understand(turn: Turn, triage: Triage) -> Reading:
    """Read the newest message; where it says nothing by itself, it continues what came before it."""
    conversation = triage.conversation
    by_name = {tool.name: tool for tool in triage.tools}
    newest = conversation.newest
    if (exact := _exact(newest, by_name)) is not None:
        return exact
    if harm := find_harm(newest.text):
        return Reading(refusal=harm.reason, rationale=f"Harmful: {harm.kind}.")
    if triage.named:
        return Reading(agent=triage.named, rationale="The request names the agent.")
    if (continued := _continued(turn, conversation, by_name)) is not None:
        return continued
    first: Reading | None = None
    for request in reversed(conversation.requests):
        reading = _exact(request, by_name) or _by_meaning(request, by_name, triage.agents)
        if reading.is_definite:
            return reading
        first = first or reading
    assert first is not None
    return first


def read_request(request: Request, tools: dict[str, Tool[Any]]) -> Reading:
    """What one request means by itself: its exact form, else the nearest tool."""
    return _exact(request, tools) or _by_meaning(request, tools)


def _exact(request: Request, tools: dict[str, Tool[Any]]) -> Reading | None:
    """The explicit form, or the exact form of one tool."""
    if form := explicit_form(request.text):
        if form.name not in tools:
            known = ", ".join(sorted(tools))
            refusal = f"There is no tool {form.name} here. The tools are: {known}."
            return Reading(refusal=refusal, rationale="The explicit form names an unknown tool.")
        return Reading(form.name, form.params, rationale="The explicit form names the tool.")
    for tool in tools.values():
        if (params := tool.parse(request)) is not None and not _more_than(tool, params, request):
            return Reading(tool.name, params, rationale=f"The request has the form of {tool.name}.")
    return None


def _continued(turn: Turn, conversation: Conversation, tools: dict[str, Tool[Any]]) -> Reading | None:
    """The newest message as the answer to a question that a tool has asked in this task."""
    if conversation.number < 2:
        return None
    key = f"{conversation.number - 1}:tool"
    asked = Decision.objects.filter(task_id=turn.claim.task_id, key=key).order_by("-id").first()
    tool = tools.get(asked.choice.get("tool", "")) if asked else None
    if asked is None or tool is None:
        return None
    try:
        if tool.question(tool.check(asked.choice["params"])) is None:
            return None
    except ToolError:
        return None
    params = {**asked.choice["params"], **tool.complete(conversation.newest)}
    return Reading(tool.name, params, rationale=f"The message answers the question that {tool.name} asked.")


def _by_meaning(request: Request, tools: dict[str, Tool[Any]], agents: Sequence[Offer] = ()) -> Reading:
    """The tool or agent whose examples are nearest."""
    if not (words := core(request.text)):
        return _without_words(request, tools)
    if not _is_latin(words):
        return Reading(refusal=NO_MODEL, rationale="The rules read no other script than Latin.", is_definite=False)
    scores = score_tools(words, tools, agents)
    best, score = scores[0]
    is_agent = best.startswith(AGENT)
    # Two agents who both could do it are no reason to doubt that one of them can.
    second = max((other for name, other in scores[1:] if not (is_agent and name.startswith(AGENT))), default=0.0)
    is_ours = is_agent or (best != NOBODY and not tools[best].needs_model)
    if not is_ours or score < ACCEPTED or score - second < AHEAD:
        rationale = f"Nearest is {best} with {score:.2f}; {ACCEPTED:.2f} is needed, and a lead of {AHEAD:.2f}."
        if not is_ours:
            rationale = f"Nearest is what no tool here does ({best}, {score:.2f})."
        refusal = f"{NO_MODEL}{_hint(scores, tools)}"
        return Reading(refusal=refusal, confidence=1 - score, rationale=rationale, scores=scores, is_definite=False)
    if is_agent:
        slug = best.removeprefix(AGENT)
        return Reading(agent=slug, confidence=min(score, 1.0), rationale=f"Nearest in meaning: {slug}.", scores=scores)
    params = tools[best].extract(request)
    if more := _more_than(tools[best], params, request):
        refusal = f"Without a language model, only a part of that could be done here ({best}), and this not: “{more}”."
        why: dict[str, Any] = {
            "confidence": 1 - score,
            "rationale": f"It wants more than {best} does.",
            "scores": scores,
        }
        return Reading(refusal=f"{refusal} Ask for the parts one by one. {KEY_HINT}", is_definite=False, **why)
    return Reading(best, params, confidence=min(score, 1.0), rationale=f"Nearest in meaning: {best}.", scores=scores)


def _more_than(tool: Tool[Any], params: dict[str, Any], request: Request) -> str:
    """What a request wants that the tool would leave out, or ""."""
    if tool.name not in ONE_LOOK or "text" in params:
        return ""
    return left_over(core(request.text), is_summary=tool.name == "summarize")[:200]


def _without_words(request: Request, tools: dict[str, Tool[Any]]) -> Reading:
    """Files or data alone: what to do with them is not said."""
    if request.attachments and "summarize" in tools:
        params = tools["summarize"].extract(request)
        return Reading("summarize", params, confidence=0.5, rationale="A file without a word: its gist.")
    asked = "That says nothing of what to do." if request.text.strip() else "The message has no words."
    refusal = f"{asked}{_abilities(tools)} For anything else: {KEY_HINT}"
    return Reading(refusal=refusal, rationale="No words that ask for something.", is_definite=False)


def _abilities(tools: dict[str, Tool[Any]]) -> str:
    """What can be asked for without a model, by one example of each tool that leaves everything as it is."""
    harmless = [tool for tool in tools.values() if not tool.needs_model and tool.risk in (Risk.NONE, Risk.READS)]
    examples = [tool.examples[0] for tool in harmless if tool.examples]
    said = ", ".join(f"“{example}”" for example in examples)
    return f" Without a language model you can ask, for example: {said}." if said else ""


def score_tools(words: str, tools: dict[str, Tool[Any]], agents: Sequence[Offer] = ()) -> list[tuple[str, float]]:
    """Every tool, NOBODY, and every agent (its slug behind AGENT), with its nearness to these words, best first: that
    of its nearest example."""
    offered = {f"{AGENT}{offer.slug}": offer.examples for offer in agents if offer.examples}
    texts = _texts_of(tools)
    for name in (NOBODY, *(tool.name for tool in tools.values() if tool.needs_model)):
        texts[name] = _not_offered(tuple(texts[name]), tuple(text for found in offered.values() for text in found))
    known = [(name, gist(text)) for name, found in {**texts, **offered}.items() for text in found]
    found = similarities(gist(words), [text for _, text in known])
    best = dict.fromkeys((*texts, *offered), 0.0)
    for (name, _), score in zip(known, found, strict=True):
        best[name] = max(score, best[name])
    said = set(_WORD.findall(words.lower()))
    pairs = {" ".join(pair) for pair in pairwise(_WORD.findall(words.lower()))}
    for name, cues in {NOBODY: NOBODY_CUES, **{name: tool.cues for name, tool in tools.items()}}.items():
        if not (said | pairs).isdisjoint(cues):
            best[name] += CUE
    return sorted(best.items(), key=lambda item: -item[1])


@lru_cache(maxsize=16)
def _not_offered(texts: tuple[str, ...], offered: tuple[str, ...]) -> Sequence[str]:
    """What agents offer is nothing that nobody does, or that only a language model could."""
    examples = [gist(text) for text in offered]
    return [text for text in texts if max(similarities(gist(text), examples), default=0.0) < ACCEPTED]


def _is_latin(words: str) -> bool:
    """Whether most letters are Latin: the embeddings, and the examples, know nothing of others."""
    letters = [letter for letter in words[:LONGEST_REQUEST] if letter.isalpha()]
    return sum(letter <= LAST_LATIN for letter in letters) * 2 >= len(letters)


def gist(text: str) -> str:
    """The request without what it is about: which file it names and what it quotes says nothing of the tool."""
    head, colon, after = text[:LONGEST_REQUEST].partition(":")
    if colon and after.strip():
        text = f"{head}: this text"
    return mask(text[:LONGEST_REQUEST]).lower()


def _texts_of(tools: dict[str, Tool[Any]]) -> dict[str, Sequence[str]]:
    """Examples and description of every tool, and the examples that operators gave to the skill of its name."""
    texts: dict[str, list[str]] = {name: [tool.description, *tool.examples] for name, tool in tools.items()}
    skills = Skill.objects.filter(skill_id__in=texts, agent__is_enabled=True, agent__kind=Agent.Kind.LOCAL)
    for skill_id, examples in skills.order_by("pk").values_list("skill_id", "examples"):
        texts[skill_id] += [text for text in examples if isinstance(text, str) and text not in texts[skill_id]]
    return {**texts, NOBODY: NOBODY_DOES}


def _hint(scores: list[tuple[str, float]], tools: dict[str, Tool[Any]]) -> str:
    """What the nearest tool could do, when it is near enough to be worth a word."""
    for name, score in scores:
        tool = tools.get(name)
        if tool and not tool.needs_model and score >= HINTED and tool.examples:
            return f" The nearest I can do: {tool.description} For example: “{tool.examples[0]}”."
    return ""
