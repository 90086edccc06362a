"""Tocsin on Azure Functions: the routes, the queue functions and the timers of one FunctionApp."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from shared.app.importing import importing
from shared.app.parent_watch import started_by_host
from shared.ops.export.start import Exporting

# The exporters start soon after the first invocation. Until then the log lines for them are kept. Without exporters, the host shows them.
exporting = Exporting(os.environ, Path(__file__).parent if started_by_host(sys.argv) else None)

with exporting.import_failures(), importing():
    import azure.functions as func

    from shared.app.lazy import Lazy
    from shared.app.parts import schedules_of
    from shared.app.timers import SCHEDULES
    from shared.app.triggers import queue_functions, timer_functions
    from shared.core.setting_names import MIRROR
    from shared.extras.parts import PARTS, find_route
    from shared.extras.route_index import INDEX
    from shared.ops.export.service import Outlets
    from shared.scheduler.queue_functions import SECOND
    from shared.web.functions_host import bind

    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    # The worker lists the functions after this file has run, and before the app opens.
    outlets = Outlets(exporting.outlets, exporting.started)
    get_app = Lazy(PARTS, outlets, exporting.on_call, lambda: (app.functions_bindings or (), os.environ))
    app.register_functions(bind(INDEX, find_route, get_app.within_call, exporting.on_call))
    app.register_functions(queue_functions(get_app.first, serving=get_app))
    app.register_functions(timer_functions(get_app, {**SCHEDULES, **schedules_of(PARTS, os.environ)}))
    if os.environ.get(MIRROR) or os.environ.get(f"{MIRROR}__queueServiceUri"):
        # The second account of a mirrored pair has its own queues. The app listens to the queues of both accounts, whichever serves.
        app.register_functions(queue_functions(get_app.second, MIRROR, SECOND, get_app))
    # A process must also search for the shards of its predecessor if nothing calls it.
    get_app.open_soon()
