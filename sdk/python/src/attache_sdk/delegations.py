"""Delegations as the daemon's socket shows them, and how they fail."""
from __future__ import annotations

from typing import TypedDict

from .errors import AttacheError
from .types import AccessMode, DelegationOutcome, DelegationStatus, FolderChanges

ENDED = {"completed", "error", "cancelled", "expired"}


class _DelegationRequired(TypedDict):
    delegation_id: str
    status: DelegationStatus
    description: str
    peer_url: str
    workspace_dir: str
    access_mode: AccessMode
    ttl_seconds: int
    created_at: str


class StagedCopyStatus(TypedDict, total=False):
    """The copy that the agent of a staged delegation works in."""

    unapplied: int
    """Changed paths that are neither applied nor discarded."""
    bytes: int
    kept_until: str | None
    warned_at: str | None
    removed_at: str | None


class Delegation(_DelegationRequired, total=False):
    """A folder that an agent on another machine works in."""

    session_id: str | None
    started_at: str | None
    expires_at: str | None
    ended_at: str | None
    waits_for: str | None
    """Why it doesn't proceed yet: a queue, or an offline remote."""
    remote_mount_point: str | None
    task_id: str | None
    progress: str | None
    revision: int
    result: DelegationOutcome | None
    changes: FolderChanges | None
    staged: StagedCopyStatus | None


class KeptPath(TypedDict):
    path: str
    reason: str


class RevertResult(TypedDict):
    restored: list[str]
    kept: list[KeptPath]
    """Left alone, with the reason: it was also edited here."""


class DaemonHealth(TypedDict):
    version: str
    pid: int
    ssh: str | None
    live: int


class DelegationSession(TypedDict):
    session_id: str
    pending: list[str]
    ended: list[str]
    all_done: bool
    rounds: int


class DaemonNotRunning(AttacheError):
    """No daemon listens at the socket. Nothing was sent."""

    def __init__(self, socket: str) -> None:
        hint = "Start it with `attache daemon`, and leave it running. `attache delegate` starts it too; this package doesn't."
        super().__init__(f"No daemon is running at {socket}.", code="unreachable", hint=hint)


class OutcomeUnknown(AttacheError):
    """The daemon may have carried out the request, and it has no idempotency keys."""

    def __init__(self, socket: str, reason: str) -> None:
        hint = "It may have carried out the request: check `attache delegations` before you retry."
        super().__init__(f"The daemon at {socket} didn't answer: {reason}.", code="outcome_unknown", hint=hint)


class DelegationFailed(AttacheError):
    """The delegation ended without success. `code` is one of docs/delegations.md, "Errors"."""

    def __init__(self, delegation: Delegation) -> None:
        failure = (delegation.get("result") or {}).get("error")
        code = failure["code"] if failure else delegation["status"].upper()
        message = failure["message"] if failure else f"The delegation ended as {delegation['status']}."
        super().__init__(message, code=code, hint=failure["hint"] if failure else "")
        self.delegation = delegation
