"""The table of all routes, in parts: each imports the module of some handlers, and names the service of the application that they use.

`route_index` has what the host must know of each route, so a process imports the handlers' modules only when they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

from ..web.indexed import Indexed
from .importing import importing

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
    from ..tenants.audit_routes import audit

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
    from ..leases.service.resize.routes import resizes

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


def _bigben(routes: Table) -> None:
    from ..extras.bigben.routes import bigben, operators, probes

    routes.add(bigben, lambda app: app.bigben)
    routes.add(operators, lambda app: app.bigben)
    routes.add(probes, lambda app: None)


def _dashboard(routes: Table) -> None:
    from ..web.dashboard.routes import files

    routes.add(files, lambda app: None)


def _document(routes: Table) -> None:
    from ..web.openapi import document_group

    # The document describes the whole table, also where this part alone was imported.
    routes.add(document_group(build_routes), lambda app: None)


_ORDER: Final[tuple[Callable[[Table], None], ...]] = (
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
    _bigben,
    _dashboard,
    _document,
)
_PARTS: Final = {part.__name__.removeprefix("_"): part for part in _ORDER}


def build_routes() -> Table:
    """Return the table of all routes, which is described and tested."""
    return _built(tuple(_PARTS))


def index_routes() -> list[Indexed]:
    """Return the index of all routes, from their declarations. Raises ValueError for an ambiguous table."""
    routes = _built(())
    part_of: dict[str, str] = {}
    for name, part in _PARTS.items():
        part(routes)
        part_of |= {route.name: name for route in routes if route.name not in part_of}
    routes.check()

    needed = {name: {name} for name in _PARTS}
    for route in routes:
        if route.shown_by is not None:
            # The part as a whole is added to a table, and looks it up.
            needed[part_of[route.name]].add(part_of[route.shown_by.name])
    parts = {name: tuple(each for each in _PARTS if each in needed[name]) for name in _PARTS}
    return [Indexed(route.name, route.method, route.template, route.max_body, parts[part_of[route.name]]) for route in routes]


def find_route(indexed: Indexed) -> Route:
    """Return a route of the index. The first call imports the module of its handler, and that of the route which shows what it changes."""
    return _kept(indexed.parts)[indexed.name]


@cache
def _kept(parts: tuple[str, ...]) -> Table:
    with importing():
        return _built(parts)


def _built(parts: tuple[str, ...]) -> Table:
    from ..web.routes import Routes

    routes: Table = Routes()
    for name in parts:
        _PARTS[name](routes)
    return routes
