"""Imports, beside the work of a process, what it may need later, so that nothing waits for it then.

A process serves its first message before this begins. Each step imports a module or a few, and the event loop goes on between two steps:
the import of a whole service at once would make an event late that is due at that moment.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from .importing import importing

BEGIN_AFTER: Final = 5.0
"""Seconds after the opening of the application."""
PAUSE: Final = 0.05
"""Shortest time in seconds between two steps of `warm`."""
REST: Final = 2.0
"""Times the duration of a step for which the process rests after it. At a quarter of a core, where the system stops a process that has used
its share, steps without a rest leave nothing to an event that is due meanwhile."""
LATER: Final = (
    "scheduler.model",
    "scheduler.protocol.changing",
    "scheduler.ingest.writer",
    "scheduler.firing.express",
    "delivery.channels.masks",
    "scheduler.outcomes.callbacks",
    "scheduler.shard.queued_ids",
    "scheduler.sweeps.index",
    "scheduler.sweeps.looks",
    "scheduler.key_lines.protocol",
    "scheduler.outcomes.notices",
    "scheduler.queries.label_index",
    "scheduler.queries.state_pass",
    "scheduler.queries.end_notes",
    "tenants.keys",
    "leases.rows",
    "leases.service.owner_lookup",
    "delivery.fleet_owners",
    "web.parsing",
    "web.bodies",
    "scheduler.ingest.messages",
    "scheduler.ingest.admission",
    "scheduler.ingest.queue_consumer",
    "scheduler.queries.lookup",
    "scheduler.queries.stats",
    "scheduler.changes.verbs",
    "scheduler.recurring.cron",
    "scheduler.recurring.timing",
    "scheduler.recurring.model",
    "scheduler.recurring.rules",
    "scheduler.recurring.chain",
    "scheduler.recurring.service",
)
"""Modules that shards, wakes and the ingest queue may need, in an order in which each step is short."""
SWEPT: Final = (
    "leases.planner",
    "leases.protocol.repair",
    "leases.generations",
    "leases.protocol.resizing",
    "leases.planner_input",
    "leases.service.snapshot",
    "leases.service.planning",
    "leases.service.takeover",
    "leases.model",
    "leases.service.control.model",
    "checkpoints.rows",
    "checkpoints.rules",
    "checkpoints.model",
    "maintenance.rows",
    "maintenance.decisions.approvals",
    "maintenance.decisions.caller_probes",
    "maintenance.story",
    "maintenance.model",
    "maintenance.settings",
    "fleets.model",
    "fleets.watch.rules",
    "fleets.watch.service",
    "checkpoints.service.service",
    "maintenance.service.store",
    "maintenance.decisions.reservations",
    "maintenance.decisions.merging",
    "maintenance.rules",
    "maintenance.service.reports",
    "core.http_exchange",
    "maintenance.service.service",
    "maintenance.service.wiring",
    "ops.metrics.families",
)
"""The same for the sweep of fleets. Processes that never sweep do without it."""

_ROOT: Final = __name__.partition(".")[0]

type Sleep = Callable[[float], Awaitable[None]]


async def warm(sleep: Sleep = asyncio.sleep) -> None:
    """Import `LATER` step by step."""
    await sleep(BEGIN_AFTER)
    await import_in_steps(LATER, PAUSE, sleep)


async def import_in_steps(
    names: Sequence[str], pause: float = 0.0, sleep: Sleep = asyncio.sleep, steady: Callable[[], float] = time.monotonic
) -> None:
    """Import the modules that are not there yet, and rest after each, for `pause` seconds or longer."""
    for name in (f"{_ROOT}.{name}" for name in names):
        if name not in sys.modules:
            began = steady()
            with importing():
                importlib.import_module(name)
            await sleep(max(pause, REST * (steady() - began)))
