"""The adapter server: with the real runtime in front of it, and against docs/adapter.md, call by call."""
from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import attache_sdk as sdk
import httpx
import pytest
from attache_sdk import A2AClient, BlockingRun, Run
from device import RunningAdapter, Runtime
from hub import PATIENCE, Hub, eventually, free_port

TASK = {"task_run_id": "run_1", "conversation_id": "cnv_1", "workspace_id": "wsp_1", "task_type": "prompt", "input": {"text": "one two"}}
STREAM = {"accept": "text/event-stream"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "device"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("A2A_HOME", str(folder))
    return folder


class Direct:
    """Requests as a runtime sends them."""

    def __init__(self, running: RunningAdapter, home: Path) -> None:
        name = running.url.removeprefix("http://").replace(":", "_")
        file = home / "adapters" / name
        assert file.stat().st_mode & 0o777 == 0o600
        self.running = running
        self.http = httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {file.read_text().strip()}"}, timeout=20)

    def run(self, task: dict[str, Any] = TASK) -> Any:
        return self.http.post("/run-task", json=task).json()

    def events(self, after: int = 0, task: dict[str, Any] = TASK) -> Generator[tuple[int, str, Any], None, None]:
        with self.http.stream("POST", "/run-task", json=task, headers={**STREAM, "last-event-id": str(after)}) as response:
            assert response.status_code == 200
            yield from parsed(response.iter_lines())


def parsed(lines: Iterator[str]) -> Iterator[tuple[int, str, Any]]:
    event: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line == "" and event:
            yield int(event["id"]), event["event"], json.loads(event["data"])
            event = {}
        elif name in ("id", "event", "data"):
            event[name] = value


def count(run: BlockingRun) -> str:
    for word in run.text.split():
        run.write(word)
    run.log("counted")
    return f"{len(run.text.split())} words"


@pytest.fixture
def serve(home: Path) -> Iterator[Any]:
    running: list[RunningAdapter] = []

    def begin(handler: Any, **options: Any) -> Direct:
        running.append(RunningAdapter(handler, **options))
        return Direct(running[-1], home)

    yield begin
    for one in running:
        one.stop()


def test_a_task_is_answered_streamed_and_replayed(serve: Any) -> None:
    direct: Direct = serve(count)
    health = {"ok": True, "host": {"type": "custom", "version": sdk.__version__}, "running": None, "also_running": []}
    assert direct.http.get("/health").json() == health
    reply = {"success": True, "output": {"text": "2 words", "artifact_refs": []}}
    assert direct.run() == reply
    # What is written within a moment travels together.
    wanted = [(1, "chunk", {"text": "onetwo"}), (2, "log", {"level": "info", "message": "counted"}), (3, "result", reply)]
    assert list(direct.events()) == wanted
    assert list(direct.events(after=1)) == wanted[1:]
    assert list(direct.events(after=99)) == wanted, "an id from before a restart replays everything"
    with direct.http.stream("GET", "/run-task/run_1/events") as response:
        assert list(parsed(response.iter_lines())) == wanted


def test_text_is_shown_while_the_function_works(serve: Any) -> None:
    go = threading.Event()

    def slowly(run: BlockingRun) -> str:
        run.write("first")
        go.wait(20)
        run.write("x" * 9000)
        return "done"

    direct: Direct = serve(slowly)
    events = direct.events()
    assert next(events) == (1, "chunk", {"text": "first"})
    go.set()
    assert [kind for _, kind, _ in events] == ["chunk", "result"]


def test_web_pages_strangers_and_nonsense_are_refused(serve: Any) -> None:
    direct: Direct = serve(count)
    post = direct.http.post

    def refused(response: httpx.Response) -> tuple[int, str]:
        return response.status_code, response.json()["error"]["code"]

    assert refused(post("/run-task", json=TASK, headers={"authorization": "Bearer wrong"})) == (401, "unauthenticated")
    assert refused(post("/run-task", json=TASK, headers={"host": "evil.example:80"})) == (421, "wrong_host")
    assert refused(post("/run-task", json=TASK, headers={"origin": "https://evil.example"})) == (403, "foreign_origin")
    assert refused(post("/run-task", content=b"{}", headers={"content-type": "text/plain"})) == (415, "unsupported_media_type")
    as_json = {"content-type": "application/json"}
    assert refused(post("/run-task", content=b"{", headers=as_json)) == (400, "invalid_json")
    assert refused(post("/run-task", content=b"[" * 9999, headers=as_json))[0] == 400
    assert refused(post("/run-task", content=b'{"a":' + b"[" * 70 + b"]" * 70 + b"}", headers=as_json)) == (400, "json_too_deep")
    assert refused(post("/run-task", json={"task_run_id": "x"})) == (400, "invalid_request")
    assert refused(post("/run-task", content=b" " * (8 << 20) + b"{}", headers=as_json)) == (413, "too_large")
    assert refused(direct.http.get("/run-task")) == (405, "method_not_allowed")
    assert refused(direct.http.get("/nothing")) == (404, "no_such_path")
    assert refused(post("/run-task/run_9/cancel")) == (404, "not_found")
    with pytest.raises(sdk.SettingsError):
        sdk.Adapter(count, host="0.0.0.0")


def test_one_task_at_a_time_and_the_same_task_is_rejoined(serve: Any) -> None:
    go, executions = threading.Event(), []

    def waits(run: BlockingRun) -> str:
        executions.append(run.id)
        run.log("begun")
        go.wait(20)
        return "done"

    direct: Direct = serve(waits)
    stream = direct.events()
    assert next(stream)[1] == "log"
    stream.close()  # the runtime is gone; the task goes on
    assert direct.http.get("/health").json()["running"] == "run_1"
    busy = direct.http.post("/run-task", json={**TASK, "task_run_id": "run_2"})
    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "busy")
    go.set()
    assert [kind for _, kind, _ in direct.events()] == ["log", "result"]
    assert direct.run({**TASK, "task_run_id": "run_2"})["success"]
    assert executions == ["run_1", "run_2"]


def test_questions_wait_and_the_first_answer_counts(serve: Any) -> None:
    async def asks(run: Run) -> str:
        decision = await run.approve("shell", {"command": "rm"}, risk="high", paths=["/a"])
        return f"{decision.approved} {decision.comment} {await run.ask('Which?')}"

    direct: Direct = serve(asks, asks=True)
    assert direct.http.get("/health").json()["asks"] is True
    events = direct.events()
    question = {"id": "permission-1", "tool": "shell", "input": {"command": "rm"}, "paths": ["/a"], "risk": "high"}
    assert next(events) == (1, "permission", question)
    for answer in ({"approved": True, "comment": "ok"}, {"approved": False}):
        assert direct.http.post("/run-task/run_1/permission/permission-1", json=answer).json() == {}
    assert direct.http.post("/run-task/run_1/permission/other", json={"approved": True}).status_code == 404
    assert next(events) == (2, "input_required", {"id": "input-2", "prompt": "Which?"})
    assert direct.http.post("/run-task/run_1/input", json={"parts": [{"text": "this"}]}).json() == {}
    assert list(events)[-1][2]["output"]["text"] == "True ok this"


def test_cancel_answers_once_the_work_is_over(serve: Any) -> None:
    stopped = threading.Event()

    async def endless(run: Run) -> str:
        try:
            await run.ask("forever?")
        finally:
            stopped.set()
        return "never"

    direct: Direct = serve(endless)
    events = direct.events()
    next(events)
    outcome = direct.http.post("/run-task/run_1/cancel").json()
    assert stopped.is_set() and (outcome["success"], outcome["error"]["code"]) == (False, "cancelled")
    assert list(events)[-1][2] == outcome
    assert next(direct.events())[1] == "input_required", "a cancelled run that is requested again is a new attempt"


def test_a_run_cancelled_before_its_first_step_ends(home: Path) -> None:
    async def main() -> Any:
        run = sdk.AdapterRun(TASK)
        run.start(lambda run: "never")
        return await run.cancel()

    assert asyncio.run(asyncio.wait_for(main(), 5))["error"]["code"] == "cancelled"


def test_the_deadline_ends_the_work_but_not_while_a_person_thinks(serve: Any) -> None:
    async def asks(run: Run) -> str:
        await run.ask("Which?")
        return "in time"

    def soon(seconds: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + seconds))

    direct: Direct = serve(asks)
    events = direct.events(task={**TASK, "deadline": soon(1)})
    next(events)
    time.sleep(1.5)
    direct.http.post("/run-task/run_1/input", json={"id": "input-1", "parts": [{"text": "x"}]})
    assert list(events)[-1][2]["output"]["text"] == "in time"

    direct = serve(lambda run: time.sleep(20))
    assert direct.run({**TASK, "deadline": soon(1)})["error"]["code"] == "timed_out"


def test_a_restarted_adapter_keeps_its_secret(serve: Any, home: Path) -> None:
    port = free_port()
    file = home / "adapters" / f"127.0.0.1_{port}"
    first: Direct = serve(count, port=port)
    secret = file.read_text()
    first.running.stop()
    file.chmod(0o644)
    again: Direct = serve(count, port=port)
    assert file.read_text() == secret, "the file is private again, and says the same"
    assert again.run()["success"]
    again.running.stop()
    for damaged in (b"", b"\n", b"two words\n", b"\xff\xfe", b"\0\0\0\0"):
        file.write_bytes(damaged)
        next_one: Direct = serve(count, port=port)
        assert next_one.run()["success"] and len(file.read_text().strip()) >= 32
        next_one.running.stop()
    given: Direct = serve(count, port=port, secret="mine")
    assert (given.run()["success"], file.read_text()) == (True, "mine\n")
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_secret_of_a_port_that_the_system_picked_ends_with_its_adapter(serve: Any, home: Path) -> None:
    direct: Direct = serve(count)
    direct.running.stop()
    assert list((home / "adapters").iterdir()) == []


async def goes_wrong(run: Run) -> Any:
    """Each in a way that shows only after the function has returned, or isn't an ordinary exception."""
    match run.text:
        case "bytes":
            return b"bytes"
        case "details":
            return sdk.Answer("x", details=b"bytes")
        case "number":
            return sdk.Answer("x", details=float("nan"))
        case "output":
            return sdk.Answer("x", output=5)  # type: ignore[arg-type]
        case "attached":
            run.artifact_refs.append(object())
        case "exit":
            raise SystemExit(3)
        case "cancelled":
            raise asyncio.CancelledError
    return "fine"


WRONG = ["bytes", "details", "number", "output", "attached", "exit", "cancelled", "deadline"]


@pytest.mark.parametrize("text", WRONG)
def test_whatever_goes_wrong_ends_the_task_and_not_the_adapter(
    serve: Any, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    direct: Direct = serve(goes_wrong)
    deadline = {"deadline": "tomorrow"} if text == "deadline" else {}
    failed = direct.run({**TASK, "input": {"text": text}, **deadline})
    assert (failed["success"], failed["error"]["code"]) == (False, "task_failed")
    if text == "bytes":
        assert failed["error"]["message"] == "The agent's function returned bytes. Return str or Answer."
        assert failed["error"]["message"] in caplog.text, "the adapter's own log says it too"
    assert direct.http.get("/health").json()["running"] is None
    assert direct.run({**TASK, "task_run_id": "run_last"})["output"]["text"] == "fine"


def test_an_adapter_ends_when_it_is_told_to(home: Path) -> None:
    script = "import attache_sdk as sdk; sdk.Adapter(lambda run: b'bytes', port=0, secret='s').run()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        try:
            answer = httpx.post(f"{url}/run-task", json=TASK, headers={"authorization": "Bearer s"}, timeout=PATIENCE).json()
            assert answer["success"] is False
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_a_pairing_survives_a_restart_of_the_adapter(hub: Hub, client: A2AClient, home: Path, serve: Any) -> None:
    port = free_port()
    first: Direct = serve(lambda run: "first", port=port)
    runtime = Runtime(hub, client, "restarted", home, "--local-agent-endpoint", first.running.url)
    try:
        runtime.start()
        assert client.call("restarted", "who?", wait_timeout=PATIENCE).summary == "first"
        first.running.stop()
        serve(lambda run: "second", port=port)
        assert client.call("restarted", "who?", wait_timeout=PATIENCE).summary == "second"
    finally:
        runtime.kill()


def test_with_the_real_runtime(hub: Hub, client: A2AClient, home: Path, serve: Any, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    executions: list[str] = []
    go = threading.Event()

    def agent(run: BlockingRun) -> sdk.Answer:
        executions.append(run.text)
        run.think("hm")
        if run.text == "fail":
            raise sdk.Fail("no disk", "refused")
        if run.text == "wait":
            run.write("first ")
            go.wait(20)
            run.write("second")
        if run.text == "ask":
            return sdk.Answer(f"{run.approve('shell', {'command': 'rm'}).approved} {run.ask('Which?')}")
        (work / "out.txt").write_text("file")
        run.attach("out.txt", media_type="text/plain")
        return sdk.Answer(f"did {run.text}", tokens=3)

    direct: Direct = serve(agent, asks=True)
    runtime = Runtime(hub, client, "adapted", home, "--local-agent-endpoint", str(direct.http.base_url).rstrip("/"), "--cwd", str(work))
    try:
        runtime.start()
        reply = client.call("adapted", "this")
        assert (reply.summary, reply.tokens) == ("did this", 3)
        assert client.read(reply.artifact_refs[0]) == b"file"
        with pytest.raises(sdk.CallFailed) as failed:
            client.call("adapted", "fail")
        assert (failed.value.code, failed.value.message) == ("refused", "no disk")

        call = client.call("adapted", "ask", wait=False)["call_id"]
        client.approve(eventually(lambda: list(client.approvals(run=call)))[0]["permission_request_id"])
        eventually(lambda: client.run(call).get("waiting") == "input")
        client.answer(call, "main")
        assert client.wait(call).summary == "True main"

        # The runtime is killed in the middle and rejoins the task.
        call = client.call("adapted", "wait", wait=False)["call_id"]
        eventually(lambda: any(event.text for event in _so_far(client, call)))
        runtime.kill()
        go.set()
        runtime.start()
        assert client.wait(call, timeout=20).summary == "did wait"
        assert "".join(event.text for event in client.watch(call)) == "first second"
        assert executions == ["this", "fail", "ask", "wait"], "each was executed once"
    finally:
        runtime.kill()


def _so_far(client: A2AClient, call: str) -> list[sdk.RunEvent]:
    page = client.request("GET", f"/api/v1/task-runs/run_{call[4:]}/events")
    return [sdk.RunEvent(**event) for event in page["events"]]
