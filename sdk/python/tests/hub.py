"""A real hub for the tests, and a cable that can be cut."""
from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 60.0


def binary() -> str:
    found = os.environ.get("ATTACHE_BIN")
    if not found:
        raise RuntimeError("ATTACHE_BIN isn't set: point it to the `attache` program, for example target/release/attache")
    return found


def eventually(check: Callable[[], T], what: str = "") -> T:
    """The first truthy result."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = check()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"didn't happen in {PATIENCE:.0f} s: {what}")


class Hub:
    """`attache hub` on a port of its own, which it keeps when it is killed and started again."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.options = options
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ATTACHE_")},
            "A2A_HOME": str(self.home),
            "AWCP_HOME": str(folder / "awcp"),
            "RUST_LOG": "error",
        }
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        scheme = "https" if "--tls-self-signed" in self.options else "http"
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.home / "hub" / "admin.key").read_text().strip()

    def start(self) -> None:
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        with open(self.folder / "hub.log", "ab") as log:
            command = [binary(), "hub", "--listen", f"127.0.0.1:{self.port}", "--ready-file", str(ready), *self.options]
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        process = self.process

        def is_ready() -> bool:
            assert process.poll() is None, (self.folder / "hub.log").read_text()
            return ready.exists() and ready.stat().st_size > 0

        eventually(is_ready, "the hub starts")

    def kill(self) -> None:
        """As a power cut would: no time to say goodbye."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def attache(self, *arguments: str, **more: Any) -> str:
        """Runs a command of the program."""
        done = subprocess.run(
            [binary(), *arguments], env={**self.environment, **more}, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"attache {' '.join(arguments)}: {done.stderr}"
        return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Cable:
    """A TCP proxy in front of a hub. `cut` drops every connection; `cut_after` drops each after so many bytes to the client."""

    def __init__(self, port: int, listen: int | None = None) -> None:
        self._to = port
        self._limit: int | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self.connections = 0
        self.cuts = 0
        started = threading.Event()
        self.port = listen or free_port()

        def main() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
            started.set()
            self._loop.run_forever()

        self._thread = threading.Thread(target=main, daemon=True)
        self._thread.start()
        assert started.wait(5)

    def cut(self) -> None:
        """Drops every open connection now."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(5)

    def cut_after(self, count: int | None) -> None:
        """From now on, each connection breaks once so many bytes have come from the hub. None: no more."""
        self._limit = count

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()
            self.cuts += 1

    async def _serve(self, here: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, forth = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            back.transport.abort()
            return
        both = {back, forth}
        self._open |= both
        left = [self._limit]

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: bool) -> None:
            try:
                while data := await reader.read(16384):
                    if counted and left[0] is not None:
                        data = data[: left[0]]
                        left[0] -= len(data)
                    writer.write(data)
                    await writer.drain()
                    if counted and left[0] == 0:
                        self.cuts += 1
                        break
            except OSError:
                pass

        tasks = [asyncio.ensure_future(pump(here, forth, False)), asyncio.ensure_future(pump(there, back, True))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        for writer in both:
            if left[0] == 0:
                try:
                    await writer.drain()
                except OSError:
                    pass
                writer.close()
            else:
                writer.transport.abort() if writer.transport.is_closing() else writer.close()
            self._open.discard(writer)
