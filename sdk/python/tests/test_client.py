"""Both clients, against a real hub with a real agent."""
from __future__ import annotations

import asyncio
import io
import threading
from pathlib import Path

import attache_sdk as sdk
import pytest
from attache_sdk import A2AClient, AsyncA2AClient, BlockingRun
from attache_sdk.bodies import IterableBody
from conftest import StartWorker
from hub import Hub, eventually


def words(run: BlockingRun) -> sdk.Answer:
    for word in run.text.split():
        run.write(word + " ")
    run.progress("counting", 50, tokens=5)
    return sdk.Answer(f"{len(run.text.split())} words", details={"n": 1.5}, tokens=7, cost_usd=0.25)


def test_a_call_waits_for_the_answer(client: A2AClient, start: StartWorker) -> None:
    agent = start(words)
    reply = client.call(agent, "one two three", context={"a": [1]})
    assert (reply.summary, str(reply), reply.details) == ("3 words", "3 words", {"n": 1.5})
    assert (reply.tokens, reply.cost_usd, reply.full_output) == (7, 0.25, None)
    run = client.run(reply.call_id)
    assert run["status"] == "completed" and run["input"]["text"] == "one two three"
    assert [one["task_run_id"] for one in client.runs(agent=agent)] == [run["task_run_id"]]


def test_a_call_can_be_started_watched_and_read_later(client: A2AClient, start: StartWorker) -> None:
    agent = start(words)
    started = client.call(agent, "one two three", wait=False)
    events = list(client.watch(started["call_id"]))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert "".join(event.text for event in events) == "one two three "
    assert events[-1].type == "task.completed" and events[-1].is_last
    # From a cursor: exactly what follows it; behind the end: nothing.
    assert list(client.watch(started["call_id"], after=3)) == events[3:]
    assert list(client.watch(started["call_id"], after=events[-1].seq)) == []
    result = client.get_result(started["call_id"])
    answer = result.get("result")
    assert result["status"] == "completed" and answer is not None and answer["summary"] == "3 words"


def test_the_asynchronous_client_does_the_same(hub: Hub, start: StartWorker) -> None:
    agent = start(words, concurrency=4)

    async def main() -> None:
        async with AsyncA2AClient(hub.url, hub.key) as client:
            replies = await asyncio.gather(*(client.call(agent, "word " * count) for count in range(1, 9)))
            assert [reply.summary for reply in replies] == [f"{count} words" for count in range(1, 9)]
            events = [event async for event in client.watch(replies[0].call_id)]
            assert "".join(event.text for event in events) == "word "
            assert len([run async for run in client.runs(agent=agent, limit=5)]) == 5
            conversation = await client.create_conversation("files")
            made = await client.upload(conversation["workspace_id"], "a.bin", b"x" * 200_000)
            assert await client.read(made["artifact_id"]) == b"x" * 200_000
            with pytest.raises(sdk.NotFound):
                await client.run("run_" + "0" * 32)

    asyncio.run(main())


def test_a_failed_call_is_an_exception_with_its_code(client: A2AClient, start: StartWorker) -> None:
    def refuse(run: BlockingRun) -> str:
        raise sdk.Fail("I don't do that.", "refused") if run.text == "no" else ValueError("broken")

    agent = start(refuse)
    with pytest.raises(sdk.CallFailed) as failed:
        client.call(agent, "no")
    assert (failed.value.code, failed.value.message) == ("refused", "I don't do that.")
    with pytest.raises(sdk.CallFailed) as failed:
        client.call(agent, "yes")
    assert (failed.value.code, failed.value.message) == ("task_failed", "ValueError: broken")


def test_waiting_can_be_limited_and_the_call_continues(client: A2AClient, start: StartWorker) -> None:
    go = threading.Event()

    def patient(run: BlockingRun) -> str:
        go.wait(20)
        return "done"

    agent = start(patient)
    with pytest.raises(sdk.CallTimeout) as late:
        client.call(agent, "wait", wait_timeout=0.3)
    assert client.get_result(late.value.call_id)["status"] == "running"
    go.set()
    assert client.wait(late.value.call_id, timeout=20).summary == "done"


def test_cancel_stops_the_agent(client: A2AClient, start: StartWorker) -> None:
    stopped = threading.Event()

    async def endless(run: sdk.Run) -> str:
        try:
            await run.log("working")
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    agent = start(endless)
    call = client.call(agent, "go", wait=False)["call_id"]
    eventually(lambda: client.get_result(call)["status"] == "running")
    assert client.cancel(call, reason="enough")["status"] == "cancelled"
    assert stopped.wait(10)
    assert client.cancel(call)["status"] == "cancelled", "again changes nothing"
    with pytest.raises(sdk.CallFailed) as failed:
        client.wait(call)
    assert failed.value.code == "cancelled"
    # The worker is free again.
    second = client.call(agent, "go", wait=False)["call_id"]
    eventually(lambda: client.get_result(second)["status"] == "running")
    client.cancel(second)


def test_questions_are_answered(client: A2AClient, start: StartWorker) -> None:
    def ask(run: BlockingRun) -> str:
        return f"{run.ask('Which branch?')} and {run.ask('Which tag?').parts[0]['text']}"

    agent = start(ask)
    call = client.call(agent, "build", wait=False)["call_id"]
    answers = iter(["main", "v1"])
    for event in client.watch(call):
        if event.type == "task.input_required":
            client.answer(call, next(answers), question=event.data["input_request_id"])
    assert client.wait(call).summary == "main and v1"
    with pytest.raises(sdk.RunConflict) as late:
        client.answer(call, "more")
    assert late.value.code in ("run_ended", "not_waiting")


def test_unasked_input_reaches_the_agent(client: A2AClient, start: StartWorker) -> None:
    def listen(run: BlockingRun) -> str:
        run.log("listening")
        return run.next_input().text

    agent = start(listen)
    call = client.call(agent, "listen", wait=False)["call_id"]
    for event in client.watch(call):
        if event.type == "task.log":
            client.answer(call, "psst")
    assert client.wait(call).summary == "psst"


def test_approvals_are_listed_decided_and_granted(client: A2AClient, start: StartWorker) -> None:
    def risky(run: BlockingRun) -> str:
        decision = run.approve("shell", {"command": "rm -r out"}, cwd="/src", paths=["/src/out"], risk="high", reason="clean")
        return f"{decision.approved} {decision.scope} {decision.comment}"

    agent = start(risky)
    calls = [client.call(agent, "clean", wait=False)["call_id"]]
    request = eventually(lambda: list(client.approvals(run=calls[0])))[0]
    assert (request["tool"], request["input"], request["paths"]) == ("shell", {"command": "rm -r out"}, ["/src/out"])
    decided = client.approve(request["permission_request_id"], scope="agent", comment="fine")
    assert decided["state"] == "approved" and client.approval(request["permission_request_id"])["state"] == "approved"
    assert client.wait(calls[0]).summary == "True agent fine"
    with pytest.raises(sdk.AlreadyDecided) as late:
        client.deny(request["permission_request_id"])
    assert late.value.decided_by and late.value.decided_at and late.value.permission_request is not None
    # The grant answers the next one, until it is revoked.
    assert client.call(agent, "clean").summary.startswith("True")
    (grant,) = [grant for grant in client.grants() if grant["permission_request_id"] == request["permission_request_id"]]
    client.revoke_grant(grant["grant_id"])
    denied = client.call(agent, "clean", wait=False)["call_id"]
    request = eventually(lambda: list(client.approvals(run=denied)))[0]
    client.deny(request["permission_request_id"], comment="not now")
    assert client.wait(denied).summary == "False once not now"


def test_files_go_up_and_down(client: A2AClient, tmp_path: Path) -> None:
    workspace = client.create_conversation("files", metadata={"space": "test"})["workspace_id"]
    content = bytes(range(256)) * 4000
    (tmp_path / "in.bin").write_bytes(content)
    sources: dict[str, IterableBody] = {
        "bytes": content,
        "path": tmp_path / "in.bin",
        "file": io.BytesIO(content),
        "pieces": iter([content[:1000], content[1000:]]),
        "empty": b"",
    }
    for name, source in sources.items():
        made = client.upload(workspace, name, source, media_type="text/plain")
        expected = b"" if name == "empty" else content
        assert (made["name"], made["size"], made["media_type"]) == (name, len(expected), "text/plain")
        assert client.artifact(made["artifact_id"])["blake3"] == made["blake3"]
        assert client.read(made["artifact_id"]) == expected
        assert client.download(made["artifact_id"], tmp_path / name).read_bytes() == expected
    assert [one["name"] for one in client.artifacts(workspace)] == [*reversed(sources)]
    assert not list(tmp_path.glob("*.part"))


def test_conversations_have_messages(client: A2AClient) -> None:
    made = client.create_conversation("plans")
    client.add_message(made["conversation_id"], "hello", metadata={"a": 1})
    assert [message["text"] for message in client.messages(made["conversation_id"])] == ["hello"]
    assert client.conversation(made["conversation_id"]).get("title") == "plans"
    assert made["conversation_id"] in [one["conversation_id"] for one in client.conversations()]
    client.delete_conversation(made["conversation_id"])
    with pytest.raises(sdk.NotFound):
        client.conversation(made["conversation_id"])


def test_calls_share_a_conversation(client: A2AClient, start: StartWorker) -> None:
    agent = start(words)
    conversation = client.create_conversation()["conversation_id"]
    for text in ("one", "one two"):
        client.call(agent, text, conversation_id=conversation)
    assert len(list(client.runs(conversation_id=conversation))) == 2


def test_agents_are_managed(client: A2AClient) -> None:
    made = client.create_agent("planner", description="plans")
    assert client.agent("planner")["agent_id"] == made["agent_id"]
    assert client.update_agent("planner", description="plans well").get("description") == "plans well"
    assert "planner" in [agent["name"] for agent in client.agents()]
    assert len(client.pairing_code("planner")["pairing_code"]) == 9
    with pytest.raises(sdk.Conflict) as taken:
        client.create_agent("planner")
    assert (taken.value.code, taken.value.status) == ("name_taken", 409) and taken.value.hint
    client.archive_agent("planner")


def test_lists_span_pages(client: A2AClient) -> None:
    conversation = client.create_conversation()["conversation_id"]
    for number in range(205):
        client.add_message(conversation, str(number))
    assert len(list(client.messages(conversation))) == 205
    assert len(list(client.messages(conversation, limit=201))) == 201


def test_refusals_are_typed(hub: Hub, client: A2AClient) -> None:
    with pytest.raises(sdk.InvalidRequest) as invalid:
        client.create_run("nobody", "x", typo=1)
    assert (invalid.value.code, invalid.value.status) == ("invalid_request", 400) and "typo" in invalid.value.message
    with pytest.raises(sdk.NotFound):
        client.call("no-such-agent", "x")
    with A2AClient(hub.url, "ak_wrong") as stranger, pytest.raises(sdk.Unauthenticated) as unknown:
        list(stranger.agents())
    assert unknown.value.code == "unauthenticated" and unknown.value.hint in str(unknown.value)


def test_the_same_idempotency_key_is_the_same_call(client: A2AClient, start: StartWorker) -> None:
    agent = start(words)
    first = client.call(agent, "a", idempotency_key=f"{agent}-1")
    assert client.call(agent, "a", idempotency_key=f"{agent}-1").call_id == first.call_id
    with pytest.raises(sdk.Conflict) as reused:
        client.call(agent, "b", idempotency_key=f"{agent}-1")
    assert reused.value.code == "idempotency_key_reused"
    run = client.create_run(agent, {"text": "c"}, idempotency_key=f"{agent}-2", priority=3)
    assert client.create_run(agent, {"text": "c"}, idempotency_key=f"{agent}-2", priority=3)["task_run_id"] == run["task_run_id"]
    client.wait(run["task_run_id"])
    client.delete_run(run["task_run_id"])
    assert len(list(client.runs(agent=agent))) == 1


def test_a_hub_that_never_answered_is_not_waited_for() -> None:
    with A2AClient("http://127.0.0.1:9", "ak_x") as client, pytest.raises(sdk.Unreachable) as away:
        client.health()
    assert away.value.code == "unreachable" and "attache doctor" in away.value.hint and not away.value.sent
