"""A directory on memory tables, and faults that hit a chosen write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.core.clock import SettableClock, SystemClock
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.core.settings import Settings
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES
from shared.storage.ports import Op, Row
from shared.tenants import routes as functions
from shared.tenants.audit import AuditRecords
from shared.tenants.cache import PK_CHANGES
from shared.tenants.store import TenantDirectory
from shared.web.arrivals import Arrivals
from shared.web.local_client import LocalClient
from shared.web.routes import Routes
from tests.faults import Faults, Perform, Request

ADMIN = "local-admin-key"


def make_settings(**change: Any) -> Settings:
    given = {"admin_key": ADMIN, "signing_key": "local-signing-key", "local": True, "egress_allow": "localhost"}
    return Settings(**({"storage": "UseDevelopmentStorage=true"} | given | change))


class Tables(Faults):
    """Memory tables whose writes can be watched and broken: each hook may raise, before or after the write is applied."""

    def __init__(self, clock: SettableClock) -> None:
        super().__init__(MemoryTables(clock))
        self.before: list[Callable[[str, Op], None]] = []
        self.after: list[Callable[[str, Op], None]] = []
        self.written: list[tuple[str, str]] = []
        self.hold: Callable[[Op], Awaitable[None]] | None = None
        """Is awaited before each operation of a write."""
        self.unreadable: Callable[[str], bool] = lambda pk: False
        """Returns True for a partition whose rows cannot be read."""

    async def plan(self, request: Request, perform: Perform) -> Any:
        pk = request.pk
        if request.kind == "get" and self.unreadable(pk):
            raise Unavailable("503")
        for op in request.ops:
            if self.hold is not None:
                await self.hold(op)
            for hook in list(self.before):
                hook(pk, op)
        result = await perform()
        self.written += [(pk, type(op).__name__) for op in request.ops]
        for op in request.ops:
            for hook in list(self.after):
                hook(pk, op)
        return result

    def lose(self, when: Callable[[str, Op], bool], *, applied: bool = True, failure: Exception | None = None) -> None:
        """Lose the answer of the next write that fits `when`, or crash there with `failure`."""
        hooks = self.after if applied else self.before

        def hook(pk: str, op: Op) -> None:
            if when(pk, op):
                hooks.remove(hook)
                raise failure or OutcomeUnknown("the answer was lost")

        hooks.append(hook)

    def rows(self, table: str, prefix: str = "") -> list[Row]:
        """All rows of the table whose partition starts with `prefix`, without the marks of changes and the audit trail."""
        return [
            Row(pk, row.rk, dict(row.props), row.etag, row.timestamp, row.timestamp)
            for pk, partition in self._tables[table].items()
            if pk.startswith(prefix) and pk != PK_CHANGES and not pk.startswith("audit:")
            for row in partition.rows.values()
        ]

    def remove(self, table: str, pk: str, rk: str) -> None:
        """Take a row away behind everybody's back."""
        self._tables[table][pk].drop(rk)


class World:
    """A directory, another instance's directory on the same tables, and a client with the admin key."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self.tables = Tables(self.clock)
        self.settings = make_settings()
        self.body_limit = self.settings.body_limit
        self.directory = self.instance()
        self.other = self.instance()
        self.audit = AuditRecords(self.tables, self.clock)
        self.called_back: list[str] = []
        """Tenants of which a channel was resumed."""
        routes = Routes[World]()
        routes.add(functions.tenants, lambda world: functions.TenantServices(world.directory, world.resumed))
        routes.add(functions.channels, lambda world: functions.TenantServices(world.directory, world.resumed))
        routes.add(functions.own_key, lambda world: None)
        self.routes = routes
        self.admin = self.client(ADMIN)

    def client(self, key: str) -> LocalClient:
        """Return a caller with this key."""
        return LocalClient(self.routes, self.get_app, key=key)

    def instance(self) -> TenantDirectory:
        return TenantDirectory(self.tables, self.clock, self.settings)

    arrivals = Arrivals(SystemClock(), (), "test")

    async def admit_write(self) -> None:
        """Let every write in."""

    async def get_app(self) -> World:
        return self

    async def resumed(self, tenant: str) -> None:
        self.called_back.append(tenant)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.tables.ensure(ALL_TABLES)
    return world
