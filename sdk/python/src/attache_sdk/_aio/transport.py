"""Sends requests to a hub, retries them where that is safe, and reads the answers."""
from __future__ import annotations

import asyncio
import json as json_text
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Generator as Blocking
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx

from ..calls import given
from ..errors import AttacheError, InvalidReply, Unreachable, Untrusted, from_reply
from ..events import BadStream, Cursor, Gap, RunEvent
from ..retry import Retries
from ..settings import HubSettings
from ..sse import SseParser
from ..tls import PinMismatch, context_for
from ..version import USER_AGENT

# The hub sends a comment line at least every 15 seconds.
_SILENCE = 45.0
# A hub that never answered is probably the wrong address: don't keep the caller waiting.
_FIRST_PATIENCE = 2.0


def path(*segments: str) -> str:
    """A path of the hub, each segment escaped."""
    return "/" + "/".join(quote(segment, safe="") for segment in segments)


class AsyncTransport:
    """The connection to one hub with one key."""

    def __init__(self, settings: HubSettings, timeout: float, patience: float) -> None:
        self.settings = settings
        self._timeout, self._patience = timeout, patience
        self._reached = False
        headers = {"user-agent": USER_AGENT, "accept": "application/json"}
        if settings.key is not None:
            headers["authorization"] = f"Bearer {settings.key}"
        encrypted = settings.url.startswith("https:")
        # A redirect or a proxy could carry the key to another server.
        self._http = httpx.AsyncClient(
            base_url=settings.url,
            headers=headers,
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            verify=context_for(settings.pin) if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def request(
        self,
        method: str,
        target: str,
        *,
        json: Any = None,
        params: dict[str, Any] | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        repeatable: bool | None = None,
        wait: float = 0.0,
    ) -> Any:
        """Sends a request until it is answered, as long as it can't take effect twice."""
        sent = dict(headers or {})
        if key is not None:
            sent["idempotency-key"] = key
        content = None
        if json is not None:
            content, sent["content-type"] = json_text.dumps(json).encode(), "application/json"
        if repeatable is None:
            repeatable = method == "GET" or key is not None
        retries = self._retries()
        while True:
            try:
                with self._explained():
                    response = await self._http.request(
                        method, target, content=content, params=params, headers=sent, timeout=self._timeout + wait
                    )
                return self._answer(response)
            except AttacheError as error:
                pause = retries.pause_after(error, repeatable=repeatable)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def pages(
        self, target: str, plural: str, params: dict[str, Any], limit: int | None
    ) -> AsyncGenerator[Any, None]:
        """Every item of a list, page by page."""
        cursor: str | None = None
        left = limit
        while True:
            page_size = 200 if left is None else min(left, 200)
            page = await self.request("GET", target, params={**params, **given(limit=page_size, cursor=cursor)})
            for item in page[plural]:
                yield item
                if left is not None:
                    left -= 1
                    if left <= 0:
                        return
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    async def upload(self, target: str, pieces: AsyncIterator[bytes], headers: dict[str, str]) -> Any:
        """One attempt: the pieces can be read once, and a second upload would be a second artifact."""
        with self._explained():
            response = await self._http.put(target, content=pieces, headers=headers)
        return self._answer(response)

    async def download(self, target: str) -> AsyncGenerator[bytes, None]:
        """The bytes of an artifact. A broken connection continues where it broke."""
        retries, received = self._retries(), 0
        while True:
            try:
                with self._explained():
                    # Ranges count the bytes of the file, not those of a compressed response.
                    headers = {"accept": "*/*", "accept-encoding": "identity", "range": f"bytes={received}-"}
                    async with self._http.stream("GET", target, headers=headers) as response:
                        if response.status_code not in (200, 206):
                            await response.aread()
                            # An empty file, or cut after the last byte: there is nothing to ask for.
                            if response.status_code == 416:
                                return
                            self._answer(response)
                        if received and response.status_code == 200:
                            raise InvalidReply(self.settings.url, "it ignores ranges")
                        async for piece in response.aiter_bytes():
                            received += len(piece)
                            retries.succeeded()
                            yield piece
                        return
            except AttacheError as error:
                pause = retries.pause_after(error, repeatable=True)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def follow(self, run: str, after: int) -> AsyncGenerator[RunEvent, None]:
        """The events of a run behind a cursor: each once and in order, over as many connections as it takes."""
        target, cursor, retries = path("api", "v1", "task-runs", run, "events"), Cursor(after), self._retries()
        headers = {"accept": "text/event-stream"}
        while not cursor.ended:
            before = cursor.seen
            try:
                with self._explained():
                    resume = {**headers, "last-event-id": str(cursor.seen)}
                    timeout = httpx.Timeout(self._timeout, read=_SILENCE)
                    stream = self._http.stream("GET", target, params={"after": cursor.seen}, headers=resume, timeout=timeout)
                    async with stream as response:
                        if response.status_code != 200:
                            await response.aread()
                            self._answer(response)
                        self._reached = True
                        parser = SseParser()
                        async for piece in response.aiter_bytes():
                            for message in parser.feed(piece):
                                for event in cursor.accept(message):
                                    retries.succeeded()
                                    yield event
                                if cursor.ended:
                                    return
                if cursor.seen == before and await self._has_ended(target, cursor.seen):
                    return
                # The hub closed the stream early, for example because it is about to stop.
                raise Unreachable(self.settings.url, "it closed the stream", sent=True)
            except Gap:
                continue
            except BadStream as cause:
                raise InvalidReply(self.settings.url, str(cause)) from cause
            except AttacheError as error:
                pause = retries.pause_after(error, repeatable=True)
                if pause is None:
                    raise
                await asyncio.sleep(pause)

    async def _has_ended(self, target: str, seen: int) -> bool:
        """Whether the run ended at or before the cursor, so that its stream has nothing more."""
        page = await self.request("GET", target, params={"after": seen})
        return not page["events"] and page["status"] in ("completed", "failed", "cancelled")

    def _retries(self) -> Retries:
        return Retries(lambda: self._patience if self._reached else min(self._patience, _FIRST_PATIENCE))

    def _answer(self, response: httpx.Response) -> Any:
        self._reached = True
        if response.is_success:
            if not response.content:
                return None
            try:
                return response.json()
            except ValueError as cause:
                raise InvalidReply(self.settings.url, "its answer isn't JSON") from cause
        raise from_reply(self.settings.url, response.status_code, response.content, response.headers.get("retry-after"))

    @contextmanager
    def _explained(self) -> Blocking[None, None, None]:
        """Turns errors of the connection into ours."""
        try:
            yield
        except httpx.TransportError as cause:
            raise unreachable(self.settings.url, cause) from cause


def unreachable(address: str, cause: httpx.TransportError) -> AttacheError:
    inner: BaseException | None = cause
    while inner is not None:
        if isinstance(inner, (ssl.SSLCertVerificationError, PinMismatch)):
            return Untrusted(address, getattr(inner, "verify_message", "") or "its key isn't the pinned one")
        inner = inner.__cause__ or inner.__context__
    sent = not isinstance(cause, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    return Unreachable(address, str(cause) or type(cause).__name__, sent=sent)
