"""The example sub-agent passes what the hub's own suite asks of a sub-agent (crates/hub/tests/channel/python.rs)."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import attache_sdk as sdk
import pytest
from conftest import Cut
from hub import eventually

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "subagent.py"


class Agent:
    def __init__(self, cut: Cut, key: str) -> None:
        self.key = key
        command = [sys.executable, str(EXAMPLE), f"ws{cut.url.removeprefix('http')}/api/envelope/ws"]
        environment = {**os.environ, "AGENT_KEY": key}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self.said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        self.said.extend(iter(self.process.stdout.readline, ""))

    def says(self, start: str, times: int = 1) -> None:
        eventually(lambda: len([line for line in self.said if line.startswith(start)]) >= times, f"{start}: {self.said}")


@pytest.fixture
def agent(cut: Cut) -> Iterator[Agent]:
    agent = Agent(cut, cut.direct.register("counter")["api_key"])
    agent.says("connected as agt_")
    yield agent
    agent.process.kill()
    agent.process.wait()


def test_the_sub_agent_works_asks_and_survives_a_disconnect(cut: Cut, agent: Agent) -> None:
    reply = cut.direct.call("counter", "one two three")
    assert reply.summary == "3 words"
    events = list(cut.direct.watch(reply.call_id))
    assert "".join(event.text for event in events) == "one two three "
    kinds = [event.type for event in events]
    assert [kinds.count(kind) for kind in ("task.thought", "task.log", "task.progress")] == [1, 1, 3]
    for number, approved in enumerate((True, False), 1):
        call = cut.direct.call("counter", f"delete it {approved}", wait=False)["call_id"]
        request = eventually(lambda: list(cut.direct.approvals()))[0]
        assert (request["tool"], request.get("risk")) == ("delete", "high")
        # The connection is cut while the person decides. The decision still reaches the agent.
        cut.cable.cut()
        agent.says("disconnected", number)
        cut.direct.decide(request["permission_request_id"], approved)
        if approved:
            assert cut.direct.wait(call).summary == "3 words"
        else:
            with pytest.raises(sdk.CallFailed) as failed:
                cut.direct.wait(call)
            assert failed.value.message == "a person denied the request"
        assert cut.direct.run(call)["epoch"] == 1, "it was one claim from beginning to end"
    assert len(list(cut.direct.approvals(state=None))) == 2, "and one question each"
    assert agent.process.poll() is None, "it is still there"


def test_a_terminated_agent_stops(agent: Agent) -> None:
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(10) == 0


def test_an_agent_killed_in_the_middle_works_again_after_its_restart(cut: Cut, agent: Agent) -> None:
    run = cut.direct.create_run("counter", "delete a b", max_attempts=2)["task_run_id"]
    eventually(lambda: list(cut.direct.approvals(run=run)))
    agent.process.kill()
    agent.process.wait()
    second = Agent(cut, agent.key)
    try:
        second.says("connected as agt_")
        request = eventually(lambda: [one for one in cut.direct.approvals(run=run) if one["epoch"] == 2])[0]
        cut.direct.approve(request["permission_request_id"])
        assert cut.direct.wait(run).summary == "3 words"
        assert cut.direct.run(run)["attempt"] == 2
    finally:
        second.process.kill()
        second.process.wait()
