"""The state of a worker's channel across connections (docs/channels.md). No input or output happens here.

Every frame of ours that matters is a request: it is kept until the hub answers it, and sent again with the same id over the
next connection. The hub recognizes the id, and the number of a report, so that it takes effect once.
"""
from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# These refusals say nothing about the frame: the same one may succeed a little later.
TEMPORARY = {"not_registered", "too_many_requests", "overloaded", "draining"}
_RESUME_FAILED = "resume_refused"
_UNKNOWN_SEQ = "payload.last_seq"


@dataclass(frozen=True)
class Opened:
    """The hub knows this channel. Credits start at zero."""

    agent_id: str | None


@dataclass(frozen=True)
class Answered:
    msg_id: str
    payload: dict[str, Any]


@dataclass(frozen=True)
class Refused:
    msg_id: str | None
    error: dict[str, Any]


@dataclass(frozen=True)
class Received:
    """A request or notification of the hub: `execute`, `cancel`, `input`, `drain`. Sent again, it has the same id."""

    action: str
    payload: dict[str, Any]
    msg_id: str


@dataclass(frozen=True)
class Send:
    """A frame to write now."""

    text: str


@dataclass(frozen=True)
class OpeningRefused:
    error: dict[str, Any]


@dataclass(frozen=True)
class Reconnect:
    """Frames that we never saw are gone. A new channel names what we still work on; the rest goes back to the queue."""


Event = Opened | Answered | Refused | Received | Send | OpeningRefused | Reconnect


class Channel:
    def __init__(self, capabilities: list[str], device_info: dict[str, Any] | None) -> None:
        self._register: dict[str, Any] = {"peer_role": "worker", "capabilities": capabilities}
        if device_info is not None:
            self._register["device_info"] = device_info
        self._channel_id: str | None = None
        self._resume_token: str | None = None
        self._last_seq = 0
        self._agent_id: str | None = None
        self._opening: str | None = None
        self._running: list[str] = []
        self._pending: dict[str, str] = {}

    def open(self, running: list[str]) -> str:
        """The first frame of a connection: continues the channel, or registers and names the runs in progress."""
        self._running = running
        payload: dict[str, Any]
        if self._channel_id is None:
            payload = {"action": "register", **self._register, "running": running}
        else:
            payload = {
                "action": "resume",
                "channel_id": self._channel_id,
                "resume_token": self._resume_token,
                "last_seq": self._last_seq,
            }
        self._opening = uuid.uuid4().hex
        return frame("request", payload, self._opening)

    def request(self, payload: dict[str, Any], msg_id: str) -> str:
        """A frame that is kept until it is answered."""
        text = self._pending[msg_id] = frame("request", payload, msg_id)
        return text

    def forget(self, msg_id: str) -> None:
        self._pending.pop(msg_id, None)

    def pending(self, msg_id: str) -> str | None:
        return self._pending.get(msg_id)

    def unanswered(self) -> list[str]:
        """What to send again over a new connection, in order."""
        return list(self._pending.values())

    def receive(self, text: str | bytes) -> Iterator[Event]:
        try:
            envelope = json.loads(text)
            header, payload = envelope["header"], envelope["payload"]
            parent, seq = header.get("parent_id"), header.get("seq")
            action, ok = payload.get("action"), payload.get("ok")
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # not a frame of this version
        if self._opening is not None and parent == self._opening:
            yield from self._opened(payload, ok)
            return
        if isinstance(seq, int):
            # The hub sends again what it doesn't know to have arrived.
            if seq > self._last_seq:
                self._last_seq = seq
                yield from self._taken(header, action, payload, parent, ok)
            yield Send(frame("notification", {"action": "ack", "seq": self._last_seq}, uuid.uuid4().hex))
        else:
            yield from self._taken(header, action, payload, parent, ok)

    def _opened(self, payload: dict[str, Any], ok: bool | None) -> Iterator[Event]:
        if ok:
            resumed = payload.get("action") == "resume"
            self._opening, self._resume_token = None, payload["resume_token"]
            if resumed and payload.get("repaired"):
                self._channel_id = None
                yield Reconnect()
                return
            if not resumed:
                self._channel_id, self._last_seq = payload["channel_id"], 0
                self._agent_id = payload.get("agent_id")
            yield Opened(self._agent_id)
            return
        error = payload.get("error") or {}
        if self._channel_id is not None and (error.get("code") == _RESUME_FAILED or error.get("field") == _UNKNOWN_SEQ):
            # The answer with the new token was lost, or the hub was restored from an older copy. Our claims follow us.
            self._channel_id = None
            yield Send(self.open(self._running))
        else:
            yield OpeningRefused(error)

    def _taken(
        self, header: dict[str, Any], action: str | None, payload: dict[str, Any], parent: str | None, ok: bool | None
    ) -> Iterator[Event]:
        if header.get("type") == "response":
            if ok:
                if parent is not None and self._pending.pop(parent, None) is not None:
                    yield Answered(parent, payload)
                return
            error = payload.get("error") or {}
            if parent is not None and error.get("code") not in TEMPORARY:
                self._pending.pop(parent, None)
            yield Refused(parent, error)
        elif action is not None:
            yield Received(action, payload, str(header.get("msg_id")))


def frame(kind: str, payload: dict[str, Any], msg_id: str) -> str:
    header = {
        "msg_id": msg_id,
        "parent_id": None,
        "type": kind,
        "from": "worker",
        "to": "hub",
        "timestamp": int(time.time()),
    }
    text = json.dumps({"header": header, "payload": payload}, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: only an escape can carry it
        text = json.dumps({"header": header, "payload": payload}, allow_nan=False)
    return text
