"""Extensions of the protocol that every agent here declares. None of them is required."""

from __future__ import annotations

from collections.abc import Collection

from a2a.types import a2a_pb2 as pb

from agents.orchestration.envelope import URI as ENVELOPE

DESCRIPTIONS = {
    ENVELOPE: "A message's metadata may hold, under this URI, the part of a mission that the message is about: goal, "
    "steps, inputs and expected output. The agent is given it with the message, which says the same in words."
}


def declared() -> list[pb.AgentExtension]:
    """For a card."""
    return [pb.AgentExtension(uri=uri, description=text) for uri, text in DESCRIPTIONS.items()]


def activated(requested: Collection[str]) -> str:
    """The header field A2A-Extensions of a response: those of a request's that take effect; empty for none."""
    return ", ".join(uri for uri in DESCRIPTIONS if uri in requested)
