"""A run on a channel: its reports, one after the other, and its questions."""
from __future__ import annotations

import asyncio
import json
import logging
import mimetypes
import os
import uuid
from collections import deque
from pathlib import Path
from typing import Any

from . import channel as ch
from ._aio.client import AsyncA2AClient
from .calls import CallReply
from .errors import HubError, NotFound, RunConflict, from_frame
from .run import Answer, Fail, Reply, Run, RunCancelled, describe

log = logging.getLogger("attache_sdk")

_ACTIONS = {"chunk": "chunk", "thought": "think", "log": "log", "progress": "progress"}
_QUESTIONS = {"permission": "require_approval", "input": "require_input"}
# How many reports may wait for the hub before `write` and the others wait too.
_MAX_QUEUED = 64
_MAX_CHUNK = 10_000
_MAX_FRAME = 1 << 20
_TOO_LARGE = {
    "code": "too_large",
    "message": "A message to the hub has at most 1 MiB.",
    "hint": "Hand over larger data as a file: run.attach(path).",
}
# A longer text may not fit into a frame.
_MAX_TEXT = 150_000
_MAX_REASON = 1_000
_RESEND_AFTER = 1.0
_DRAIN_TIMEOUT = 2.0


class Wire:
    """What the runs of a worker share: the channel, whichever connection carries it, and a client with the agent's key."""

    def __init__(self, channel: ch.Channel, client: AsyncA2AClient) -> None:
        self.client = client
        self._channel = channel
        self._outbox: asyncio.Queue[str] | None = None
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}

    def connect(self) -> asyncio.Queue[str]:
        """A new connection. What was never answered goes first."""
        self._outbox = asyncio.Queue()
        for text in self._channel.unanswered():
            self._outbox.put_nowait(text)
        return self._outbox

    def disconnect(self) -> None:
        self._outbox = None

    def post(self, text: str) -> None:
        if self._outbox is not None:
            self._outbox.put_nowait(text)

    async def request(self, payload: dict[str, Any], msg_id: str) -> dict[str, Any]:
        """The hub's answer, over as many connections as it takes."""
        text = self._channel.request(payload, msg_id)
        if len(text.encode()) > _MAX_FRAME:
            # Sent, it would break this connection and the next ones.
            self._channel.forget(msg_id)
            raise from_frame(_TOO_LARGE)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[msg_id] = answer
        self.post(text)
        try:
            return await answer
        finally:
            self._answers.pop(msg_id, None)
            self._channel.forget(msg_id)

    async def drain(self) -> None:
        """Takes no more runs. Once the hub has answered, none is on its way."""
        if self._outbox is not None:
            try:
                await asyncio.wait_for(self.request({"action": "drain"}, uuid.uuid4().hex), _DRAIN_TIMEOUT)
            except (asyncio.TimeoutError, HubError):
                pass  # disconnected: the hub queues again what never arrived

    def answered(self, msg_id: str, payload: dict[str, Any]) -> None:
        answer = self._answers.get(msg_id)
        if answer is not None and not answer.done():
            answer.set_result(payload)

    def refused(self, msg_id: str | None, error: dict[str, Any]) -> None:
        if msg_id is None:
            return
        text = self._channel.pending(msg_id)
        if text is not None:
            asyncio.get_running_loop().call_later(_RESEND_AFTER, self._send_again, msg_id)
            return
        answer = self._answers.get(msg_id)
        if answer is not None and not answer.done():
            answer.set_exception(from_frame(error))

    def _send_again(self, msg_id: str) -> None:
        text = self._channel.pending(msg_id)
        if text is not None:
            self.post(text)


class ChannelRun(Run):
    """One run of a Worker."""

    def __init__(self, task: dict[str, Any], wire: Wire) -> None:
        super().__init__(task)
        self.epoch: int = task["epoch"]
        self.given_up: str | None = None
        self._wire = wire
        self._about = {"task_run_id": self.id, "epoch": self.epoch}
        self._reports: deque[tuple[str, dict[str, Any]]] = deque()
        self._count = 0
        self._questions = 0
        self._received: set[str] = set()
        self._moved = asyncio.Condition()
        self._pump: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None
        self._handler: asyncio.Future[Answer] | None = None

    @property
    def client(self) -> AsyncA2AClient:
        """A client with the agent's own key."""
        return self._wire.client

    async def call(self, agent: str, task: str, **options: Any) -> CallReply:
        reply: CallReply = await self.client.call(agent, task, parent_run=self.id, **options)
        return reply

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        payload = {"action": "call_tool", **self._about, "tool_name": name, "arguments": arguments or {}}
        return (await self._ask(payload)).get("result")

    async def attach(self, path: str | os.PathLike[str], *, name: str | None = None, media_type: str | None = None) -> None:
        file = Path(path)
        kind = media_type or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        made = await self.client.upload(self.workspace_id, name or file.name, file, media_type=kind)
        self.artifact_refs.append(made["artifact_id"])

    async def finish(self, outcome: Answer | Fail) -> None:
        """Reports everything, then how it ended. Returns once the hub has it."""
        await self._flush()
        try:
            end = await self._end_of(outcome)
        except Exception as error:
            end = self._unreportable(outcome, error)
        try:
            await self._end(end)
        except (RunConflict, NotFound):
            raise
        except Exception as error:
            # Without an end, the run would stay open until somebody cancels it.
            await self._end(self._unreportable(outcome, error))

    def worked_on_by(self, work: asyncio.Task[None]) -> None:
        self._work = work

    def handled_by(self, handler: asyncio.Future[Answer]) -> None:
        self._handler = handler

    def cancel(self) -> None:
        """The run is no longer ours: stops the function and reports nothing more."""
        self._stop_waiting()
        if self._work is not None:
            self._work.cancel()

    def give_up(self, reason: str) -> None:
        """Stops the function, or never starts it, and fails the run."""
        if self._handler is None:
            self.given_up = reason
        elif not self._handler.done() and self._work is not None:
            self.given_up = reason
            self._stop_waiting()
            self._work.cancel()

    def receive_input(self, msg_id: str, parts: list[Any]) -> None:
        # The same input may arrive again over a new channel.
        if msg_id not in self._received:
            self._received.add(msg_id)
            self._inputs.put_nowait(Reply(parts))

    def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()

    def _unreportable(self, outcome: Answer | Fail, error: Exception) -> dict[str, Any]:
        """The end of a run whose outcome can't be reported as it is."""
        log.error("the outcome of run %s wasn't accepted: %s", self.id, describe(error))
        text = f"{outcome}" if isinstance(outcome, Fail) else f"The answer wasn't accepted: {describe(error)}"
        return {"action": "fail", "error": text[:_MAX_REASON], "code": "task_failed"}

    async def _end_of(self, outcome: Answer | Fail) -> dict[str, Any]:
        if isinstance(outcome, Fail):
            return {"action": "fail", "error": str(outcome), "code": outcome.code}
        done: dict[str, Any] = {"action": "done", "output": await self._output(outcome)}
        if outcome.usage:
            done["usage_stats"] = outcome.usage
        return done

    async def _output(self, answer: Answer) -> dict[str, Any]:
        text, refs = answer.text, list(self.artifact_refs)
        output: dict[str, Any] = {"text": text, "artifact_refs": refs, **answer.output}
        if answer.details is not None:
            output["details"] = answer.details
        if len(text) > _MAX_TEXT:
            # Too long for a frame: the full text goes with the answer as a file.
            body = text.encode("utf-8", "replace")
            made = await self.client.upload(self.workspace_id, "output.txt", body, media_type="text/plain; charset=utf-8")
            refs.append(made["artifact_id"])
            output["text"] = text[:_MAX_TEXT]
            output["full_output"] = {"bytes": len(body), "artifact_index": len(refs) - 1}
        return output

    async def _end(self, payload: dict[str, Any]) -> None:
        await self._wire.request({**payload, **self._about}, uuid.uuid4().hex)

    async def _question(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        return await self._ask({"action": _QUESTIONS[kind], **self._about, **data})

    async def _ask(self, payload: dict[str, Any]) -> dict[str, Any]:
        self._questions += 1
        # A name of its own for each question of this claim.
        return await self._wire.request(payload, f"{payload['action']}-{self.id}-{self.epoch}-{self._questions}")

    async def _report(self, kind: str, data: dict[str, Any]) -> None:
        if self.cancelled:
            raise RunCancelled
        # What can't be sent fails here, in the function that reports it, and not in the pump that nobody waits for.
        json.dumps(data, allow_nan=False)
        async with self._moved:
            last = self._reports[-1] if self._reports else None
            if kind == "chunk" and last is not None and last[0] == "chunk" and len(last[1]["text"]) < _MAX_CHUNK // 2:
                # Text that waits for the hub anyway travels together.
                joined = last[1]["text"] + data["text"]
                if len(joined) <= _MAX_CHUNK:
                    self._reports[-1] = ("chunk", {"text": joined})
                    return
            await self._moved.wait_for(lambda: len(self._reports) < _MAX_QUEUED)
            self._reports.append((kind, data))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.ensure_future(self._send_reports())

    async def _send_reports(self) -> None:
        """One report at a time, each numbered: the hub takes it once, however often it is sent."""
        while self._reports:
            kind, data = self._reports[0]
            # From here on it can't grow.
            self._reports[0] = (f"sent {kind}", data)
            self._count += 1
            payload = {"action": _ACTIONS[kind], **self._about, "report": self._count, **_renamed(kind, data)}
            try:
                await self._wire.request(payload, uuid.uuid4().hex)
            except (RunConflict, NotFound):
                self.cancel()
                return
            except Exception as error:
                # For example because the run has reported too much. The run goes on.
                log.debug("a report of run %s was dropped: %s", self.id, error)
            async with self._moved:
                self._reports.popleft()
                self._moved.notify_all()

    async def _flush(self) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: not self._reports)


def _renamed(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """The members of a report under the names of a channel's frames."""
    if kind == "thought":
        return {"thought_text": data["text"]}
    if kind == "progress":
        return {("usage_stats" if name == "usage" else name): value for name, value in data.items()}
    return data
