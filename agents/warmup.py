"""What a worker loads beside its start, so that its first mission does not wait for it."""

import logging
import time
from importlib import import_module

logger = logging.getLogger(__name__)


def warm_up() -> None:
    """Import what turns need, and get ready what makes decisions: the client of the model, or the rules' embeddings.

    Touches no database and calls nobody. Never raises: whoever needs what is missing says so better.
    """
    started = time.monotonic()
    try:
        from agents import brain, matching, model_api
        from agents.tools import catalog

        import_module("agents.runtime")
        catalog.tools()
        if brain.get_brain().can_write:
            # The SDK itself loads its types when they are first asked for.
            import_module("anthropic.types")
            model_api.client()
        else:
            matching.embed([""])
        logger.info("Warm after %.1f s", time.monotonic() - started, extra={"action": "worker.warm"})
    except Exception:
        logger.warning("Warming up failed", exc_info=True, extra={"action": "worker.cold"})
