"""A worker on a channel: tools, approvals, cuts, cancellation, and its end."""
from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import attache_sdk as sdk
import pytest
from attache_sdk import A2AClient, BlockingRun, Run, Worker
from conftest import Cut, Running, StartWorker
from hub import PATIENCE, Hub, eventually
from websockets.sync.client import connect
from websockets.sync.connection import Connection


def test_decisions_and_answers_arrive_over_cut_cables(cut: Cut, start: StartWorker) -> None:
    states: list[str] = []
    executions: list[str] = []

    def asks(run: BlockingRun) -> str:
        executions.append(run.id)
        return f"{run.approve('tool', {'n': 1}).approved} {run.ask('what?')}"

    agent = start(asks, at=cut, states=states)
    call = cut.direct.call(agent, "go", wait=False)["call_id"]
    request = eventually(lambda: list(cut.direct.approvals(run=call)))[0]
    # Cut while the person decides, and kill the hub while the caller thinks.
    cut.cable.cut()
    cut.direct.approve(request["permission_request_id"])
    eventually(lambda: cut.direct.run(call).get("waiting") == "input")
    cut.hub.kill()
    cut.hub.start()
    cut.direct.answer(call, "blue")
    assert cut.direct.wait(call).summary == "True blue"
    assert len([state for state in states if state.startswith("disconnected")]) >= 2
    assert len(executions) == 1 and cut.direct.run(call)["epoch"] == 1
    assert len(list(cut.direct.approvals(state=None, run=call))) == 1, "asked once"


def test_a_storm_of_cuts_loses_and_repeats_nothing(cut: Cut, start: StartWorker) -> None:
    executions: list[str] = []

    async def count(run: Run) -> str:
        executions.append(run.text)
        for number in range(30):
            await run.write(f"{number} ")
            await run.progress(f"step {number}")
            await asyncio.sleep(0.002)
        return run.text

    agent = start(count, at=cut, concurrency=4)
    over = threading.Event()

    def storm() -> None:
        while not over.wait(0.12):
            cut.cable.cut()

    weather = threading.Thread(target=storm)
    weather.start()
    try:
        calls = [cut.direct.call(agent, f"task {number}", wait=False)["call_id"] for number in range(12)]
        replies = [cut.direct.wait(call, timeout=40).summary for call in calls]
    finally:
        over.set()
        weather.join()
    assert replies == [f"task {number}" for number in range(12)]
    assert sorted(executions) == sorted(replies), "each was executed once"
    assert cut.cable.cuts > 5
    for call in calls:
        events = list(cut.direct.watch(call))
        assert "".join(event.text for event in events) == "".join(f"{number} " for number in range(30))
        steps = [event.data["message"] for event in events if event.type == "task.progress"]
        assert steps == [f"step {number}" for number in range(30)]


def test_an_outcome_that_finds_no_hub_is_delivered_later(cut: Cut, start: StartWorker) -> None:
    go = threading.Event()

    def finish(run: BlockingRun) -> str:
        go.wait(20)
        return "kept"

    agent = start(finish, at=cut)
    call = cut.direct.call(agent, "go", wait=False)["call_id"]
    eventually(lambda: cut.direct.get_result(call)["status"] == "running")
    cut.hub.kill()
    go.set()
    time.sleep(0.5)
    cut.hub.start()
    assert cut.direct.wait(call).summary == "kept"


class Engine:
    """A caller with tools, in plain frames of docs/channels.md: nothing of the SDK is used."""

    def __init__(self, socket: Connection) -> None:
        self.socket = socket
        path = {"type": "object", "required": ["path"], "properties": {"path": {"type": "string", "format": "path"}}}
        self.send("request", {"action": "register", "peer_role": "host", "tools": [{"name": "read", "description": "reads", "input_schema": path}]})
        assert self.next()["payload"]["ok"]

    def send(self, kind: str, payload: dict[str, Any], **header: Any) -> None:
        header = {"msg_id": uuid.uuid4().hex, "type": kind, "from": "engine", "to": "hub", "timestamp": 0, **header}
        self.socket.send(json.dumps({"header": header, "payload": payload}))

    def next(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(self.socket.recv(timeout=20))
        return frame

    def until(self, action: str) -> dict[str, Any]:
        while (frame := self.next())["payload"].get("action") != action or frame["header"]["type"] == "response":
            pass
        return frame


def test_the_callers_tools_are_used(hub: Hub, start: StartWorker) -> None:
    seen: list[list[str]] = []

    def reads(run: BlockingRun) -> str:
        seen.append([tool["name"] for tool in run.tools])
        text = run.call_tool("read", {"path": "/srv/a"})["text"]
        try:
            run.call_tool("read", {"path": "/etc/passwd"})
        except sdk.HubError as refused:
            return f"{text}, then {refused.code}"
        return "no refusal"

    agent = start(reads)
    address, headers = f"ws{hub.url.removeprefix('http')}/api/envelope/ws", {"Authorization": f"Bearer {hub.key}"}
    with connect(address, additional_headers=headers) as socket:
        engine = Engine(socket)
        engine.send("request", {"action": "execute", "query": "go", "workspace_root": "/srv"}, to=agent)
        asked = engine.until("call_tool")
        assert asked["payload"]["arguments"] == {"path": "/srv/a"}
        result = {"action": "call_tool", "ok": True, "result": {"text": "hello"}}
        engine.send("response", result, parent_id=asked["header"]["msg_id"])
        assert engine.until("done")["payload"]["result_summary"] == "hello, then tool_refused"
        assert seen == [["read"]]


def test_files_and_long_answers_are_handed_over(client: A2AClient, start: StartWorker, tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(b"%PDF")
    long = "é" * 400_000

    async def produce(run: Run) -> str:
        await run.attach(tmp_path / "report.pdf")
        return long

    reply = client.call(start(produce), "go")
    assert long.startswith(reply.summary) and len(reply.summary) < len(long)
    assert reply.full_output is not None and reply.full_output["bytes"] == 800_000
    assert client.read(reply.full_output.get("artifact_id") or "").decode() == long
    assert client.artifact(reply.artifact_refs[0])["media_type"] == "application/pdf"


def test_an_agent_calls_another_as_part_of_its_run(client: A2AClient, start: StartWorker) -> None:
    helper = start(lambda run: run.text.upper())

    async def boss(run: Run) -> str:
        return (await run.call(helper, run.text)).summary

    for handler in (boss, lambda run: str(run.call(helper, run.text))):
        reply = client.call(start(handler), "hello")
        assert reply.summary == "HELLO"
        child = next(client.runs(agent=helper))
        assert child.get("parent_task_run_id") == client.run(reply.call_id)["task_run_id"]


def test_a_cancelled_plain_function_learns_it_from_what_it_waits_for(client: A2AClient, start: StartWorker) -> None:
    learnt: list[str] = []

    def waits(run: BlockingRun) -> str:
        try:
            run.approve("tool", {})
        except sdk.RunCancelled as cancelled:
            learnt.append(cancelled.code)
            raise
        return "never"

    agent = start(waits)
    call = client.call(agent, "go", wait=False)["call_id"]
    eventually(lambda: list(client.approvals(run=call)))
    client.cancel(call)
    assert eventually(lambda: learnt) == ["cancelled"]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_runs_cancelled_at_any_moment_leave_the_worker_free(client: A2AClient, start: StartWorker, kind: str) -> None:
    def plain(run: BlockingRun) -> str:
        return f"{run.approve('tool', {}).approved}" if run.text == "ask" else "free"

    async def asynchronous(run: Run) -> str:
        return f"{(await run.approve('tool', {})).approved}" if run.text == "ask" else "free"

    agent = start(plain if kind == "plain" else asynchronous)
    for number in range(40):
        call = client.call(agent, "ask", wait=False)["call_id"]
        time.sleep(number * 0.0005)
        client.cancel(call)
    assert client.call(agent, "go", wait_timeout=20).summary == "free"


@pytest.mark.parametrize("value", [5, True, False, 1.5, {"a": 1}, ["a"], b"bytes", sdk.Answer(5)], ids=lambda value: type(value).__name__)  # type: ignore[arg-type]
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_function_that_returns_anything_else_fails_its_run(
    client: A2AClient, start: StartWorker, caplog: pytest.LogCaptureFixture, kind: str, value: Any
) -> None:
    async def asynchronous(run: Run) -> Any:
        return value

    agent = start((lambda run: value) if kind == "plain" else asynchronous)
    with pytest.raises(sdk.CallFailed) as failed:
        client.call(agent, "go", wait_timeout=PATIENCE)
    wanted = "Make it str." if isinstance(value, sdk.Answer) else f"returned {type(value).__name__}. Return str or Answer."
    assert failed.value.code == "task_failed" and failed.value.message.endswith(wanted)
    assert failed.value.message in caplog.text, "the agent's own log says it too"


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


async def goes_wrong(run: Run) -> Any:
    """Each in a way that shows only after the function has returned, or isn't an ordinary exception."""
    match run.text:
        case "details":
            return sdk.Answer("x", details=object())
        case "number":
            return sdk.Answer("x", cost_usd=float("nan"))
        case "large":
            return sdk.Answer("x", details="x" * (5 << 20))
        case "nested":
            deep: list[Any] = []
            for _ in range(5000):
                deep = [deep]
            return sdk.Answer("x", details=deep)
        case "output":
            return sdk.Answer("x", output=5)  # type: ignore[arg-type]
        case "code":
            raise sdk.Fail("no disk", "Not A Code!" * 1000)
        case "message":
            raise sdk.Fail("x" * (5 << 20))
        case "log":
            await run.log(b"bytes")  # type: ignore[arg-type]
        case "progress":
            await run.progress("counting", float("nan"))
        case "question":
            await run.approve("tool", "x" * (5 << 20))
        case "exit":
            raise SystemExit(3)
        case "cancelled":
            raise asyncio.CancelledError
        case "wordless":
            raise Wordless
    return "fine"


WRONG = ["details", "number", "large", "nested", "output", "code", "message", "log", "progress", "question", "exit", "cancelled", "wordless"]


@pytest.mark.parametrize("task", WRONG)
def test_whatever_goes_wrong_ends_the_run_and_not_the_worker(client: A2AClient, start: StartWorker, task: str) -> None:
    agent = start(goes_wrong)
    with pytest.raises(sdk.CallFailed) as failed:
        client.call(agent, task, wait_timeout=PATIENCE)
    assert failed.value.code == "task_failed" and failed.value.message
    assert client.call(agent, "go", wait_timeout=PATIENCE).summary == "fine"


def test_a_script_says_that_it_is_connected(hub: Hub, client: A2AClient, tmp_path: Path) -> None:
    name = f"script-{uuid.uuid4().hex[:6]}"
    script = "import sys, attache_sdk as sdk; sdk.Worker(sys.argv[1], lambda run: 'x', url=sys.argv[2], key=sys.argv[3]).run()"
    with open(tmp_path / "stderr", "w") as stderr:
        process = subprocess.Popen([sys.executable, "-c", script, name, hub.url, hub.key], stderr=stderr)
    try:
        assert client.call(eventually(lambda: _online(client, name)), "go", wait_timeout=PATIENCE).summary == "x"
        assert f"{name}: connected to {hub.url}, waiting for tasks\n" in (tmp_path / "stderr").read_text()
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0


def _online(client: A2AClient, name: str) -> str | None:
    return next((agent["name"] for agent in client.agents() if agent["name"] == name and agent["status"] == "online"), None)


def test_a_newer_worker_takes_over(hub: Hub, client: A2AClient, workers: list[Running]) -> None:
    key = client.register("shared")["api_key"]
    first = Running(Worker(agent_key=key, url=hub.url, handler=lambda run: "first"))
    eventually(lambda: client.agent("shared")["status"] == "online")
    workers.append(Running(Worker(agent_key=key, url=hub.url, handler=lambda run: "second")))
    assert isinstance(first.wait(), sdk.Superseded)
    assert client.call("shared", "who?").summary == "second"


def test_a_wrong_key_ends_the_worker_with_the_hubs_words(hub: Hub) -> None:
    worker = Running(Worker(agent_key="ak_wrong", url=hub.url, handler=lambda run: "x"))
    error = worker.wait()
    assert isinstance(error, sdk.Unauthenticated) and error.hint


def test_a_stopped_worker_finishes_its_runs_and_takes_no_more(hub: Hub, client: A2AClient) -> None:
    go = threading.Event()

    def finish(run: BlockingRun) -> str:
        go.wait(20)
        return "finished"

    name = f"stopping-{uuid.uuid4().hex[:6]}"
    running = Running(Worker(name, finish, url=hub.url, key=hub.key))
    eventually(lambda: name in [agent["name"] for agent in client.agents()])
    first = client.call(name, "first", wait=False)["call_id"]
    eventually(lambda: client.get_result(first)["status"] == "running")
    second = client.call(name, "second", wait=False)["call_id"]
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    time.sleep(0.2)
    go.set()
    stopping.join(15)
    assert client.wait(first).summary == "finished"
    assert client.get_result(second)["status"] == "started", "it waits for the next worker"


def test_a_stopped_worker_fails_runs_that_take_too_long(hub: Hub, client: A2AClient) -> None:
    async def endless(run: Run) -> str:
        await asyncio.Event().wait()
        return "never"

    name = f"stopping-{uuid.uuid4().hex[:6]}"
    running = Running(Worker(name, endless, url=hub.url, key=hub.key, grace=0.2))
    eventually(lambda: name in [agent["name"] for agent in client.agents()])
    call = client.call(name, "go", wait=False)["call_id"]
    eventually(lambda: client.get_result(call)["status"] == "running")
    running.stop()
    with pytest.raises(sdk.CallFailed) as failed:
        client.wait(call, timeout=10)
    assert "stopped" in failed.value.message


def test_a_run_on_its_way_to_a_worker_that_stops_is_worked_on(hub: Hub, client: A2AClient) -> None:
    name = f"stopping-{uuid.uuid4().hex[:6]}"
    running = Running(Worker(name, lambda run: "finished", url=hub.url, key=hub.key))
    eventually(lambda: name in [agent["name"] for agent in client.agents()])
    eventually(lambda: client.call(name, "first").summary == "finished")
    # The worker is told to stop while the run waits unread in its socket.
    running.freeze(1.0)
    call = client.call(name, "go", wait=False)["call_id"]
    eventually(lambda: client.get_result(call)["status"] == "running")
    running.stop()
    assert client.wait(call, timeout=10).summary == "finished"


def test_limits_are_declared(client: A2AClient, start: StartWorker) -> None:
    able = start(lambda run: str(run.task["sandbox"]), enforces=["no_network"])
    assert "allow_network" in client.call(able, "go", sandbox={"allow_network": False}).summary
    unable = start(lambda run: "ran")
    with pytest.raises(sdk.CallFailed) as refused:
        client.call(unable, "go", sandbox={"allow_network": False})
    assert refused.value.code == "refused"


def test_a_worker_needs_an_agent_and_a_function(hub: Hub) -> None:
    with pytest.raises(sdk.SettingsError):
        Worker(url=hub.url, key=hub.key)
    with pytest.raises(sdk.SettingsError):
        asyncio.run(Worker("x", url=hub.url, key=hub.key).serve())
