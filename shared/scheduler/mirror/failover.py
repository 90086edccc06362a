"""Failover and failback of a mirrored pair.

    first serves ──failover──► second, 45 s later ──failback──► copying (the second serves on) ──► syncing (no side serves) ──► first serves

The fence row in the second account decides (`scheduler/protocol/mirroring.py`). All arrows except the first of failback rewrite it, on its
ETag. Failback is a job that any instance carries on: it starts from stored state, and every step may be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.clock import Clock, Millis, to_text
from ...core.errors import Problem, Rejected, StorageError
from ...engine.async_runner import AsyncRunner
from ...engine.effects import load_rows
from ...storage.names import EVENTS, LEDGER, PK_TICKS, SHARDS, SWEEPS, TENANTS
from ...storage.ports import ANY, Applied, Delete, Insert, Merge, Props, Replace, Row, RowQuery, Upsert, Where
from ...storage.several.account_stamps import STAMP_PK, STAMP_ROW
from ...tenants.rows import PK_TENANTS
from ...web.problem import conflict
from ..facets.fanouts import id_names
from ..keys import END_EVENTS, FIRST_EVENT, GATE, HOME, MIRRORED, NEWS, BesideId, index_partitions, index_shard, minute_text, place_of
from ..protocol.mirroring import (
    AGAIN_PK,
    ELSEWHERE_PK,
    FENCE_PK,
    FENCE_ROW,
    FIRST,
    SECOND,
    Fence,
    Side,
    Way,
    finish_copy,
    mirror,
    mirror_id,
    note_on_side,
    restore,
)
from ..queries.label_index import LABELS_ROW, labels_wanted
from ..queries.state_pass import STATES_ROW, StatePassProgress
from ..queries.stats import copy_lag
from ..shard.ledger import entry_for
from ..timings import FAILBACK_OVERLAP, FAILBACK_RUN_FOR, RECOPY_AFTER
from .copying import LAST, copy_tenants, shut_orphans
from .pair import FenceObservation, MirrorPair

log = logging.getLogger(__name__)

BACK_ROW = "back"
"""Row next to the fence row while the first account is brought up to date and the second still serves."""
PROGRESS_ROW = "progress"
IN_FLIGHT = 8
PATIENCE = 5.0
"""Seconds that an account has to answer a probe."""
CARRY_ON = 1.0
"""Seconds between steps of a failback that waits."""

RECOGNISE = "Restore its tables or its rights, then repeat the call; the second account serves meanwhile."

LAG_SHARDS = 500
"""Unfinished shards, the earliest first, that `lag` reads."""


async def _ignore(side: Side) -> None:
    """Do nothing about a change of sides."""


class Listeners(NamedTuple):
    """The functions that poll the queues of an account, by its role. queues: address of the home account's queues."""

    queues: str
    functions: Mapping[str, Sequence[str]]


class Failover:
    """The operations of failover and failback, and the background job. One per process."""

    def __init__(
        self,
        pair: MirrorPair | None,
        runner: AsyncRunner,
        clock: Clock,
        places: Iterable[str],
        listeners: Listeners,
        beside: BesideId,
    ) -> None:
        """beside: names the rows that are copied with the row of an id."""
        self.queues, self._listeners = listeners
        self._known, self._tables, self._runner, self._clock, self._beside = pair, runner.tables, runner, clock, beside
        self._places = tuple(places)
        self._marked = False
        """True once the first account has stored that it is overtaken."""
        self._carrying: asyncio.Task[None] | None = None
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self.changed: Callable[[Side], Awaitable[None]] = _ignore
        """Is called with the side that the fence names, each time that it has changed."""

    @property
    def _pair(self) -> MirrorPair:
        if self._known is None:
            raise conflict("not-mirrored", "no second storage account is configured")
        return self._known

    async def fail_over(self, *, incomplete: bool = False) -> None:
        """Let the second account take over, or keep serving: this cancels a failback that is still copying. A repetition changes nothing.

        incomplete: take over even if the account is new and lacks copies. Raises 409, and `StorageError` if the second does not answer.
        """
        seen = await self._pair.look()
        if seen.fence.active == "second":
            await self._tables.write(SECOND + SWEEPS, FENCE_PK, (Delete(BACK_ROW, ANY),))
            return
        if not incomplete and not await self._whole():
            detail = "the second account does not have a copy of everything yet; if the first account is lost for good, set `incomplete`"
            raise conflict("not-in-step", detail)
        await self._begin_state_rows(SECOND)
        await self._raise(seen, Fence("second", seen.fence.epoch + 1))
        await self._mark_overtaken()
        log.warning("The second storage account takes over", extra={"action": "failover", "epoch": seen.fence.epoch + 1})

    async def fail_back(self) -> None:
        """Begin the failback to the first account. Raises 409 while the second has not taken over, or if the first account has lost what it
        stored, and `StorageError` if one does not answer."""
        seen = await self._pair.look()
        if seen.fence.active == "first":
            if seen.fence.syncing:
                self.carry_on()
            return
        if (left := self._pair.wait(seen)) > 0:
            raise conflict("taking-over", f"the second account serves in {left:.0f} s; the failback can begin after that")
        await self._recognise_first()
        since = self._clock.now() - seen.age - FAILBACK_OVERLAP
        await self._tables.write(SECOND + SWEEPS, FENCE_PK, (Upsert(BACK_ROW, {"epoch": seen.fence.epoch, "since": since}),))
        self.carry_on()

    async def _recognise_first(self) -> None:
        """Raise 409 if the first account answers but is not the one of this pair: the next start would refuse it."""
        stamp = await self._tables.get(SECOND + SWEEPS, STAMP_PK, STAMP_ROW)
        try:
            found = await self._tables.get(FIRST + SWEEPS, STAMP_PK, STAMP_ROW)
        except Rejected as error:
            raise conflict("first-not-recognised", f"the first account answers, but refuses to be read: {error}. {RECOGNISE}") from error
        if found is None or (stamp is not None and found.props["home"] != stamp.props["home"]):
            raise conflict("first-not-recognised", f"the first account answers, but does not carry the stamp of this pair. {RECOGNISE}")

    async def _whole(self) -> bool:
        """Return True if the second account has a copy of every unfinished shard; a new account has not, at first."""
        stamp = await self._tables.get(SECOND + SWEEPS, STAMP_PK, STAMP_ROW)
        return stamp is None or bool(stamp.props["whole"])

    async def _mark_overtaken(self) -> None:
        """Store in the first account that it is behind, so that it is not served alone later. The timer repeats this if it fails."""
        if self._marked:
            return
        try:
            await self._tables.write(FIRST + SWEEPS, STAMP_PK, (Merge(STAMP_ROW, {"overtaken": True}, ANY),))
            self._marked = True
        except StorageError as error:
            # The timer tries again.
            log.debug("The first account could not store that it is overtaken: %s", error, extra={"action": "follow_failed"})

    async def _raise(self, seen: FenceObservation, fence: Fence) -> None:
        """Rewrite the fence row as it was read. Raises 409 if another process rewrote it first."""
        op = Replace(FENCE_ROW, fence.props(), seen.etag) if seen.etag else Insert(FENCE_ROW, fence.props())
        answer = await self._tables.write(SECOND + SWEEPS, FENCE_PK, (op,))
        await self._pair.look()
        if not isinstance(answer, Applied):
            raise conflict("changed-meanwhile", "another request changes sides at this moment; read the state and try again")
        await self.changed(fence.active)

    async def _begin_state_rows(self, side: str) -> None:
        """Let the side that is about to serve look for dead, retrying and labelled events anew: before its owner comes, a copy has neither
        state rows nor label rows."""
        wanted = Upsert(STATES_ROW, StatePassProgress().props()), Upsert(LABELS_ROW, labels_wanted(self._clock.now()))
        await self._tables.write(side + SWEEPS, PK_TICKS, wanted)

    def carry_on(self) -> None:
        """Carry a failback on in the background of this process; the timer continues it if this process ends."""
        if self._carrying is None or self._carrying.done():
            self._carrying = asyncio.create_task(self._carry())

    async def _carry(self) -> None:
        until = self._clock.monotonic() + FAILBACK_RUN_FOR
        while self._clock.monotonic() < until:
            try:
                counts = await self.run_once(self._clock.now())
            except (StorageError, Problem) as error:
                log.warning("The failback to the first account waits: %s", error, extra={"action": "failback_waits"})
                counts = Counter({"waits": 1})
            if not counts["waits"]:
                return
            await self._clock.sleep(CARRY_ON)

    def leave(self) -> None:
        """Stop the background job; the timer of another process continues it."""
        if self._carrying is not None:
            self._carrying.cancel()

    async def close(self) -> None:
        """Stop the background job."""
        if self._carrying is not None:
            self._carrying.cancel()
            await asyncio.gather(self._carrying, return_exceptions=True)

    async def sweep(self, now: Millis) -> Counter[str]:
        """Run `run_once` for the timer. An account that does not answer is logged and does not fail the timer."""
        try:
            return await self.run_once(now)
        except (StorageError, Problem) as error:
            log.warning("The accounts of the mirrored pair could not be compared: %s", error, extra={"action": "follow_failed"})
            return Counter(failed=1)

    async def run_once(self, now: Millis) -> Counter[str]:
        """Do one step: copy tenants, or carry on the failback. `waits` in the counts: more is to do later."""
        if self._known is None:
            return Counter()
        seen = await self._pair.look()
        fence = seen.fence
        if fence.active == "first" and not fence.syncing:
            counts = await copy_tenants(self._tables, FIRST, SECOND)
            counts += await self._complete(Way(FIRST, SECOND, SECOND, "first", fence.epoch), now)
            if (
                fence.epoch
                and seen.age < FAILBACK_OVERLAP
                and (back := await self._tables.get(SECOND + SWEEPS, FENCE_PK, BACK_ROW)) is not None
            ):
                # Until now, owners on the second account may have ended shards that only the first account has.
                await self._ends(int(back.props["since"]), home=True)
                await self._note_elsewhere()
            return counts + await self._again(Way(FIRST, SECOND, SECOND, "first", fence.epoch))
        if fence.active == "second":
            await self._mark_overtaken()
            back = await self._tables.get(SECOND + SWEEPS, FENCE_PK, BACK_ROW)
            if back is None or int(back.props["epoch"]) != fence.epoch:
                return Counter()
            counts = await self._bring(Way(SECOND, FIRST, SECOND, "second", fence.epoch), seen, now, "copying")
            if counts["failed"]:
                return counts + Counter(waits=1)
            await self._raise(seen, Fence("first", fence.epoch + 1, syncing=True))
            log.warning("No account serves mirrored events until the first is up to date", extra={"action": "failback_syncing"})
            return counts + Counter(waits=1)
        if self._pair.wait(seen) > 0:
            return Counter(waits=1)
        counts = await self._bring(Way(SECOND, FIRST, SECOND, "first", fence.epoch, prune=True), seen, now, "syncing")
        if counts["failed"]:
            return counts + Counter(waits=1)
        # Requests still go to the second account: copy what they changed of tenants and schedules meanwhile.
        await copy_tenants(self._tables, SECOND, FIRST)
        await self._tables.write(FIRST + SWEEPS, STAMP_PK, (Merge(STAMP_ROW, {"overtaken": False}, ANY),))
        self._marked = False
        await self._begin_state_rows(FIRST)
        await self._raise(seen, Fence("first", fence.epoch + 1))
        for row in await load_rows(self._tables, RowQuery(SECOND + SWEEPS, AGAIN_PK, "", LAST)):
            await self._tables.write(SECOND + SWEEPS, AGAIN_PK, (Delete(row.rk, row.etag),))
        log.warning("The first storage account serves again", extra={"action": "failback", "epoch": fence.epoch + 1})
        return counts

    async def _pointed(self) -> set[str]:
        """Return the shards that the first has redriven without a copy of the pointers, which lead to copies that are removed now.

        Only those that the second has to the end: it may have begun others, and `restore` would remove the rest of them.
        """
        shards = [row.rk for row in await load_rows(self._tables, RowQuery(FIRST + SWEEPS, AGAIN_PK, "", LAST))]
        gates = await asyncio.gather(*(self._tables.get(SECOND + EVENTS, shard, GATE) for shard in shards))
        return {shard for shard, gate in zip(shards, gates, strict=True) if gate is not None and gate.props["state"] == "done"}

    async def _bring(self, way: Way, seen: FenceObservation, now: Millis, phase: str) -> Counter[str]:
        """Bring the first account up to date: tenants, then every shard that is unfinished on either side or has ended meanwhile."""
        counts = await copy_tenants(self._tables, SECOND, FIRST)
        shards: set[str] = set()
        for side in (SECOND, FIRST):
            for partition in index_partitions(MIRRORED):
                shards |= {index_shard(row.rk) for row in await load_rows(self._tables, RowQuery(side + SHARDS, partition, "", LAST))}
        asked = await load_rows(self._tables, RowQuery(SECOND + SWEEPS, AGAIN_PK, "", LAST))
        shards |= {row.rk for row in asked} | await self._pointed()
        shards |= await self._ends(now - seen.age - FAILBACK_OVERLAP - await self._served())
        done = await asyncio.gather(*(self._shard(shard, way, now) for shard in sorted(shards)))
        counts.update(done)
        progress: Props = {"phase": phase, "shards": len(shards), "copied": counts["copied"], "failed": counts["failed"], "at": now}
        await self._tables.write(SECOND + SWEEPS, FENCE_PK, (Upsert(PROGRESS_ROW, progress),))
        return counts

    async def _complete(self, way: Way, now: Millis) -> Counter[str]:
        """Give a new second account a copy of every unfinished mirrored shard."""
        if await self._whole():
            return Counter()
        shards: set[str] = set()
        for partition in index_partitions(MIRRORED):
            shards |= {index_shard(row.rk) for row in await load_rows(self._tables, RowQuery(way.source + SHARDS, partition, "", LAST))}
        counts = Counter(await asyncio.gather(*(self._shard(shard, way, now) for shard in sorted(shards))))
        if not counts["failed"]:
            await self._tables.write(way.copy + SWEEPS, STAMP_PK, (Merge(STAMP_ROW, {"whole": True}, ANY),))
            log.warning("The second account now has a copy of everything", extra={"action": "mirror_whole", "count": counts["copied"]})
        return counts

    async def _again(self, way: Way) -> Counter[str]:
        """Copy shards that were changed after they were finished. The writers of younger changes still copy them themselves."""
        counts: Counter[str] = Counter()
        for row in await load_rows(self._tables, RowQuery(way.source + SWEEPS, AGAIN_PK, "", LAST)):
            if row.read_at - row.timestamp >= RECOPY_AFTER and await self._runner.run(mirror(row.rk, way)):
                # The redriver may have ended before it noted its work.
                for side in (way.source, way.copy):
                    await self._runner.run(note_on_side(side, row.rk))
                await self._tables.write(way.source + SWEEPS, AGAIN_PK, (Delete(row.rk, row.etag),))
                counts["again"] += 1
        return counts

    async def _ends(self, since: Millis, *, home: bool = False) -> set[str]:
        """Return the mirrored shards that have ended since `since`, by the second's ledger. Entries of other shards go into the first's
        ledger.

        home: also remove those from the second's ledger, because retention does not look there while the first serves.
        """
        shards: set[str] = set()
        for tenant in [row.rk for row in await load_rows(self._tables, RowQuery(SECOND + TENANTS, PK_TENANTS, "", LAST))]:
            for row in await self._ended(tenant, since):
                shard = str(row.props["shard"])
                if place_of(shard) == MIRRORED:
                    shards.add(shard)
                    continue
                added = (Insert(row.rk, row.props), *([Insert(NEWS + row.rk, row.props)] if int(row.props["accepted"]) else []))
                await self._tables.write(FIRST + LEDGER, tenant, added)
                # The first may have had the row from before a redrive, and a redriver on the first may have looked before it was there.
                if home and (not int(row.props["dead"]) or await self._noted(shard)):
                    for key in (NEWS + row.rk, row.rk):
                        await self._tables.write(SECOND + LEDGER, tenant, (Delete(key, ANY),))
        return shards

    async def _note_elsewhere(self) -> None:
        """Note in the first's ledger what was redriven while the second served.

        Requests stay for a while, because their redrivers may still be at work.
        """
        rows = await load_rows(self._tables, RowQuery(SECOND + SWEEPS, ELSEWHERE_PK, "", LAST))
        noted = await asyncio.gather(*(self._noted(row.rk) for row in rows))
        for row, done in zip(rows, noted, strict=True):
            if done and row.read_at - row.timestamp >= RECOPY_AFTER:
                await self._tables.write(SECOND + SWEEPS, ELSEWHERE_PK, (Delete(row.rk, row.etag),))

    async def _noted(self, shard: str) -> bool:
        """Note the redriven events of a shard that is not mirrored in the first's ledger; return False if its account does not answer."""
        async with self._in_flight:
            try:
                await self._runner.run(note_on_side(FIRST, shard))
            except StorageError as error:
                log.debug("Shard %s could not be read: %s", shard, error, extra={"action": "follow_failed", "shard": shard})
                return False
        return True

    async def _served(self) -> Millis:
        """Return the longest time that the second account may have served before the fence was last rewritten."""
        back = await self._tables.get(SECOND + SWEEPS, FENCE_PK, BACK_ROW)
        return 0 if back is None else max(0, back.read_at - back.timestamp)

    async def _ended(self, tenant: str, since: Millis) -> list[Row]:
        return await load_rows(self._tables, RowQuery(SECOND + LEDGER, tenant, end=NEWS, where=(Where("ended", "ge", since),)))

    async def _shard(self, shard: str, way: Way, now: Millis) -> str:
        async with self._in_flight:
            try:
                return await self._one(shard, way, now)
            except StorageError as error:
                log.warning("Shard %s could not be copied back yet: %s", shard, error, extra={"action": "restore_failed", "shard": shard})
                return "failed"

    async def _one(self, shard: str, way: Way, now: Millis) -> str:
        rows = await load_rows(self._tables, RowQuery(way.source + EVENTS, shard, FIRST_EVENT, END_EVENTS))
        tenant = shard.split("-", 2)[2]
        for row in rows:
            for name in id_names(row.props):
                if not await self._runner.run(mirror_id(tenant, name, way, self._beside)):
                    return "failed"
        if way.copy == FIRST:
            await self._runner.run(shut_orphans(shard))
        if not await self._runner.run(restore(shard, way)):
            return "failed"
        gate = await self._tables.get(way.source + EVENTS, shard, GATE)
        if gate is not None and gate.props["state"] == "done":
            await self._runner.run(finish_copy(shard, way, entry_for(rows, now)))
            await self._runner.run(note_on_side(way.copy, shard))
        return "copied"

    async def lag(self) -> tuple[Millis, int]:
        """Return the largest delay of a copy in milliseconds, and the number of unfinished shards with a delay."""
        rows = [
            row
            for partition in index_partitions(MIRRORED)
            for row in (
                await self._tables.query(RowQuery(FIRST + SHARDS, partition, end=minute_text(self._clock.now() + 60_000), limit=100))
            ).rows
        ]
        found = await asyncio.gather(*(self._lag(index_shard(row.rk)) for row in rows[:LAG_SHARDS]))
        return max(found, default=0), sum(each > 0 for each in found)

    async def _lag(self, shard: str) -> Millis:
        async with self._in_flight:
            return await copy_lag(self._tables, FIRST, SECOND, shard)

    async def state(self) -> dict[str, Any] | None:
        """Return the pair's part of `GET /storage`, None without a pair. Does not raise: unavailable values are null."""
        if self._known is None:
            return None
        unknown = ("active", "epoch", "serves_in_s", "lag_ms", "behind", "failback")
        state: dict[str, Any] = {"state": "unknown", **dict.fromkeys(unknown)}
        try:
            async with asyncio.timeout(PATIENCE):
                seen = await self._pair.look()
                progress = await self._tables.get(SECOND + SWEEPS, FENCE_PK, PROGRESS_ROW)
                back = await self._tables.get(SECOND + SWEEPS, FENCE_PK, BACK_ROW)
                whole = await self._whole()
        except (StorageError, TimeoutError):
            return state
        fence, wait = seen.fence, self._pair.wait(seen)
        state |= {"active": fence.active, "epoch": fence.epoch, "serves_in_s": round(wait, 1) if not fence.syncing else None}
        if fence.active == "first" and not fence.syncing and not whole:
            state["state"] = "filling"
            return state | {"serves_in_s": 0.0}
        copying = back is not None and int(back.props["epoch"]) == fence.epoch
        state["state"] = "syncing" if fence.syncing else "waiting" if wait > 0 else "copying" if copying else "serving"
        if progress is not None:
            props = progress.props
            state["failback"] = {name: props[name] for name in ("phase", "shards", "copied", "failed")} | {"at": to_text(int(props["at"]))}
        if fence.active == "first" and not fence.syncing:
            try:
                async with asyncio.timeout(PATIENCE):
                    state["lag_ms"], state["behind"] = await self.lag()
            except (StorageError, TimeoutError):
                pass
        return state

    async def probe(self) -> list[dict[str, Any]]:
        """Ask each account for a row; return which ones answered, and the functions that poll their queues."""

        async def answers(table: str, pk: str) -> bool:
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._tables.query(RowQuery(table, pk, limit=1))
            except (StorageError, TimeoutError):
                return False
            return True

        asked = {place: (SHARDS, f"{place}0") for place in self._places if place != MIRRORED}
        if self._known is not None:
            asked[MIRRORED] = (SECOND + SWEEPS, FENCE_PK)
        found = await asyncio.gather(*(answers(*each) for each in asked.values()))
        accounts: list[dict[str, Any]] = []
        for place, reachable in zip(asked, found, strict=True):
            role = {HOME: "home", MIRRORED: "second"}.get(place, "further")
            listeners = list(self._listeners.get(role, ()))
            accounts.append({"place": place, "role": role, "reachable": reachable, "listeners": listeners})
        return accounts
