"""The table of all routes: each group with the service of the application that it uses."""

from __future__ import annotations

from ..checkpoints.routes import checkpoints
from ..extras.bigben import routes as bigben
from ..fleets import routes as fleets
from ..fleets.overview import overview
from ..fleets.watch.routes import watch
from ..leases import routes as leases
from ..leases.service.control.routes import controls
from ..leases.service.resize.routes import resizes
from ..locks.routes import locks
from ..maintenance.routes import maintenance
from ..ops.health import routes as health
from ..ops.metrics.routes import figures
from ..ops.stored_forms import stored_forms
from ..scheduler.routes import events as scheduler
from ..scheduler.routes.calendars import calendars
from ..scheduler.routes.heartbeats import heartbeats
from ..scheduler.routes.jobs import jobs
from ..scheduler.routes.long_work import work
from ..scheduler.routes.minutes import minutes
from ..scheduler.routes.rejects import rejected
from ..scheduler.routes.schedules import schedules
from ..scheduler.routes.storage import storage
from ..tenants import routes as tenants
from ..tenants.audit_routes import audit
from ..web.dashboard.routes import files
from ..web.openapi import document_group
from ..web.routes import Routes
from .application import Application


def build_routes() -> Routes[Application]:
    """Return the table of all routes, which is bound, described and tested."""
    routes = Routes[Application]()
    routes.add(scheduler.events, lambda app: app.scheduler)
    routes.add(scheduler.dead, lambda app: app.scheduler)
    routes.add(work, lambda app: app.scheduler.work)
    routes.add(jobs, lambda app: app.scheduler.bulk)
    routes.add(minutes, lambda app: app.scheduler)
    routes.add(rejected, lambda app: app.scheduler.rejects)
    routes.add(schedules, lambda app: app.scheduler)
    routes.add(calendars, lambda app: app.scheduler)
    routes.add(heartbeats, lambda app: app.scheduler)
    routes.add(tenants.tenants, lambda app: app.tenants)
    routes.add(tenants.channels, lambda app: app.tenants)
    routes.add(tenants.own_key, lambda app: None)
    routes.add(audit, lambda app: app.audit)
    routes.add(health.probes, lambda app: None)
    routes.add(health.readiness, lambda app: app.health)
    routes.add(storage, lambda app: app.failover)
    routes.add(stored_forms, lambda app: app.stored_forms)
    routes.add(figures, lambda app: app.metrics)
    routes.add(fleets.fleets, lambda app: app.fleets)
    routes.add(overview, lambda app: app.overview)
    routes.add(fleets.nodes, lambda app: app.nodes)
    routes.add(leases.servers, lambda app: app.beats)
    routes.add(leases.views, lambda app: app.views)
    routes.add(controls, lambda app: app.control)
    routes.add(resizes, lambda app: app.resizes)
    routes.add(watch, lambda app: app.watch)
    routes.add(checkpoints, lambda app: app.checkpoints)
    routes.add(locks, lambda app: app.locks)
    routes.add(maintenance, lambda app: app.maintenance)
    routes.add(bigben.bigben, lambda app: app.bigben)
    routes.add(bigben.operators, lambda app: app.bigben)
    routes.add(bigben.probes, lambda app: None)
    routes.add(files, lambda app: None)
    routes.add(document_group(routes), lambda app: None)
    return routes
