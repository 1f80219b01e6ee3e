"""Delegates folders through the daemon on this machine, over its Unix socket."""
from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import httpx

from ..calls import given
from ..delegations import (
    ENDED,
    DaemonHealth,
    DaemonNotRunning,
    Delegation,
    DelegationFailed,
    DelegationSession,
    OutcomeUnknown,
    RevertResult,
)
from ..errors import from_reply
from ..settings import awcp_home
from ..types import AccessMode
from .transport import path

_REQUEST_TIMEOUT = 30.0
# Reverting or comparing the changes of a lease reads many files.
_LONG_TIMEOUT = 600.0
_LONG_POLL = 20.0


class AsyncDaemonClient:
    """An asynchronous client of the delegation daemon: `$AWCP_HOME/daemon.sock`, unless another socket is given."""

    def __init__(self, socket: str | os.PathLike[str] | None = None) -> None:
        self.socket = str(socket or awcp_home() / "daemon.sock")
        # Each request has its own connection: after a restart of the daemon, a kept one would break without a way to know
        # whether a request arrived.
        transport = httpx.AsyncHTTPTransport(uds=self.socket, limits=httpx.Limits(max_keepalive_connections=0))
        self._http = httpx.AsyncClient(base_url="http://daemon", transport=transport, trust_env=False)

    async def __aenter__(self) -> AsyncDaemonClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def delegate(
        self,
        folder: str | os.PathLike[str],
        to: str,
        prompt: str,
        *,
        wait: bool = True,
        description: str | None = None,
        access: AccessMode | None = None,
        ttl: int | None = None,
        include: list[str] | None = None,
        exclude: list[str] | None = None,
        key_file: str | os.PathLike[str] | None = None,
        session: str | None = None,
        staged: bool | None = None,
    ) -> Delegation:
        """Lets the agent at the URL `to` work in a folder, and waits for the result unless `wait` is false.

        A person must have allowed the peer and the folder: `attache delegations allow`. `access` is `rw` or `ro`, `ttl`
        the lease in seconds. One that doesn't complete raises DelegationFailed. Access is revoked before this returns.
        With `staged`, the agent works in a copy, and a person applies its changes: `attache delegations apply`.
        """
        body = given(
            description=description or prompt.strip().split("\n")[0][:120],
            prompt=prompt,
            peer_url=to,
            workspace_dir=str(Path(folder).expanduser().absolute()),
            ttl_seconds=ttl,
            access_mode=access,
            session_id=session,
            include=include,
            exclude=exclude,
            key_file=None if key_file is None else str(Path(key_file).expanduser().absolute()),
            staged=staged,
        )
        delegation: Delegation = await self._request("POST", path("v1", "delegations"), json=body)
        return await self.wait(delegation["delegation_id"]) if wait else delegation

    async def wait(self, delegation: str) -> Delegation:
        """Waits until a delegation has ended."""
        revision = 0
        while True:
            try:
                current = await self.get(delegation, after=revision, wait=_LONG_POLL)
            except (DaemonNotRunning, OutcomeUnknown):
                # The next daemon knows how it ended. Give it a moment to start.
                await asyncio.sleep(1.0)
                current = await self.get(delegation)
            if current["status"] == "completed":
                return current
            if current["status"] in ENDED:
                raise DelegationFailed(current)
            revision = current.get("revision", 0)

    async def get(self, delegation: str, *, after: int | None = None, wait: float = 0.0) -> Delegation:
        """One delegation. With `after` and `wait`, once its revision is past `after` or the seconds are over."""
        params = given(after=after, wait_ms=round(wait * 1000) or None)
        found: Delegation = await self._request(
            "GET", path("v1", "delegations", delegation), params=params, timeout=_REQUEST_TIMEOUT + wait
        )
        return found

    async def delegations(self) -> list[Delegation]:
        """All delegations, newest first."""
        found: list[Delegation] = (await self._request("GET", path("v1", "delegations")))["delegations"]
        return found

    async def cancel(self, delegation: str) -> Delegation:
        """Revokes access at once. One that has ended stays as it is."""
        ended: Delegation = await self._request("POST", path("v1", "delegations", delegation, "cancel"))
        return ended

    async def diff(self, delegation: str) -> str:
        """What changed in the folder, as a unified diff."""
        text: str = (
            await self._request("GET", path("v1", "delegations", delegation, "diff"), timeout=_LONG_TIMEOUT)
        )["text"]
        return text

    async def revert(
        self, delegation: str, *paths: str, take: Literal["before", "mine"] | None = None
    ) -> RevertResult:
        """Puts everything back, or only these paths. Files that you also edited are kept unless `take` says which."""
        body = given(paths=[*paths], take=take)
        result: RevertResult = await self._request(
            "POST", path("v1", "delegations", delegation, "revert"), json=body, timeout=_LONG_TIMEOUT
        )
        return result

    async def session(self, session: str) -> DelegationSession:
        found: DelegationSession = await self._request("GET", path("v1", "sessions", session))
        return found

    async def health(self) -> DaemonHealth:
        health: DaemonHealth = await self._request("GET", path("v1", "health"))
        return health

    async def _request(
        self, method: str, target: str, *, json: Any = None, params: Any = None, timeout: float = _REQUEST_TIMEOUT
    ) -> Any:
        try:
            response = await self._http.request(method, target, json=json, params=params, timeout=timeout)
        except (httpx.ConnectError, httpx.ConnectTimeout) as cause:
            raise DaemonNotRunning(self.socket) from cause
        except httpx.TransportError as cause:
            raise OutcomeUnknown(self.socket, str(cause) or type(cause).__name__) from cause
        if response.is_success:
            return response.json() if response.content else None
        raise from_reply("the daemon", response.status_code, response.content)
