"""The application of one process: settings, storage and the jobs, wired together."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Self

from .channels import Sender, close_senders, open_senders
from .clock import Clock, Millis, SystemClock
from .health import functions as health_functions
from .health.service import Health
from .ids import Ids, SystemIds
from .scheduler import functions as scheduler_functions
from .scheduler.service import Scheduler
from .settings import Settings
from .storage import Storage, open_storage
from .storage.names import TENANTS
from .tenants import functions as tenant_functions
from .tenants.rows import PK_TENANTS
from .tenants.store import TenantDirectory, seed_local
from .timers import PERIODS, Timers
from .web import openapi
from .web.routes import Routes

log = logging.getLogger(__name__)


class Application:
    """Everything a process runs. Belongs to one event loop; made by `open`, ended by `close`."""

    def __init__(self, settings: Settings, storage: Storage, clock: Clock, ids: Ids, senders: Mapping[str, Sender]) -> None:
        self.settings, self.storage, self.clock, self.senders = settings, storage, clock, senders
        self.directory = TenantDirectory(storage.tables, clock, settings)
        self.scheduler = Scheduler(settings, storage, clock, ids, self.directory, senders)
        self.health = Health(storage.tables, clock, PERIODS)
        self.timers = Timers(
            storage.tables,
            clock,
            {
                "scheduler_scan": [("dispatch", self.scheduler.sweeps.dispatch)],
                "stale_scan": [("dispatch", self.scheduler.sweeps.dispatch)],
                "retention_scan": [("retention", self._retain)],
            },
        )

    @classmethod
    async def open(
        cls,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        storage: Storage | None = None,
        senders: Mapping[str, Sender] | None = None,
    ) -> Self:
        """The application for these settings (default: the environment's). Raises `UnsafeSettings`, `StorageError`."""
        settings = settings or Settings()
        clock = clock or SystemClock()
        storage = storage or open_storage(settings, clock)
        app = cls(settings, storage, clock, ids or SystemIds(), senders or open_senders(settings, storage.queues, clock))
        if settings.local:
            try:
                await storage.ensure()
                await seed_local(app.directory, settings)
            except BaseException:
                await app.close()
                raise
        return app

    async def _retain(self, now: Millis) -> Counter[str]:
        tenants: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.storage.tables.query(TENANTS, PK_TENANTS, cursor=cursor, select=("deleting",))
            tenants += [row.rk for row in page.rows]
            cursor = page.next
            if cursor is None:
                return await self.scheduler.sweeps.retain(tenants, now)

    def leave(self) -> None:
        """The process is about to end: owners start nothing new, finish what they have begun, and let go of their shards."""
        self.scheduler.firing.leaving = True

    async def close(self) -> None:
        """Let go of shards and connections."""
        self.leave()
        await close_senders(self.senders)
        await self.storage.close()


def build_routes() -> Routes:
    """Every route of the API, in one table: what is bound, described and tested."""
    routes = Routes()
    scheduler_functions.register(routes)
    tenant_functions.register(routes)
    health_functions.register(routes)
    openapi.register(routes)
    return routes


class Lazy:
    """Makes the application once, inside the running loop, when it is first needed.

    Calls that come while a start is under way share its outcome; after a failed one the next call tries again.
    """

    def __init__(self) -> None:
        self._app: Application | None = None
        self._start: asyncio.Task[Application] | None = None

    async def __call__(self) -> Application:
        if self._app is not None:
            return self._app
        if self._start is None or self._start.done():
            self._start = asyncio.create_task(Application.open())
        # Shielded: a caller that goes away does not end the start of the others.
        self._app = await asyncio.shield(self._start)
        return self._app

    def leave(self) -> None:
        """Tell the application, if there is one, that the process is about to end."""
        if self._app is not None:
            self._app.leave()

    async def close(self) -> None:
        """End the application, if there is one."""
        app, self._app = self._app, None
        if app is not None:
            await app.close()
