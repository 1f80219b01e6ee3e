"""Which hub, which key: the same choice as the command line makes."""
from __future__ import annotations

import json
from pathlib import Path

import attache_sdk as sdk
import pytest
from attache_sdk import A2AClient
from attache_sdk.settings import HubSettings, resolve
from hub import Hub


def save_context(home: Path, current: str | None = "work") -> None:
    (home / "contexts").mkdir(parents=True)
    saved = {"work": {"hub": "https://work.example", "pin": "sha256:" + "a" * 64}, "lab": {"hub": "http://lab.example"}}
    (home / "contexts.json").write_text(json.dumps({"current": current, "contexts": saved}))
    (home / "contexts" / "work.key").write_text("ak_work\n")
    (home / "contexts" / "lab.key").write_text("ak_lab\n")


def test_arguments_come_first_then_contexts_and_the_environment(tmp_path: Path) -> None:
    save_context(tmp_path)
    home = {"A2A_HOME": str(tmp_path)}
    environment = {**home, "ATTACHE_URL": "http://env.example/", "ATTACHE_KEY": "ak_env"}
    assert resolve("http://given.example", "ak_given", environment=environment) == HubSettings("http://given.example", "ak_given")
    assert resolve(context="lab", environment=environment) == HubSettings("http://lab.example", "ak_lab")
    assert resolve(environment=environment) == HubSettings("http://env.example", "ak_env")
    assert resolve(environment=home) == HubSettings("https://work.example", "ak_work", "sha256:" + "a" * 64)
    # The key of a saved hub is sent to that hub only.
    assert resolve("http://other.example", environment=home).key is None
    with pytest.raises(sdk.SettingsError) as unknown:
        resolve(context="nowhere", environment=home)
    assert "attache context" in unknown.value.hint


def test_the_hub_on_this_machine_is_found_while_it_runs(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ATTACHE_URL", "ATTACHE_KEY", "ATTACHE_PIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("A2A_HOME", str(hub.home))
    with A2AClient() as client:
        assert client.url == hub.url and client.health()["status"]
        list(client.agents())
    # The owner key goes to the recorded address only.
    assert resolve(hub.url.replace("127.0.0.1", "localhost")) == HubSettings(hub.url, hub.key)
    assert resolve(hub.url.replace("127.0.0.1", "[::1]")).key is None
    assert resolve("http://127.0.0.1:9").key is None
    monkeypatch.setenv("A2A_HOME", str(tmp_path))
    with pytest.raises(sdk.SettingsError) as nothing:
        A2AClient()
    assert "attache up" in nothing.value.hint


def test_the_context_that_the_command_line_saved_is_used(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(hub.key + "\n")
    hub.attache("context", "add", "mine", "--hub", hub.url, "--key-file", str(tmp_path / "key"), A2A_HOME=str(tmp_path / "home"))
    monkeypatch.setenv("A2A_HOME", str(tmp_path / "home"))
    with A2AClient(context="mine") as named, A2AClient() as current:
        assert list(named.agents()) == list(current.agents())


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://h/path", "http://h:port", ""])
def test_addresses_are_checked_before_anything_is_sent(url: str) -> None:
    with pytest.raises(sdk.SettingsError):
        resolve(url, "ak_x", environment={"A2A_HOME": "/nonexistent"}) if url else resolve(environment={"A2A_HOME": "/nonexistent"})


def test_a_key_is_never_shown() -> None:
    assert "ak_secret" not in repr(resolve("http://h", "ak_secret"))
    assert "ak_secret" not in repr(A2AClient("http://h", "ak_secret"))
