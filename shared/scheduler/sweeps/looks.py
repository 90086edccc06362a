"""A look at the index: sends the messages of shards that wake soon, and the wakes before them (`wakes/`).

Three things look: the sweep, every wake, and a process that starts while nobody has looked for a minute. So neither a timer that has
stopped nor a lost message leaves a shard alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from ...core.clock import Millis
from ...core.errors import StorageError
from ...storage.names import EVENTS
from ...storage.ports import RowQuery
from ..keys import END_EVENTS, FIRST_EVENT
from ..rules import visible_at
from ..shard_services import ShardServices
from ..wakes.protocol import LookTimes, end_look, read_plan, send_wakes
from ..wakes.rules import EARLIER, LOOK_EVERY_ALONE, LOOK_FAR, Plan
from ..wakes.service import HINT_TIMEOUT, Horizons
from .index import Sweeps

log = logging.getLogger(__name__)

SPREAD: Final = 0.5
"""Longest time in seconds in which a look reads the index, sends messages, and pauses before it sends wakes, unless the first two take
longer. With it a wake still ends within the second that is billed at least."""
LEAST_SPREAD: Final = 0.1
"""The pause is at most this long in any case."""
MOST_NEAR: Final = 32
"""Most shards of the next minutes whose events a look reads. Where there are more, their own messages leave few pauses."""
MOST_EVENTS: Final = 100
"""Most events of one of them that it reads."""


class Looks:
    """Looks at the index of one account. One per process and account; belongs to one event loop."""

    def __init__(
        self,
        services: ShardServices,
        sweeps: Sweeps,
        started: Millis,
        serves: Callable[[], Awaitable[bool]],
        chain: Callable[[Millis], Awaitable[Mapping[str, int]]],
    ) -> None:
        """started: time at which this process began. serves: returns True if this account's scheduler serves now. chain: makes the next
        occurrences of schedules."""
        self._runner, self._clock, self._chance = services.runner, services.clock, services.runner.chance
        self._wakes, self._counters = services.wakes, services.counters
        self._sweeps, self._started, self._serves, self._chain = sweeps, started, serves, chain
        self._tables, self._events = services.tables, dict[str, list[Millis]]()
        """The due times of the events of shards that wake soon."""
        self._unstored = Plan()
        """The plan of the last look, if it could not be stored: otherwise each look would send its wakes again, and they would multiply."""
        self._turn = asyncio.Lock()

    async def dispatch(self, now: Millis) -> Counter[str]:
        """Look in the timer's sweep, which makes the occurrences of schedules itself. Return the counts of `Sweeps.dispatch`."""
        return await self._look(None) if self._wakes.on else await self._sweeps.dispatch(now)

    async def wake(self, at: Millis) -> None:
        """Serve a wake for the time `at`.

        It must look in any case. A filer may have trusted this very wake, although another look was a moment ago. If it cannot, another
        wake takes its place; if the queue does not take that one, the error is raised, so that the host keeps this message.
        """
        self._counters["wakes"] += 1
        look, chain = await asyncio.gather(self._look(at), self._make_occurrences(), return_exceptions=True)
        for error in (look, chain):
            if isinstance(error, StorageError):
                log.info("A wake could not do its work; the next one tries again: %s", error, extra={"action": "wake_failed"})
            elif isinstance(error, Exception):
                log.error("A wake met an unexpected error", exc_info=error, extra={"action": "wake_failed"})
            elif isinstance(error, BaseException):
                raise error
        if isinstance(look, Exception) and not await self._runner.run(send_wakes((self._clock.now() + LOOK_EVERY_ALONE,))):
            raise look

    async def _make_occurrences(self) -> None:
        if await self._serves():
            await self._chain(self._clock.now())

    async def _look(self, at: Millis | None) -> Counter[str]:
        """Look at the index, and send wakes. at: time of the wake that looks; None for the timer.

        Looks of one process run one after the other: two at the same time would send the same shards. Each reads the index in its own
        turn, because a filer may have trusted the wake that it serves.
        """
        async with self._turn:
            return await self._look_alone(self._clock.now(), at)

    async def _horizons(self, now: Millis, at: Millis | None) -> Horizons:
        """Return how far ahead messages are sent now. A plan that is read before the index decides nothing else.

        Without a plan, messages are sent at the usual time: an account that does not answer must not delay the shards of the others.
        """
        plan = Plan()
        try:
            async with asyncio.timeout(HINT_TIMEOUT):
                plan = await self._runner.run(read_plan())
        except (StorageError, TimeoutError) as error:
            log.debug("The plan of wakes could not be read: %s", error, extra={"action": "plan_unread"})
        return self._wakes.horizons.at(plan, self._wakes.gap(plan, now), now, alive=at is not None)

    async def _events_of(self, near: Sequence[str]) -> list[Millis]:
        """Return the message times of the events of a few shards, beside which wakes cost less; without them wakes come at other times."""
        if len(near) > MOST_NEAR:
            return []
        # A process reads each of them once: for a hint, what it has read is good enough.
        new = [shard for shard in near if shard not in self._events]
        try:
            async with asyncio.timeout(HINT_TIMEOUT):
                dues = await asyncio.gather(*map(self._dues, new))
        except (StorageError, TimeoutError) as error:
            log.debug("The events of the next shards could not be read: %s", error, extra={"action": "events_unread"})
            return []
        known = self._events | dict(zip(new, dues, strict=True))
        self._events = {shard: known[shard] for shard in near}
        return [visible_at(due) for dues in self._events.values() for due in dues]

    async def _dues(self, shard: str) -> list[Millis]:
        query = RowQuery(EVENTS, shard, FIRST_EVENT, END_EVENTS, select=("due",), limit=MOST_EVENTS)
        return [int(row.props["due"]) for row in (await self._tables.query(query)).rows if "due" in row.props]

    async def _look_alone(self, now: Millis, at: Millis | None) -> Counter[str]:
        wakes = self._wakes
        # While the other account serves, its index tells what is due. A few wakes go on here, for the time after that.
        serves = await self._serves()
        began = self._clock.monotonic()
        found = await self._sweeps.look(now, await self._horizons(now, at), LOOK_FAR) if serves else self._sweeps.nothing_found()
        alone = serves and await wakes.ticks.check()
        # Looks at the same time would send the same wakes, whose looks would be at the same time. So one of them stores its plan first.
        await self._clock.sleep(self._chance() * max(LEAST_SPREAD, SPREAD - (self._clock.monotonic() - began)))
        plan = await self._runner.run(read_plan())
        times = LookTimes(now, self._clock.now(), at, self._started)
        beside, before = await self._events_of(found.near), plan.joined(self._unstored, times.now)
        steps = end_look(plan, found.messages, found.unsent, times, wakes.fixed_gap, alone=alone, beside=beside, unstored=self._unstored)
        end = await self._runner.run(steps)
        self._unstored = Plan() if end.stored else end.plan
        self._counters["wakes_sent"] += len(end.sent)
        if (gap := wakes.gap(end.plan, times.now)) != wakes.gap(before, times.now):
            then = f"come within {gap // 1000} s" if gap else f"fill no pauses, and events' messages come {EARLIER // 1000} s earlier"
            log.warning("Wakes met processes that had just started. For a day, wakes %s", then, extra={"action": "wakes_met_cold"})
        return found.counts
