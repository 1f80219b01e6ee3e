from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attache_sdk import A2AClient, Worker
from hub import Cable, Hub, eventually, free_port


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """One hub for all tests that don't harm it."""
    hub = Hub(tmp_path_factory.mktemp("hub"))
    yield hub
    hub.kill()


@pytest.fixture
def client(hub: Hub) -> Iterator[A2AClient]:
    with A2AClient(hub.url, hub.key) as client:
        yield client


class Cut:
    """A hub of its own behind a cable that can be cut. Clients use `url`; `direct` doesn't go through the cable."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.hub = Hub(folder, "--public-url", f"http://127.0.0.1:{port}")
        self.cable = Cable(self.hub.port, port)
        self.url, self.key = f"http://127.0.0.1:{port}", self.hub.key
        self.direct = A2AClient(self.hub.url, self.key)


@pytest.fixture
def cut(tmp_path: Path) -> Iterator[Cut]:
    cut = Cut(tmp_path)
    yield cut
    cut.direct.close()
    cut.cable.close()
    cut.hub.kill()


class Running:
    """A worker in a thread of its own."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            self._loop.run_until_complete(self.worker.serve())
        except BaseException as error:
            self.error = error

    def freeze(self, seconds: float) -> None:
        """The worker does nothing for a while: it reads and writes nothing either."""
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.worker.stop)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the worker stops"
        self._loop.close()

    def wait(self) -> BaseException | None:
        self._thread.join(60)
        assert not self._thread.is_alive(), "the worker ends by itself"
        return self.error


StartWorker = Callable[..., str]


@pytest.fixture
def workers() -> Iterator[list[Running]]:
    running: list[Running] = []
    yield running
    for one in running:
        one.stop()


@pytest.fixture
def start(hub: Hub, workers: list[Running]) -> StartWorker:
    """Starts a worker with a function, under a new name, and returns the name once it is online."""

    def begin(handler: Any, *, at: Cut | None = None, **options: Any) -> str:
        name = f"agent-{uuid.uuid4().hex[:8]}"
        url, key = (at.url, at.key) if at else (hub.url, hub.key)
        states: list[str] = options.pop("states", [])
        workers.append(Running(Worker(name, handler, url=url, key=key, on_state=states.append, **options)))
        eventually(lambda: any(state.startswith("connected") for state in states) or workers[-1].error, "the worker connects")
        assert workers[-1].error is None, workers[-1].error
        return name

    return begin
