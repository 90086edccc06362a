"""Bounds the calls of receivers in one process, before anything is read or parsed. Kept in memory: no storage is asked."""

from __future__ import annotations

from ...core.clock import Clock

TENANT_CALLS = 200
"""Calls a second of one tenant's receivers that a process serves."""
WORK_CALLS = 5
"""The same for one attempt."""
MOST = 20_000
"""Tenants and attempts that are remembered, those that called last."""


class CallRates:
    """Leaky buckets, each of which holds the calls of one second. One per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_until: dict[tuple[str, ...], float] = {}
        """By caller: the monotonic time at which its bucket will be empty."""

    def wait(self, tenant: str, work: str) -> float:
        """Count a call about an attempt's work; return 0, or the seconds after which to repeat a call that is not served."""
        return self._wait((tenant, work), WORK_CALLS) or self._wait((tenant,), TENANT_CALLS)

    def _wait(self, caller: tuple[str, ...], rate: int) -> float:
        now = self._clock.monotonic()
        # Taken out and put in again: those that called last are at the end.
        empty = max(now, self._full_until.pop(caller, now))
        # The small constant keeps rounding from refusing the last call of a second.
        served = empty + 1 / rate <= now + 1.0 + 1e-6
        self._full_until[caller] = empty + 1 / rate if served else empty
        while len(self._full_until) > MOST:
            del self._full_until[next(iter(self._full_until))]
        return 0.0 if served else max(0.001, empty + 1 / rate - now - 1.0)
