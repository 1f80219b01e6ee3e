"""Cables are cut and the hub is killed: nothing is lost, and nothing happens twice."""
from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import attache_sdk as sdk
import pytest
from attache_sdk import A2AClient, AsyncA2AClient, BlockingRun
from conftest import Cut, StartWorker
from hub import eventually

LINES = 300


def talkative(run: BlockingRun) -> str:
    for number in range(LINES):
        run.log(f"line {number}")
    return "said"


def lines(events: list[sdk.RunEvent]) -> list[str]:
    return [event.data["message"] for event in events if event.type == "task.log"]


EXPECTED = [f"line {number}" for number in range(LINES)]


def test_a_watch_survives_a_cable_that_breaks_every_few_kilobytes(cut: Cut, start: StartWorker) -> None:
    agent = start(talkative, at=cut)
    call = cut.direct.call(agent, "go").call_id
    cut.cable.cut_after(3000)
    with A2AClient(cut.url, cut.key) as client:
        events = list(client.watch(call))
    assert cut.cable.cuts > 5
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert lines(events) == EXPECTED


def test_the_asynchronous_watch_does_too(cut: Cut, start: StartWorker) -> None:
    agent = start(talkative, at=cut)
    call = cut.direct.call(agent, "go").call_id
    cut.cable.cut_after(3000)

    async def main() -> list[sdk.RunEvent]:
        async with AsyncA2AClient(cut.url, cut.key) as client:
            return [event async for event in client.watch(call)]

    assert lines(asyncio.run(main())) == EXPECTED
    assert cut.cable.cuts > 5


def test_everything_continues_when_the_hub_is_killed_in_the_middle(cut: Cut, start: StartWorker) -> None:
    """The agent writes, the caller watches, and the hub dies three times."""
    executions: list[str] = []

    def slow(run: BlockingRun) -> str:
        executions.append(run.id)
        for number in range(LINES):
            run.log(f"line {number}")
            time.sleep(0.005)
        return "said"

    agent = start(slow, at=cut)
    with A2AClient(cut.url, cut.key) as client:
        call = client.call(agent, "go", wait=False)["call_id"]
        events: list[sdk.RunEvent] = []
        kills = 0
        for event in client.watch(call):
            events.append(event)
            if event.type == "task.log" and len(events) % 80 == 0 and kills < 3:
                kills += 1
                cut.hub.kill()
                cut.hub.start()
        assert kills == 3
        assert client.wait(call).summary == "said"
        assert client.run(call)["epoch"] == 1, "one claim from beginning to end"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert lines(events) == EXPECTED
    assert len(executions) == 1


def test_a_call_whose_answer_is_lost_is_made_once(cut: Cut, start: StartWorker) -> None:
    agent = start(lambda run: "done", at=cut)
    with A2AClient(cut.url, cut.key) as client:
        client.health()
        for number in range(5):
            # The request arrives, and the answer is cut off before its first byte.
            cut.cable.cut_after(0)
            healed = threading.Timer(0.4, cut.cable.cut_after, [None])
            healed.start()
            cut.cable.cut()
            assert client.call(agent, f"task {number}").summary == "done"
            healed.join()
    assert len(list(cut.direct.runs(agent=agent))) == 5


def test_a_request_without_a_key_is_not_repeated(cut: Cut) -> None:
    with A2AClient(cut.url, cut.key) as client:
        client.health()
        cut.cable.cut_after(0)
        cut.cable.cut()
        with pytest.raises(sdk.Unreachable) as lost:
            client.create_conversation("once")
        assert lost.value.sent
        cut.cable.cut_after(None)
    eventually(lambda: len(list(cut.direct.conversations())) == 1)


def test_answers_and_decisions_whose_response_is_lost_count_once(cut: Cut, start: StartWorker) -> None:
    def asks(run: BlockingRun) -> str:
        approved = run.approve("tool", {"a": 1}).approved
        return f"{approved} {run.ask('what?').text}"

    agent = start(asks, at=cut)
    with A2AClient(cut.url, cut.key) as client:
        call = client.call(agent, "go", wait=False)["call_id"]
        request = eventually(lambda: list(cut.direct.approvals(run=call)))[0]

        def unlucky() -> threading.Timer:
            cut.cable.cut_after(0)
            cut.cable.cut()
            timer = threading.Timer(0.4, cut.cable.cut_after, [None])
            timer.start()
            return timer

        timer = unlucky()
        client.approve(request["permission_request_id"])
        timer.join()
        eventually(lambda: cut.direct.run(call).get("waiting") == "input")
        timer = unlucky()
        client.answer(call, "blue")
        timer.join()
        assert client.wait(call).summary == "True blue"
        kinds = [event.type for event in cut.direct.watch(call)]
    assert (kinds.count("permission.decided"), kinds.count("task.input_received")) == (1, 1)


def test_a_download_continues_where_it_broke(cut: Cut, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192
    workspace = cut.direct.create_conversation()["workspace_id"]
    made = cut.direct.upload(workspace, "big", content)
    with A2AClient(cut.url, cut.key) as client:
        client.health()
        cut.cable.cut_after(300_000)
        cut.cable.cut()
        assert client.download(made["artifact_id"], tmp_path / "big").read_bytes() == content
    assert cut.cable.cuts >= 6


def test_a_hub_that_stays_away_is_reported_in_time(cut: Cut) -> None:
    with A2AClient(cut.url, cut.key, patience=1.0) as client:
        client.health()
        cut.hub.kill()
        began = time.monotonic()
        with pytest.raises(sdk.Unreachable):
            client.health()
        assert 0.3 < time.monotonic() - began < 5
