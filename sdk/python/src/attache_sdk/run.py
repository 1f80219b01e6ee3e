"""A run as the agent sees it: the task, and how to report, ask and answer. Workers and adapters give it to your function."""
from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import threading
from abc import ABC, abstractmethod
from concurrent.futures import CancelledError, Future
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union, cast

from .calls import CallReply
from .errors import AttacheError, HubError

log = logging.getLogger("attache_sdk")

T = TypeVar("T")

# An event has at most 64 KiB, and a control character takes six bytes in JSON.
_PIECE = 10_000


@dataclass(frozen=True)
class Decision:
    """A person's answer to `approve`. True if approved."""

    approved: bool
    scope: str | None = None
    comment: str | None = None

    def __bool__(self) -> bool:
        return self.approved


@dataclass(frozen=True)
class Reply:
    """The caller's answer to `ask`."""

    parts: list[Any]

    @property
    def text(self) -> str:
        return " ".join(part["text"] for part in self.parts if isinstance(part, dict) and "text" in part)

    def __str__(self) -> str:
        return self.text


@dataclass
class Answer:
    """What your function returns, if text isn't enough."""

    text: str
    details: Any = None
    tokens: int | None = None
    cost_usd: float | None = None
    output: dict[str, Any] = field(default_factory=dict)
    """Further members of the output."""

    @property
    def usage(self) -> dict[str, float]:
        found = {"tokens": self.tokens, "cost_usd": self.cost_usd}
        return {name: value for name, value in found.items() if value is not None}


class Fail(Exception):
    """Raise it to fail the run. The caller sees the message; `code` is one of docs/errors.md, "How a run fails"."""

    def __init__(self, message: str, code: str = "task_failed") -> None:
        # Whatever was given must reach the caller, and only text does.
        super().__init__(str(message))
        self.code = str(code)


class RunCancelled(AttacheError):
    """The run was cancelled, or is no longer yours. Stop working on it."""

    def __init__(self) -> None:
        super().__init__("The run was cancelled.", code="cancelled")


class Run(ABC):
    """One run, for an `async def` function."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        """The task as it arrived, with members that this class doesn't name."""
        self.id: str = task["task_run_id"]
        self.conversation_id: str = task["conversation_id"]
        self.workspace_id: str = task["workspace_id"]
        self.input: Any = task["input"]
        self.instructions: str | None = task.get("instructions")
        self.cancelled = False
        self.artifact_refs: list[Any] = []
        self._inputs: asyncio.Queue[Reply] = asyncio.Queue()
        self._waiting: set[Future[Any]] = set()
        """What plain functions wait for in their threads."""

    @property
    def text(self) -> str:
        """The task's text."""
        text = self.input.get("text") if isinstance(self.input, dict) else None
        return text if isinstance(text, str) else json.dumps(self.input)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The caller's tools, if it offers any: `[{"name", "description", "input_schema"}]`."""
        tools: list[dict[str, Any]] = self.task.get("tools") or []
        return tools

    async def write(self, text: str) -> None:
        """The next piece of the answer, shown while you work."""
        for at in range(0, len(text), _PIECE):
            await self._report("chunk", {"text": text[at : at + _PIECE]})

    async def think(self, text: str) -> None:
        """The next piece of the reasoning."""
        for at in range(0, len(text), _PIECE):
            await self._report("thought", {"text": text[at : at + _PIECE]})

    async def log(self, message: str, level: str = "info") -> None:
        await self._report("log", {"level": level, "message": message[:_PIECE]})

    async def progress(
        self, message: str | None = None, percent: float | None = None, *, tokens: int | None = None, cost_usd: float | None = None
    ) -> None:
        """What you are doing, how far you are (0 to 100), and the usage so far (totals)."""
        usage = Answer("", tokens=tokens, cost_usd=cost_usd).usage
        found = {"message": message, "percent": percent, "usage": usage or None}
        await self._report("progress", {name: value for name, value in found.items() if value is not None})

    async def approve(
        self,
        tool: str,
        input: Any,
        *,
        cwd: str | None = None,
        paths: Sequence[str] | None = None,
        reason: str | None = None,
        risk: str | None = None,
        diff: str | None = None,
        undisclosed: Sequence[str] | None = None,
    ) -> Decision:
        """Asks a person before a risky step, and waits for hours if necessary. `input` is exactly what will be done."""
        question = {
            "tool": tool,
            "input": input,
            "cwd": cwd,
            "paths": None if paths is None else list(paths),
            "reason": reason,
            "risk": risk,
            "diff": diff,
            "undisclosed": None if undisclosed is None else list(undisclosed),
        }
        given = await self._question("permission", {key: value for key, value in question.items() if value is not None})
        return Decision(bool(given.get("approved")), given.get("scope"), given.get("comment"))

    async def ask(self, prompt: str, *, parts: Sequence[Any] | None = None) -> Reply:
        """Asks the caller, and waits for the answer."""
        question: dict[str, Any] = {"prompt": prompt}
        if parts is not None:
            question["parts"] = list(parts)
        return Reply((await self._question("input", question)).get("parts") or [])

    async def next_input(self) -> Reply:
        """Waits for input that the caller sends without being asked."""
        return await self._inputs.get()

    async def call(self, agent: str, task: str, **options: Any) -> CallReply:
        """Calls another agent as part of this run, and waits for its answer. `options` are those of the client's `call`."""
        raise Fail("Other agents can be called on a channel only: serve this function with a Worker.", "rejected")

    @abstractmethod
    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Lets the caller run one of its `tools`, and returns the result."""

    @abstractmethod
    async def attach(self, path: str | os.PathLike[str], *, name: str | None = None, media_type: str | None = None) -> None:
        """Hands a file over with the answer."""

    def _stop_waiting(self) -> None:
        """A plain function can't be interrupted, but it gets RunCancelled from whatever it waits for or does next."""
        self.cancelled = True
        for future in list(self._waiting):
            future.cancel()

    @abstractmethod
    async def _report(self, kind: str, data: dict[str, Any]) -> None: ...

    @abstractmethod
    async def _question(self, kind: str, data: dict[str, Any]) -> dict[str, Any]: ...


class BlockingRun:
    """The same run, for a plain `def` function, which has a thread of its own. See `Run` for each method."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._run, self._loop = run, loop
        self.id, self.text, self.input, self.task = run.id, run.text, run.input, run.task
        self.conversation_id, self.workspace_id = run.conversation_id, run.workspace_id
        self.instructions, self.tools = run.instructions, run.tools

    @property
    def cancelled(self) -> bool:
        return self._run.cancelled

    def write(self, text: str) -> None:
        self._wait(self._run.write(text))

    def think(self, text: str) -> None:
        self._wait(self._run.think(text))

    def log(self, message: str, level: str = "info") -> None:
        self._wait(self._run.log(message, level))

    def progress(
        self, message: str | None = None, percent: float | None = None, *, tokens: int | None = None, cost_usd: float | None = None
    ) -> None:
        self._wait(self._run.progress(message, percent, tokens=tokens, cost_usd=cost_usd))

    def approve(
        self,
        tool: str,
        input: Any,
        *,
        cwd: str | None = None,
        paths: Sequence[str] | None = None,
        reason: str | None = None,
        risk: str | None = None,
        diff: str | None = None,
        undisclosed: Sequence[str] | None = None,
    ) -> Decision:
        asked = self._run.approve(
            tool, input, cwd=cwd, paths=paths, reason=reason, risk=risk, diff=diff, undisclosed=undisclosed
        )
        return self._wait(asked)

    def ask(self, prompt: str, *, parts: Sequence[Any] | None = None) -> Reply:
        return self._wait(self._run.ask(prompt, parts=parts))

    def next_input(self) -> Reply:
        return self._wait(self._run.next_input())

    def call(self, agent: str, task: str, **options: Any) -> CallReply:
        return self._wait(self._run.call(agent, task, **options))

    def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return self._wait(self._run.call_tool(name, arguments))

    def attach(self, path: str | os.PathLike[str], *, name: str | None = None, media_type: str | None = None) -> None:
        self._wait(self._run.attach(path, name=name, media_type=media_type))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._run.cancelled:
            work.close()
            raise RunCancelled
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._run._waiting.add(future)
        try:
            if self._run.cancelled:
                future.cancel()
            return future.result()
        except (asyncio.CancelledError, CancelledError) as cause:
            raise RunCancelled from cause
        finally:
            self._run._waiting.discard(future)


Result = Union[str, Answer, None]
AsyncHandler = Callable[[Run], Awaitable[Result]]
BlockingHandler = Callable[[BlockingRun], Result]
Handler = Union[AsyncHandler, BlockingHandler]


async def execute(handler: Handler, run: Run) -> Answer:
    """Runs your function. Every exception but a cancellation of the run becomes Fail."""
    try:
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None)):
            result = await cast(AsyncHandler, handler)(run)
        else:
            result = await _in_thread(cast(BlockingHandler, handler), BlockingRun(run, asyncio.get_running_loop()))
    except Fail:
        raise
    except (RunCancelled, asyncio.CancelledError) as stopped:
        if run.cancelled:
            raise
        # Something that the function waited for was cancelled. Nobody cancelled the run, so somebody waits for its end.
        raise Fail(f"{type(stopped).__name__} in the agent's function, but the run wasn't cancelled.") from stopped
    except HubError as error:
        raise Fail(str(error), "permission_denied" if error.code == "approval_denied" else "task_failed") from error
    except (Exception, SystemExit) as error:
        log.error("run %s failed", run.id, exc_info=error)
        raise Fail(describe(error)) from error
    try:
        return _answer(result)
    except Fail as failure:
        log.error("run %s failed: %s", run.id, failure)
        raise


def _answer(result: object) -> Answer:
    """The answer that a function returned. Without type annotations, that can be anything."""
    if result is None or isinstance(result, str):
        return Answer(result or "")
    if not isinstance(result, Answer):
        raise Fail(f"The agent's function returned {type(result).__name__}. Return str or Answer.")
    if not isinstance(result.text, str):
        raise Fail(f"The agent's function returned an Answer whose text is {type(result.text).__name__}. Make it str.")
    return result


def describe(error: BaseException) -> str:
    """An error as text. The text of someone else's exception can be an error itself."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:
        return name


async def _in_thread(handler: BlockingHandler, run: BlockingRun) -> Result:
    """A daemon thread of its own: a function that never ends must not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = handler(run)
        except BaseException as raised:
            # StopIteration can't be an exception of a future, and SystemExit would end the loop.
            error = raised if isinstance(raised, Exception) and not isinstance(raised, StopIteration) else Fail(repr(raised))
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for the result

    threading.Thread(target=work, name=f"attache-{run.id}", daemon=True).start()
    return await done
