"""Agents as tools of LangGraph and LangChain."""
from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from .. import tool as neutral


def remote_agent(agent: str, description: str | None = None, **options: Any) -> BaseTool:
    """A tool that gives one agent a task and returns its answer."""
    return _wrap(neutral.remote_agent(agent, description, **options))


def tools(**options: Any) -> list[BaseTool]:
    """Tools to list agents, call one, and wait for, answer or cancel a call."""
    return [_wrap(one) for one in neutral.toolset(**options)]


def _wrap(one: neutral.AgentTool) -> BaseTool:
    return StructuredTool(
        name=one.name,
        description=one.description,
        args_schema=one.parameters,
        func=one.blocking,
        coroutine=one.__call__,
    )
