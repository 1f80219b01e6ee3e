"""Folders are delegated through the real daemon to a real collaborator."""
from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attache_sdk as sdk
import pytest
from attache_sdk import A2AClient, AsyncDaemonClient, DaemonClient
from device import Runtime
from hub import Hub, binary, eventually

missing = [program for program in ("sshfs", "fusermount3", "ssh") if shutil.which(program) is None]
mounts = pytest.mark.skipif(
    bool(missing) or not os.access("/dev/fuse", os.W_OK),
    reason=f"delegated folders can't be mounted here: {', '.join(missing) or '/dev/fuse'} is missing (apt install sshfs fuse3 openssh-client)",
)


@pytest.fixture(scope="module")
def daemon(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonClient]:
    folder = tmp_path_factory.mktemp("daemon")
    environment = {**hub.environment, "AWCP_HOME": str(folder)}
    with open(folder / "daemon.out", "wb") as log:
        process = subprocess.Popen([binary(), "daemon"], env=environment, stdout=log, stderr=log)
    with DaemonClient(folder / "daemon.sock") as client:
        eventually((folder / "daemon.sock").exists, "the daemon starts")
        yield client
    process.terminate()
    process.wait(20)


@pytest.fixture(scope="module")
def peer(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An agent that runs its task as a shell script, on a machine that accepts folders."""
    home = tmp_path_factory.mktemp("collaborator")
    home.chmod(0o700)
    with A2AClient(hub.url, hub.key) as client:
        runtime = Runtime(hub, client, "collaborator", home, AWCP_HOME=str(home / "awcp"))
    runtime.start("--collaborator")
    yield f"{hub.url}/a2a/collaborator"
    if runtime.process is not None:
        runtime.process.terminate()
        runtime.process.wait(20)


@pytest.fixture
def site(hub: Hub, daemon: DaemonClient, peer: str, tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("old\n")
    environment = {"AWCP_HOME": str(Path(daemon.socket).parent)}
    hub.attache("delegations", "allow", "--folder", str(folder), **environment)
    hub.attache("delegations", "allow", "--peer", peer, "--key-file", str(hub.home / "hub" / "admin.key"), **environment)
    return folder


@mounts
def test_an_agent_works_in_the_folder(daemon: DaemonClient, peer: str, site: Path) -> None:
    done = daemon.delegate(site, peer, "echo new > index.html; echo changed it", description="update the site")
    assert done["status"] == "completed" and done["description"] == "update the site"
    result, changes = done.get("result"), done.get("changes")
    assert result is not None and (result.get("final_summary") or "").strip() == "changed it"
    assert changes is not None
    assert [(path["path"], path["change"]) for path in changes["changed_paths"]] == [("index.html", "modified")]
    assert (site / "index.html").read_text() == "new\n"
    assert "+new" in daemon.diff(done["delegation_id"])
    assert daemon.revert(done["delegation_id"])["restored"] == ["index.html"]
    assert (site / "index.html").read_text() == "old\n"
    assert done["delegation_id"] in [one["delegation_id"] for one in daemon.delegations()]


@mounts
def test_changes_of_a_staged_delegation_wait(hub: Hub, daemon: DaemonClient, peer: str, site: Path) -> None:
    done = daemon.delegate(site, peer, "echo new > index.html", staged=True)
    staged = done.get("staged")
    assert staged is not None and staged.get("unapplied") == 1
    assert (site / "index.html").read_text() == "old\n"
    environment = {"AWCP_HOME": str(Path(daemon.socket).parent)}
    hub.attache("delegations", "apply", done["delegation_id"], **environment)
    assert (site / "index.html").read_text() == "new\n"


@mounts
def test_a_delegation_that_fails_says_why(daemon: DaemonClient, peer: str, site: Path) -> None:
    with pytest.raises(sdk.DelegationFailed) as failed:
        daemon.delegate(site, peer, "echo no >&2; exit 3", access="ro", ttl=60)
    assert failed.value.code == "TASK_FAILED" and failed.value.delegation["access_mode"] == "ro"


@mounts
def test_a_delegation_can_be_cancelled(daemon: DaemonClient, peer: str, site: Path) -> None:
    async def main() -> None:
        async with AsyncDaemonClient(daemon.socket) as client:
            started = await client.delegate(site, peer, "touch begun; sleep 60", wait=False, session="s1")
            waiting = asyncio.ensure_future(client.wait(started["delegation_id"]))
            while not (site / "begun").exists():
                await asyncio.sleep(0.05)
            assert (await client.session("s1"))["pending"] == [started["delegation_id"]]
            await client.cancel(started["delegation_id"])
            with pytest.raises(sdk.DelegationFailed) as cancelled:
                await waiting
            assert cancelled.value.code == "CANCELLED"

    asyncio.run(main())


def test_what_a_person_has_not_allowed_is_refused(daemon: DaemonClient, tmp_path: Path) -> None:
    assert daemon.health()["live"] == 0
    with pytest.raises(sdk.HubError) as refused:
        daemon.delegate(tmp_path, "http://127.0.0.1:9/a2a/nobody", "x")
    assert refused.value.code in ("folder_not_allowed", "peer_not_allowed", "policy_invalid") and refused.value.hint


def test_without_a_daemon_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with DaemonClient(tmp_path / "daemon.sock") as client, pytest.raises(sdk.DaemonNotRunning) as absent:
        client.health()
    assert absent.value.hint == (
        "Start it with `attache daemon`, and leave it running. `attache delegate` starts it too; this package doesn't."
    )
    assert absent.value.hint in str(absent.value)
