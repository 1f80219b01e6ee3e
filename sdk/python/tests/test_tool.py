"""Agents as tools, without a framework."""
from __future__ import annotations

import asyncio
import json

from attache_sdk import AgentTool, AsyncA2AClient, BlockingRun, remote_agent, toolset
from conftest import StartWorker
from hub import Hub


def tools(hub: Hub, wait: float = 50.0) -> dict[str, AgentTool]:
    return {tool.name: tool for tool in toolset(url=hub.url, key=hub.key, wait=wait)}


def test_one_agent_is_one_tool(hub: Hub, start: StartWorker) -> None:
    agent = start(lambda run: run.text.upper())
    tool = remote_agent(agent, "Shouts.", name="shout", url=hub.url, key=hub.key)
    assert (tool.name, tool.description, tool.parameters["required"]) == ("shout", "Shouts.", ["task"])
    assert tool.blocking(task="hello") == "HELLO"

    async def main() -> str:
        async with AsyncA2AClient(hub.url, hub.key) as client:
            return await remote_agent(agent, client=client)(task="again")

    assert asyncio.run(main()) == "AGAIN"
    assert remote_agent("team.builder-1", url=hub.url, key=hub.key).name == "team_builder-1"


def test_a_model_finds_calls_answers_and_cancels(hub: Hub, start: StartWorker) -> None:
    def asks(run: BlockingRun) -> str:
        return run.ask("Which?").text

    agent, own = start(asks, concurrency=2), tools(hub, wait=0.3)
    (shown,) = [one for one in json.loads(own["list_agents"].blocking()) if one["name"] == agent]
    assert shown["status"] == "online"
    late = own["remote_agent"].blocking(agent=agent, task="go", context="more")
    assert late.startswith("The agent is still working. Call id: a2a-")
    call = late.rpartition(" ")[2]
    assert own["remote_result"].blocking(call_id=call) == late
    assert own["remote_answer"].blocking(call_id=call, answer="this") == "this"
    second = own["remote_agent"].blocking(agent=agent, task="go").rpartition(" ")[2]
    assert own["remote_cancel"].blocking(call_id=second) == "cancelled"
    assert own["remote_result"].blocking(call_id=second).startswith("The agent failed (cancelled)")


def test_errors_are_text_that_a_model_can_act_on(hub: Hub) -> None:
    own = tools(hub)
    assert "not_found" in own["remote_agent"].blocking(agent="nobody", task="x")
    assert own["remote_agent"].blocking(agent="nobody") == "Error (invalid_request): `task` must be text."
    assert "unreachable" in remote_agent("x", url="http://127.0.0.1:9", key="ak_x").blocking(task="x")
