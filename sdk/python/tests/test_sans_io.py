"""The parts without input or output: parsing, cursors, retries and frames."""
from __future__ import annotations

import json
from typing import Any

import pytest
from attache_sdk import channel as ch
from attache_sdk.errors import InvalidRequest, QuotaExceeded, RunConflict, Unavailable, Unreachable, from_frame, from_reply
from attache_sdk.events import BadStream, Cursor, Gap, RunEvent
from attache_sdk.retry import Backoff, Retries
from attache_sdk.sse import Message, SseParser


def test_events_are_parsed_however_the_bytes_are_cut() -> None:
    text = ': hello\n\nid: 7\nevent: task.chunk\ndata: {"a":\ndata: "é"}\n\nid: 8\r\ndata: x\r\n\r\ndata: cut off'.encode()
    wanted = [Message("7", "task.chunk", '{"a":\n"é"}'), Message("8", "", "x")]
    for size in (1, 2, 3, 7, len(text)):
        parser = SseParser()
        found = [message for at in range(0, len(text), size) for message in parser.feed(text[at : at + size])]
        assert found == wanted, size


def event(seq: int, kind: str = "task.log", data: Any = None) -> Message:
    return Message(str(seq), kind, json.dumps({"seq": seq, "type": kind, "at": "t", "data": data}))


def test_a_cursor_takes_every_event_once_and_notices_gaps() -> None:
    cursor = Cursor(0)
    assert list(cursor.accept(event(1))) == [RunEvent(1, "task.log", "t", None)]
    assert list(cursor.accept(event(1))) == []
    with pytest.raises(Gap):
        list(cursor.accept(event(3)))
    assert cursor.seen == 1
    repaired = list(cursor.accept(event(9, "snapshot.repaired", {"missing": {"from": 2, "to": 9}})))
    assert [one.seq for one in repaired] == [9] and cursor.seen == 9
    assert not cursor.ended
    list(cursor.accept(event(10, "task.failed")))
    assert cursor.ended
    with pytest.raises(BadStream):
        list(cursor.accept(Message("11", "", "nonsense")))
    stuck = Cursor(0)
    with pytest.raises(BadStream):
        for _ in range(9):
            try:
                list(stuck.accept(event(5)))
            except Gap:
                continue


def test_only_requests_that_cannot_take_effect_twice_are_repeated() -> None:
    now = [0.0]
    lost = Unreachable("http://h", "cut", sent=True)
    never_sent = Unreachable("http://h", "refused", sent=False)
    busy = from_reply("http://h", 503, b'{"error":{"code":"overloaded","message":"m","hint":"h"}}', "3")
    unknown = from_reply("http://h", 503, b'{"error":{"code":"outcome_unknown","message":"m","hint":"h"}}')
    quota = from_reply("http://h", 429, b'{"error":{"code":"quota_exceeded","message":"m","hint":"h"}}', "60")
    assert isinstance(busy, Unavailable) and isinstance(quota, QuotaExceeded)

    def pause(error: Any, repeatable: bool) -> float | None:
        return Retries(lambda: 10.0, lambda: now[0]).pause_after(error, repeatable=repeatable)

    assert pause(lost, False) is None and pause(lost, True) is not None
    assert pause(never_sent, False) is not None
    assert (pause(busy, False) or 0) >= 3.0
    assert pause(unknown, False) is None and pause(unknown, True) is not None
    assert pause(quota, True) is None
    patient = Retries(lambda: 10.0, lambda: now[0])
    assert patient.pause_after(lost, repeatable=True) is not None
    now[0] = 11.0
    assert patient.pause_after(lost, repeatable=True) is None
    patient.succeeded()
    assert patient.pause_after(lost, repeatable=True) is not None


def test_delays_grow_to_the_limit_and_start_over() -> None:
    backoff = Backoff(0.1, 1.0)
    for whole in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert whole / 2 <= backoff.next() <= whole
    backoff.reset()
    assert backoff.next() <= 0.1


def response(parent: str, payload: dict[str, Any], seq: int | None = None) -> str:
    return json.dumps({"header": {"type": "response", "parent_id": parent, "seq": seq}, "payload": payload})


def opened(channel: ch.Channel, running: list[str]) -> dict[str, Any]:
    """Opens the channel and returns the payload of the first frame."""
    sent: dict[str, Any] = json.loads(channel.open(running))
    answer = {"action": sent["payload"]["action"], "ok": True, "resume_token": "rs_2", "channel_id": "chn_1", "agent_id": "agt_1"}
    assert list(channel.receive(response(sent["header"]["msg_id"], answer))) == [ch.Opened("agt_1")]
    payload: dict[str, Any] = sent["payload"]
    return payload


def test_a_channel_registers_resumes_and_sends_again_what_was_not_answered() -> None:
    channel = ch.Channel(["resume"], None)
    assert opened(channel, ["run_1"]) == {
        "action": "register", "peer_role": "worker", "capabilities": ["resume"], "running": ["run_1"],
    }  # fmt: skip
    text = channel.request({"action": "done"}, "m1")
    execute = json.dumps({"header": {"type": "request", "seq": 1, "msg_id": "h1"}, "payload": {"action": "execute", "task_run_id": "run_2"}})
    first, ack = list(channel.receive(execute))
    assert first == ch.Received("execute", {"action": "execute", "task_run_id": "run_2"}, "h1")
    assert isinstance(ack, ch.Send) and json.loads(ack.text)["payload"] == {"action": "ack", "seq": 1}
    # The same frame again is acknowledged, and nothing else.
    assert [type(event) for event in channel.receive(execute)] == [ch.Send]

    resume = {"action": "resume", "channel_id": "chn_1", "resume_token": "rs_2", "last_seq": 1}
    assert opened(channel, ["run_1"]) == resume
    assert channel.unanswered() == [text]
    answer = {"action": "done", "ok": True}
    assert list(channel.receive(response("m1", answer))) == [ch.Answered("m1", answer)]
    assert list(channel.receive(response("m1", answer))) == []
    assert channel.unanswered() == []


def test_a_refused_resume_registers_on_the_same_connection() -> None:
    channel = ch.Channel([], None)
    opened(channel, [])
    sent = json.loads(channel.open(["run_9"]))
    refusal = {"action": "resume", "ok": False, "error": {"code": "resume_refused", "message": "used"}}
    (again,) = channel.receive(response(sent["header"]["msg_id"], refusal))
    assert isinstance(again, ch.Send)
    payload = json.loads(again.text)["payload"]
    assert (payload["action"], payload["running"]) == ("register", ["run_9"])


def test_temporary_refusals_keep_the_frame_and_final_ones_do_not() -> None:
    channel = ch.Channel([], None)
    opened(channel, [])
    channel.request({"action": "done"}, "m1")
    busy = {"ok": False, "error": {"code": "overloaded", "message": "later"}}
    assert list(channel.receive(response("m1", busy))) == [ch.Refused("m1", busy["error"])]  # type: ignore[arg-type]
    assert channel.pending("m1") is not None
    stale = {"ok": False, "error": {"code": "stale_epoch", "message": "no", "task_run": {"status": "failed"}}}
    (refused,) = channel.receive(response("m1", stale))
    assert isinstance(refused, ch.Refused) and channel.pending("m1") is None
    error = from_frame(refused.error)
    assert isinstance(error, RunConflict) and error.run is not None and error.run["status"] == "failed"


def test_a_refused_frame_names_the_member() -> None:
    error = from_frame({"code": "invalid_frame", "message": "`payload.credits` is missing.", "field": "payload.credits"})
    assert isinstance(error, InvalidRequest) and (error.code, error.field) == ("invalid_frame", "payload.credits")


def test_nonsense_from_the_hub_is_ignored() -> None:
    channel = ch.Channel([], None)
    for text in ("", "nonsense", "[]", "{}", '{"header":null,"payload":null}', '{"header":{},"payload":[]}'):
        assert list(channel.receive(text)) == []


def test_half_a_character_travels_as_an_escape() -> None:
    assert json.loads(ch.frame("request", {"text": "\ud800é"}, "m"))["payload"]["text"] == "\ud800é"
    ch.frame("request", {"text": "\ud800é"}, "m").encode()
