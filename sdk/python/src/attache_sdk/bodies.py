"""What can be uploaded: bytes, a file, or pieces as they are made."""
from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

PIECE = 64 * 1024

IterableBody = bytes | os.PathLike[str] | BinaryIO | Iterable[bytes]
AsyncIterableBody = IterableBody | AsyncIterable[bytes]


def size_of(body: AsyncIterableBody) -> int | None:
    """The length, if it is known before everything was read."""
    if isinstance(body, bytes):
        return len(body)
    return Path(body).stat().st_size if isinstance(body, os.PathLike) else None


def pieces(body: IterableBody) -> Iterator[bytes]:
    if isinstance(body, bytes):
        for at in range(0, len(body), PIECE):
            yield body[at : at + PIECE]
    elif isinstance(body, os.PathLike):
        with open(body, "rb") as file:
            yield from _read(file)
    elif hasattr(body, "read"):
        yield from _read(cast(BinaryIO, body))
    else:
        yield from body


async def async_pieces(body: AsyncIterableBody) -> AsyncIterator[bytes]:
    if isinstance(body, AsyncIterable):
        async for piece in body:
            yield piece
    else:
        for piece in pieces(body):
            yield piece


def _read(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece
