"""A call's answer, and the ids of calls and runs."""
from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from .errors import CallFailed, InvalidReply
from .types import CallResult, OutputLocation


@dataclass(frozen=True)
class CallReply:
    """The answer of an agent."""

    call_id: str
    summary: str
    details: Any
    """The agent's further output."""
    artifact_refs: Any
    """Files the agent handed over."""
    full_output: OutputLocation | None
    """Set if the summary isn't exactly what the agent printed: the full length, and where the full output is."""
    duration_ms: int
    tokens: float | None
    cost_usd: float | None

    def __str__(self) -> str:
        return self.summary


def reply_of(call_id: str, result: CallResult) -> CallReply | None:
    """The answer of a call that has ended; None if it hasn't. A failure is raised."""
    status, answer = result["status"], result.get("result")
    if status in ("failed", "cancelled"):
        error = result.get("error")
        message = error if isinstance(error, str) else f"The call {status}."
        raise CallFailed(call_id, result.get("code") or "task_failed", message)
    if status != "completed":
        return None
    if answer is None:
        raise InvalidReply(call_id, "a completed call has no result")
    stats = result["stats"]
    summary = answer["summary"]
    return CallReply(
        call_id=call_id,
        summary=summary if isinstance(summary, str) else str(summary),
        details=answer.get("details"),
        artifact_refs=answer.get("artifact_refs"),
        full_output=answer.get("full_output"),
        duration_ms=stats["duration_ms"],
        tokens=stats.get("tokens"),
        cost_usd=stats.get("cost"),
    )


def run_id(call_or_run: str) -> str:
    """A call is a run under another id."""
    return f"run_{call_or_run[4:]}" if call_or_run.startswith("a2a-") else call_or_run


def call_id(call_or_run: str) -> str:
    return f"a2a-{call_or_run[4:]}" if call_or_run.startswith("run_") else call_or_run


def new_key(purpose: str) -> str:
    """A fresh idempotency key."""
    return f"{purpose}-{uuid.uuid4().hex}"


def given(**members: Any) -> dict[str, Any]:
    """The members that were given."""
    return {name: value for name, value in members.items() if value is not None}


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
