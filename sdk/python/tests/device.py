"""A device: adapters of this package in a thread, and the real runtime in front of them."""
from __future__ import annotations

import asyncio
import subprocess
import threading
from pathlib import Path
from typing import Any

from attache_sdk import A2AClient, Adapter
from hub import Hub, binary, eventually


class RunningAdapter:
    def __init__(self, handler: Any, *, port: int = 0, **options: Any) -> None:
        self._urls: list[str] = []
        self.adapter = Adapter(handler, port=port, on_ready=self._urls.append, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self.adapter.serve()), daemon=True)
        self._thread.start()
        self.url: str = eventually(lambda: self._urls)[0]

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.adapter.stop)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the adapter stops"


class Runtime:
    """`attache runtime`, paired with an agent. It can be killed and started again."""

    def __init__(self, hub: Hub, client: A2AClient, agent: str, home: Path, *pairing: str, **environment: str) -> None:
        self.environment = {**hub.environment, "A2A_HOME": str(home), **environment}
        self.home = home
        client.create_agent(agent)
        code = client.pairing_code(agent)["pairing_code"]
        command = [binary(), "runtime", "pair", code, "--api-base", hub.url, *pairing]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        ready = self.home / "runtime.ready"
        ready.unlink(missing_ok=True)
        with open(self.home / "runtime.log", "ab") as log:
            command = [binary(), "runtime", "start", "--ready-file", str(ready), *options]
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        process = self.process

        def is_ready() -> bool:
            assert process.poll() is None, (self.home / "runtime.log").read_text()
            return ready.exists() and ready.stat().st_size > 0

        eventually(is_ready, "the runtime starts")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
