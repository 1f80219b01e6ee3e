"""Parses server-sent events, however the bytes are cut."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    id: str
    event: str
    data: str


class SseParser:
    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self._event = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Message]:
        # The hub ends lines with \n. A message that is cut off is never reported: it comes again after the reconnect.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode("utf-8", "replace")
            if not text:
                if self._data:
                    yield Message(self._id, self._event, "\n".join(self._data))
                self._event, self._data = "", []
                continue
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._event = value
            elif name == "id":
                self._id = value
