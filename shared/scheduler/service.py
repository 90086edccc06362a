"""The scheduler of one process: its parts, made once and wired together. What only callers and timers need is imported when it is first
used: a process that serves shards starts without it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.clock import Clock, Millis
from ..core.ids import Ids
from ..core.process_identity import ProcessIdentity
from ..core.settings import Settings
from ..delivery.channels.ports import Sender
from ..delivery.flow.service import Flow
from ..delivery.flow.shared_limits import RateLimiter
from ..delivery.notices import NoticeKind
from ..engine.async_runner import AsyncRunner
from ..engine.effects import MAX_LOST
from ..engine.stored_forms import ReadOnlyOnceNewer, StoredForms
from ..storage import Storage
from ..storage.ports import Props, Row
from ..tenants.store import TenantDirectory
from ..web.arrivals import Arrivals
from .firing.dispatch import Firing
from .key_lines.service import KeyLines
from .keys import MIRRORED, BesideId, place_of
from .mirror.unmirrored import Mirror
from .shard.event_clock import EventClock
from .shard_services import ShardServices
from .sweeps.recovery import ShardRecovery
from .wakes.protocol import parse_wake
from .wakes.service import Wakes

if TYPE_CHECKING:
    from ..delivery.fleet_owners import FindOwner, OwnerRouting
    from .bulk.service import BulkJobs
    from .changes.collapsing import Collapsing, EndedIds
    from .changes.fanouts import Fanouts
    from .changes.verbs import Changes
    from .firing.express import Express
    from .ingest.admission import Ingest
    from .ingest.event_limits import LimitNotices
    from .ingest.messages import Outbox
    from .ingest.queue_consumer import Intake
    from .ingest.rejects import Rejects
    from .ingest.writer import Writer
    from .key_lines.tidying import KeyTidying
    from .long_work import LongWorkCalls
    from .mirror.pair import MirrorPair
    from .outcomes.callbacks import CallbackWriter
    from .outcomes.notices import Notices
    from .protocol.mirroring import Side
    from .queries.end_notes import EndNotes
    from .queries.label_index import LabelIndex
    from .queries.lookup import EventLookup, ListTurns
    from .queries.state_pass import StatePass
    from .queries.stats import TenantStats
    from .queries.views import EventViews
    from .recurring.service import Recurring
    from .shard.queued_ids import QueuedIds
    from .sweeps.index import Sweeps
    from .sweeps.looks import Looks


log = logging.getLogger(__name__)


class OwnProcess(NamedTuple):
    """The process that a scheduler is in. arrivals: numbers its requests. identity: names it in the gates that it holds."""

    settings: Settings
    clock: Clock
    ids: Ids
    arrivals: Arrivals
    identity: ProcessIdentity | None


class OwnAccount(NamedTuple):
    """The storage account that a scheduler works on. senders: over its queues. forms: the number of its stored forms. side: its place in
    `pair`, if there is a mirrored pair."""

    storage: Storage
    senders: Mapping[str, Sender]
    forms: StoredForms
    side: Side
    pair: MirrorPair | None


class Scheduler:
    """Everything that the routes call. One per process; belongs to one event loop."""

    def __init__(
        self,
        process: OwnProcess,
        account: OwnAccount,
        directory: TenantDirectory,
        find_owner: Callable[[], FindOwner],
        beside: BesideId,
    ) -> None:
        """find_owner: returns what finds the owners of partitions, for fleet channels. beside: names the rows that parts keep beside those
        of ids."""
        settings, clock, ids, self._arrivals, identity = process
        storage, senders, forms, side, pair = account
        self.counters: Counter[str] = Counter()
        self.clock = clock = EventClock(clock, storage.server_times, self.counters)
        self.directory = directory
        tables = storage.tables
        self._settings, self._tables, self._queues, self._ids = settings, tables, storage.queues, ids
        self.runner = AsyncRunner(tables, clock, queues=storage.queues, max_lost=MAX_LOST, admits_doubt=True, chance=ids.chance)
        self._side, self._pair, self._forms = side, pair, forms
        self._places, self._fresh, self._pressure = storage.places, storage.fresh, storage.pressure
        self._began, self._leaving = clock.now(), False

        # Owners need the writer, and the writer's express delivery needs owners; notices need the writer too.
        async def notify(tenant: str, kind: NoticeKind, subject: str, detail: str = "", count: int = 1) -> None:
            await self.notices(tenant, kind, subject, detail, count)

        async def searchable(tenant: str) -> Collection[str]:
            return await self.label_index.searchable(tenant)

        self.wakes = Wakes(self.runner, clock, settings.wakes, self.serves)
        self._notify = notify
        self.lines = KeyLines(self.runner, directory, clock, notify)
        self._find_owner, self._beside = find_owner, beside
        self._mirror = mirror = self._mirror_of(pair)

        self.serving: Callable[[], Awaitable[Scheduler]] | None = None
        """Gives the scheduler of the side that serves now; None without a pair."""

        async def tell(rows: Sequence[Row]) -> dict[str, Props]:
            # Owners of either side may have a shard that is not mirrored, but new events go to the side that serves, which knows their ids.
            if self.serving is None or place_of(rows[0].pk) == MIRRORED:
                return await self.callbacks(rows)
            return await (await self.serving()).callbacks(rows)

        self.flow = Flow(settings, tables, clock, ids, directory, self.counters, notify)
        self._services = services = ShardServices(
            runner=self.runner,
            tables=tables,
            clock=clock,
            ids=ids,
            settings=settings,
            counters=self.counters,
            searchable=searchable,
            lines=self.lines,
            wakes=self.wakes,
            mirror=mirror,
            directory=directory,
            notify=notify,
        )
        self.firing = Firing(services, senders, self.flow, tell, lambda: self._owners, identity)
        self.recovery = ShardRecovery(self.runner, tables, clock, storage.places, identity)

    def _mirror_of(self, pair: MirrorPair | None) -> Mirror:
        if pair is None:
            return Mirror(self.runner)
        from .mirror.pair import PairedMirror

        return PairedMirror(self._side, pair, self.runner, self._beside)

    def made(self, name: str) -> Any:
        """Return a part if it has been used; None otherwise."""
        return self.__dict__.get(name)

    async def serves(self) -> bool:
        """Return True if this scheduler serves now: always, without a mirrored pair."""
        return self.serving is None or await self.serving() is self

    async def serve_message(self, text: str) -> None:
        """Serve a message of the shards' queue: a wake, or the message of shards."""
        at = parse_wake(text)
        if at is None:
            await self.firing.serve(text)
        else:
            await self.looks.wake(at)

    async def poisoned_message(self, text: str) -> None:
        """Handle a message of the shards' queue, or of the retries', that failed five times."""
        if parse_wake(text) is None:
            await self.firing.poisoned(text)
        else:
            # The sweep that takes it looks itself, and sends the wakes that are missing.
            log.info("A wake failed repeatedly", extra={"action": "wake_poisoned"})

    @cached_property
    def _owners(self) -> OwnerRouting:
        from ..delivery.fleet_owners import OwnerRouting

        return OwnerRouting(self._find_owner(), self.clock)

    # Accepting events

    @cached_property
    def _queued_ids(self) -> QueuedIds:
        from .shard.queued_ids import QueuedIds

        return QueuedIds(self._settings.master_key)

    @cached_property
    def express(self) -> Express:
        """Delivers events that are due now in the process that stores them."""
        from .firing.express import Express

        made = Express(self._services, self.firing, self.flow, self._fresh)
        if self._leaving:
            made.leave()
        return made

    @cached_property
    def writer(self) -> Writer:
        """Stores events."""
        from .ingest.writer import Writer

        # On the second account of a pair all events are mirrored, and these need a writer that copies them.
        express = self.express.store if self._settings.express_events and self._side == "first" else None
        made = Writer(self._services, self._fresh, express)
        if self._leaving:
            made.leave()
        return made

    @cached_property
    def _parcels(self) -> bytes:
        from .ingest.messages import signing_key

        return signing_key(self._settings.master_key)

    @cached_property
    def _outbox(self) -> Outbox:
        from .ingest.messages import Outbox

        return Outbox(self._queues, self.clock, self._parcels)

    @cached_property
    def limit_notices(self) -> LimitNotices:
        """Tells tenants that they have reached limits."""
        from .ingest.event_limits import LimitNotices

        return LimitNotices(self.directory, self.notices, self.clock)

    @cached_property
    def ingest(self) -> Ingest:
        """Accepts events."""
        from .ingest.admission import Ingest
        from .ingest.event_limits import EventLimits, OpenEvents

        rates = RateLimiter(self._tables, self.clock)
        limits = EventLimits(OpenEvents(self.stats.open_events, self.clock), rates, self.limit_notices)
        return Ingest(self._services, self.writer, self._queued_ids, self._outbox, limits)

    @cached_property
    def rejects(self) -> Rejects:
        """Events from queues and topics that were refused."""
        from .ingest.rejects import Rejects

        return Rejects(self._tables, self.clock)

    @cached_property
    def intake(self) -> Intake:
        """Accepts the events of queues and topics."""
        from .ingest.queue_consumer import Intake

        return Intake(self._services, self.ingest, self.writer, self._outbox, self.rejects)

    @cached_property
    def notices(self) -> Notices:
        """Tells tenants what happens to their events, channels, schedules and keys."""
        from .outcomes.notices import Notices

        return Notices(self.runner, self._tables, self.clock, self.directory, self.writer, self._queued_ids)

    @cached_property
    def callbacks(self) -> CallbackWriter:
        """Stores the events that report how other events ended."""
        from .outcomes.callbacks import CallbackWriter

        return CallbackWriter(self.writer, self.directory, self._tables, self._queued_ids, self.clock, self._notify)

    # Looking after shards

    @cached_property
    def sweeps(self) -> Sweeps:
        """Dispatches shards, and removes events whose time is over."""
        from .sweeps.index import Sweeps

        rate = self._settings.backlog_per_second
        return Sweeps(self.runner, rate, self._mirror, self._places, self._pressure, self._beside)

    @cached_property
    def looks(self) -> Looks:
        """Looks at the index of the shards, for the sweep and for wakes."""
        from .sweeps.looks import Looks

        async def chain(now: Millis) -> Counter[str]:
            return await self.recurring.chain.sweep(now)

        return Looks(self._services, self.sweeps, self._began, self.serves, chain)

    # Reading and changing events

    @cached_property
    def state_pass(self) -> StatePass:
        """Files the state rows of copied events after a failover."""
        from .queries.state_pass import StatePass

        return StatePass(self.runner, self._tables, self.clock, self._places)

    @cached_property
    def label_index(self) -> LabelIndex:
        """Makes events searchable by their labels."""
        from .queries.label_index import LabelIndex

        return LabelIndex(self.runner, self._tables, self.clock, self.directory.declared, self._places)

    @cached_property
    def end_notes(self) -> EndNotes:
        """Notes which events callers have ended."""
        from .queries.end_notes import EndNotes

        made = EndNotes(self.runner, self._tables, self.clock, self._places)
        if self._leaving:
            made.leave()
        return made

    @cached_property
    def lookup(self) -> EventLookup:
        """Finds events."""
        from .protocol.mirroring import FIRST
        from .queries.lookup import CompleteRows, EventLookup

        clock, tables = self.clock, self._tables
        rows = CompleteRows(self.state_pass.complete, self.label_index.complete)
        repairing = ReadOnlyOnceNewer(tables, self._forms)
        reader = AsyncRunner(repairing, clock, queues=self._queues, max_lost=MAX_LOST, admits_doubt=True, chance=self._ids.chance)
        return EventLookup(reader, tables, self._queued_ids, rows, self._places, FIRST if self._side == "second" else "")

    @cached_property
    def stats(self) -> TenantStats:
        """Figures of a tenant's events."""
        from .protocol.mirroring import SECOND
        from .queries.stats import TenantStats

        copy, channels = SECOND if self._pair is not None and self._side == "first" else "", self.directory.channels
        return TenantStats(self._tables, self.clock, channels.blocks, self._places, copy, channels.allow_long_work)

    @cached_property
    def key_tidying(self) -> KeyTidying:
        """Removes rows of ordering keys that nobody uses."""
        from .key_lines.tidying import KeyTidying

        return KeyTidying(self.runner, self._tables, self.directory)

    @cached_property
    def lists(self) -> ListTurns:
        """The turns of calls that list events."""
        from .queries.lookup import ListTurns

        return ListTurns()

    @cached_property
    def event_views(self) -> EventViews:
        """Events as callers see them."""
        from .queries.views import EventViews

        return EventViews(self.directory, self.clock, self.lines, lambda: self._owners)

    @cached_property
    def changes(self) -> Changes:
        """Changes of single events."""
        from .changes.verbs import Changes

        serve_now = self.firing.serve_now if self._settings.express_events else lambda message: False
        return Changes(self._services, self.lookup, self.ingest, self.writer, self._arrivals, self.end_notes, serve_now)

    @cached_property
    def ended_ids(self) -> EndedIds:
        """Treats posts whose id belongs to an event that has ended."""
        from .changes.collapsing import EndedIds

        return EndedIds(self.changes, self.lookup)

    @cached_property
    def collapsing(self) -> Collapsing:
        """Events that replace or join others."""
        from .changes.collapsing import Collapsing

        return Collapsing(self.ingest, self.lookup, self.changes)

    @cached_property
    def fanouts(self) -> Fanouts:
        """Events with several channels."""
        from .changes.fanouts import Fanouts

        return Fanouts(self._services, self.ingest, self.collapsing, self.writer, self.changes, self.event_views)

    @cached_property
    def work(self) -> LongWorkCalls:
        """Calls of receivers that work for long."""
        from .long_work import LongWorkCalls

        return LongWorkCalls(self._services, self.firing, self.end_notes)

    @cached_property
    def bulk(self) -> BulkJobs:
        """Jobs over many events."""
        from .bulk.service import BulkJobs

        return BulkJobs(self.runner, self._queues, self.lookup, self.changes, self._ids)

    @cached_property
    def recurring(self) -> Recurring:
        """Schedules and calendars."""
        from .recurring.service import Recurring

        return Recurring(self._services, self.ingest, self.writer, self.changes, self.lookup)

    def watch_ticks(self, ticks: Sequence[Row]) -> None:
        """Look at the rows of the timers' ticks as the sweep has read them."""
        self.state_pass.watch(ticks)
        self.label_index.watch(ticks)
        self.bulk.watch(ticks)

    def leave(self) -> None:
        """Let owners start nothing new and release their shards, because the process is about to end."""
        self._leaving = True
        self.firing.leave()
        self.recovery.leave()
        for part in map(self.made, ("express", "writer", "end_notes")):
            if part is not None:
                part.leave()

    async def close(self) -> None:
        """Release shards, and store or send what is held."""
        made = self.made
        for part in (made("express"), self.firing, made("notices"), made("writer"), made("end_notes"), self.wakes.ticks):
            if part is not None:
                await part.close()

    async def remains(self, tenant: str) -> bool:
        """Return True if anything is stored that a tenant of this name could look up. Raises `StorageError`."""
        return await self.stats.remains(tenant) or await self.rejects.any(tenant) or await self.bulk.any(tenant)
