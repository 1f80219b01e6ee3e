"""A hub with a self-signed certificate: only the pinned key is accepted, by clients and workers."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator

import attache_sdk as sdk
import pytest
from attache_sdk import A2AClient, AsyncA2AClient, Worker
from conftest import Running
from hub import Hub, eventually


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    hub = Hub(tmp_path_factory.mktemp("secure"), "--tls-self-signed")
    yield hub
    hub.kill()


def pin(hub: Hub) -> str:
    return (hub.home / "hub" / "tls.pin").read_text().strip()


def test_the_pinned_key_is_accepted(secure: Hub) -> None:
    with A2AClient(secure.url, secure.key, pin=pin(secure)) as client:
        client.health()
        running = Running(Worker("secure", lambda run: run.text, url=secure.url, key=secure.key, pin=pin(secure)))
        eventually(lambda: [agent["status"] for agent in client.agents()] == ["online"])
        assert client.call("secure", "hello").summary == "hello"
        running.stop()

    async def main() -> None:
        async with AsyncA2AClient(secure.url, secure.key, pin=pin(secure)) as client:
            assert [agent["name"] async for agent in client.agents()] == ["secure"]

    asyncio.run(main())


def test_every_other_key_is_refused(secure: Hub) -> None:
    wrong = "sha256:" + "0" * 64
    with A2AClient(secure.url, "ak_secret", pin=wrong) as client, pytest.raises(sdk.Untrusted) as other:
        client.health()
    assert "pinned" in other.value.message

    async def main() -> None:
        async with AsyncA2AClient(secure.url, "ak_secret", pin=wrong) as client:
            with pytest.raises(sdk.Untrusted):
                await client.health()

    asyncio.run(main())
    with A2AClient(secure.url, "ak_secret") as client, pytest.raises(sdk.Untrusted) as unknown:
        client.health()
    assert "tls.pin" in unknown.value.hint
    worker = Running(Worker(agent_key="ak_secret", handler=lambda run: "x", url=secure.url, pin=wrong))
    assert isinstance(worker.wait(), sdk.Untrusted)
    with pytest.raises(sdk.SettingsError):
        A2AClient(secure.url, "ak_secret", pin="sha256:short")
