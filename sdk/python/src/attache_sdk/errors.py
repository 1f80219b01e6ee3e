"""Everything that can go wrong, as exceptions with a stable code and a hint that says what to do next."""
from __future__ import annotations

import json
from typing import Any

from .types import PermissionRequest, Run


class AttacheError(Exception):
    """The base of all errors of this package."""

    def __init__(self, message: str, *, code: str, hint: str = "", field: str | None = None) -> None:
        super().__init__(f"{message} {hint}".strip())
        self.code = code
        """Stable: test for it. docs/errors.md lists every code."""
        self.message = message
        self.hint = hint
        self.field = field
        """The member of the request that is at fault, if the hub names it."""


class SettingsError(AttacheError):
    """No hub, key or pin was given, or the one given can't be used. Nothing was sent."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, code="invalid_settings", hint=hint)


class Unreachable(AttacheError):
    """Nothing answers at the hub's address, or the connection broke before the answer."""

    def __init__(self, address: str, reason: str, *, sent: bool) -> None:
        hint = "Check the address and that the hub is running: `attache doctor`."
        super().__init__(f"Can't reach the hub at {address}: {reason}.", code="unreachable", hint=hint)
        self.sent = sent
        """Whether the hub may have received and carried out the request."""


class Untrusted(AttacheError):
    """The server didn't prove that it is the hub. Nothing was sent."""

    def __init__(self, address: str, reason: str) -> None:
        hint = "If the hub uses --tls-self-signed, pass its pin (printed at start, stored in <data>/tls.pin)."
        super().__init__(f"Can't trust {address}: {reason}.", code="unreachable", hint=hint)


class InvalidReply(AttacheError):
    """The response doesn't come from a hub."""

    def __init__(self, address: str, reason: str) -> None:
        hint = "Check that this is the address of an Attaché hub."
        super().__init__(f"{address} doesn't answer like a hub: {reason}.", code="invalid_reply", hint=hint)


class HubError(AttacheError):
    """The hub refused the request. Subclasses say how; `code` says exactly why."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        detail = body.get("error")
        detail = detail if isinstance(detail, dict) else {}
        super().__init__(
            str(detail.get("message") or f"The hub answered with status {status}."),
            code=str(detail.get("code") or "internal"),
            hint=str(detail.get("hint") or ""),
            field=detail.get("field"),
        )
        self.status = status
        self.remedy: str | None = detail.get("remedy")
        """The hint as a stable word, for programs that phrase it their own way."""
        self.body = body
        self.retry_after: float | None = None
        """Seconds, if the hub says when to try again."""


class InvalidRequest(HubError):
    """A member is missing, unknown or out of range."""


class Unauthenticated(HubError):
    """The key is missing, unknown, expired or revoked."""


class Forbidden(HubError):
    """The key is valid, but it doesn't allow this."""


class NotFound(HubError):
    """It doesn't exist, or it isn't yours."""


class TooLarge(HubError):
    """The request has more than the hub accepts."""


class QuotaExceeded(HubError):
    """A limit on calls, tokens or cost is reached."""


class TooManyRequests(HubError):
    """Too many requests in a short time."""


class Unavailable(HubError):
    """The hub can't do it now: overloaded, shutting down, or its disk is full."""


class Conflict(HubError):
    """It can't be done in the current state."""


class RunConflict(Conflict):
    """The run is no longer in a state that allows this. `run` is its current state."""

    @property
    def run(self) -> Run | None:
        run: Run | None = self.body.get("task_run")
        return run


class AlreadyDecided(Conflict):
    """Someone else decided this permission request first."""

    @property
    def decided_by(self) -> str | None:
        value: str | None = self.body.get("decided_by")
        return value

    @property
    def decided_at(self) -> str | None:
        value: str | None = self.body.get("decided_at")
        return value

    @property
    def permission_request(self) -> PermissionRequest | None:
        value: PermissionRequest | None = self.body.get("permission_request")
        return value


class CallFailed(AttacheError):
    """The agent failed, or the call was cancelled. `code` is one of docs/errors.md, "How a run fails"."""

    def __init__(self, call_id: str, code: str, message: str) -> None:
        super().__init__(message, code=code)
        self.call_id = call_id


class CallTimeout(AttacheError):
    """The call hasn't ended in the time you were willing to wait. It continues; wait again, or cancel it."""

    def __init__(self, call_id: str) -> None:
        hint = "The call continues: wait again with `wait(call_id)`, or end it with `cancel(call_id)`."
        super().__init__(f"Call {call_id} hasn't ended yet.", code="wait_timeout", hint=hint)
        self.call_id = call_id


class Superseded(AttacheError):
    """Another worker registered for the same agent and took over."""

    def __init__(self) -> None:
        hint = "Run one worker per agent, or raise `concurrency` of the one that is running."
        super().__init__("Another worker took over this agent.", code="superseded", hint=hint)


_BY_CODE: dict[str, type[HubError]] = {
    "quota_exceeded": QuotaExceeded,
    "already_decided": AlreadyDecided,
    "stale_epoch": RunConflict,
    "run_ended": RunConflict,
    "not_running": RunConflict,
    "not_waiting": RunConflict,
}
_BY_STATUS: dict[int, type[HubError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    405: InvalidRequest,
    409: Conflict,
    413: TooLarge,
    415: InvalidRequest,
    416: InvalidRequest,
    421: Forbidden,
    429: TooManyRequests,
    431: TooLarge,
}
# A channel's frames have no HTTP status.
_STATUS_OF_CODE = {
    "invalid_json": 400, "invalid_frame": 400, "invalid_request": 400, "unauthenticated": 401, "forbidden": 403,
    "access_denied": 403, "not_found": 404, "too_large": 413, "too_many_requests": 429, "overloaded": 503, "draining": 503,
}  # fmt: skip


def from_reply(address: str, status: int, content: bytes, retry_after: str | None = None) -> AttacheError:
    """The exception for a response with an error status."""
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict) or "error" not in body:
        if status >= 500:
            return Unreachable(address, f"it answered with status {status}", sent=True)
        return InvalidReply(address, f"status {status} without an explanation")
    return _typed(status, body, retry_after)


def from_frame(refusal: dict[str, Any]) -> HubError:
    """The exception for a frame that the hub refused."""
    status = _STATUS_OF_CODE.get(str(refusal.get("code")), 409)
    return _typed(status, {"error": refusal, "task_run": refusal.get("task_run")}, None)


def _typed(status: int, body: dict[str, Any], retry_after: str | None) -> HubError:
    detail = body["error"]
    code = detail.get("code") if isinstance(detail, dict) else None
    kind = _BY_CODE.get(str(code)) or _BY_STATUS.get(status) or (Unavailable if status >= 500 else HubError)
    error = kind(status, body)
    error.retry_after = float(retry_after) if retry_after and retry_after.isdigit() else None
    return error
