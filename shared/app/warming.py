"""Imports, beside the work of a process, what it may need later, so that nothing waits for it then.

A process serves its first message before this begins. Each step imports a module or a few, and the event loop goes on between two steps:
the import of a whole service at once would make an event late that is due at that moment.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Final

from .importing import importing

BEGIN_AFTER: Final = 5.0
"""Seconds after the opening of the application."""
PAUSE: Final = 0.05
"""Seconds between two steps."""
LATER: Final = (
    "scheduler.model",
    "scheduler.outcomes.callback_writer",
    "leases.rows",
    "leases.service.owner_lookup",
    "web.parsing",
    "web.bodies",
    "scheduler.ingest.messages",
    "scheduler.ingest.admission",
    "scheduler.ingest.queue_consumer",
    "scheduler.queries.lookup",
    "scheduler.queries.stats",
    "scheduler.changes.verbs",
    "scheduler.recurring.cron",
    "scheduler.recurring.model",
    "scheduler.recurring.rules",
    "scheduler.recurring.chain",
    "scheduler.recurring.service",
)
"""What serving shards, wakes and the ingest queue may need, in an order in which each step is short."""


async def warm(sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Import `LATER` step by step."""
    await sleep(BEGIN_AFTER)
    for name in LATER:
        with importing():
            importlib.import_module(f"..{name}", __package__)
        await sleep(PAUSE)
