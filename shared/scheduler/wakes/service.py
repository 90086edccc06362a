"""The wakes of one process, for the code that files shards in the index.

The second clock: whoever works finds a timer that has stopped, and asks for a sweep by a message.

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
from ..rules import visible_at
from ..timings import ANNOUNCE_TOGETHER, DISPATCH_AHEAD, MINUTE, SEND_AHEAD, SEND_ALONE, SEND_BEHIND, SEND_EARLIER
from .protocol import ask_wake, read_plan, send_wakes
from .rules import APART, EARLIER, GAP_NONE, Plan, is_covered, wakes_for

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


PLAN_READ_EVERY: Final = 10.0
"""Seconds for which the plan is used again: as long as it names a wake that is still to come, it is as good as a new one."""
HINT_TIMEOUT: Final = 3.0
"""Seconds after which a request or a look no longer waits for the plan, or for other hints about wakes."""
SEND_FOR: Final = 1.0
"""Seconds for which it then waits for wakes that no plan names. Without them the sweep finds the shard, perhaps too late."""


HELD: Final[Millis] = 400
"""Longest time for which a wake holds a message: with all else that it does, it ends within the second that is billed at least."""


ASKED_WITHIN: Final[Millis] = 30
"""Time that the queue takes to get a message."""


class Horizons(NamedTuple):
    """Longest times ahead for which messages are sent, in milliseconds.

    alone: by writers and owners, one for each shard. together: by a look, which puts small shards into shared messages. full: the message
    of a full shard, by anyone. earlier: time by which the messages that a look sends come earlier than usual, except those of retries.
    held: longest time for which a look waits with a message, so that the whole seconds of the queue end later.
    """

    alone: Millis = DISPATCH_AHEAD
    together: Millis = DISPATCH_AHEAD
    full: Millis = DISPATCH_AHEAD
    earlier: Millis = 0
    held: Millis = 0

    @property
    def shares(self) -> bool:
        """True if small shards share messages."""
        return self.together < self.full

    def at(self, plan: Plan, gap: Millis, now: Millis, *, alive: bool) -> Horizons:
        """Return the horizons of a look. gap: the pause between messages. alive: the look runs in an instance of the shards' queue.

        Without an instance that lives, looks come late, so they send sooner. Where wakes come, the timer leaves most messages to them: two
        looks at the same time would send them twice, and the time for which a wake holds messages is billed in any case.
        """
        found = self
        if gap == GAP_NONE:
            found = self._replace(together=SEND_EARLIER, earlier=EARLIER)
        elif alive:
            found = self._replace(held=HELD)
        elif now - plan.woke < MINUTE:
            found = self._replace(together=SEND_BEHIND)
        # Whole periods: a look that cuts one through sends two messages for it.
        return found._replace(together=found.together + ANNOUNCE_TOGETHER - 1 - visible_at(now + found.together) % ANNOUNCE_TOGETHER)


def held_before(at: Millis, now: Millis, most: Millis) -> Millis:
    """Return the time for which a message for the time `at` is held, `most` at most, so that it becomes visible less than a second later,
    but as late as possible: its owner waits less. The queue counts whole seconds from now on."""
    return min(most, max(0, (at - now) % 1000 - ASKED_WITHIN)) if at > now else 0


def parse_setting(text: str) -> tuple[bool, Millis | None]:
    """Return True if wakes are on, and the fixed gap in milliseconds, None for the plan's own.

    text: `auto`, `off` or a number of seconds from 5 to 60. Raises `ValueError`.
    """
    if text in ("auto", "off"):
        return text == "auto", None
    if not (text.isascii() and text.isdigit() and 5 <= int(text) <= 60):
        raise ValueError("must be auto, off, or a number of seconds from 5 to 60")
    return True, int(text) * 1000


async def always() -> bool:
    """Return True: without a mirrored pair an account always serves."""
    return True


class Wakes:
    """Asks for wakes. One per process and account; belongs to one event loop."""

    def __init__(self, runner: AsyncRunner, clock: Clock, setting: str = "off", serves: Callable[[], Awaitable[bool]] = always) -> None:
        """setting: see `parse_setting`. serves: returns True if this account's scheduler serves now."""
        self.on, self.fixed_gap = parse_setting(setting)
        self.horizons = Horizons(SEND_ALONE, SEND_AHEAD) if self.on else Horizons()
        self.ticks = TickWatch(runner, clock, serves)
        self._runner, self._clock = runner, clock
        self._plan = Plan()
        self._read = -PLAN_READ_EVERY
        self._turn = asyncio.Lock()

    def glance(self) -> None:
        """Look at the timer beside other work."""
        if self.on:
            self.ticks.glance()

    def gap(self, plan: Plan, now: Millis) -> Millis:
        """Return the longest pause between two messages that the platform is trusted with."""
        return self.fixed_gap or plan.gap(now)

    async def ask(self, message: Millis, *, sent: bool, warm: bool = False) -> None:
        """Make sure that wakes come before a shard's message. Call it once the index row is stored, before the request is answered.

        The parameters are those of `rules.is_covered`. It never fails: without the wakes the sweep finds the shard.
        """
        if not self.on or self._is_covered(message, sent=sent, warm=warm):
            return
        try:
            if not await self._ask(message, sent=sent, warm=warm):
                async with asyncio.timeout(SEND_FOR):
                    await self._send(message, sent=sent, warm=warm)
        except (StorageError, TimeoutError) as error:
            log.info("No wake could be asked for; the sweep finds the shard: %s", error, extra={"action": "wake_unasked"})
        except Exception:
            # The event is stored: a defect here must not make its request fail.
            log.exception("No wake could be asked for; the sweep finds the shard", extra={"action": "wake_unasked"})

    async def _ask(self, message: Millis, *, sent: bool, warm: bool) -> bool:
        """Return True if the plan covers the message now; False if storage does not answer."""
        try:
            # One after the other: the second of several finds what the first one has asked for.
            async with asyncio.timeout(HINT_TIMEOUT), self._turn:
                if not self._is_covered(message, sent=sent, warm=warm):
                    self._plan = await self._runner.run(ask_wake(message, self._clock.now(), self.fixed_gap, sent=sent, warm=warm))
                    self._read = self._clock.monotonic()
        except (StorageError, TimeoutError) as error:
            log.info("The plan of wakes does not answer: %s", error, extra={"action": "plan_unread"})
            return False
        return True

    async def _send(self, message: Millis, *, sent: bool, warm: bool) -> None:
        """Send wakes without the plan. For a moment this process knows of them, so that it sends no more for shards of the same time."""
        if self._is_covered(message, sent=sent, warm=warm):
            return
        now = self._clock.now()
        times = wakes_for(message, now, self.gap(self._plan, now), sent=sent, warm=warm)
        self._plan = self._plan.with_wakes(await self._runner.run(send_wakes(times)), now)
        self._read = self._clock.monotonic()

    def _is_covered(self, message: Millis, *, sent: bool, warm: bool) -> bool:
        """Return True if the wakes that this process knows of are enough."""
        now = self._clock.now()
        known = self._clock.monotonic() - self._read < PLAN_READ_EVERY
        return known and is_covered(self._plan, message, now, self.gap(self._plan, now), sent=sent, warm=warm)

    async def start(self, after: Millis) -> None:
        """Send wakes `after` milliseconds from now, because this account is about to serve. Without them it looks within `LOOK_EVERY`."""
        if not self.on:
            return
        at = self._clock.now() + after
        try:
            await self._runner.run(send_wakes((at, at + APART)))
        except StorageError as error:
            log.info("No wake could be sent to the account that is to serve: %s", error, extra={"action": "wake_unasked"})

    async def looked(self) -> Millis:
        """Return the time of the last look; 0 for never. Raises `StorageError`."""
        return (await self._runner.run(read_plan())).looked
