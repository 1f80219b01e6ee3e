"""A redirect never carries the key to another server."""
from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attache_sdk as sdk
import pytest
from attache_sdk import A2AClient, AsyncA2AClient, Worker
from conftest import Running


class Servers:
    """One that redirects every request, and the one it points to."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        servers = self

        class Trap(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                servers.reached.append(str(self.headers.get("authorization")))
                self.send_error(404)

            do_POST = do_GET

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        class Redirect(Trap):
            def do_GET(self) -> None:
                self.send_response(307)
                target = servers.trap.replace("http:", "ws:") if "upgrade" in self.headers else servers.trap
                self.send_header("location", f"{target}{self.path}")
                self.send_header("content-length", "0")
                self.end_headers()

            do_POST = do_GET

        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for handler in (Trap, Redirect)]
        self.trap, self.url = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.close()


def test_clients_and_workers_stay_with_the_hub(servers: Servers) -> None:
    with A2AClient(servers.url, "ak_secret") as client:
        for attempt in (client.health, lambda: client.call("a", "b"), lambda: list(client.watch("run_1"))):
            with pytest.raises(sdk.InvalidReply):
                attempt()

    async def main() -> None:
        async with AsyncA2AClient(servers.url, "ak_secret") as client:
            with pytest.raises(sdk.InvalidReply):
                await client.health()

    asyncio.run(main())
    worker = Running(Worker(agent_key="ak_secret", url=servers.url, handler=lambda run: "x"))
    assert isinstance(worker.wait(), sdk.InvalidReply)
    assert servers.reached == []
