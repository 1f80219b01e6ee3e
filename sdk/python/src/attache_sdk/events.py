"""The events of a run, and the cursor that makes sure each arrives once and in order. No input or output happens here."""
from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .sse import Message

_LAST = {"task.completed", "task.failed", "task.cancelled"}
_MAX_GAPS = 5


@dataclass(frozen=True)
class RunEvent:
    """One event of a run. `seq` counts from 1 without gaps: pass it as `after` to continue behind it."""

    seq: int
    type: str
    """`task.chunk`, `task.thought`, `task.log`, `task.progress`, `permission.requested`, `task.completed`, …"""
    at: str
    data: Any

    @property
    def text(self) -> str:
        """The piece of the answer, if it is a `task.chunk`; otherwise empty."""
        return str(self.data.get("text", "")) if self.type == "task.chunk" else ""

    @property
    def is_last(self) -> bool:
        return self.type in _LAST


class Gap(Exception):
    """The stream skipped an event. It is in the log, so reading again from the cursor gets it."""


class BadStream(Exception):
    """The stream isn't one of a hub."""


class Cursor:
    """What a reader has seen of a run."""

    def __init__(self, after: int) -> None:
        self.seen = after
        self.ended = False
        self._gaps = 0

    def accept(self, message: Message) -> Iterator[RunEvent]:
        """The event of a message, unless it was seen before."""
        try:
            raw = json.loads(message.data)
            event = RunEvent(int(raw["seq"]), str(raw["type"]), str(raw["at"]), raw["data"])
        except (ValueError, KeyError, TypeError) as cause:
            raise BadStream("its stream contains an unreadable event") from cause
        if event.type == "snapshot.repaired":
            # The events before it are gone for good, and it replaces them.
            self.seen = max(self.seen, int(event.data.get("missing", {}).get("to", event.seq)))
            yield event
            return
        if event.seq <= self.seen:
            return
        if event.seq > self.seen + 1:
            self._gaps += 1
            if self._gaps > _MAX_GAPS:
                raise BadStream("its stream skips events")
            raise Gap
        self._gaps = 0
        self.seen = event.seq
        self.ended = event.is_last
        yield event
