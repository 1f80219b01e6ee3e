"""A small HTTP/1.1 server for loopback: one request per connection, which is all a runtime needs."""
from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("attache_sdk")

_MAX_HEAD = 64 * 1024
_MAX_BODY = 8 << 20
_MAX_DEPTH = 64
_READ_TIMEOUT = 30.0
_LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
            405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large", 415: "Unsupported Media Type",
            421: "Misdirected Request", 500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip


@dataclass(frozen=True)
class Request:
    method: str
    path: list[str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        if self.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HttpError(415, "unsupported_media_type", "Send content-type: application/json.")
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError) as cause:
            raise HttpError(400, "invalid_json", "The body isn't JSON.") from cause
        if _depth(value) > _MAX_DEPTH:
            raise HttpError(400, "json_too_deep", f"Nest JSON at most {_MAX_DEPTH} levels deep.")
        if not isinstance(value, dict):
            raise HttpError(400, "invalid_json", "The body isn't a JSON object.")
        return value


@dataclass(frozen=True)
class EventStream:
    """A response of server-sent events."""

    events: AsyncGenerator[str, None]


class HttpError(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": code, "message": message, "hint": "See docs/adapter.md."}}


Respond = Callable[[Request], Awaitable["dict[str, Any] | EventStream"]]


class HttpServer:
    """Admits requests that a runtime on this machine could send, and passes them on."""

    def __init__(self, respond: Respond, secret: str | None) -> None:
        self._respond, self._secret = respond, secret
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._connection, host, port, limit=_MAX_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                request = await asyncio.wait_for(self._read(reader), _READ_TIMEOUT)
                self._admit(request)
                answer = await self._respond(request)
            except HttpError as refused:
                await _reply(writer, refused.status, refused.body)
                return
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                raise
            except Exception as error:
                log.error("a request failed", exc_info=error)
                failure = HttpError(500, "internal", "The adapter failed.")
                await _reply(writer, failure.status, failure.body)
                return
            if isinstance(answer, EventStream):
                writer.write(_head(200, "text/event-stream", None))
                async with aclosing(answer.events) as events:
                    async for text in events:
                        writer.write(text.encode())
                        await writer.drain()
            else:
                await _reply(writer, 200, answer)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass  # the client is gone; the run continues
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError as cause:
            raise HttpError(413, "too_large", "The headers are too long.") from cause
        first, *lines = head.split("\r\n")
        try:
            method, target, _ = first.split(" ")
            pairs = [line.split(":", 1) for line in lines if line]
            headers = {name.strip().lower(): value.strip() for name, value in pairs}
            length = int(headers.get("content-length", "0"))
        except ValueError as cause:
            raise HttpError(400, "invalid_request", "That isn't an HTTP request.") from cause
        if "transfer-encoding" in headers or length < 0:
            raise HttpError(400, "invalid_request", "Send a content-length.")
        if length > _MAX_BODY:
            raise HttpError(413, "too_large", "The body is larger than 8 MiB.")
        body = await reader.readexactly(length)
        return Request(method, target.partition("?")[0].strip("/").split("/"), headers, body)

    def _admit(self, request: Request) -> None:
        """Every program and web page on the device can reach a loopback port."""
        host, _, port = request.headers.get("host", "").rpartition(":")
        if host not in _LOOPBACK or port != str(self.port):
            raise HttpError(421, "wrong_host", "Call this adapter by its loopback address.")
        if "origin" in request.headers:
            raise HttpError(403, "foreign_origin", "Web pages can't use this adapter.")
        if self._secret is not None:
            sent = request.headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(sent, f"Bearer {self._secret}".encode()):
                raise HttpError(401, "unauthenticated", "The secret is missing or wrong.")


def _head(status: int, kind: str, length: int | None) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}", f"content-type: {kind}", "connection: close"]
    if length is not None:
        lines.append(f"content-length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


async def _reply(writer: asyncio.StreamWriter, status: int, value: dict[str, Any]) -> None:
    body = json.dumps(value).encode()
    writer.write(_head(status, "application/json", len(body)) + body)
    await writer.drain()


def _depth(value: Any) -> int:
    """How deeply JSON is nested, without recursion."""
    deepest, todo = 0, [(value, 1)]
    while todo:
        item, level = todo.pop()
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else None
        if inner is not None:
            deepest = max(deepest, level)
            todo.extend((one, level + 1) for one in inner)
    return deepest
