"""Who could take a whole request besides the tools here: agents that offer themselves, and one that it names."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from agents.conversation import Conversation
from agents.matching import similarities
from agents.orchestration.allocation import reachable, refusals
from agents.orchestration.points import slug as as_slug
from agents.points import Offer, Triage
from agents.registry import takes_requests
from agents.rules import ACCEPTED, gist
from agents.tools.grammar import core, without_opening
from agents.turn import Turn
from directory.models import Agent
from tasks.delegation import StepDraft, SubPlanDraft

# A prompt shows so many agents, the nearest to the request; more would cost more than they help.
MOST_OFFERS = 12
MOST_EXAMPLES = 20
# The sub-plan that a request is, when one agent gets the whole of it.
REQUEST = "request"
ANYBODY = "generalist"
LONGEST_NAME = 120
_VERB = re.compile(r"(?:ask|tell|have|let)\s+(?:the\s+)?(?:agent\s+)?", re.IGNORECASE)
_NAME_WORD = re.compile(r"\w+")
_AFTER_NAME = re.compile(r"^\W*(?:agent\b\W*)?(?:to\b)?", re.IGNORECASE)
_WITH = re.compile(r"\b(?:using|via|through|with (?:the )?agent)\s+", re.IGNORECASE)
# Words that no agent can have for a name: a stranger could call itself so.
NO_NAMES = {
    "me", "us", "you", "it", "them", "him", "her", "this", "that", "these", "those", "everyone", "everybody", "someone",
    "somebody", "anyone", "anybody", "people", "agent", "agents", "the", "a", "all", "bureau", "assistant",
}  # fmt: skip


def case_for(turn: Turn, conversation: Conversation, tools: Sequence[Any]) -> Triage:
    """What triage looks at: the tools, and the agents that may be given the request now."""
    # Who may call certain agents only, reaches no other by way of this one.
    caller = turn.standing
    agents = [agent for agent in reachable(turn) if caller.may_call(agent.slug)]
    named, _ = named_in(conversation.newest.text, agents)
    # A named one is told of even if it may not have it now: then that is on record, with the reason.
    offering = [agent for agent in agents if agent.is_remote or takes_requests(agent.handler)]
    refused = refusals(turn, offering)
    free = [agent for agent in offering if not refused[agent.slug]]
    if conversation.references:
        # What it refers to is here, and goes to somebody else only where the person says so.
        free = []
    offers = _nearest(conversation, [offer_of(agent) for agent in free if agent.slug != named])
    offers = [offer_of(agent) for agent in agents if agent.slug == named] + offers
    return Triage(conversation, tools, agents=offers, named=named)


def offer_of(agent: Agent) -> Offer:
    skills = list(agent.skills.all())
    about = " ".join(text for text in (agent.description, *(skill.description for skill in skills)) if text)
    examples = [text for skill in skills for text in skill.examples if isinstance(text, str) and text.strip()]
    return Offer(agent.slug, agent.name, agent.role, about, tuple(examples[:MOST_EXAMPLES]))


def _nearest(conversation: Conversation, offers: list[Offer]) -> list[Offer]:
    if len(offers) <= MOST_OFFERS:
        return offers
    scores = nearness(conversation.newest.text, offers)
    return sorted(offers, key=lambda offer: -scores[offer.slug])[:MOST_OFFERS]


def nearness(text: str, offers: Sequence[Offer]) -> dict[str, float]:
    """By slug how near a request is to the nearest example of each."""
    known = [(offer.slug, gist(example)) for offer in offers for example in offer.examples]
    best = {offer.slug: 0.0 for offer in offers}
    scores = similarities(gist(core(text)), [example for _, example in known])
    for (slug, _), score in zip(known, scores, strict=True):
        best[slug] = max(best[slug], score)
    return best


def named_in(text: str, agents: Sequence[Agent]) -> tuple[str, str]:
    """The slug of the agent that a request names as the one to do it, and what it is to do; ("", the text) if none.

    "ask NAME to …", "tell NAME …", "NAME: …", "@NAME …", "… using NAME". A slug counts before a name, and a name
    only where one agent has it: remote agents call themselves what they like.
    """
    names = _names(agents)
    request = without_opening(text).strip()
    if verb := _VERB.match(request):
        slug, rest = _name_before(request[verb.end() :], names)
    elif request.startswith("@"):
        slug, rest = _name_before(request[1:], names)
    else:
        head, _, rest = request.partition(":")
        slug = names.get(_folded(head), "") if len(head) <= LONGEST_NAME else ""
    if slug and rest.strip():
        return slug, rest.strip()
    for marker in reversed(list(_WITH.finditer(request, max(len(request) - LONGEST_NAME, 0)))):
        slug = names.get(_folded(re.sub(r"\W+agent\W*$", "", request[marker.end() :])), "")
        if slug and (rest := request[: marker.start()].strip(" ,")):
            return slug, rest
    return "", text


def _name_before(text: str, names: dict[str, str]) -> tuple[str, str]:
    """The slug of the agent whose name the text begins with, the longest one, and what comes after it."""
    words = list(_NAME_WORD.finditer(text, 0, LONGEST_NAME))
    for word in reversed(words):
        if slug := names.get(_folded(text[: word.end()]), ""):
            return slug, _AFTER_NAME.sub("", text[word.end() :], count=1)
    return "", text


def _names(agents: Sequence[Agent]) -> dict[str, str]:
    """What agents go by, in small letters, with the slug of each."""
    counts = Counter(_folded(agent.name) for agent in agents)
    words = {_folded(agent.name): agent.slug for agent in agents if counts[_folded(agent.name)] == 1}
    words |= {_folded(agent.slug): agent.slug for agent in agents}
    return {word: slug for word, slug in words.items() if len(word) > 1 and word not in NO_NAMES}


def _folded(name: str) -> str:
    """A name as it is compared: in small letters, words apart by one space, without marks around it."""
    return " ".join(re.findall(r"\w+", name.casefold()))


def drafts_for(case: Triage, chosen: str) -> tuple[SubPlanDraft, ...]:
    """The plan of one sub-plan that passes the request on: to this agent, or to the next that offers as much."""
    offers = {offer.slug: offer for offer in case.agents}
    wanted = [chosen]
    if case.named != chosen and len(offers) > 1:
        scores = nearness(case.conversation.newest.text, case.agents)
        others = [slug for slug in sorted(scores, key=lambda slug: -scores[slug]) if scores[slug] >= ACCEPTED]
        wanted += [slug for slug in others if slug not in (chosen, case.named)]
    text = _text_for(case)
    role = as_slug(offers[chosen].role) or ANYBODY
    return (SubPlanDraft(REQUEST, text, role, (StepDraft(text),), wanted=tuple(wanted)),)


def _text_for(case: Triage) -> str:
    """What the agent is told: all that was said, without the words that only name it."""
    requests = [request.text for request in case.conversation.requests]
    if case.named:
        requests[-1] = _without_name(requests[-1], case)
    return "\n\n".join(text for text in requests if text.strip()) or "What came with this message."


def _without_name(text: str, case: Triage) -> str:
    offer = next(offer for offer in case.agents if offer.slug == case.named)
    return named_in(text, [Agent(slug=offer.slug, name=offer.name)])[1]
