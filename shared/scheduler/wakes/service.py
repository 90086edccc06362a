"""The wakes of one process, for the code that files shards in the index."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...engine.async_runner import AsyncRunner
from ..rules import visible_at
from ..timings import ANNOUNCE_TOGETHER, DISPATCH_AHEAD, MINUTE, SEND_AHEAD, SEND_ALONE, SEND_BEHIND, SEND_EARLIER
from .protocol import ask_wake, read_plan, send_wakes
from .rules import APART, EARLIER, GAP_NONE, Plan, is_covered, wakes_for
from .ticks import TickWatch

log = logging.getLogger(__name__)

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
    """How far ahead messages are sent, in milliseconds. alone: by writers and owners, one for each shard. together: by a look, which puts
    small shards into shared messages. full: the message of a full shard, by anyone. earlier: time by which the messages that a look sends
    come earlier than usual, those of retries excepted. held: longest time for which a look waits with a message, so that the whole seconds
    of the queue end later."""

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
