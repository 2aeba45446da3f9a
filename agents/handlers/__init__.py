"""The agents that come with Bureau. Importing this makes them known by name; it imports nothing heavy."""

from agents.handlers import assistant, echo, remote, specialist, tool_agents

__all__ = ["assistant", "echo", "remote", "specialist", "tool_agents"]
