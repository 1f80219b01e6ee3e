"""An adapter: the HTTP service between a runtime on this device and your function (docs/adapter.md)."""
from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from .adapter_http import EventStream, HttpError, HttpServer, Request
from .errors import SettingsError
from .run import Answer, Fail, Handler, Reply, Run, RunCancelled, describe, execute
from .settings import home
from .version import VERSION

log = logging.getLogger("attache_sdk")

H = TypeVar("H", bound=Handler)

_MAX_EVENTS = 10_000
_KEEP_ALIVE = 10.0
# A chunk is sent once it has so many characters or is so many seconds old.
_CHUNK, _CHUNK_AGE = 4096, 0.05
_KINDS = {"permission": "permission", "input": "input_required"}

Outcome = dict[str, Any]


class AdapterRun(Run):
    """One run of an Adapter: its events, kept so that a runtime can come back for them, and the answers to its questions."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__(task)
        self.cwd: str | None = task.get("cwd")
        self.outcome: Outcome | None = None
        self.dropped = 0
        self._events: deque[tuple[int, str, str]] = deque()
        self._last_id = 0
        self._chunk = ""
        self._questions: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._moved = asyncio.Condition()
        self._work: asyncio.Task[None] | None = None
        self._handler: asyncio.Future[Answer] | None = None
        self._open_questions = 0
        self._asked_at = 0.0
        self._waited = 0.0

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        raise Fail("The caller's tools can be used on a channel only: serve this function with a Worker.", "rejected")

    async def attach(self, path: str | os.PathLike[str], *, name: str | None = None, media_type: str | None = None) -> None:
        # The runtime uploads it, from the folder that was set when the device was paired.
        found = {"path": str(path), "name": name, "media_type": media_type}
        self.artifact_refs.append({key: value for key, value in found.items() if value is not None})

    def start(self, handler: Handler) -> None:
        # Two tasks: the one that reports the outcome is never cancelled.
        self._handler = asyncio.ensure_future(execute(handler, self))
        self._work = asyncio.ensure_future(self._execute(self._handler))

    async def ended(self) -> dict[str, Any]:
        async with self._moved:
            await self._moved.wait_for(lambda: self.outcome is not None)
        assert self.outcome is not None
        return self.outcome

    async def cancel(self) -> dict[str, Any]:
        if self.outcome is None and self._handler is not None:
            self._stop_waiting()
            self._handler.cancel()
        return await self.ended()

    def answer(self, question: str | None, given: dict[str, Any]) -> bool:
        """The first answer counts. Input that nobody asked for is kept for the function."""
        if question is None:
            open_ones = (name for name, future in self._questions.items() if name.startswith("input-") and not future.done())
            question = next(open_ones, None)
            if question is None:
                self._inputs.put_nowait(Reply(given.get("parts") or []))
                return True
        future = self._questions.get(question)
        if future is not None and not future.done():
            future.set_result(given)
        return future is not None

    async def stream(self, after: int) -> AsyncGenerator[str, None]:
        """The events behind `after`, to the last one. An id that the run hasn't reached is from before a restart."""
        seen = after if after <= self._last_id else 0
        while True:
            async with self._moved:
                try:
                    await asyncio.wait_for(self._moved.wait_for(lambda: self._last_id > seen), _KEEP_ALIVE)
                except asyncio.TimeoutError:
                    pass
                events = [event for event in self._events if event[0] > seen]
            if not events:
                if self.outcome is not None:
                    return
                yield ":\n\n"
            for number, kind, data in events:
                seen = number
                yield f"id: {number}\nevent: {kind}\ndata: {data}\n\n"
                if kind == "result":
                    return

    async def _execute(self, handler: asyncio.Future[Answer]) -> None:
        """Without an outcome, the run would occupy this adapter for good, so whatever goes wrong becomes one."""
        try:
            outcome = await self._outcome(handler)
            json.dumps(outcome, allow_nan=False)
        except Exception as error:
            log.error("the outcome of run %s can't be reported: %s", self.id, describe(error))
            outcome = _failed("task_failed", f"The answer can't be reported: {describe(error)}")
        await self._tell("result", outcome)

    async def _outcome(self, handler: asyncio.Future[Answer]) -> Outcome:
        try:
            return self._succeeded(await self._within_deadline(handler))
        except Fail as failure:
            return _failed(failure.code, str(failure))
        except asyncio.TimeoutError:
            self._stop_waiting()
            return _failed("timed_out", "The deadline passed.")
        except (RunCancelled, asyncio.CancelledError):
            return _failed("cancelled", "The run was cancelled.")

    def _succeeded(self, answer: Answer) -> Outcome:
        output: dict[str, Any] = {"text": answer.text, "artifact_refs": self.artifact_refs, **answer.output}
        if answer.details is not None:
            output["details"] = answer.details
        if answer.usage:
            output["usage"] = answer.usage
        return {"success": True, "output": output}

    async def _within_deadline(self, task: asyncio.Future[Answer]) -> Answer:
        """The deadline moves by the time for which a question was open."""
        began, deadline = time.monotonic(), self._seconds_left()
        try:
            while True:
                left = None if deadline is None else began + deadline + self._waited - time.monotonic()
                pause = left if left is None or not self._open_questions else 1.0
                done, _ = await asyncio.wait({task}, timeout=pause)
                if done:
                    return task.result()
                if left is not None and left <= 0 and not self._open_questions:
                    raise asyncio.TimeoutError
        finally:
            task.cancel()

    def _seconds_left(self) -> float | None:
        text: str | None = self.task.get("deadline")
        if text is None:
            return None
        return (datetime.fromisoformat(text.replace("Z", "+00:00")) - datetime.now(timezone.utc)).total_seconds()

    async def _question(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        name = f"{kind}-{len(self._questions) + 1}"
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._questions[name] = future
        if self._open_questions == 0:
            self._asked_at = time.monotonic()
        self._open_questions += 1
        try:
            await self._tell(_KINDS[kind], {"id": name, **data})
            return await future
        finally:
            future.cancel()
            self._open_questions -= 1
            if self._open_questions == 0:
                self._waited += time.monotonic() - self._asked_at

    async def _report(self, kind: str, data: dict[str, Any]) -> None:
        if self.cancelled:
            raise RunCancelled
        if kind != "chunk":
            await self._tell(kind, data)
            return
        if not self._chunk:
            asyncio.get_running_loop().call_later(_CHUNK_AGE, lambda: asyncio.ensure_future(self._tell()))
        self._chunk += data["text"]
        if len(self._chunk) >= _CHUNK:
            await self._tell()

    async def _tell(self, kind: str | None = None, data: dict[str, Any] | None = None) -> None:
        """Sends the text that was collected, then an event."""
        async with self._moved:
            if self._chunk:
                self._add("chunk", {"text": self._chunk})
                self._chunk = ""
            if kind is not None and data is not None:
                self._add(kind, data)
                if kind == "result":
                    self.outcome = data
            self._moved.notify_all()

    def _add(self, kind: str, data: dict[str, Any]) -> None:
        text = json.dumps(data, allow_nan=False)
        self._last_id += 1
        self._events.append((self._last_id, kind, text))
        if len(self._events) > _MAX_EVENTS:
            self._drop()

    def _drop(self) -> None:
        """Keeps a bounded number of events, but every question."""
        for index, (number, kind, _) in enumerate(self._events):
            if kind not in ("permission", "input_required"):
                self.dropped += 1
                note = {"level": "warn", "message": f"{self.dropped} earlier events were dropped."}
                del self._events[index]
                if self._events and self.dropped == 1:
                    self._events.appendleft((number, "log", json.dumps(note)))
                return


def _failed(code: str, message: str) -> Outcome:
    return {"success": False, "error": {"code": code, "message": message}}


class Adapter:
    """Serves your function to the runtime on this device. Give it a function, then `run()`.

    The secret is in `$A2A_HOME/adapters/<host>_<port>`, where `attache runtime pair` finds it. The next adapter on that
    port has the same one, unless the port is 0, so a paired runtime survives a restart.
    """

    def __init__(
        self,
        handler: Handler | None = None,
        *,
        port: int = 7900,
        host: str = "127.0.0.1",
        asks: bool = False,
        host_type: str = "custom",
        version: str = VERSION,
        enforces: list[str] | None = None,
        concurrency: int = 1,
        secret: str | None = None,
        on_ready: Callable[[str], None] = lambda url: print(f"listening on {url}", flush=True),
    ) -> None:
        """`asks` declares that your function asks (`run.approve`) before every risky step: other agents can then call it
        without a person's approval of each task. `enforces` lists the limits of `sandbox` that you enforce.
        """
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise SettingsError(f"An adapter can't listen on {host}.", "It executes what it gets: use 127.0.0.1.")
        self._handler, self._host, self._wanted_port = handler, host, port
        self._health = {"ok": True, "host": {"type": host_type, "version": version}}
        if asks:
            self._health["asks"] = True
        if enforces:
            self._health["enforces"] = enforces
        if concurrency > 1:
            self._health["concurrency"] = concurrency
        self._concurrency = concurrency
        self._given_secret = secret
        self._on_ready = on_ready
        self._runs: dict[str, AdapterRun] = {}
        self._stopped: asyncio.Event | None = None

    def task(self, handler: H) -> H:
        """A decorator for the function that does the work: `def f(run)` or `async def f(run)`, which returns the answer."""
        self._handler = handler
        return handler

    def run(self) -> None:
        """Serves until the process is told to stop (SIGINT, SIGTERM)."""

        async def main() -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                try:
                    loop.add_signal_handler(number, self.stop)
                except (NotImplementedError, RuntimeError, ValueError):
                    pass  # not in the main thread, or not on this system
            await self.serve()

        asyncio.run(main())

    def stop(self) -> None:
        """Cancels what runs and ends `serve`. Call it from the loop's own thread."""
        if self._stopped is not None:
            self._stopped.set()

    async def serve(self) -> None:
        if self._handler is None:
            raise SettingsError("The adapter has no function.", "Decorate one with @adapter.task.")
        self._stopped = asyncio.Event()
        shown = "[::1]" if self._host == "::1" else "127.0.0.1" if self._host == "localhost" else self._host
        # A port that the system picks is another one each time. If it has a file, that was another adapter's.
        kept = _read_secret(_secret_file(shown, self._wanted_port)) if self._wanted_port else None
        secret = self._given_secret or kept or secrets.token_urlsafe(32)
        server = HttpServer(self._respond, secret)
        await server.start(self._host, self._wanted_port)
        file = _secret_file(shown, server.port)
        try:
            _write_secret(file, secret)
            self._on_ready(f"http://{shown}:{server.port}")
            await self._stopped.wait()
        finally:
            server.close()
            if self._wanted_port == 0:
                file.unlink(missing_ok=True)
            for run in self._runs.values():
                await run.cancel()

    async def _respond(self, request: Request) -> dict[str, Any] | EventStream:
        path = request.path
        if path == ["health"]:
            _only("GET", request)
            running = [run.id for run in self._runs.values() if run.outcome is None]
            return {**self._health, "running": running[0] if running else None, "also_running": running[1:]}
        if path[0] != "run-task" or len(path) > 4:
            raise HttpError(404, "no_such_path", "Try /health or /run-task.")
        if len(path) == 1:
            _only("POST", request)
            return await self._run_task(request)
        run = self._runs.get(path[1])
        if run is None:
            raise HttpError(404, "not_found", "No such run.")
        match path[2:]:
            case ["events"]:
                _only("GET", request)
                return EventStream(run.stream(_last_event_id(request)))
            case ["cancel"]:
                _only("POST", request)
                return await run.cancel()
            case ["permission", question]:
                _only("POST", request)
                found = run.answer(question, request.json())
            case ["input"]:
                _only("POST", request)
                given = request.json()
                found = run.answer(given.get("id"), given)
            case _:
                raise HttpError(404, "no_such_path", "Try /run-task.")
        if not found:
            raise HttpError(404, "not_found", "The run has no such question.")
        return {}

    async def _run_task(self, request: Request) -> dict[str, Any] | EventStream:
        assert self._handler is not None
        task = request.json()
        missing = [name for name in ("task_run_id", "conversation_id", "workspace_id", "input") if name not in task]
        if missing:
            raise HttpError(400, "invalid_request", f"`{missing[0]}` is missing.")
        run = self._runs.get(task["task_run_id"])
        # The same run again is rejoined, or its outcome replayed. A cancelled one is a new attempt.
        if run is None or (run.cancelled and run.outcome is not None):
            busy = [other.id for other in self._runs.values() if other.outcome is None]
            if len(busy) >= self._concurrency:
                raise HttpError(409, "busy", f"This adapter is busy with {', '.join(busy)}.")
            # The runs that ended last stay, so that a runtime that comes back gets their outcome.
            ended = [other.id for other in self._runs.values() if other.outcome is not None]
            for forgotten in ended[: -self._concurrency]:
                del self._runs[forgotten]
            self._runs.pop(task["task_run_id"], None)
            run = self._runs[task["task_run_id"]] = AdapterRun(task)
            run.start(self._handler)
        if "text/event-stream" in request.headers.get("accept", ""):
            return EventStream(run.stream(_last_event_id(request)))
        return await run.ended()


def _only(method: str, request: Request) -> None:
    if request.method != method:
        raise HttpError(405, "method_not_allowed", f"Use {method}.")


def _last_event_id(request: Request) -> int:
    given = request.headers.get("last-event-id", "0")
    return int(given) if given.isdigit() else 0


def _secret_file(host: str, port: int) -> Path:
    return home() / "adapters" / f"{host}_{port}"


def _read_secret(path: Path) -> str | None:
    """The secret of the adapter that was here before. None if there is none that a header could carry."""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    is_sound = secret.isascii() and secret.isprintable() and len(secret.split()) == 1
    return secret if is_sound else None


def _write_secret(path: Path, secret: str) -> None:
    """Replaces the file in one step: whoever reads it meanwhile finds a complete secret, and nobody else can read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(secret + "\n")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
