"""The chain of a schedule: near occurrences become events, each exactly once, even if steps are interrupted or repeated."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from itertools import batched, chain
from typing import Any, Literal, NamedTuple

from ...core.clock import Millis, to_text
from ...core.errors import Problem, StorageError
from ...core.event_loop import EVENTS, LoopTurns
from ...core.readable import count_of
from ...storage.ports import Row
from ...tenants.model import Durability
from ...web.bodies import take_turn
from .. import timings
from ..changes.verbs import ChangeRequest, Changes
from ..facets.fanouts import fanned_out, member_id
from ..ingest.writer import Writer
from ..keys import digest
from ..model import EventIn
from ..properties.overlap import overlap_props
from ..queries.lookup import EventLookup
from ..rows import EventToStore, new_event, withdrawn
from ..rules import durability_of
from ..shard_services import ShardServices
from ..timings import CHAIN_RUN_FOR, CLAIM_TAKEN_OVER_AFTER, CLAIM_TAKEN_OVER_AT_LATEST
from . import rules, timing
from .definition import PARTITIONS, Definition, event_ids, offset, parse_pointer_key, stamped
from .store import ScheduleDefinitions, pointers_after

log = logging.getLogger(__name__)

IN_FLIGHT = 4
"""Schedules of one partition that a process carries on side by side, 64 in all; their events share transactions.

Each partition has its own, because storage serves and throttles partitions one by one: those that wait for one delay no other.
"""
CANCELS = 32
"""Events of one schedule that are cancelled side by side."""
FIRE_BYTES = 1024 * 1024
"""Bytes of payload stored at a time for one schedule, so that the memory of all of them is bounded."""
LOOK = 5_000
"""Pointers of a partition among which the tenants take turns."""
FORGOTTEN_AFTER = 600.0
"""Seconds after which a process forgets a claim that it did not meet again."""
CLEAR_FOR: Millis = 90_000
"""A sweep leaves out a partition if the sweep before it found no pointer up to this much later. More than the time between two sweeps."""
PAGE = 200
"""Schedules of a partition that are carried on before the sweep checks the time."""


class UnfinishedClaim(NamedTuple):
    """Claimed occurrences that may not all be stored, as a process last met them. Times are monotonic, in seconds.

    step: the revision, and the time up to which the chain is done. own: this process has claimed them.
    since: when it first read this claim; first: when it first read one of this step that was another process's.
    """

    step: tuple[int, Millis]
    etag: str
    own: bool
    since: float
    first: float


type ChainOutcome = Literal["stored", "partly", "nothing", "waiting", "undone", "removed", "lost", "failed"]
"""partly: a full batch of occurrences was stored, and more may be due. waiting: another process has claimed the occurrences."""


class Chain:
    """The work of the timer on schedules, and the part of it that operations need. One per process."""

    def __init__(self, store: ScheduleDefinitions, services: ShardServices, writer: Writer, changes: Changes, lookup: EventLookup) -> None:
        self._store, self._writer, self._changes, self._lookup = store, writer, changes, lookup
        self._directory, self._clock, self._notify = services.directory, services.clock, services.notify
        self._in_flight = {partition: asyncio.Semaphore(IN_FLIGHT) for partition in PARTITIONS}
        self._unfinished: dict[str, UnfinishedClaim] = {}
        self._clear: dict[str, Millis] = {}

    async def sweep(self, now: Millis) -> Counter[str]:
        """Carry on every chain whose next occurrence is near. Return counts by outcome. Safe to run twice at once, late, or interrupted."""
        began = self._clock.monotonic()
        until = began + CHAIN_RUN_FOR
        self._unfinished = {key: claim for key, claim in self._unfinished.items() if claim.since > began - FORGOTTEN_AFTER}
        counts: Counter[str] = Counter()
        for found in await asyncio.gather(*(self._partition(partition, now, until) for partition in PARTITIONS)):
            counts.update(found)
        return counts

    async def _partition(self, partition: str, now: Millis, until: float) -> Counter[str]:
        """Carry on the chains of one partition. A partition without pointers up to `CLEAR_FOR` later is left out of the next sweep.

        What is stored meanwhile for an earlier time is carried on by the process that stores it.
        """
        counts: Counter[str] = Counter()
        until_minute = now + timings.OCCURRENCES_AHEAD
        # Forgotten after one sweep, for the case that the process that stored a schedule has crashed.
        if until_minute <= self._clear.pop(partition, 0):
            return counts
        clear = True
        async for rows in self._store.due(partition, until_minute + CLEAR_FOR, LOOK):
            clear = clear and not rows
            near = [row for row in rows if row.rk < pointers_after(until_minute)]
            for some in batched(rules.in_turn(near), PAGE):
                counts.update(await asyncio.gather(*(self._one(row, now) for row in some)))
                if self._clock.monotonic() > until:
                    counts["cut"] += 1
                    return counts
            if len(near) < len(rows):
                break
        if clear:
            self._clear[partition] = until_minute + CLEAR_FOR
        return counts

    async def _one(self, pointer: Row, now: Millis) -> ChainOutcome:
        async with self._in_flight[pointer.pk]:
            try:
                definition = await self._store.get(*parse_pointer_key(pointer.rk))
                if definition is None or definition.pointer != pointer.rk:
                    # The schedule moved on after the pointers were listed; a pointer that still exists belongs to no definition.
                    await self._store.forget(pointer)
                    return "lost"
                return await self.carry_on(definition, now)
            except StorageError as error:
                log.warning("A schedule waits for the next sweep: %s", error, extra={"action": "schedule_failed", "row": pointer.rk})
            except Exception:
                # One schedule must not delay the others. The pointer stays, so the next sweep tries again and logs again.
                log.exception("A schedule could not be continued", extra={"action": "schedule_failed", "row": pointer.rk})
            return "failed"

    async def carry_on(self, definition: Definition, now: Millis) -> ChainOutcome:
        """Do what is due for this schedule. Raises `StorageError`; the next attempt finds what was done until then."""
        if await self._orphaned(definition):
            return "removed" if await self._store.remove(definition) else "lost"
        if definition.undo is not None:
            return "undone" if await self.take_back(definition, now) is not None else "lost"
        if definition.deleted:
            if definition.pointer > definition.pointer_at(now):
                return "nothing"
            return "removed" if await self._store.remove(definition) else "lost"
        return await self._materialize(definition, now)

    async def _materialize(self, definition: Definition, now: Millis) -> ChainOutcome:
        if definition.spec.exclude is not None:
            # A search may take some milliseconds, and this is done for many schedules at once.
            await take_turn()
        planned = rules.plan(definition, now)
        if len(planned.fire) > EVENTS:
            await asyncio.sleep(0)
        if missed := rules.missed(definition, planned, now):
            # Before the definition says that they are done.
            detail = f"{count_of(len(missed), 'occurrence')} since {to_text(missed[0])}; catch_up is {definition.spec.catch_up.policy}"
            await self._notify(definition.tenant, "schedule.missed", definition.id, detail, len(missed))
        if planned.fire:
            if self._left_to_another(definition):
                return "waiting"
            # Named before they are stored: a pause or a deletion must know which events to cancel. A batch that is named already is named
            # again, so that of several processes that go on with it at the same instant one stores it.
            claimed = await self._store.write(definition, rules.claimed(definition, planned, now))
            if claimed is None:
                return self._lost(definition)
            definition = claimed
            claimed_at = self._clock.monotonic()
            self._unfinished[definition.key] = UnfinishedClaim(_step(definition), definition.etag, True, claimed_at, claimed_at)
            await self._fire(definition, planned.fire, now)
        new = rules.advanced(definition, planned, now)
        if not planned.fire and new.pointer == definition.pointer:
            return "nothing"
        if not new.pointer and not new.paused and definition.pointer:
            await self._notify(definition.tenant, "schedule.ended", definition.id, "it has no further occurrence")
        if await self._store.write(definition, new) is None:
            # The definition that the other process wrote names these events, so that process is responsible for them.
            return self._lost(definition)
        if len(planned.fire) >= rules.BATCH:
            return "partly"
        return "stored" if planned.fire else "nothing"

    def _left_to_another(self, definition: Definition) -> bool:
        """Return True while another process may be storing the occurrences that it has claimed.

        Two processes that store the same events seal each other's shards, which takes far longer than one of them needs. A process that
        claims the same occurrences repeatedly and does not store them does not keep others from it.
        """
        if not rules.has_unfinished(definition):
            return False
        now, step = self._clock.monotonic(), _step(definition)
        found = self._unfinished.get(definition.key)
        if found is None or found.step != step or (found.own and found.etag != definition.etag):
            found = UnfinishedClaim(step, definition.etag, False, now, now)
        elif found.etag != definition.etag:
            found = found._replace(etag=definition.etag, since=now)
        self._unfinished[definition.key] = found
        return not found.own and now - found.since < CLAIM_TAKEN_OVER_AFTER and now - found.first < CLAIM_TAKEN_OVER_AT_LATEST

    async def _fire(self, definition: Definition, instants: Sequence[Millis], now: Millis) -> None:
        """Store the events; those that exist stay unchanged."""
        durability = await self._durability(definition.tenant)
        for some in batched(instants, at_once(definition)):
            await self._fire_some(definition, some, now, durability)

    async def _fire_some(self, definition: Definition, instants: Sequence[Millis], now: Millis, durability: Durability) -> None:
        waiting = {at: event_ids(definition.id, at, definition.revision, definition.burnt) for at in instants}
        turns = LoopTurns(EVENTS)
        while waiting:
            events = {}
            for at, names in waiting.items():
                events[at] = occurrence(definition, at, names[0], now, durability)
                await turns.spend(len(events[at]))
            stored = await self._writer.store(definition.tenant, [*chain.from_iterable(events.values())])
            strange = {}
            for at, answer in zip((each for each in waiting for _ in events[each]), stored, strict=True):
                if isinstance(answer, StorageError):
                    raise answer
                if answer.existing is not None and not answer.same:
                    strange[at] = waiting[at][1:]
            for at in [at for at, names in strange.items() if not names]:
                del strange[at]
                extra = {"action": "occurrence_dropped", "tenant": definition.tenant, "schedule": definition.id, "at": at}
                log.error("An occurrence of %s is lost: other events have all of its ids", definition.id, extra=extra)
            waiting = strange

    async def take_back(self, definition: Definition, now: Millis) -> Definition | None:
        """Cancel the former revision's events so that the present one can go on. Return None if another process changed the definition.

        A cancelled event takes the id of an event that is not stored yet: a process that still stores it finds the id in use.
        """
        undo = definition.undo
        assert undo is not None
        cancelled: list[Millis] = []
        taken: list[Millis] = []
        nonce = f"schedule~{undo.revision}"
        durability = await self._durability(definition.tenant)
        waiting = {at: event_ids(definition.id, at, undo.revision, undo.burnt) for at in undo.instants}
        chosen: dict[Millis, str] = {}
        turns = LoopTurns(EVENTS)
        while waiting:
            chosen |= {at: names[0] for at, names in waiting.items()}
            empty = []
            for at, names in waiting.items():
                withdrawn_event = cancelled_event(definition, at, names[0], now, nonce, durability)
                empty.append(_for_channels(withdrawn_event, names[0], undo.channels)[0])
                await turns.spend(len(undo.channels) or 1)
            stored = await self._writer.store(definition.tenant, empty)
            strange, there = {}, []
            for (at, names), answer in zip(waiting.items(), stored, strict=True):
                if isinstance(answer, StorageError):
                    raise answer
                if answer.existing is None:
                    cancelled.append(at)
                elif answer.same:
                    there.append(at)
                else:
                    strange[at] = names[1:]
            for some in batched(there, CANCELS):
                ids = [member_id(chosen[at], undo.channels[0]) if undo.channels else chosen[at] for at in some]
                outcomes = await asyncio.gather(*(self._cancel(definition.tenant, each, nonce) for each in ids))
                for at, ours in zip(some, outcomes, strict=True):
                    (cancelled if ours else taken).append(at)
            # An occurrence without a free id was dropped before, and is dropped again.
            waiting = {at: names for at, names in strange.items() if names}
        if undo.channels:
            back = set(cancelled)
            for at in (*cancelled, *taken):
                await self._follow_first(definition, at, chosen[at], now, durability, nonce, undone=at in back)
        return await self._store.write(definition, rules.undone(definition, cancelled, taken, now))

    async def _follow_first(
        self, definition: Definition, at: Millis, fanout: str, now: Millis, durability: Durability, nonce: str, *, undone: bool
    ) -> None:
        """Do with the other events of an occurrence what became of its first one: cancel them, or store those that a crash has left out.

        One of them that has been claimed meanwhile is delivered, and again if the new revision has the occurrence.
        """
        channels = definition.undo.channels if definition.undo is not None else ()
        if undone:
            event = cancelled_event(definition, at, fanout, now, nonce, durability)
        elif definition.deleted or definition.paused:
            return
        else:
            # The former revision's payload is not known any more.
            event = _one_event(definition, at, fanout, now, durability)
        others = fanned_out(event, fanout, channels)[1:]
        for other, answer in zip(others, await self._writer.store(definition.tenant, others), strict=True):
            if isinstance(answer, StorageError):
                raise answer
            if undone and answer.existing is not None and answer.same:
                await self._cancel(definition.tenant, str(other.id), nonce)

    async def _cancel(self, tenant: str, event_id: str, nonce: str) -> bool:
        """Return True if this change cancelled the event, even if another process carried it out.

        An event that was claimed once stays, even if its claim was given back: of several processes that take the same events back, one
        could have seen the claim and left the occurrence to the event, and then another would cancel it.
        """
        try:
            await self._changes.cancel(ChangeRequest(tenant, nonce=nonce), event_id, unclaimed=True)
        except Problem:
            # The event is being delivered, waits for a retry, has ended, or was removed.
            row = await self._lookup.event(tenant, event_id)
            return row is not None and row.props["state"] == "cancelled" and row.props.get("by") == nonce
        return True

    async def retain(self, now: Millis) -> Counter[str]:
        """Remove the schedules of removed tenants: no sweep meets those that are paused or not due for a long time.

        Also compute the next occurrence of others anew if this process has a later release of the zone data.
        """
        counts: Counter[str] = Counter()
        uids: dict[str, str | None] = {}
        for partition in PARTITIONS:
            async for page in self._store.heads(partition):
                for row in page.rows:
                    _, tenant, schedule = row.rk.split(":", 2)
                    if tenant not in uids:
                        uids[tenant] = await self._uid(tenant)
                    if uids[tenant] == row.props["uid"]:
                        if "" < str(row.props.get("zone_data", "")) < timing.release():
                            counts["renewed" if await self._renew(tenant, schedule, now) else "lost"] += 1
                        continue
                    definition = await self._store.get(tenant, schedule)
                    if definition is not None and await self._orphaned(definition):
                        counts["removed" if await self._store.remove(definition) else "lost"] += 1
        return counts

    async def _renew(self, tenant: str, schedule: str, now: Millis) -> bool:
        """Compute the next occurrence by the present zone data. Return False if another process wrote the definition meanwhile."""
        definition = await self._store.get(tenant, schedule)
        return definition is not None and await self._store.write(definition, rules.pointed_at(definition, now)) is not None

    async def _orphaned(self, definition: Definition) -> bool:
        """Return True if the tenant that made the schedule is gone.

        Reads the store, because a cached answer may be older than the tenant.
        """
        if await self._directory.uid(definition.tenant) == definition.uid:
            return False
        return await self._uid(definition.tenant) != definition.uid

    async def _uid(self, tenant: str) -> str | None:
        """Return the tenant's incarnation as stored now."""
        try:
            return (await self._directory.home(tenant)).uid
        except Problem as gone:
            if gone.status != 404:
                raise
            return None

    async def _durability(self, tenant: str) -> Durability:
        settings = await self._directory.tenant(tenant)
        return schedule_durability(settings.durability if settings is not None else None)

    def _lost(self, definition: Definition) -> ChainOutcome:
        extra = {"action": "schedule_race_lost", "tenant": definition.tenant, "schedule": definition.id}
        log.debug("Another process carried on or changed schedule %s", definition.id, extra=extra)
        return "lost"


def _step(definition: Definition) -> tuple[int, Millis]:
    return definition.revision, definition.done


def at_once(definition: Definition) -> int:
    """Return the number of occurrences that are stored at a time."""
    return max(1, FIRE_BYTES // max(1, len(definition.body) * len(definition.spec.channels or "1")))


def schedule_durability(floor: Durability | None) -> Durability:
    """Return the durability of a schedule's events. They have ids of their own, which `fast` events cannot have."""
    return durability_of(floor, "standard")


def schedule_hash(schedule: str) -> str:
    """Return the content hash of all events of a schedule. No client's event has it, so a schedule recognises its own events."""
    return digest("schedule", schedule).hex()


def occurrence(
    definition: Definition, at: Millis, event_id: str, now: Millis, safe: Durability, *, asked: bool = False
) -> list[EventToStore]:
    """Return the event of one occurrence, or the events of its fan-out. asked: a user asked for it, so it is never skipped."""
    event = _one_event(definition, at, event_id, now, safe, asked=asked)
    return _for_channels(event, event_id, definition.spec.channels or ())


def _for_channels(event: EventToStore, event_id: str, channels: Sequence[str]) -> list[EventToStore]:
    return fanned_out(event, event_id, channels) if channels else [event]


def _one_event(definition: Definition, at: Millis, event_id: str, now: Millis, safe: Durability, *, asked: bool = False) -> EventToStore:
    due = at + offset(definition.tenant, definition.id, at, definition.spec.jitter)
    spec = definition.spec
    channel = spec.channels[0] if spec.channels else spec.channel
    given: dict[str, Any] = {"on_delivered": spec.on_delivered, "on_dead": spec.on_dead, "ordering_key": spec.ordering_key}
    given |= {"retry": spec.retry, "timeout": spec.timeout, "content_type": spec.content_type}
    body = stamped(definition.body, definition.stamps, at)
    made = new_event(EventIn.model_construct(due=due, channel=channel, payload=None, **given), body, now, safe)
    if due < now and not asked:
        # No sweep has stored it in time.
        made.props["since"] = due
    if more := overlap_props(spec.overlap, definition.id, asked=asked):
        made.props |= more
        made.size = made.props["size"] = made.size + sum(len(str(value)) for value in more.values())
    return mark_as_own(made, definition, event_id)


def cancelled_event(definition: Definition, at: Millis, event_id: str, now: Millis, nonce: str, safe: Durability) -> EventToStore:
    """Return a cancelled event that takes the id of one that must no longer be stored."""
    event = withdrawn(event_id, now, at, now, nonce)
    del event.props["asked"], event.props["durability"]
    event.durability = safe
    if safe != "standard":
        event.props["durability"] = safe
    return mark_as_own(event, definition, event_id)


def mark_as_own(event: EventToStore, definition: Definition, event_id: str) -> EventToStore:
    """Mark the event as one of the schedule's and give it this id."""
    event.id, event.hash = event_id, schedule_hash(definition.id)
    event.props["id"] = event_id
    return event
