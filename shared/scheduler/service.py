"""The scheduler of one process: its parts, made once and wired together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..channels.ports import Sender
from ..clock import Clock
from ..ids import Ids
from ..settings import Settings
from ..storage import Storage
from ..tenants.limits import IngestLimiter
from ..tenants.store import TenantDirectory
from .changes import Changes
from .firing import Firing
from .ingest import Ingest
from .lookup import Lookup
from .protocol.effects import Driver
from .stats import Stats
from .sweeps import Sweeps
from .writer import Writer


class Scheduler:
    """Everything the doors call. One per process; belongs to one event loop."""

    def __init__(
        self, settings: Settings, storage: Storage, clock: Clock, ids: Ids, directory: TenantDirectory, senders: Mapping[str, Sender]
    ) -> None:
        self.clock = clock
        self.counters: Counter[str] = Counter()
        self.directory = directory
        tables = storage.tables
        self.driver = Driver(tables, storage.queues, clock)
        self.lookup = Lookup(self.driver, tables)
        self.stats = Stats(tables, clock)
        self.writer = Writer(self.driver, clock, ids, settings)
        self.ingest = Ingest(directory, self.writer, self.stats, IngestLimiter(tables, clock), clock)
        self.changes = Changes(self.driver, tables, self.lookup, clock, ids)
        self.firing = Firing(self.driver, clock, ids, settings, directory, senders, self.counters)
        self.sweeps = Sweeps(self.driver, tables, clock)
