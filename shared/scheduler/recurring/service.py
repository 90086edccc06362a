"""The operations on recurring schedules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import batched, chain, islice, takewhile
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter

from ...core.clock import Millis, to_text
from ...core.errors import OutcomeUnknown, Problem, StorageError, Unavailable
from ...core.event_loop import EVENTS, LoopTurns
from ...engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ...tenants.store import contended
from ...web.bodies import parse_body, take_turn
from ...web.etag import check_absent, check_if_match, etag_of
from ...web.problem import conflict, invalid, not_found
from .. import timings
from ..changes.verbs import Changes
from ..ingest.admission import Admitted, Ingest, as_kept, unstored
from ..ingest.writer import Writer
from ..queries.lookup import EventLookup
from ..rows import canonical_json
from ..shard_services import ShardServices
from . import rules
from .calendars import CalendarChanges, Calendars, names_of
from .chain import Chain, at_once, occurrence, schedule_durability
from .definition import Definition, MadeBy, backfill_id, stamped
from .limits import ScheduleLimits
from .model import MAX_BACKFILL, MAX_FANOUT_ID, BackfillIn, Recurrence, ScheduleIn
from .store import ScheduleDefinitions, SchedulePosition
from .timing import MOST_DAYS, MOST_YEARS, Timing, occurrences
from .words import in_words

log = logging.getLogger(__name__)

TRIES = 20
"""Times a change is tried when sweeps or others come in between."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
OWN = MadeBy()
_SCHEDULE: TypeAdapter[ScheduleIn] = TypeAdapter(ScheduleIn)


class StoredSchedule(NamedTuple):
    """A schedule and the time at which it was read."""

    definition: Definition
    now: Millis
    planned: bool = False
    """True for what a dry run would store."""

    @property
    def etag(self) -> str:
        """Changes with content and pause, but not with every occurrence: `If-Match` compares what a user read and changed."""
        return etag_of_definition(self.definition)

    @property
    def next(self) -> Millis | None:
        """The next occurrence; None if paused, or if there is none."""
        return rules.shown_next(self.definition, self.now)

    @property
    def shown(self) -> dict[str, Any]:
        """The representation, ready for orjson; the payload is passed through unchanged."""
        definition, following = self.definition, self.next
        last, missed = rules.last_of(definition, self.now), rules.overdue_of(definition, self.now)
        shown = {name: value for name, value in definition.spec.model_dump(mode="json").items() if value is not None}
        if "channels" in shown:
            del shown["channel"]
        if "cron" in shown:
            shown.setdefault("timezone", "UTC")
            shown["reads_as"] = in_words(shown["cron"], shown["timezone"])
        return {
            "id": definition.id,
            "tenant": definition.tenant,
            **shown,
            "payload": orjson.Fragment(definition.body),
            "paused": definition.paused,
            "created": to_text(definition.created),
            "revision": definition.revision,
            "next": None if following is None else to_text(following),
            "last": None if last is None else to_text(last),
            **({} if missed is None else {"missed": to_text(missed)}),
        }


async def all_shown(found: Iterable[StoredSchedule]) -> list[dict[str, Any]]:
    """Return the representations of schedules."""
    shown = []
    for each in found:
        shown.append(each.shown)
        # One whose sweep is late may need a search.
        await asyncio.sleep(0)
    return shown


class Recurring:
    """Recurring schedules. One per process."""

    def __init__(self, services: ShardServices, ingest: Ingest, writer: Writer, changes: Changes, lookup: EventLookup) -> None:
        self._clock, self._ids, self._directory, self._ingest, self._writer = (
            services.clock,
            services.ids,
            services.directory,
            ingest,
            writer,
        )
        self._store = ScheduleDefinitions(services.tables)
        self._limits = ScheduleLimits(self._store, services.clock)
        self.calendars = CalendarChanges(self._store, Calendars(services.tables), services.directory, services.ids, self._change)
        """Calendars, and the schedules that follow them."""
        self.chain = Chain(self._store, services, writer, changes, lookup)
        """The work of the timers."""

    async def put(
        self, tenant: str, schedule: str, raw: bytes, headers: Mapping[str, str] = NO_HEADERS, api: MadeBy = OWN, *, dry_run: bool = False
    ) -> tuple[StoredSchedule, bool]:
        """Create the schedule or replace its content; return True with a new one. The same content again changes nothing.

        raw: the JSON of a `ScheduleIn`; its payload is kept as sent. api: the API of the request; no API replaces a schedule of
        another. dry_run: check everything and store nothing. Raises 404, 409, 412, 413, 422, 429.
        """
        given, body = await parse_body(_SCHEDULE, raw, "payload")
        assert body is not None  # the model has it
        body = as_kept(body, given.content_type)
        # Every field is set, as in a stored definition, so that equal contents compare as equal.
        spec = Recurrence.model_validate_json(given.model_dump_json(exclude={"payload"}))
        home = await self._directory.home(tenant)
        uid = home.uid
        if spec.channels is not None and len(schedule) > MAX_FANOUT_ID:
            raise invalid("{id}", f"has at most {MAX_FANOUT_ID} characters for a schedule with channels")
        for number, channel in enumerate(spec.channels or (spec.channel,)):
            field = f"channels/{number}" if spec.channels else "channel"
            await self._ingest.accepts(tenant, channel, stamped(body, api.stamps, self._clock.now()), field, spec)
        if spec.channels is not None:
            spec = spec.model_copy(update={"channels": sorted(spec.channels)})
        days = await self.calendars.days_for(tenant, uid, spec)
        await self._ingest.callback_channels(tenant, spec)
        there = await self._store.get(tenant, schedule)
        if there is None or not _lives(there, uid):
            await self._limits.check(tenant, uid, home.spec.limits.schedules)
        await self._limits.check_rate(tenant, uid, home.spec.limits.events_per_second, schedule, spec)
        await asyncio.sleep(0)
        new, canonical = False, canonical_json(body)

        def change(old: Definition | None, now: Millis) -> Definition | None:
            nonlocal new
            here = old if old is not None and _lives(old, uid) else None
            new = here is None
            check_if_match(headers, etag_of_definition(here) if here is not None else None)
            check_absent(headers, exists=here is not None)
            by = self._ids.name()
            if here is None:
                fresh = Definition(
                    tenant, schedule, uid, spec, body, created=now, by=by, done=now, api=api.name, stamps=api.stamps, calendar_days=days
                )
                return _occurring(rules.created(old, fresh, now))
            if here.api != api.name:
                raise _made_elsewhere(here.api)
            same = here.spec == spec and here.calendar_days == days
            if same and (here.body == body or canonical_json(here.body) == canonical):
                return None
            changed = rules.redefined(here, spec, body, now, by, days)
            return changed if rules.timing_of(spec) == rules.timing_of(here.spec) else _occurring(changed)

        if dry_run:
            now = self._clock.now()
            planned = change(there, now)
            if planned is not None:
                return StoredSchedule(planned, now, planned=True), new
            assert there is not None
            return StoredSchedule(there, now), False
        found = await self._change(tenant, schedule, change)
        if new:
            self._limits.made(tenant, uid)
        if names_of(spec) and await self.calendars.follow(tenant, uid, schedule):
            # A calendar, perhaps an empty one, was changed meanwhile, and that call may not have seen this schedule.
            found = await self.get(tenant, schedule)
        return found, new

    async def get(self, tenant: str, schedule: str) -> StoredSchedule:
        """Return the schedule. Raises 404."""
        definition = await self._store.get(tenant, schedule)
        if definition is None or not _lives(definition, await self._directory.uid(tenant)):
            raise not_found("schedule")
        return StoredSchedule(definition, self._clock.now())

    async def list(self, tenant: str, limit: int, start: SchedulePosition) -> tuple[list[StoredSchedule], SchedulePosition | None]:
        """Return a page of the tenant's schedules, in no order, and the position of the next page; a page may be short."""
        found, following = await self._store.page(tenant, limit, start)
        uid, now = await self._directory.uid(tenant), self._clock.now()
        return [StoredSchedule(each, now) for each in found if _lives(each, uid)], following

    async def delete(self, tenant: str, schedule: str, headers: Mapping[str, str] = NO_HEADERS, *, keep_overdue: bool = False) -> None:
        """Delete the schedule. Raises 404, 412.

        After this returns, no later occurrence is delivered except one already claimed. An occurrence that is due and has become an event
        stays; if a sweep has begun to store it and is not known to have ended, only with `keep_overdue`.
        """
        await self._switch(
            tenant, schedule, headers, lambda found, now: rules.deleted(found, now, self._ids.name(), keep_overdue=keep_overdue)
        )
        self._limits.ended(tenant, await self._directory.uid(tenant), schedule)

    async def pause(self, tenant: str, schedule: str, headers: Mapping[str, str] = NO_HEADERS) -> StoredSchedule:
        """Pause the schedule, with the same guarantee as `delete`. Raises 404, 412."""
        return await self._switch(
            tenant, schedule, headers, lambda found, now: None if found.paused else rules.paused(found, now, self._ids.name())
        )

    async def resume(self, tenant: str, schedule: str, headers: Mapping[str, str] = NO_HEADERS) -> StoredSchedule:
        """Go on from the next future occurrence. Raises 404, 412."""
        return await self._switch(
            tenant, schedule, headers, lambda found, now: rules.resumed(found, now, self._ids.name()) if found.paused else None
        )

    async def trigger(self, tenant: str, schedule: str, name: str | None = None) -> Sequence[Admitted]:
        """Store an occurrence now, in addition to those of the rule, even if paused: one event, or those of its fan-out.

        The same name again returns what the first call has stored. Raises 404, 409, 429.
        """
        found = await self.get(tenant, schedule)
        settings = await self._ingest.tenant(tenant)
        with self._ingest.limits.admitting(tenant) as let_in:
            if (refusal := await let_in.admit_all(settings, len(found.definition.spec.channels or "1"))) is not None:
                raise refusal
            # The event has the time of the call, without jitter, and an id that no occurrence could have.
            plain = _without_jitter(found.definition)
            safe = schedule_durability(settings.durability)
            events = occurrence(plain, found.now, f"{schedule}@{name or self._ids.name()}", found.now, safe, asked=True)
            stored = await self._writer.store(tenant, events, posted=True)
            let_in.unused(unstored(stored))
            return Ingest.all_admitted(events, stored)

    async def backfill(self, tenant: str, schedule: str, asked: BackfillIn) -> tuple[str, int, int]:
        """Store an event now for each occurrence in a range of the past, whether it fired then or not, even if paused.

        Returns the backfill's name and the numbers of events that are new and that an earlier call made. Raises 404, 422, 429, and
        `StorageError`: then some may be stored, and the same call with the same name goes on.
        """
        found = await self.get(tenant, schedule)
        if asked.to > found.now:
            raise invalid("/to", "must not be later than now: later occurrences fire by themselves")
        coming = occurrences(found.definition.timing, asked.from_ - 1)
        instants, turns = list[Millis](), LoopTurns(EVENTS)
        for each in islice(takewhile(lambda each: each.at < asked.to, coming), MAX_BACKFILL + 1):
            instants.append(each.at)
            await turns.spend()
        if len(instants) > MAX_BACKFILL:
            last = to_text(instants[-1])
            raise invalid("/to", f"the range has more than {MAX_BACKFILL:,} occurrences; end it at {last} and go on from there")
        settings = await self._ingest.tenant(tenant)
        count = len(instants) * len(found.definition.spec.channels or "1")
        name = asked.id or self._ids.name()
        durability = schedule_durability(settings.durability)
        existing = 0
        plain = _without_jitter(found.definition)
        dues = [found.now + number * asked.spread // len(instants) for number in range(len(instants))]
        with self._ingest.limits.admitting(tenant) as let_in:
            granted, refusal = await let_in.admit(settings, count)
            if granted < count:
                let_in.unused(granted)
                raise refusal
            for some in batched(zip(instants, dues, strict=True), at_once(plain)):
                made = []
                for at, due in some:
                    made.append(occurrence(plain, due, backfill_id(schedule, at, name), found.now, durability, asked=True))
                    await turns.spend(len(made[-1]))
                results = await self._writer.store(tenant, [*chain.from_iterable(made)])
                let_in.unused(unstored(results))
                stored = iter(results)
                for events in made:
                    admitted = Ingest.all_admitted(events, list(islice(stored, len(events))))
                    existing += not any(each.new for each in admitted)
        return name, len(instants) - existing, existing

    async def preview(self, tenant: str, schedule: str, n: int) -> dict[str, Any]:
        """Return the next `n` occurrences as the API shows them, without jitter.

        For a paused schedule: those it would have if resumed now. Raises 404.
        """
        found = await self.get(tenant, schedule)
        return await _preview_of(found.definition.timing, found.now, n)

    async def preview_rule(self, tenant: str, rule: Recurrence, n: int) -> dict[str, Any]:
        """Return the first `n` occurrences that a schedule with this rule would have if it were created now. Raises 422 for a calendar that
        does not exist."""
        days = await self.calendars.days_for(tenant, (await self._directory.home(tenant)).uid, rule)
        now = self._clock.now()
        return await _preview_of(rule.timing(now, days), now, n)

    async def _switch(
        self,
        tenant: str,
        schedule: str,
        headers: Mapping[str, str],
        change: Callable[[Definition, Millis], Definition | None],
    ) -> StoredSchedule:
        uid = await self._directory.uid(tenant)

        def checked(old: Definition | None, now: Millis) -> Definition | None:
            if old is None or not _lives(old, uid):
                raise not_found("schedule")
            check_if_match(headers, etag_of_definition(old))
            return change(old, now)

        return await self._change(tenant, schedule, checked)

    async def _change(self, tenant: str, schedule: str, change: Callable[[Definition | None, Millis], Definition | None]) -> StoredSchedule:
        """Write the result of `change` for the stored definition (None: no change) and carry it through. Raises 409 if conflicts never
        stop."""

        async def attempt() -> StoredSchedule | WriteConflict:
            old = await self._store.get(tenant, schedule)
            now = self._clock.now()
            if old is not None and old.undo is not None:
                # Another change was interrupted or is in progress: finish it first.
                await self.chain.take_back(old, now)
                return CONFLICT
            # The change searches for the next occurrence, as do those of other schedules that wait here.
            await take_turn()
            new = change(old, now)
            if new is None:
                assert old is not None
                return StoredSchedule(old, now)
            written = await self._write(old, new)
            if written is not None:
                return StoredSchedule(await self._settled(written, now), now)
            return CONFLICT

        return await retry_on_conflict(attempt, TRIES, contended)

    async def _write(self, old: Definition | None, new: Definition) -> Definition | None:
        """Write the definition; return None if another process was faster.

        After a lost answer, a write that is found counts as a success.
        """
        try:
            return await self._store.write(old, new)
        except OutcomeUnknown:
            found = await self._store.get(new.tenant, new.id)
            if found is not None and found.by == new.by:
                return found
            raise

    async def _settled(self, written: Definition, now: Millis) -> Definition:
        """Carry a change through: cancel the former revision's events, and start what is due soon. Raises `StorageError`."""
        try:
            current: Definition | None = written
            while current is not None and current.undo is not None and current.revision == written.revision:
                current = await self.chain.take_back(current, now) or await self._store.get(written.tenant, written.id)
        except Unavailable as error:
            # The definition is changed already: the answer must not say that nothing happened.
            raise OutcomeUnknown(f"the change was stored but not completed: {error}") from error
        if current is None or current.revision != written.revision:
            return replace(written, undo=None)
        if current.pointer and not current.deleted and current.pointer <= current.pointer_at(now + timings.OCCURRENCES_AHEAD):
            try:
                await self.chain.carry_on(current, now)
            except StorageError as error:
                log.info("The schedule's first events wait for the sweep: %s", error, extra={"action": "schedule_waits"})
        return current


async def _preview_of(timing: Timing, after: Millis, n: int) -> dict[str, Any]:
    """Return the first `n` occurrences later than `after`, and the rule in words."""
    shown = []
    for each in islice(occurrences(timing, after), n):
        shown.append(each.shown(timing))
        await take_turn()
    return {"items": shown} | ({"reads_as": in_words(timing.cron, timing.zone)} if timing.cron else {})


def _without_jitter(definition: Definition) -> Definition:
    return replace(definition, spec=definition.spec.model_copy(update={"jitter": None}))


def _occurring(definition: Definition) -> Definition:
    """Return the definition. Raises 422 if it has no occurrence, or none that a search finds."""
    if definition.following is not None:
        return definition
    spec = definition.spec
    if spec.end is not None:
        raise invalid("/end", "the schedule has no occurrence between now and its end")
    if spec.exclude is not None:
        raise invalid(
            "/exclude", f"leaves no occurrence within the {MOST_YEARS} years and {MOST_DAYS:,} days that are searched; exclude fewer"
        )
    raise invalid("/start", "nothing occurs after it; give an earlier time")


def _made_elsewhere(api: str) -> Problem:
    way = f"through the API of {api}" if api else "through /schedules"
    return conflict("made-elsewhere", f"a schedule with this id was made {way}; use another id, or delete that schedule first")


def _lives(definition: Definition, uid: str | None) -> bool:
    return not definition.deleted and definition.uid == uid


def etag_of_definition(definition: Definition) -> str:
    """Return the entity tag of a schedule's representation."""
    return etag_of(definition.uid, definition.id, str(definition.created), str(definition.revision))
