"""Tocsin on Azure Functions: one FunctionApp, one blueprint per job."""

from __future__ import annotations

import asyncio
import os

import azure.functions as func

from shared.app import timers
from shared.app.application import Lazy, build_routes
from shared.core.setting_names import MIRROR
from shared.extras.kafka_source.sources import SETTING
from shared.ops.export.start import begin
from shared.scheduler import routes as scheduler
from shared.web.functions_host import bind

# Before the first request, so that this one is traced too.
exporting = begin(os.environ)
get_app = Lazy(exporting.outlets)

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
app.register_functions(bind(build_routes(), get_app))
app.register_functions(scheduler.triggers(get_app.first, serving=get_app))
app.register_functions(timers.triggers(get_app))
# Only looked at, not read: a setting that is wrong must not keep the other functions from being found.
if os.environ.get(SETTING, "").strip():
    app.register_functions(timers.triggers(get_app, timers.KAFKA_SCHEDULES))
if os.environ.get(MIRROR) or os.environ.get(f"{MIRROR}__queueServiceUri"):
    # The second account of a mirrored pair has queues of its own; both are listened to, whichever serves.
    app.register_functions(scheduler.triggers(get_app.second, MIRROR, "_second", get_app))


async def leave() -> None:
    """Called by the devhost before it waits for what runs: owners let go of their shards."""
    get_app.leave()


async def shutdown() -> None:
    """Called by the devhost when it ends."""
    await get_app.close()
    await asyncio.to_thread(exporting.close)
