"""When to try again, and after how long. No input or output happens here."""
from __future__ import annotations

import random
import time
from collections.abc import Callable

from .errors import AttacheError, HubError, QuotaExceeded, TooManyRequests, Unavailable, Unreachable

# The hub stored nothing, so that even a request without an idempotency key can be repeated.
_NOTHING_HAPPENED = {"overloaded", "draining", "too_many_requests"}


class Backoff:
    """Doubles up to the limit, then takes a random part of it, so that many clients don't return at the same instant."""

    def __init__(self, first: float = 0.05, longest: float = 2.0) -> None:
        self._first, self._longest, self._tries = first, longest, 0

    def next(self) -> float:
        whole = min(self._first * (1 << min(self._tries, 16)), self._longest)
        self._tries += 1
        return whole * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._tries = 0


class Retries:
    """Decides about one request or stream: the pause before the next attempt, or None to give up."""

    def __init__(self, patience: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._patience, self._clock = patience, clock
        self._backoff = Backoff()
        self._away_since: float | None = None

    def succeeded(self) -> None:
        self._backoff.reset()
        self._away_since = None

    def pause_after(self, error: AttacheError, *, repeatable: bool) -> float | None:
        if not may_repeat(error, repeatable):
            return None
        now = self._clock()
        if self._away_since is None:
            self._away_since = now
        pause = self._backoff.next()
        if isinstance(error, HubError) and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        return pause if now + pause - self._away_since <= self._patience() else None


def may_repeat(error: AttacheError, repeatable: bool) -> bool:
    """Whether sending the same request again could succeed and can't do anything twice."""
    if isinstance(error, Unreachable):
        return repeatable or not error.sent
    if isinstance(error, QuotaExceeded):
        return False
    if isinstance(error, (Unavailable, TooManyRequests)):
        return repeatable or error.code in _NOTHING_HAPPENED
    return False
