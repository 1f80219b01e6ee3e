"""Agents as tools of the OpenAI Agents SDK."""
from __future__ import annotations

import json
from typing import Any

from agents import FunctionTool, Tool
from agents.tool_context import ToolContext

from .. import tool as neutral


def remote_agent(agent: str, description: str | None = None, **options: Any) -> Tool:
    """A tool that gives one agent a task and returns its answer."""
    return _wrap(neutral.remote_agent(agent, description, **options))


def tools(**options: Any) -> list[Tool]:
    """Tools to list agents, call one, and wait for, answer or cancel a call."""
    return [_wrap(one) for one in neutral.toolset(**options)]


def _wrap(one: neutral.AgentTool) -> Tool:
    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        try:
            given = json.loads(arguments or "{}")
        except ValueError:
            return "Error (invalid_request): the arguments aren't JSON."
        return await one(**given) if isinstance(given, dict) else "Error (invalid_request): send a JSON object."

    parameters = one.parameters
    return FunctionTool(
        name=one.name,
        description=one.description,
        params_json_schema=parameters,
        on_invoke_tool=invoke,
        # Strict schemas have no optional members.
        strict_json_schema=set(parameters["required"]) == set(parameters["properties"]),
    )
