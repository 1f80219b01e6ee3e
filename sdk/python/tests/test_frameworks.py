"""The real frameworks, each with a scripted model that calls a real agent through a real hub. Nothing leaves this machine."""
from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartWorker
from hub import Hub
from scripted_model import ScriptedModel

pytestmark = pytest.mark.frameworks

ABSENT = "{} isn't installed: run sdk/python/test --frameworks"


@pytest.fixture
def shout(start: StartWorker) -> str:
    return start(lambda run: run.text.upper())


def test_langgraph(hub: Hub, shout: str) -> None:
    pytest.importorskip("langgraph", reason=ABSENT.format("LangGraph"))
    from attache_sdk.integrations import langgraph as ours
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    tools = [ours.remote_agent(shout, name="shout", url=hub.url, key=hub.key), *ours.tools(url=hub.url, key=hub.key)]
    names = [convert_to_openai_tool(tool)["function"]["name"] for tool in tools]
    assert names == ["shout", "list_agents", "remote_agent", "remote_result", "remote_answer", "remote_cancel"]

    def build() -> Any:
        calls = [
            {"name": "shout", "args": {"task": "hello"}, "id": "1"},
            {"name": "remote_agent", "args": {"agent": shout, "task": "bye"}, "id": "2"},
        ]
        model = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=calls), AIMessage("done")]))

        def think(state: MessagesState) -> dict[str, Any]:
            return {"messages": [model.invoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", think)
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile()

    asked = {"messages": [HumanMessage("go")]}
    for state in (build().invoke(asked), asyncio.run(build().ainvoke(asked))):
        assert [message.content for message in state["messages"]] == ["go", "", "HELLO", "BYE", "done"]


def test_openai_agents(hub: Hub, shout: str) -> None:
    pytest.importorskip("agents", reason=ABSENT.format("The OpenAI Agents SDK"))
    from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
    from attache_sdk.integrations import openai_agents as ours
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    offered: list[list[str]] = []

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *more: Any, **options: Any) -> ModelResponse:
            offered.append([tool.name for tool in tools])
            results = [item["output"] for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
            output: Any
            if results:
                text = ResponseOutputText(type="output_text", text=" and ".join(results), annotations=[])
                output = [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])]
            else:
                calls = [("shout", {"task": "hello"}), ("remote_agent", {"agent": shout, "task": "bye"})]
                output = [
                    ResponseFunctionToolCall(type="function_call", call_id=name, name=name, arguments=json.dumps(given))
                    for name, given in calls
                ]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *given: Any, **options: Any) -> AsyncIterator[Any]:
            raise NotImplementedError

    tools = [ours.remote_agent(shout, name="shout", url=hub.url, key=hub.key), *ours.tools(url=hub.url, key=hub.key)]
    result = asyncio.run(Runner.run(Agent(name="boss", model=Scripted(), tools=tools), "go"))
    assert result.final_output == "HELLO and BYE"
    assert offered[0] == ["shout", "list_agents", "remote_agent", "remote_result", "remote_answer", "remote_cancel"]


def test_pydantic_ai(hub: Hub, shout: str) -> None:
    pytest.importorskip("pydantic_ai", reason=ABSENT.format("pydantic-ai"))
    from attache_sdk.integrations import pydantic_ai as ours
    from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    offered: list[list[str]] = []

    def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append([tool.name for tool in info.function_tools])
        results = [str(part.content) for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if results:
            return ModelResponse(parts=[TextPart(" and ".join(results))])
        calls = [ToolCallPart("shout", {"task": "hello"}), ToolCallPart("remote_agent", {"agent": shout, "task": "bye"})]
        return ModelResponse(parts=calls)

    tools = [ours.remote_agent(shout, name="shout", url=hub.url, key=hub.key), *ours.tools(url=hub.url, key=hub.key)]
    agent = Agent(FunctionModel(script), tools=tools)
    assert agent.run_sync("go").output == "HELLO and BYE"
    assert asyncio.run(agent.run("go")).output == "HELLO and BYE"
    assert offered[0] == ["shout", "list_agents", "remote_agent", "remote_result", "remote_answer", "remote_cancel"]


@pytest.mark.parametrize("tool", ["shout", "remote_agent"])
def test_claude_agent(hub: Hub, shout: str, tool: str, tmp_path: Path) -> None:
    """The real Claude Code, which the Claude Agent SDK brings, against a scripted model on loopback."""
    pytest.importorskip("claude_agent_sdk", reason=ABSENT.format("The Claude Agent SDK"))
    from attache_sdk.integrations import claude_agent as ours
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

    arguments = {"task": "hello"} if tool == "shout" else {"agent": shout, "task": "hello"}
    model = ScriptedModel(f"mcp__attache__{tool}", arguments)
    own = [ours.remote_agent(shout, name="shout", url=hub.url, key=hub.key), *ours.tools(url=hub.url, key=hub.key)]
    environment = {
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
        "HOME": str(tmp_path),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "false",  # the script knows the tool's name and doesn't search for it
        "PATH": os.environ["PATH"],
    }
    options = ClaudeAgentOptions(
        mcp_servers={"attache": ours.server(*own)},
        allowed_tools=[f"mcp__attache__{tool}"],
        env=environment,
        cwd=str(tmp_path),
        model="claude-sonnet-4-5",
        setting_sources=[],
        max_turns=4,
    )

    async def main() -> str:
        async for message in query(prompt="go", options=options):
            if isinstance(message, ResultMessage):
                return message.result or ""
        raise AssertionError("no result")

    try:
        said = asyncio.run(asyncio.wait_for(main(), 60))
        offered = [[one["name"] for one in request.get("tools", [])] for request in model.requests]
        assert said == "The agent said: HELLO", offered
    finally:
        model.close()
