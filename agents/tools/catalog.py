"""All tools by name. A new one is added to TOOLS."""

from functools import lru_cache
from typing import Any

from agents.tools.base import Tool


@lru_cache(maxsize=1)
def tools() -> dict[str, Tool[Any]]:
    """Every tool that is installed, by name."""
    from agents.tools.answer import Answer
    from agents.tools.echo import Echo
    from agents.tools.list_agents import ListAgents
    from agents.tools.list_files import ListFiles
    from agents.tools.read_file import ReadFile
    from agents.tools.remember_agent import RememberAgent
    from agents.tools.summarize import Summarize
    from agents.tools.write_file import WriteFile

    known = (Echo(), Summarize(), ListAgents(), RememberAgent(), ListFiles(), ReadFile(), WriteFile(), Answer())
    return {tool.name: tool for tool in known}
