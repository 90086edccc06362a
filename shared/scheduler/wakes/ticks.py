"""The second clock: whoever works finds a timer that has stopped, and asks for a sweep by a message.

Timers have been seen to stop for good while HTTP calls and queue messages went on. So the timer's function stores when it begins a sweep,
and every process that works reads that at most every `TICK_READ_EVERY`. If it is old, one of them claims the next sweep and sends a message
to `tocsin-sweeps`, whose function runs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import orjson

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...engine import effects
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps, get, write
from ...engine.row_codec import RowCodec
from ...storage.names import PK_TICKS, QUEUE_SWEEPS, SWEEPS
from ...storage.ports import Applied, Insert, Merge, Row

log = logging.getLogger(__name__)

SWEEP_ROW: Final = "sweep"
SILENT_FROM: Final[Millis] = 90_000
"""Age of the timer's last sweep, counted from its start, from which the timer is silent: one tick is missing."""
ASKED_EVERY: Final[Millis] = 60_000
"""Time between two sweeps that are asked for by a message."""
TICK_READ_EVERY: Final = 10.0
"""Seconds for which what was read of the timer is used again."""


class SweepTimes(NamedTuple):
    """Times of sweeps. began: the start of the timer's last one, or of the process that first looked for one. asked: the last time at which
    one was asked for by a message. answered: the start of the last one that ran for such a message. 0 for never."""

    began: Millis = 0
    asked: Millis = 0
    answered: Millis = 0


TIMES: Final = RowCodec(SweepTimes, added=("began", "asked", "answered"))


def times_of(row: Row | None) -> SweepTimes:
    """Return the times of the row; zeros if there is none, or if it cannot be read."""
    try:
        return TIMES.decode(row.props) if row is not None else SweepTimes()
    except (TypeError, ValueError, OverflowError):
        return SweepTimes()


def is_silent(times: SweepTimes, now: Millis, since: Millis) -> bool:
    """Return True if the timer has stopped. since: start of the process that asks, which counts while no sweep has ever begun.

    A start that far in the future is one by a wrong clock, and says nothing.
    """
    return abs(now - (times.began or since)) > SILENT_FROM


def ask_sweep(now: Millis, since: Millis) -> Steps[bool]:
    """Return True if the timer is silent. Then ask for a sweep, unless somebody else did so within `ASKED_EVERY`."""
    row = yield from get(SWEEPS, PK_TICKS, SWEEP_ROW)
    if row is None:
        # The silence of a timer that has never run counts from the first process that looked for it: each may live for less than 90 s.
        yield from write(SWEEPS, PK_TICKS, Insert(SWEEP_ROW, {"began": since}))
        row = yield from get(SWEEPS, PK_TICKS, SWEEP_ROW)
    if not is_silent(times_of(row), now, since):
        return False
    if abs(now - times_of(row).asked) >= ASKED_EVERY:
        claim = Insert(SWEEP_ROW, {"asked": now}) if row is None else Merge(SWEEP_ROW, {"asked": now}, row.etag)
        # Who loses the race, or the answer, leaves it to others: the next one asks a minute later.
        if isinstance((yield from write(SWEEPS, PK_TICKS, claim)), Applied):
            yield from effects.send(QUEUE_SWEEPS, orjson.dumps({"sweep": now}).decode(), now)
    return True


class TickWatch:
    """Looks at the timer for one process and account. Belongs to one event loop."""

    def __init__(self, runner: AsyncRunner, clock: Clock, serves: Callable[[], Awaitable[bool]]) -> None:
        """serves: returns True if this account's scheduler serves now: the other's timers work on other rows."""
        self._runner, self._clock, self._serves = runner, clock, serves
        self._since = clock.now()
        self._read: float | None = None
        self._silent = False
        self._task: asyncio.Task[bool] | None = None

    def glance(self) -> None:
        """Look at the timer beside other work, unless this process did so a moment ago."""
        if self._is_due() and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self.check())

    async def check(self) -> bool:
        """Return True if the timer is silent, as it was at most `TICK_READ_EVERY` ago; ask for a sweep then. Raises nothing."""
        if self._is_due():
            self._read = self._clock.monotonic()
            try:
                self._silent = await self._serves() and await self._runner.run(ask_sweep(self._clock.now(), self._since))
            except StorageError as error:
                log.debug("The timer's last sweep could not be read: %s", error, extra={"action": "tick_unread"})
            except Exception:
                # It must not cost the request or the delivery beside which it runs.
                log.exception("The timer could not be looked at", extra={"action": "tick_unread"})
        return self._silent

    def _is_due(self) -> bool:
        return self._read is None or self._clock.monotonic() - self._read >= TICK_READ_EVERY

    async def close(self) -> None:
        """End a look that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
