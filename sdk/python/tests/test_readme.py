"""The README is executed from top to bottom, as a new user would: with `attache up`, in a home folder of its own."""
from __future__ import annotations

import importlib.util
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub import PATIENCE, binary, eventually, free_port

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<kind>\w+)\n(?P<code>.*?)```(?:\n\n```text\n(?P<output>.*?)```)?", re.DOTALL)
FRAMEWORKS = {"langgraph": "langgraph", "openai_agents": "agents", "pydantic_ai": "pydantic_ai", "claude_agent": "claude_agent_sdk"}


@dataclass(frozen=True)
class Block:
    kind: str
    code: str
    output: str | None
    file: str | None

    @property
    def framework(self) -> str | None:
        found = re.search(r"attache_sdk\.integrations\.(\w+)", self.code)
        return found.group(1) if found else None


def blocks() -> list[Block]:
    found = []
    for match in BLOCK.finditer(README):
        file = re.search(r"Save this as `(\S+)`", match["before"])
        found.append(Block(match["kind"], match["code"], match["output"], file.group(1) if file else None))
    return found


class Terminal:
    """A new user's machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.adapter_port = free_port(), free_port()
        programs = f"{Path(binary()).parent}:{Path(sys.executable).parent}:/usr/bin:/bin:{os.environ['PATH']}"
        self.environment = {
            "PATH": programs, "HOME": str(folder), "A2A_HOME": str(folder / ".a2a"), "AWCP_HOME": str(folder / ".AWCP"),
            "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", str(folder / "pycache")),
        }  # fmt: skip
        self.servers: list[subprocess.Popen[bytes]] = []

    def adjusted(self, text: str) -> str:
        """The ports of the README may be taken on this machine."""
        return text.replace("7800", str(self.port)).replace("7900", str(self.adapter_port))

    def background(self, command: str) -> None:
        with open(self.folder / "background.log", "ab") as log:
            arguments = shlex.split(self.adjusted(command))
            process = subprocess.Popen(arguments, env=self.environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
        self.servers.append(process)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(arguments, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}{self.log()}"
        return done.stdout

    def log(self) -> str:
        """What the other terminals show."""
        return (self.folder / "background.log").read_text()

    def seen(self, *arguments: str) -> str:
        """What a command shows on a terminal, where it streams."""
        own, others = pty.openpty()
        shown = b""
        with subprocess.Popen(arguments, env=self.environment, cwd=self.folder, stdin=others, stdout=others, stderr=others) as process:
            os.close(others)
            try:
                while data := os.read(own, 4096):
                    shown += data
            except OSError:
                pass  # the end of a terminal
        os.close(own)
        assert process.returncode == 0, shown
        assert b"lost" not in shown, shown
        return shown.decode()

    def online(self, agent: str) -> None:
        """The reader looks at the other terminal before going on."""

        def listed() -> str:
            return subprocess.run(["attache", "agents"], env=self.environment, capture_output=True, text=True).stdout

        eventually(lambda: re.search(rf"\b{agent}\b.*online", listed()), f"{agent} is online")

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.send_signal(signal.SIGTERM)
        until = time.monotonic() + 10
        for server in self.servers:
            try:
                server.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.stop()


def test_the_readme_is_true(terminal: Terminal) -> None:
    executed = 0
    for block in blocks():
        if block.framework or "sdk/python/build" in block.code:
            continue  # the tests below, and test_package.py
        if block.file is not None:
            (terminal.folder / block.file).write_text(terminal.adjusted(block.code))
        elif block.kind == "sh":
            shell(terminal, block)
        elif block.kind == "python":
            if "DaemonClient" in block.code and not prepare_delegation(terminal):
                continue
            code = terminal.adjusted(block.code)
            assert block.output is not None, f"say what this prints:\n{code}"
            assert terminal.run("python", "-c", code) == block.output
            executed += 1
    assert executed >= 7


def shell(terminal: Terminal, block: Block) -> None:
    for command in block.code.splitlines():
        if command == "attache up":
            terminal.background(f"{command} --listen 127.0.0.1:{terminal.port}")
            terminal.online("local")
            continue
        terminal.background(command)
        if command == "python agent.py":
            terminal.online("counter")
            assert f"counter: connected to http://127.0.0.1:{terminal.port}, waiting for tasks\n" in terminal.log()
            assert terminal.seen("attache", "ask", "counter", "one two three").strip().endswith("3 words")
        elif command == "attache daemon":
            eventually((terminal.folder / ".AWCP" / "daemon.sock").exists, "the daemon starts")
        elif command == "python adapter.py":
            secret = terminal.folder / ".a2a" / "adapters" / f"127.0.0.1_{terminal.adapter_port}"
            eventually(secret.exists, "the adapter listens")
        elif "--agent shouter" in command:
            terminal.online("shouter")
        else:
            raise AssertionError(f"the test doesn't know how to run: {command}")


def prepare_delegation(terminal: Terminal) -> bool:
    """What the page takes for granted: an agent that accepts folders, and a person who allowed it."""
    if not all(map(shutil.which, ("sshfs", "fusermount3", "ssh"))) or not os.access("/dev/fuse", os.W_OK):
        print("skipped: the delegation of README.md, because sshfs or /dev/fuse is missing")
        return False
    other = terminal.folder / "other"
    other.mkdir(mode=0o700)
    elsewhere = ["env", f"A2A_HOME={other}", f"AWCP_HOME={other}/awcp", "attache"]
    terminal.run("attache", "agents", "add", "builder")
    code = terminal.run("attache", "agents", "code", "builder").split()[0]
    terminal.run(*elsewhere, "runtime", "pair", code, "--api-base", f"http://127.0.0.1:{terminal.port}")
    terminal.background(shlex.join([*elsewhere, "runtime", "start", "--collaborator"]))
    terminal.online("builder")
    (terminal.folder / "site").mkdir()
    (terminal.folder / "site" / "index.html").write_text("old\n")
    terminal.run("attache", "delegations", "allow", "--folder", str(terminal.folder / "site"))
    terminal.run("attache", "delegations", "allow", "--peer", f"http://127.0.0.1:{terminal.port}/a2a/builder")
    return True


@pytest.mark.frameworks
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_integrations_of_the_readme(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(FRAMEWORKS[name]) is None:
        pytest.skip(f"{FRAMEWORKS[name]} isn't installed: run sdk/python/test --frameworks")
    (block,) = [block for block in blocks() if block.framework == name]
    environment = {**os.environ, "ATTACHE_URL": "http://127.0.0.1:9", "ATTACHE_KEY": "ak_x", "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", block.code], check=True, env=environment, timeout=PATIENCE * 3)
