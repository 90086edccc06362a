"""The scheduler of one process: its parts, made once and wired together. What only callers and timers need is imported when it is first
used: a process that serves shards starts without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..core.clock import Clock, Millis
from ..core.ids import Ids
from ..core.process_identity import ProcessIdentity
from ..core.settings import Settings
from ..delivery.channels.ports import Sender
from ..delivery.fleet_owners.model import FindOwner, NoFleets
from ..delivery.fleet_owners.routing import OwnerRouting
from ..delivery.flow.rate_limiter import RateLimiter
from ..delivery.flow.service import Flow
from ..delivery.notices import NoticeKind
from ..engine.async_runner import AsyncRunner
from ..engine.effects import MAX_LOST
from ..engine.stored_forms import ReadOnlyOnceNewer, StoredForms
from ..storage import Storage
from ..storage.ports import Props, Row
from ..tenants.store import TenantDirectory
from ..web.arrivals import Arrivals
from .end_notes import EndNotes
from .event_clock import EventClock
from .firing.dispatch import Firing
from .firing.express import Express
from .ingest.admission import Ingest
from .ingest.event_limits import EventLimits
from .ingest.limit_notices import LimitNotices
from .ingest.messages import signing_key
from .ingest.open_events import OpenEvents
from .ingest.outbox import Outbox
from .ingest.queue_consumer import Intake
from .ingest.rejects import Rejects
from .ingest.writer import Writer
from .key_lines import KeyLines
from .key_tidying import KeyTidying
from .keys import MIRRORED, place_of
from .label_index import LabelIndex
from .looks import Looks
from .mirror.pair import Mirror, MirrorPair
from .outcomes.callback_writer import CallbackWriter
from .outcomes.notices import Notices
from .protocol.mirroring import FIRST, SECOND, Side
from .queries.lookup import CompleteRows, EventLookup
from .queries.stats import TenantStats
from .recovery import ShardRecovery
from .shard.queued_ids import QueuedIds
from .state_pass import StatePass
from .sweeps import Sweeps
from .wakes.protocol import parse_wake
from .wakes.service import Wakes


class Scheduler:
    """Everything that the routes call. One per process; belongs to one event loop."""

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        directory: TenantDirectory,
        senders: Mapping[str, Sender],
        arrivals: Arrivals,
        pair: MirrorPair | None = None,
        side: Side = "first",
        process: ProcessIdentity | None = None,
        find_owner: FindOwner | None = None,
        forms: StoredForms | None = None,
    ) -> None:
        """arrivals: numbers the requests of this process.

        pair: the pair of mirrored accounts, if there is one; `side` is then the account that this scheduler works on.

        process: names this process in the gates that it holds. find_owner: finds the owners of partitions, for fleet channels. forms: the
        number of the stored forms; by default it is not read.
        """
        self.counters: Counter[str] = Counter()
        self.clock = clock = EventClock(clock, storage.server_times, self.counters)
        self.directory = directory
        tables = storage.tables
        self._settings, self._tables, self._queues, self._ids, self._arrivals = settings, tables, storage.queues, ids, arrivals
        self.runner = AsyncRunner(tables, clock, queues=storage.queues, max_lost=MAX_LOST, admits_doubt=True, chance=ids.chance)
        queued_ids, parcels = QueuedIds(settings.master_key), signing_key(settings.master_key)
        self.state_pass = StatePass(self.runner, tables, clock, storage.places)
        self.label_index = LabelIndex(self.runner, tables, clock, directory.declared, storage.places)
        former = FIRST if side == "second" else ""
        rows = CompleteRows(self.state_pass.complete, self.label_index.complete)
        repairing = ReadOnlyOnceNewer(tables, forms or StoredForms(tables, clock))
        reader = AsyncRunner(repairing, clock, queues=storage.queues, max_lost=MAX_LOST, admits_doubt=True, chance=ids.chance)
        self.lookup = EventLookup(reader, tables, clock, queued_ids, rows, storage.places, former)

        # Owners need the writer, and the writer's express delivery needs owners; notices need the writer too.
        async def notify(tenant: str, kind: NoticeKind, subject: str, detail: str = "", count: int = 1) -> None:
            await self.notices(tenant, kind, subject, detail, count)

        self.wakes = Wakes(self.runner, clock, settings.wakes, self.serves)
        self._notify = notify
        self.lines = KeyLines(self.runner, directory, clock, notify)
        self.key_tidying = KeyTidying(self.runner, tables, directory)
        self._owners = owners = OwnerRouting(find_owner or NoFleets(), clock)
        copy = SECOND if pair is not None and side == "first" else ""
        channels = directory.channels
        self.stats = TenantStats(tables, clock, channels.blocks, storage.places, copy, channels.allow_long_work)
        self._mirror = mirror = Mirror(side, pair, self.runner, clock) if pair is not None else None

        self.serving: Callable[[], Awaitable[Scheduler]] | None = None
        """Gives the scheduler of the side that serves now; None without a pair."""

        async def tell(rows: Sequence[Row]) -> dict[str, Props]:
            # Owners of either side may have a shard that is not mirrored, but new events go to the side that serves, which knows their ids.
            if self.serving is None or place_of(rows[0].pk) == MIRRORED:
                return await self.callbacks(rows)
            return await (await self.serving()).callbacks(rows)

        self.flow = Flow(settings, tables, clock, ids, directory, self.counters, notify)
        counters = self.counters
        self.firing = Firing(
            self.runner,
            clock,
            ids,
            settings,
            directory,
            senders,
            counters,
            self.flow,
            tell,
            mirror,
            process,
            self.lines,
            owners,
            self.wakes,
        )
        self.express = Express(self.firing, self.runner, clock, ids, settings, self.flow, storage.fresh)
        # On the second account of a pair all events are mirrored, and these need a writer that copies them.
        express = self.express.store if settings.express_events and side == "first" else None
        self.writer = Writer(
            self.runner, clock, ids, settings, storage.fresh, mirror, express, self.label_index.searchable, self.lines, self.wakes
        )
        self.callbacks = CallbackWriter(self.writer, directory, tables, queued_ids, clock, notify)
        self.notices = Notices(self.runner, tables, clock, directory, self.writer, queued_ids)
        self.limit_notices = LimitNotices(directory, self.notices, clock)
        outbox = Outbox(storage.queues, clock, parcels)
        limits = EventLimits(OpenEvents(self.stats.open_events, clock), RateLimiter(tables, clock), self.limit_notices)
        self.ingest = Ingest(directory, self.writer, clock, ids, queued_ids, outbox, settings, limits)
        self.rejects = Rejects(tables, clock)
        self.intake = Intake(directory, self.ingest, self.writer, outbox, storage.queues, self.rejects, clock, ids, parcels, self.counters)
        self.end_notes = EndNotes(self.runner, tables, clock, storage.places)
        self.sweeps = Sweeps(self.runner, tables, clock, settings.backlog_per_second, storage.places, mirror, storage.pressure)

        async def chain(now: Millis) -> Counter[str]:
            return await self.recurring.chain.sweep(now)

        self.looks = Looks(self.sweeps, self.wakes, self.runner, clock, self.counters, self.serves, chain, ids.chance)
        self.recovery = ShardRecovery(self.runner, tables, clock, storage.places, process)

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

    @cached_property
    def lists(self) -> ListTurns:
        """The turns of calls that list events."""
        from .queries.list_turns import ListTurns

        return ListTurns()

    @cached_property
    def event_views(self) -> EventViews:
        """Events as callers see them."""
        from .queries.views import EventViews

        return EventViews(self.directory, self.clock, self.lines, self._owners)

    @cached_property
    def changes(self) -> Changes:
        """Changes of single events."""
        from .changes.verbs import Changes

        return Changes(
            self.runner,
            self._tables,
            self.lookup,
            self.writer,
            self.clock,
            self._ids,
            self._arrivals,
            self.end_notes,
            self._mirror,
            self.label_index.searchable,
            self.lines,
            self.firing.serve_now if self._settings.express_events else None,
            self.wakes,
        )

    @cached_property
    def collapsing(self) -> Collapsing:
        """Events that replace or join others."""
        from .changes.collapsing import Collapsing

        return Collapsing(self.ingest, self.lookup, self.changes)

    @cached_property
    def fanouts(self) -> Fanouts:
        """Events with several channels."""
        from .fanouts.service import Fanouts

        return Fanouts(
            self.ingest, self.collapsing, self.writer, self.lookup, self.changes, self.event_views, self.runner, self.clock, self._ids
        )

    @cached_property
    def work(self) -> LongWorkCalls:
        """Calls of receivers that work for long."""
        from .long_work.service import LongWorkCalls

        return LongWorkCalls(self.runner, self.clock, self.firing, self.lines, self.end_notes, self.counters, self._mirror, self.wakes)

    @cached_property
    def bulk(self) -> BulkJobs:
        """Jobs over many events."""
        from .bulk.service import BulkJobs

        return BulkJobs(self.runner, self._tables, self._queues, self.lookup, self.changes, self.clock, self._ids)

    @cached_property
    def recurring(self) -> Recurring:
        """Schedules and calendars."""
        from .recurring.service import Recurring

        return Recurring(
            self._tables, self.clock, self._ids, self.directory, self.ingest, self.writer, self.changes, self.lookup, self._notify
        )

    def watch_ticks(self, ticks: Sequence[Row]) -> None:
        """Look at the rows of the timers' ticks as the sweep has read them."""
        self.state_pass.watch(ticks)
        self.label_index.watch(ticks)
        self.bulk.watch(ticks)

    def leave(self) -> None:
        """Let owners start nothing new and release their shards, because the process is about to end."""
        self.express.leave()
        self.firing.leave()
        self.recovery.leave()
        self.writer.announcer.leave()
        self.end_notes.leave()

    async def remains(self, tenant: str) -> bool:
        """Return True if anything is stored that a tenant of this name could look up. Raises `StorageError`."""
        return await self.stats.remains(tenant) or await self.rejects.any(tenant) or await self.bulk.any(tenant)
