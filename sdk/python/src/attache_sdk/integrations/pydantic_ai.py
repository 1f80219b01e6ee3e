"""Agents as tools of pydantic-ai."""
from __future__ import annotations

from typing import Any

from pydantic_ai import Tool

from .. import tool as neutral


def remote_agent(agent: str, description: str | None = None, **options: Any) -> Tool[Any]:
    """A tool that gives one agent a task and returns its answer."""
    return _wrap(neutral.remote_agent(agent, description, **options))


def tools(**options: Any) -> list[Tool[Any]]:
    """Tools to list agents, call one, and wait for, answer or cancel a call."""
    return [_wrap(one) for one in neutral.toolset(**options)]


def _wrap(one: neutral.AgentTool) -> Tool[Any]:
    async def invoke(**arguments: Any) -> str:
        return await one(**arguments)

    made: Tool[Any] = Tool.from_schema(invoke, one.name, one.description, one.parameters)
    return made
