"""The queue functions of the scheduler: their names, their queues and their actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from ..storage.names import QUEUE_INGEST, QUEUE_RETRIES, QUEUE_SHARDS
from ..storage.ports import Message
from .service import Scheduler

type Act = Callable[[Scheduler, Message, bool], Awaitable[None]]
"""Handles one message of a queue. The flag is True if the queue is in the account that the scheduler works on."""

QUEUE_FUNCTIONS: tuple[tuple[str, str, Act], ...] = (
    ("fire_shard", QUEUE_SHARDS, lambda scheduler, message, own: scheduler.serve_message(message.text)),
    ("fire_retry", QUEUE_RETRIES, lambda scheduler, message, own: scheduler.firing.serve(message.text, retries=True)),
    ("ingest_events", QUEUE_INGEST, lambda scheduler, message, own: scheduler.intake.serve(message, own=own)),
)
"""Name, queue and action of each queue function. The test kit plays the host from the same table."""
SECOND: Final = "_second"
"""The end of the names of the functions on the queues of the second account of a mirrored pair."""

POISON_ACTS: tuple[tuple[str, Act], ...] = (
    (f"{QUEUE_SHARDS}-poison", lambda scheduler, message, own: scheduler.poisoned_message(message.text)),
    (f"{QUEUE_RETRIES}-poison", lambda scheduler, message, own: scheduler.poisoned_message(message.text)),
    (f"{QUEUE_INGEST}-poison", lambda scheduler, message, own: scheduler.intake.poisoned(message)),
)
"""Queue and action of each queue into which the host puts messages that failed. The sweep takes them: each function would be a group of its
own, with its own polls and instances."""
