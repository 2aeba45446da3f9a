"""Says back what it is told. The cheapest agent there can be, and so the one that benchmarks use."""

from agents.outcomes import Ok, Outcome
from agents.registry import Handler, register
from agents.turn import Turn
from tasks.content import text_of
from tasks.results import ArtifactDraft


@register
class EchoHandler(Handler):
    """No decision, no tool call: one artifact with the text of the newest message, or its parts when it has none."""

    name = "echo"

    def run(self, turn: Turn) -> Outcome:
        parts = turn.request["parts"]
        text = text_of(parts)
        return Ok(artifacts=[ArtifactDraft("echo", [{"text": text}] if text else parts)])
