"""The queue functions of the scheduler: their names, their queues and their actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..storage.names import QUEUE_INGEST, QUEUE_RETRIES, QUEUE_SHARDS
from ..storage.ports import Message
from .service import Scheduler

type Act = Callable[[Scheduler, Message], Awaitable[None]]
"""Handles one message of a queue."""

QUEUE_FUNCTIONS: tuple[tuple[str, str, Act], ...] = (
    ("fire_shard", QUEUE_SHARDS, lambda scheduler, message: scheduler.firing.serve(message.text)),
    ("fire_retry", QUEUE_RETRIES, lambda scheduler, message: scheduler.firing.serve(message.text, retries=True)),
    ("fire_shard_poison", f"{QUEUE_SHARDS}-poison", lambda scheduler, message: scheduler.firing.poisoned(message.text)),
    ("fire_retry_poison", f"{QUEUE_RETRIES}-poison", lambda scheduler, message: scheduler.firing.poisoned(message.text)),
    ("ingest_events", QUEUE_INGEST, lambda scheduler, message: scheduler.intake.serve(message)),
    ("ingest_events_poison", f"{QUEUE_INGEST}-poison", lambda scheduler, message: scheduler.intake.poisoned(message)),
)
"""Name, queue and action of each queue function. The test kit plays the host from the same table."""
