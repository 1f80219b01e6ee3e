"""Agents as tools for a model: what every framework needs, without any framework.

`remote_agent("builder")` makes a tool for one agent. `toolset()` makes tools with which a model finds agents itself. The
modules in `attache_sdk.integrations` turn both into tools of LangGraph, the OpenAI Agents SDK, the Claude Agent SDK and
pydantic-ai.
"""
from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ._aio.client import AsyncA2AClient
from .errors import AttacheError, CallFailed, CallTimeout

_TEXT = {"type": "string"}
_TASK = {"type": "string", "description": "What to do, complete and self-contained: the agent sees nothing else."}
_CALL = {"type": "string", "description": "The call's id, as an earlier tool call returned it."}
_AGENT = {"type": "string", "description": "An agent's name, or a skill or capability that only one agent has."}
_CONTEXT = {"type": "string", "description": "More for the agent to know. May be empty."}

Work = Callable[[AsyncA2AClient, dict[str, Any]], Awaitable[str]]


@dataclass(frozen=True)
class HubAccess:
    """Which hub a tool uses. Without a client, each use opens one, so that it works in every event loop."""

    url: str | None = None
    key: str | None = None
    client: AsyncA2AClient | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncA2AClient]:
        if self.client is not None:
            yield self.client
            return
        async with AsyncA2AClient(self.url, self.key) as client:
            yield client


@dataclass(frozen=True)
class AgentTool:
    """A tool: a name, a description and a JSON Schema for the model, and what it does. Errors are text for the model."""

    name: str
    description: str
    parameters: dict[str, Any]
    work: Work
    hub: HubAccess

    async def __call__(self, **arguments: Any) -> str:
        try:
            missing = [name for name in self.parameters["required"] if not isinstance(arguments.get(name), str)]
            if missing:
                return f"Error (invalid_request): `{missing[0]}` must be text."
            async with self.hub.open() as client:
                return await self.work(client, arguments)
        except CallTimeout as late:
            return f"The agent is still working. Call id: {late.call_id}"
        except CallFailed as failed:
            return f"The agent failed ({failed.code}): {failed.message}"
        except AttacheError as error:
            return f"Error ({error.code}): {error}"

    def blocking(self, **arguments: Any) -> str:
        """The same for a framework that calls tools without an event loop, or inside a loop that it blocks."""
        result: list[str] = []
        thread = threading.Thread(target=lambda: result.append(asyncio.run(self(**arguments))), daemon=True)
        thread.start()
        thread.join()
        return result[0]


def remote_agent(
    agent: str,
    description: str | None = None,
    *,
    name: str | None = None,
    url: str | None = None,
    key: str | None = None,
    client: AsyncA2AClient | None = None,
    wait_timeout: float | None = None,
    **options: Any,
) -> AgentTool:
    """A tool that gives one agent a task and returns its answer.

    The hub is that of A2AClient(), unless `url` and `key` or `client` name another. `options` are those of `call`: budget,
    sandbox, conversation_id, timeout, …
    """

    async def work(client: AsyncA2AClient, arguments: dict[str, Any]) -> str:
        return str(await client.call(agent, arguments["task"], wait_timeout=wait_timeout, **options))

    return AgentTool(
        name=name or re.sub(r"[^a-zA-Z0-9_-]", "_", agent)[:64],
        description=description or f"Gives the agent {agent} a task and returns its answer.",
        parameters=_schema(["task"], task=_TASK),
        work=work,
        hub=HubAccess(url, key, client),
    )


def toolset(
    *, url: str | None = None, key: str | None = None, client: AsyncA2AClient | None = None, wait: float = 50.0
) -> list[AgentTool]:
    """Tools to list agents, call one, and wait for, answer or cancel a call that takes longer than `wait` seconds."""
    hub = HubAccess(url, key, client)

    async def list_agents(client: AsyncA2AClient, arguments: dict[str, Any]) -> str:
        found = [
            {
                "name": account["name"],
                "status": account["status"],
                "description": account.get("description"),
                "skills": [skill["name"] for skill in account["skills"]],
            }
            async for account in client.agents(limit=200)
        ]
        return json.dumps(found, ensure_ascii=False)

    async def call(client: AsyncA2AClient, arguments: dict[str, Any]) -> str:
        context = arguments.get("context") or None
        return str(await client.call(arguments["agent"], arguments["task"], context=context, wait_timeout=wait))

    async def result(client: AsyncA2AClient, arguments: dict[str, Any]) -> str:
        return str(await client.wait(arguments["call_id"], timeout=wait))

    async def answer(client: AsyncA2AClient, arguments: dict[str, Any]) -> str:
        await client.answer(arguments["call_id"], arguments["answer"])
        return await result(client, arguments)

    async def cancel(client: AsyncA2AClient, arguments: dict[str, Any]) -> str:
        return (await client.cancel(arguments["call_id"]))["status"]

    described = [
        ("list_agents", "Lists the agents that can be called, and whether each is online.", _schema([]), list_agents),
        (
            "remote_agent",
            "Gives an agent a task and returns its answer, or the call's id if it takes longer.",
            _schema(["agent", "task"], agent=_AGENT, task=_TASK, context=_CONTEXT),
            call,
        ),
        ("remote_result", "Waits for a call that wasn't finished.", _schema(["call_id"], call_id=_CALL), result),
        (
            "remote_answer",
            "Answers a question that the agent of a call asked, then waits for the call.",
            _schema(["call_id", "answer"], call_id=_CALL, answer=_TEXT),
            answer,
        ),
        ("remote_cancel", "Cancels a call.", _schema(["call_id"], call_id=_CALL), cancel),
    ]
    return [AgentTool(name, about, parameters, work, hub) for name, about, parameters, work in described]


def _schema(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
