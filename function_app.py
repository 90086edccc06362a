"""Tocsin on Azure Functions: one FunctionApp, one blueprint per job."""

from __future__ import annotations

import azure.functions as func

from shared import timers
from shared.app import Lazy, build_routes
from shared.scheduler import functions as scheduler
from shared.web.bind import bind

get_app = Lazy()

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
app.register_functions(bind(build_routes(), get_app))
app.register_functions(scheduler.triggers(get_app))
app.register_functions(timers.triggers(get_app))


async def leave() -> None:
    """Called by the devhost before it waits for what runs: owners let go of their shards."""
    get_app.leave()


async def shutdown() -> None:
    """Called by the devhost when it ends."""
    await get_app.close()
