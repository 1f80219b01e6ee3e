"""An agent on a channel: takes runs from a hub, works on them, and survives every broken connection."""
from __future__ import annotations

import asyncio
import json
import logging
import signal
import ssl
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from . import channel as ch
from ._aio.client import AsyncA2AClient
from .errors import (
    HubError,
    NotFound,
    RunConflict,
    SettingsError,
    Superseded,
    Unauthenticated,
    Untrusted,
    from_frame,
    from_reply,
)
from .retry import Backoff
from .run import Answer, Fail, Handler, RunCancelled, execute
from .settings import HubSettings, resolve
from .tls import PinMismatch, context_for
from .version import USER_AGENT
from .worker_run import ChannelRun, Wire

log = logging.getLogger("attache_sdk")

H = TypeVar("H", bound=Handler)

_OPEN_TIMEOUT = 10.0
# An `execute` carries the input twice.
_MAX_FRAME = 8 << 20


class _Connect(connect):
    """Follows no redirect: it could carry the key to another server."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Worker:
    """An agent. Give it a function, then `run()`.

    `Worker("counter")` registers the agent `counter` with your key, the one that A2AClient() would use, and works with the
    key it gets. With `agent_key`, it uses that key and registers nothing.
    """

    def __init__(
        self,
        agent: str | None = None,
        handler: Handler | None = None,
        *,
        url: str | None = None,
        key: str | None = None,
        pin: str | None = None,
        context: str | None = None,
        agent_key: str | None = None,
        concurrency: int = 1,
        capabilities: Sequence[str] = (),
        device_info: dict[str, Any] | None = None,
        enforces: Sequence[str] = (),
        grace: float = 10.0,
        on_state: Callable[[str], None] | None = None,
    ) -> None:
        """`capabilities` are names that callers can use instead of the agent's. `enforces` lists the limits of `sandbox`
        that you enforce. `grace` is how long runs may finish after `stop`. `on_state` is told of every connect and
        disconnect; without it, `run` prints them to stderr.
        """
        if agent is None and agent_key is None:
            raise SettingsError("The worker has no agent.", 'Pass a name, Worker("counter"), or the agent\'s own key.')
        if concurrency < 1:
            raise SettingsError("`concurrency` must be at least 1.", "It is the number of runs at a time.")
        self._agent, self._handler = agent, handler
        self._settings = resolve(url, agent_key or key, pin, context)
        self._has_own_key = agent_key is not None
        self._concurrency, self._grace = concurrency, grace
        self._capabilities, self._device_info, self._enforces = list(capabilities), device_info, list(enforces)
        self._on_state = on_state or log.info
        self._may_print = on_state is None
        self._prints = False
        self._runs: dict[str, ChannelRun] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._was_connected = False
        self._stopped: asyncio.Event | None = None
        self._wire: Wire | None = None

    def task(self, handler: H) -> H:
        """A decorator for the function that does the work: `def f(run)` or `async def f(run)`, which returns the answer."""
        self._handler = handler
        return handler

    def run(self) -> None:
        """Works until the process is told to stop (SIGINT, SIGTERM)."""
        self._prints = self._may_print

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
        """Takes no more runs, lets the current ones finish, then ends `serve`. Call it from the loop's own thread."""
        if not self._stopping:
            self._stopping = True
            if self._stopped is not None:
                self._stopped.set()

    async def serve(self) -> None:
        """Works until `stop`. Raises if the key isn't accepted, or another worker took over."""
        if self._handler is None:
            raise SettingsError("The worker has no function.", "Decorate one with @worker.task.")
        self._stopped = asyncio.Event()
        if self._stopping:
            self._stopped.set()
        settings = await self._own_settings()
        channel = ch.Channel(["streaming", "resume", "permissions", "artifacts"], self._device_info)
        async with AsyncA2AClient(settings.url, settings.key, pin=settings.pin) as client:
            self._wire = Wire(channel, client)
            connection = asyncio.ensure_future(self._stay_connected(settings, channel))
            stopping = asyncio.ensure_future(self._finish())
            try:
                done, _ = await asyncio.wait({connection, stopping}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for run in list(self._runs.values()):
                    run.cancel()
                for task in (connection, stopping, *self._work):
                    task.cancel()
                await asyncio.gather(connection, stopping, *self._work, return_exceptions=True)
                self._wire = None

    async def _finish(self) -> None:
        """Once stopped, waits for the runs; those that take too long fail."""
        assert self._stopped is not None and self._wire is not None
        await self._stopped.wait()
        await self._wire.drain()
        if self._work:
            await asyncio.wait(set(self._work), timeout=self._grace)
        for run in list(self._runs.values()):
            run.give_up("The agent was stopped before it finished.")
        if self._work:
            await asyncio.wait(set(self._work), timeout=2.0)

    async def _own_settings(self) -> HubSettings:
        """The hub with the agent's own key."""
        if self._has_own_key or self._agent is None:
            return self._settings
        async with AsyncA2AClient(self._settings.url, self._settings.key, pin=self._settings.pin) as client:
            made = await client.register(self._agent, capabilities=self._capabilities or None, device_info=self._device_info)
        return HubSettings(self._settings.url, made["api_key"], self._settings.pin)

    # === The connection ===

    async def _stay_connected(self, settings: HubSettings, channel: ch.Channel) -> None:
        backoff = Backoff(0.05, 5.0)
        while True:
            try:
                await self._connected(settings, channel, backoff)
                reason = "the hub closed the connection"
            except InvalidStatus as refused:
                error = from_reply(settings.url, refused.response.status_code, bytes(refused.response.body or b""))
                if refused.response.status_code < 500 and refused.response.status_code not in (408, 429):
                    raise error from refused
                reason = str(error)
            except ConnectionClosed as closed:
                close = closed.rcvd
                reason = f"{close.code} {close.reason}".strip() if close else "the connection broke"
                if close is not None and close.code == 1008 and close.reason == "superseded":
                    raise Superseded from closed
                if close is not None and close.code == 1008 and close.reason == "unauthenticated":
                    raise Unauthenticated(401, _REVOKED) from closed
            except (ssl.SSLCertVerificationError, PinMismatch) as distrust:
                if not self._was_connected:
                    raise Untrusted(settings.url, getattr(distrust, "verify_message", "") or str(distrust.args[-1])) from distrust
                reason = str(distrust)
            except HubError as refused_opening:
                if refused_opening.code not in ch.TEMPORARY:
                    raise
                reason = str(refused_opening)
            except (OSError, InvalidHandshake, EOFError, asyncio.TimeoutError) as broken:
                reason = str(broken) or type(broken).__name__
            self._announce(f"disconnected: {reason}", f"disconnected ({reason}), trying again")
            await asyncio.sleep(backoff.next())

    async def _connected(self, settings: HubSettings, channel: ch.Channel, backoff: Backoff) -> None:
        """One connection, from its opening to its end."""
        assert self._wire is not None
        address = "ws" + settings.url.removeprefix("http") + "/api/envelope/ws"
        async with _Connect(
            address,
            additional_headers={"Authorization": f"Bearer {settings.key}"},
            user_agent_header=USER_AGENT,
            ssl=context_for(settings.pin) if address.startswith("wss:") else None,
            proxy=None,
            max_size=_MAX_FRAME,
            open_timeout=_OPEN_TIMEOUT,
            ping_interval=15,
            ping_timeout=15,
            close_timeout=1,
        ) as socket:
            await socket.send(channel.open(list(self._runs)))
            writer: asyncio.Task[None] | None = None
            try:
                while True:
                    received = await (socket.recv() if writer else asyncio.wait_for(socket.recv(), _OPEN_TIMEOUT))
                    for event in channel.receive(received):
                        if isinstance(event, ch.Opened):
                            writer = asyncio.ensure_future(_write(socket, self._wire.connect()))
                            backoff.reset()
                            self._was_connected = True
                            line = f"connected to {settings.url}, waiting for tasks"
                            self._announce(f"connected as {event.agent_id}", line)
                            self._grant(self._concurrency - len(self._runs))
                        elif isinstance(event, ch.Send):
                            # Acknowledged only after everything before it was handled.
                            await socket.send(event.text)
                        elif isinstance(event, ch.Reconnect):
                            return
                        elif isinstance(event, ch.OpeningRefused):
                            raise from_frame(event.error)
                        else:
                            self._take(event)
            finally:
                self._wire.disconnect()
                if writer is not None:
                    writer.cancel()

    def _announce(self, state: str, line: str) -> None:
        self._on_state(state)
        if self._prints:
            try:
                print(f"{self._agent or 'attache'}: {line}", file=sys.stderr, flush=True)
            except (OSError, ValueError):
                pass  # nobody reads it any more, which is no reason to stop working

    def _take(self, event: ch.Event) -> None:
        assert self._wire is not None
        if isinstance(event, ch.Answered):
            self._wire.answered(event.msg_id, event.payload)
        elif isinstance(event, ch.Refused):
            log.debug("the hub refused a frame: %s", event.error)
            self._wire.refused(event.msg_id, event.error)
        elif isinstance(event, ch.Received):
            run = self._runs.get(event.payload.get("task_run_id", ""))
            if event.action == "execute":
                self._begin(event.payload)
            elif event.action == "cancel" and run is not None:
                run.cancel()
            elif event.action == "input" and run is not None:
                run.receive_input(event.msg_id, event.payload.get("parts") or [])

    def _grant(self, credits: int) -> None:
        if credits > 0 and not self._stopping and self._wire is not None:
            ready: dict[str, Any] = {"action": "ready", "credits": credits}
            if self._enforces:
                ready["enforces"] = self._enforces
            self._wire.post(ch.frame("notification", ready, uuid.uuid4().hex))

    # === Runs ===

    def _begin(self, task: dict[str, Any]) -> None:
        assert self._wire is not None
        known = self._runs.get(task["task_run_id"])
        if known is not None and known.epoch == task["epoch"]:
            return  # sent again over a new channel
        if known is not None:
            known.cancel()
        run = ChannelRun(task, self._wire)
        self._runs[run.id] = run
        work = asyncio.ensure_future(self._execute(run))
        run.worked_on_by(work)
        self._work.add(work)
        # Not a `finally` of the task: one that is cancelled before its first step never enters a `try`.
        work.add_done_callback(lambda _: self._ended(run, work))

    async def _execute(self, run: ChannelRun) -> None:
        assert self._handler is not None
        try:
            await run.finish(await self._outcome(run))
        except (RunConflict, NotFound, RunCancelled):
            log.info("run %s is no longer ours", run.id)
        except Exception as error:
            log.error("the hub doesn't accept the outcome of run %s: %s", run.id, error)

    def _ended(self, run: ChannelRun, work: asyncio.Task[None]) -> None:
        self._work.discard(work)
        run.close()
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
        self._grant(1)

    async def _outcome(self, run: ChannelRun) -> Answer | Fail:
        assert self._handler is not None
        if run.given_up is not None:
            return Fail(run.given_up)
        handler = asyncio.ensure_future(execute(self._handler, run))
        run.handled_by(handler)
        try:
            return await asyncio.shield(handler)
        except Fail as failure:
            return failure
        except asyncio.CancelledError:
            # The run was cancelled or given up, or the worker itself ends.
            handler.cancel()
            await asyncio.wait({handler})
            if run.given_up is not None:
                return Fail(run.given_up)
            raise RunCancelled from None


async def _write(socket: ClientConnection, outbox: asyncio.Queue[str]) -> None:
    """Writes what is queued. If the connection breaks, the reader notices, and what was lost is sent again."""
    try:
        while True:
            await socket.send(await outbox.get())
    except ConnectionClosed:
        pass


_REVOKED = json.loads(
    '{"error": {"code": "unauthenticated", "message": "The agent\'s key was revoked or replaced.",'
    ' "hint": "Register the agent again."}}'
)
