"""What the app does for fleets every few seconds: fence the silent, end what has expired, plan where no server looks.

A row's age is taken in the storage service's own time, and the mark is conditional on the ETag that was read: a beat in between refuses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from itertools import batched
from typing import Final

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps, write
from ...engine.fleet_cursor import FleetCursor, Visit
from ...storage.names import FLEETS
from ...storage.ports import ANY, Applied, Delete, Merge, Row
from ..protocol import repair, resizing
from ..rows import FLEET, Intent, Server, fleet_key, server_key
from . import takeover_rules
from .planning import Planning
from .snapshot import FleetSnapshot, FleetSummary, Versioned, read_summary
from .sweep_memory import PLANNED, LastPlan, Remembered, SweepMemory, last_plan_props, parse_last_plan

log = logging.getLogger(__name__)

MAX_EXPIRED: Final = 99
"""Intents that one transaction removes."""
MAX_REMEMBERED: Final = 10_000
"""Fleets of which a process remembers when it looked last."""


class TakeoverSweep:
    """The timer's part, and what beats over HTTP may ask for in between. One per process."""

    def __init__(self, memory: SweepMemory, turns: FleetCursor, runner: AsyncRunner, planning: Planning, clock: Clock) -> None:
        self._memory, self._turns, self._runner, self._planning, self._clock = memory, turns, runner, planning, clock
        self._nudged: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run_once(self, now: Millis) -> Counter[str]:
        """Look at every fleet. Counts `fleets`, `fenced`, `expired`, `untold`, `opened`, `resizing`, `plans`, `orders`,
        `failed`."""

        async def prepare(keys: list[str]) -> Visit:
            known = await self._memory.load(PLANNED, keys)

            async def visit(key: str) -> Counter[str]:
                return await self._visit(key, known.get(key), now)

            return visit

        return await self._turns.go(PLANNED, prepare)

    def nudge(self, tenant: str, fleet: str, beat: float) -> None:
        """A server of the fleet, which looks at nobody itself, is there: look for it, in the background, at most once in `beat` seconds.

        So a fleet of such servers alone takes over in T + 5 s and two beats, not at the timer's next tick. Call it inside the event loop.
        """
        key, now = fleet_key(tenant, fleet), self._clock.monotonic()
        if now - self._nudged.get(key, float("-inf")) < beat or key in self._tasks:
            return
        if len(self._nudged) >= MAX_REMEMBERED:
            self._nudged = {each: at for each, at in self._nudged.items() if now - at < 60.0}
        self._nudged[key] = now
        task = self._tasks[key] = asyncio.create_task(self._nudge(key))
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def quiet(self) -> None:
        """Wait for looks that were asked for."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            # Their callbacks take them out at the loop's next turn.
            await asyncio.sleep(0)

    async def close(self) -> None:
        """End looks that were asked for: they may be cut off anywhere."""
        for task in self._tasks.values():
            task.cancel()
        await self.quiet()

    async def _nudge(self, key: str) -> None:
        try:
            known = await self._memory.load(PLANNED, [key])
            await self._visit(key, known.get(key), self._clock.now())
        except StorageError as error:
            log.warning("Fleet %s could not be looked at: %s", key, error, extra={"action": "lease_watch_failed", "fleet": key})
        except Exception:
            # Nobody awaits this task.
            log.exception("The look at fleet %s failed", key, extra={"action": "lease_watch_failed", "fleet": key})

    async def _visit(self, key: str, known: Row | None, now: Millis) -> Counter[str]:
        counts: Counter[str] = Counter()
        seen = await self._runner.run(read_summary(key))
        if seen is None:
            # Its rows are going: the index row follows.
            if known is not None:
                await self._memory.forget(PLANNED, key)
            return Counter(gone=1)
        counts.update(await self._mend(seen, now))
        if counts.total():
            seen = await self._runner.run(read_summary(key)) or seen
        if not any(server.scans for server in seen.living):
            counts.update(await self._plan(seen, parse_last_plan(known), now))
        # Where servers look, they see what has changed by themselves.
        return counts

    async def _mend(self, seen: FleetSummary, now: Millis) -> Counter[str]:
        """Fence the silent, remove what has expired, carry a change of the partition count on."""
        counts: Counter[str] = Counter()
        for each in seen.servers.values():
            if each.value.state != "dead" and takeover_rules.may_fence(seen.fleet.profile, each.age):
                counts["fenced"] += await self.fence(seen.key, each)
        counts["expired"] = await self.end(seen, takeover_rules.expired_intents(seen, now))
        for each in takeover_rules.outdated_requests(seen, now):
            counts["untold"] += await self._runner.run(_untell(seen, each))
        if takeover_rules.is_left_closed(seen):
            counts["opened"] = await self._runner.run(repair.reopen(seen.key, seen.etag))
        if seen.fleet.former:
            counts["resizing"] = await self._runner.run(resizing.sweep(seen.key)) is not None
        return counts

    async def _plan(self, seen: FleetSummary, before: Remembered[LastPlan], now: Millis) -> Counter[str]:
        """Plan, if anything has changed since the app did, or is still to be done, or it was long ago."""
        mark = takeover_rules.fingerprint(seen)
        changed = mark != before.value.seen or bool(seen.fleet.former)
        waiting = bool(seen.living) and not (before.value.settled and 0 <= now - before.value.at < takeover_rules.READ_PARTITIONS_EVERY)
        found = await self.plan(seen.key, now) if changed or waiting else None
        if found is None:
            return Counter()
        survey, settled, told = found
        after = LastPlan(takeover_rules.fingerprint(survey.summary), settled, now)
        await self._memory.save(PLANNED, seen.key, last_plan_props(after), before.etag)
        return Counter(plans=1, orders=told)

    async def plan(self, key: str, now: Millis) -> tuple[FleetSnapshot, bool, int] | None:
        """Plan, and give orders: the look it rests on, whether nothing is left to do, and how many servers were told."""
        survey = await self._planning.look(key)
        if survey is None:
            return None
        planned = await self._planning.carry_out(key, await self._planning.plan(survey, now))
        return survey, planned.settled, planned.told

    async def fence(self, key: str, server: Versioned[Server]) -> bool:
        """Mark a silent server dead, on the ETag that showed its age. False when it beat after all, or another was quicker."""
        fenced = await self._runner.run(_mark(key, server))
        if fenced:
            extra = {"action": "lease_fenced", "fleet": key, "server": server.value.name, "age": server.age}
            log.warning("Server %s of %s has been silent for %.0f s and is fenced", server.value.name, key, server.age, extra=extra)
        return fenced

    async def end(self, seen: FleetSummary, intents: list[Intent]) -> int:
        """Remove intents that are over; those who plan see that something changed. How many; 0 when an operator was quicker."""
        done, etag, changes = 0, seen.etag, seen.fleet.changes
        for some in batched(intents, MAX_EXPIRED, strict=False):
            changes += 1
            answer = await self._runner.run(_remove(seen.key, etag, changes, some))
            if answer is None:
                break
            etag, done = answer, done + len(some)
            for intent in some:
                extra = {"action": "lease_control_over", "fleet": seen.key, "intent": intent.key}
                log.info("%s: %s is over", seen.key, intent.text, extra=extra)
        return done


def _mark(key: str, server: Versioned[Server]) -> Steps[bool]:
    answer = yield from write(FLEETS, key, Merge(server_key(server.value.name), {"state": "dead"}, server.etag))
    # A lost answer: the next look tells.
    return isinstance(answer, Applied)


def _untell(seen: FleetSummary, server: Versioned[Server]) -> Steps[bool]:
    """Take back what a server was told. On the fleet's ETag too: an operator may have said it again after the intents were read."""
    ops = (Merge(FLEET, {"changes": seen.fleet.changes + 1}, seen.etag), Merge(server_key(server.value.name), {"tell": ""}, server.etag))
    answer = yield from write(FLEETS, seen.key, *ops)
    return isinstance(answer, Applied)


def _remove(key: str, etag: str, changes: int, intents: tuple[Intent, ...]) -> Steps[str | None]:
    answer = yield from write(FLEETS, key, Merge(FLEET, {"changes": changes}, etag), *(Delete(intent.key, ANY) for intent in intents))
    return answer.etags[0] if isinstance(answer, Applied) else None
