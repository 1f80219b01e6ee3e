"""Agents as tools of the Claude Agent SDK."""
from __future__ import annotations

from typing import Any

from claude_agent_sdk import McpSdkServerConfig, SdkMcpTool, create_sdk_mcp_server

from .. import tool as neutral


def remote_agent(agent: str, description: str | None = None, **options: Any) -> SdkMcpTool[Any]:
    """A tool that gives one agent a task and returns its answer."""
    return _wrap(neutral.remote_agent(agent, description, **options))


def tools(**options: Any) -> list[SdkMcpTool[Any]]:
    """Tools to list agents, call one, and wait for, answer or cancel a call."""
    return [_wrap(one) for one in neutral.toolset(**options)]


def server(*own: SdkMcpTool[Any], name: str = "attache", **options: Any) -> McpSdkServerConfig:
    """A server for `ClaudeAgentOptions(mcp_servers={"attache": server()})`, with these tools, or with all of `tools()`.

    Allow them with `allowed_tools=["mcp__attache__remote_agent", …]`.
    """
    return create_sdk_mcp_server(name, tools=list(own) or tools(**options))


def _wrap(one: neutral.AgentTool) -> SdkMcpTool[Any]:
    async def invoke(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await one(**arguments)}]}

    return SdkMcpTool(name=one.name, description=one.description, input_schema=one.parameters, handler=invoke)
