"""The routes of an application, in groups: each imports the module of some handlers, and names the service that they use.

The index of the routes has what the host must know of each route, so a process imports the handlers' modules only when they are called.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ..web.indexed import Indexed
from .importing import importing
from .parts import Part

if TYPE_CHECKING:
    from ..web.routes import Route, Routes
    from .application import Application

type Table = Routes[Application]


def _events(routes: Table) -> None:
    from ..scheduler.routes.events import dead, events

    routes.add(events, lambda app: app.scheduler)
    routes.add(dead, lambda app: app.scheduler)


def _long_work(routes: Table) -> None:
    from ..scheduler.routes.long_work import work

    routes.add(work, lambda app: app.scheduler.work)


def _jobs(routes: Table) -> None:
    from ..scheduler.routes.jobs import jobs

    routes.add(jobs, lambda app: app.scheduler.bulk)


def _minutes(routes: Table) -> None:
    from ..scheduler.routes.minutes import minutes

    routes.add(minutes, lambda app: app.scheduler)


def _rejects(routes: Table) -> None:
    from ..scheduler.routes.rejects import rejected

    routes.add(rejected, lambda app: app.scheduler.rejects)


def _schedules(routes: Table) -> None:
    from ..scheduler.routes.schedules import schedules

    routes.add(schedules, lambda app: app.scheduler)


def _calendars(routes: Table) -> None:
    from ..scheduler.routes.calendars import calendars

    routes.add(calendars, lambda app: app.scheduler)


def _heartbeats(routes: Table) -> None:
    from ..scheduler.routes.heartbeats import heartbeats

    routes.add(heartbeats, lambda app: app.scheduler)


def _tenants(routes: Table) -> None:
    from ..tenants.routes import channels, own_key, tenants

    routes.add(tenants, lambda app: app.tenants)
    routes.add(channels, lambda app: app.tenants)
    routes.add(own_key, lambda app: None)


def _audit(routes: Table) -> None:
    from ..tenants.routes import audit

    routes.add(audit, lambda app: app.audit)


def _health(routes: Table) -> None:
    from ..ops.health.routes import probes, readiness

    routes.add(probes, lambda app: None)
    routes.add(readiness, lambda app: app.health)


def _storage(routes: Table) -> None:
    from ..scheduler.routes.storage import storage

    routes.add(storage, lambda app: app.failover)


def _stored_forms(routes: Table) -> None:
    from ..ops.stored_forms import stored_forms

    routes.add(stored_forms, lambda app: app.stored_forms)


def _figures(routes: Table) -> None:
    from ..ops.metrics.routes import figures

    routes.add(figures, lambda app: app.metrics)


def _tenant_overview(routes: Table) -> None:
    from ..ops.tenant_overview import tenant_overview

    routes.add(tenant_overview, lambda app: app.tenant_overview)


def _fleets(routes: Table) -> None:
    from ..fleets.routes import fleets, nodes

    routes.add(fleets, lambda app: app.fleets)
    routes.add(nodes, lambda app: app.nodes)


def _overview(routes: Table) -> None:
    from ..fleets.overview import overview

    routes.add(overview, lambda app: app.overview)


def _leases(routes: Table) -> None:
    from ..leases.routes import servers, views

    routes.add(servers, lambda app: app.beats)
    routes.add(views, lambda app: app.views)


def _controls(routes: Table) -> None:
    from ..leases.service.control.routes import controls

    routes.add(controls, lambda app: app.control)


def _resizes(routes: Table) -> None:
    from ..leases.service.resize import resizes

    routes.add(resizes, lambda app: app.resizes)


def _watch(routes: Table) -> None:
    from ..fleets.watch.routes import watch

    routes.add(watch, lambda app: app.watch)


def _checkpoints(routes: Table) -> None:
    from ..checkpoints.routes import checkpoints

    routes.add(checkpoints, lambda app: app.checkpoints)


def _locks(routes: Table) -> None:
    from ..locks.routes import locks

    routes.add(locks, lambda app: app.locks)


def _maintenance(routes: Table) -> None:
    from ..maintenance.routes import maintenance

    routes.add(maintenance, lambda app: app.maintenance)


def _dashboard(routes: Table) -> None:
    from ..web.dashboard.routes import files

    routes.add(files, lambda app: None)


_FIRST: Final[tuple[Callable[[Table], None], ...]] = (
    _events,
    _long_work,
    _jobs,
    _minutes,
    _rejects,
    _schedules,
    _calendars,
    _heartbeats,
    _tenants,
    _audit,
    _health,
    _storage,
    _stored_forms,
    _figures,
    _tenant_overview,
    _fleets,
    _overview,
    _leases,
    _controls,
    _resizes,
    _watch,
    _checkpoints,
    _locks,
    _maintenance,
)


class RouteTable:
    """The routes of an application with some parts, in groups that a process imports one by one."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Raises ValueError if two groups have the same name."""
        of_parts = [group for part in parts for group in part.routes.items()]
        first, last = [(add.__name__.removeprefix("_"), add) for add in _FIRST], [("dashboard", _dashboard), ("document", self._document)]
        self._groups: dict[str, Callable[[Table], None]] = {}
        for name, add in itertools.chain(first, of_parts, last):
            if name in self._groups:
                raise ValueError(f"two groups of routes have the name {name}")
            self._groups[name] = add
        self._kept: dict[tuple[str, ...], Table] = {}

    def _document(self, routes: Table) -> None:
        from ..web.openapi import document_group

        # The document describes the whole table, also where this group alone was imported.
        routes.add(document_group(self.build), lambda app: None)

    def build(self) -> Table:
        """Return the table of all routes, which is described and tested."""
        return self._built(tuple(self._groups))

    def index(self) -> list[Indexed]:
        """Return the index of all routes, from their declarations. Raises ValueError for an ambiguous table."""
        routes = self._built(())
        group_of: dict[str, str] = {}
        for name, add in self._groups.items():
            add(routes)
            group_of |= {route.name: name for route in routes if route.name not in group_of}
        routes.check()

        needed = {name: {name} for name in self._groups}
        for route in routes:
            if route.shown_by is not None:
                # The document's route looks up the whole table, so the whole group is added.
                needed[group_of[route.name]].add(group_of[route.shown_by.name])
        groups = {name: tuple(each for each in self._groups if each in needed[name]) for name in self._groups}
        return [Indexed(route.name, route.method, route.template, route.max_body, groups[group_of[route.name]]) for route in routes]

    def find(self, indexed: Indexed) -> Route:
        """Return a route of the index. The first call imports the modules of its handler, and of the route that shows what it changes."""
        kept = self._kept.get(indexed.parts)
        if kept is None:
            with importing():
                kept = self._kept[indexed.parts] = self._built(indexed.parts)
        return kept[indexed.name]

    def _built(self, groups: tuple[str, ...]) -> Table:
        from ..web.routes import Routes

        routes: Table = Routes()
        for name in groups:
            self._groups[name](routes)
        return routes
