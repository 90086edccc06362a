"""The scheduler of one process: its parts, made once and wired together. What only callers and timers need is imported when it is first
used: a process that serves shards starts without it."""

from __future__ import annotations

import logging
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
from .ingest.writer import Writer
from .key_lines import KeyLines
from .keys import MIRRORED, place_of
from .label_index import LabelIndex
from .looks import Looks
from .mirror.pair import Mirror, MirrorPair
from .outcomes.notices import Notices
from .protocol.mirroring import FIRST, SECOND, Side
from .recovery import ShardRecovery
from .shard.queued_ids import QueuedIds
from .shard_services import ShardServices
from .state_pass import StatePass
from .sweeps import Sweeps
from .wakes.protocol import parse_wake
from .wakes.service import Wakes

if TYPE_CHECKING:
    from .bulk.service import BulkJobs
    from .changes.collapsing import Collapsing
    from .changes.ended_ids import EndedIds
    from .changes.verbs import Changes
    from .fanouts.service import Fanouts
    from .ingest.admission import Ingest
    from .ingest.limit_notices import LimitNotices
    from .ingest.outbox import Outbox
    from .ingest.queue_consumer import Intake
    from .ingest.rejects import Rejects
    from .key_tidying import KeyTidying
    from .long_work.service import LongWorkCalls
    from .outcomes.callback_writer import CallbackWriter
    from .queries.list_turns import ListTurns
    from .queries.lookup import EventLookup
    from .queries.stats import TenantStats
    from .queries.views import EventViews
    from .recurring.service import Recurring


log = logging.getLogger(__name__)


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
        self._queued_ids = queued_ids = QueuedIds(settings.master_key)
        self.state_pass = StatePass(self.runner, tables, clock, storage.places)
        self.label_index = LabelIndex(self.runner, tables, clock, directory.declared, storage.places)
        self._side, self._pair, self._places, self._forms = side, pair, storage.places, forms

        # Owners need the writer, and the writer's express delivery needs owners; notices need the writer too.
        async def notify(tenant: str, kind: NoticeKind, subject: str, detail: str = "", count: int = 1) -> None:
            await self.notices(tenant, kind, subject, detail, count)

        self.wakes = Wakes(self.runner, clock, settings.wakes, self.serves)
        self._notify = notify
        self.lines = KeyLines(self.runner, directory, clock, notify)
        self._owners = owners = OwnerRouting(find_owner or NoFleets(), clock)
        self._mirror = mirror = Mirror(side, pair, self.runner, clock) if pair is not None else None

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
            searchable=self.label_index.searchable,
            lines=self.lines,
            wakes=self.wakes,
            mirror=mirror,
            directory=directory,
            notify=notify,
        )
        self.firing = Firing(services, senders, self.flow, tell, owners, process)
        self.express = Express(self.firing, self.runner, clock, ids, settings, self.flow, storage.fresh)
        # On the second account of a pair all events are mirrored, and these need a writer that copies them.
        express = self.express.store if settings.express_events and side == "first" else None
        self.writer = Writer(services, storage.fresh, express)
        self.notices = Notices(self.runner, tables, clock, directory, self.writer, queued_ids)
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

    async def poisoned_message(self, text: str) -> None:
        """Handle a message of the shards' queue, or of the retries', that failed five times."""
        if parse_wake(text) is None:
            await self.firing.poisoned(text)
        else:
            # The sweep that takes it looks itself, and sends the wakes that are missing.
            log.info("A wake failed repeatedly", extra={"action": "wake_poisoned"})

    # Accepting events

    @cached_property
    def _parcels(self) -> bytes:
        from .ingest.messages import signing_key

        return signing_key(self._settings.master_key)

    @cached_property
    def _outbox(self) -> Outbox:
        from .ingest.outbox import Outbox

        return Outbox(self._queues, self.clock, self._parcels)

    @cached_property
    def limit_notices(self) -> LimitNotices:
        """Tells tenants that they have reached limits."""
        from .ingest.limit_notices import LimitNotices

        return LimitNotices(self.directory, self.notices, self.clock)

    @cached_property
    def ingest(self) -> Ingest:
        """Accepts events."""
        from .ingest.admission import Ingest
        from .ingest.event_limits import EventLimits
        from .ingest.open_events import OpenEvents

        rates = RateLimiter(self._tables, self.clock)
        limits = EventLimits(OpenEvents(self.stats.open_events, self.clock), rates, self.limit_notices)
        return Ingest(self.directory, self.writer, self.clock, self._ids, self._queued_ids, self._outbox, self._settings, limits)

    @cached_property
    def rejects(self) -> Rejects:
        """Events from queues and topics that were refused."""
        from .ingest.rejects import Rejects

        return Rejects(self._tables, self.clock)

    @cached_property
    def intake(self) -> Intake:
        """Accepts the events of queues and topics."""
        from .ingest.queue_consumer import Intake

        return Intake(self._services, self.ingest, self.writer, self._outbox, self._queues, self.rejects, self._parcels)

    @cached_property
    def callbacks(self) -> CallbackWriter:
        """Stores the events that report how other events ended."""
        from .outcomes.callback_writer import CallbackWriter

        return CallbackWriter(self.writer, self.directory, self._tables, self._queued_ids, self.clock, self._notify)

    # Reading and changing events

    @cached_property
    def lookup(self) -> EventLookup:
        """Finds events."""
        from .queries.lookup import CompleteRows, EventLookup

        clock, tables = self.clock, self._tables
        rows = CompleteRows(self.state_pass.complete, self.label_index.complete)
        repairing = ReadOnlyOnceNewer(tables, self._forms or StoredForms(tables, clock))
        reader = AsyncRunner(repairing, clock, queues=self._queues, max_lost=MAX_LOST, admits_doubt=True, chance=self._ids.chance)
        return EventLookup(reader, tables, clock, self._queued_ids, rows, self._places, FIRST if self._side == "second" else "")

    @cached_property
    def stats(self) -> TenantStats:
        """Figures of a tenant's events."""
        from .queries.stats import TenantStats

        copy, channels = SECOND if self._pair is not None and self._side == "first" else "", self.directory.channels
        return TenantStats(self._tables, self.clock, channels.blocks, self._places, copy, channels.allow_long_work)

    @cached_property
    def key_tidying(self) -> KeyTidying:
        """Removes rows of ordering keys that nobody uses."""
        from .key_tidying import KeyTidying

        return KeyTidying(self.runner, self._tables, self.directory)

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

        serve_now = self.firing.serve_now if self._settings.express_events else lambda message: False
        return Changes(self._services, self.lookup, self.writer, self._arrivals, self.end_notes, serve_now)

    @cached_property
    def ended_ids(self) -> EndedIds:
        """Treats posts whose id belongs to an event that has ended."""
        from .changes.ended_ids import EndedIds

        return EndedIds(self.changes, self.lookup)

    @cached_property
    def collapsing(self) -> Collapsing:
        """Events that replace or join others."""
        from .changes.collapsing import Collapsing

        return Collapsing(self.ingest, self.lookup, self.changes)

    @cached_property
    def fanouts(self) -> Fanouts:
        """Events with several channels."""
        from .fanouts.service import Fanouts

        return Fanouts(self._services, self.ingest, self.collapsing, self.writer, self.lookup, self.changes, self.event_views)

    @cached_property
    def work(self) -> LongWorkCalls:
        """Calls of receivers that work for long."""
        from .long_work.service import LongWorkCalls

        return LongWorkCalls(self._services, self.firing, self.end_notes)

    @cached_property
    def bulk(self) -> BulkJobs:
        """Jobs over many events."""
        from .bulk.service import BulkJobs

        return BulkJobs(self.runner, self._tables, self._queues, self.lookup, self.changes, self.clock, self._ids)

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
        self.express.leave()
        self.firing.leave()
        self.recovery.leave()
        self.writer.announcer.leave()
        self.end_notes.leave()

    async def remains(self, tenant: str) -> bool:
        """Return True if anything is stored that a tenant of this name could look up. Raises `StorageError`."""
        return await self.stats.remains(tenant) or await self.rejects.any(tenant) or await self.bulk.any(tenant)
