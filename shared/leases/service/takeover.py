"""The takeover sweep, every 15 seconds: fences silent servers, removes expired intents, and plans for fleets without scanners.

The age of a row is measured by the storage service's clock. The mark `dead` is conditional on the ETag that was read, so a heartbeat that
comes in between makes the store refuse it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from itertools import batched
from typing import Final, NamedTuple

from ...core.clock import Millis
from ...core.errors import StorageError
from ...core.pressure import PressureGauge
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps, write
from ...engine.sweeps import FleetCursor, Postponement, VisitFleet
from ...storage.names import FLEETS
from ...storage.ports import ANY, Applied, Delete, Merge, Row
from ..protocol import repair, resizing
from ..rows import FLEET, Intent, Server, fleet_key, server_key
from ..timings import BALANCE_EVERY, READ_PARTITIONS_EVERY, TAKEOVER_PERIOD, TAKEOVER_RUNS_A_SWEEP
from . import takeover_rules
from .planning import Planning
from .snapshot import FleetSnapshot, FleetSummary, Versioned, read_summary
from .sweep_memory import PLANNED, LastPlan, Remembered, SweepMemory, idle_fleets, last_plan_props, parse_last_plan

log = logging.getLogger(__name__)

MAX_EXPIRED: Final = 99
"""Intents that one transaction removes."""
MAX_REMEMBERED: Final = 10_000
"""Fleets for which a process remembers the time of its last background visit."""


class SweptFleets(NamedTuple):
    """The access of the sweeps to all fleets. pressure: of the requests of this process to storage."""

    memory: SweepMemory
    cursor: FleetCursor
    runner: AsyncRunner
    planning: Planning
    pressure: PressureGauge | None


class TakeoverSweep:
    """Runs on a timer, and in between when heartbeats over HTTP ask for it. One per process."""

    def __init__(
        self,
        swept: SweptFleets,
    ) -> None:
        self._memory, self._cursor, self._runner, self._planning, pressure = swept
        self._clock = self._runner.clock
        self._postponement = Postponement(pressure, TAKEOVER_PERIOD, sure=TAKEOVER_RUNS_A_SWEEP)
        self._last_visits: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run_once(self, now: Millis) -> Counter[str]:
        """Visit every fleet, idle ones in turns.

        Counts `fleets`, `idle` (left out in this run), `postponed` (left out because storage refuses requests), `fenced`, `expired`,
        `untold`, `opened`, `resizing`, `plans`, `orders`, `failed`.
        """

        async def prepare(rows: dict[str, Row]) -> VisitFleet:
            keys = list(rows)
            known = await self._memory.load(PLANNED, keys)
            skipped = takeover_rules.skipped_fleets(idle_fleets(known), TAKEOVER_PERIOD, now, TAKEOVER_RUNS_A_SWEEP)
            postponed = self._postponement.of(keys, now)

            async def visit(key: str) -> Counter[str]:
                if key in skipped:
                    return Counter(idle=1)
                return Counter(postponed=1) if key in postponed else await self._visit(key, known.get(key), now)

            return visit

        return await self._cursor.visit_next(PLANNED, prepare)

    def nudge(self, tenant: str, fleet: str, beat: float) -> None:
        """Visit the fleet of a server that does not scan, in the background, at most once in `beat` seconds.

        While storage refuses requests, it does so up to four times as seldom.

        A fleet of such servers then takes over within T + 5 s and two heartbeat intervals instead of at the next timer. Call it inside the
        event loop.
        """
        key, now = fleet_key(tenant, fleet), self._clock.monotonic()
        beat *= self._postponement.stretch
        if now - self._last_visits.get(key, float("-inf")) < beat or key in self._tasks:
            return
        if len(self._last_visits) >= MAX_REMEMBERED:
            self._last_visits = {each: at for each, at in self._last_visits.items() if now - at < 60.0}
        self._last_visits[key] = now
        task = self._tasks[key] = asyncio.create_task(self._nudge(key))
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def quiet(self) -> None:
        """Wait until all background visits have ended."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            # Their callbacks remove them in the loop's next iteration.
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Cancel background visits. They can be interrupted anywhere."""
        for task in self._tasks.values():
            task.cancel()
        await self.quiet()

    async def _nudge(self, key: str) -> None:
        try:
            known = await self._memory.load(PLANNED, [key])
            await self._visit(key, known.get(key), self._clock.now())
        except StorageError as error:
            log.warning("Fleet %s could not be visited: %s", key, error, extra={"action": "lease_watch_failed", "fleet": key})
        except Exception:
            # No caller awaits this task.
            log.exception("The visit to fleet %s failed", key, extra={"action": "lease_watch_failed", "fleet": key})

    async def _visit(self, key: str, known: Row | None, now: Millis) -> Counter[str]:
        counts: Counter[str] = Counter()
        summary = await self._runner.run(read_summary(key))
        if summary is None:
            # The fleet is being removed; its index row goes last.
            if known is not None:
                await self._memory.forget(PLANNED, key)
            return Counter(gone=1)
        before = parse_last_plan(known)
        counts.update(await self._mend(summary, now))
        if counts.total():
            summary = await self._runner.run(read_summary(key)) or summary
        # A plan without servers has no orders. Scanners notice by themselves what has changed.
        if summary.living and not any(server.scans for server in summary.living):
            counts.update(await self._plan(summary, before, now))
        if not counts["plans"]:
            await self._note_idle(summary, before, now)
        return counts

    async def _note_idle(self, summary: FleetSummary, before: Remembered[LastPlan], now: Millis) -> None:
        """Store that the fleet is idle, or is so no more. A plan that is stored says that it is not."""
        known = before.value
        if takeover_rules.is_idle(summary):
            needed = summary.fleet.minimum + summary.fleet.spare
            after = known._replace(idle=now if known.idle is None else known.idle, needed=needed)
        else:
            after = known._replace(idle=None, needed=None)
        if after != known:
            await self._memory.save(PLANNED, summary.key, last_plan_props(after), before.etag)

    async def _mend(self, summary: FleetSummary, now: Millis) -> Counter[str]:
        """Fence silent servers, remove expired intents, and continue a resize."""
        counts: Counter[str] = Counter()
        for each in summary.servers.values():
            if each.value.state != "dead" and takeover_rules.may_fence(summary.fleet.profile, each.age):
                counts["fenced"] += await self.fence(summary.key, each)
        counts["expired"] = await self.end(summary, takeover_rules.expired_intents(summary, now))
        for each in takeover_rules.outdated_requests(summary, now):
            counts["untold"] += await self._runner.run(_withdraw_request(summary, each))
        if takeover_rules.is_left_closed(summary):
            counts["opened"] = await self._runner.run(repair.reopen(summary.key, summary.etag))
        if summary.fleet.former:
            counts["resizing"] = await self._runner.run(resizing.sweep(summary.key)) is not None
        return counts

    async def _plan(self, summary: FleetSummary, before: Remembered[LastPlan], now: Millis) -> Counter[str]:
        """Plan if the fleet has changed since the app's last plan, the plan was not settled, or it is old."""
        mark = takeover_rules.fingerprint(summary)
        changed = mark != before.value.fingerprint or bool(summary.fleet.former)
        every = READ_PARTITIONS_EVERY if not takeover_rules.is_load_uneven(summary, now) else BALANCE_EVERY
        waiting = bool(summary.living) and not (before.value.settled and 0 <= now - before.value.at < every)
        found = await self.plan(summary.key, now) if changed or waiting else None
        if found is None:
            return Counter()
        snapshot, settled, ordered = found
        after = LastPlan(takeover_rules.fingerprint(snapshot.summary), settled, now)
        await self._memory.save(PLANNED, summary.key, last_plan_props(after), before.etag)
        return Counter(plans=1, orders=ordered)

    async def plan(self, key: str, now: Millis) -> tuple[FleetSnapshot, bool, int] | None:
        """Plan and give orders. Return the snapshot, whether nothing is left to do, and the number of servers with new orders."""
        snapshot = await self._planning.look(key)
        if snapshot is None:
            return None
        planned = await self._planning.carry_out(key, await self._planning.plan(snapshot, now))
        return snapshot, planned.settled, planned.ordered

    async def fence(self, key: str, server: Versioned[Server]) -> bool:
        """Mark a silent server dead, on the ETag that showed its age. Return False if it sent a heartbeat, or another writer was first."""
        fenced = await self._runner.run(_mark_dead(key, server))
        if fenced:
            extra = {"action": "lease_fenced", "fleet": key, "server": server.value.name, "age": server.age}
            log.warning("Server %s of fleet %s has been silent for %.0f s and is fenced", server.value.name, key, server.age, extra=extra)
        return fenced

    async def end(self, summary: FleetSummary, intents: list[Intent]) -> int:
        """Remove expired intents, count it as a change of the fleet, and return how many were removed; fewer if a conflict came in."""
        done, etag, changes = 0, summary.etag, summary.fleet.changes
        for some in batched(intents, MAX_EXPIRED):
            changes += 1
            answer = await self._runner.run(_remove_intents(summary.key, etag, changes, some))
            if answer is None:
                break
            etag, done = answer, done + len(some)
            for intent in some:
                extra = {"action": "lease_control_over", "fleet": summary.key, "intent": intent.key}
                log.info("%s: %s has expired or is complete", summary.key, intent.text, extra=extra)
        return done


def _mark_dead(key: str, server: Versioned[Server]) -> Steps[bool]:
    answer = yield from write(FLEETS, key, Merge(server_key(server.value.name), {"state": "dead"}, server.etag))
    # After a lost answer the next visit reads the outcome.
    return isinstance(answer, Applied)


def _withdraw_request(summary: FleetSummary, server: Versioned[Server]) -> Steps[bool]:
    """Withdraw a server's request to drain or exit. Conditional on the fleet's ETag too: an operator may have repeated it meanwhile."""
    ops = (
        Merge(FLEET, {"changes": summary.fleet.changes + 1}, summary.etag),
        Merge(server_key(server.value.name), {"tell": ""}, server.etag),
    )
    answer = yield from write(FLEETS, summary.key, *ops)
    return isinstance(answer, Applied)


def _remove_intents(key: str, etag: str, changes: int, intents: tuple[Intent, ...]) -> Steps[str | None]:
    answer = yield from write(FLEETS, key, Merge(FLEET, {"changes": changes}, etag), *(Delete(intent.key, ANY) for intent in intents))
    return answer.etags[0] if isinstance(answer, Applied) else None
