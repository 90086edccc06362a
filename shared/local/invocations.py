"""The work that the Functions host hands to the app for a message of a queue, without the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..app.application import Application
from ..scheduler.queue_functions import QUEUE_FUNCTIONS, Act
from ..storage.names import ALL_QUEUES, QUEUE_SWEEPS
from ..storage.ports import Message

ACTS: Final[Mapping[str, Act]] = {queue: act for _, queue, act in QUEUE_FUNCTIONS if queue in ALL_QUEUES}
"""The action of each queue with a function, apart from that of the sweep."""


async def invoke(app: Application, queue: str, message: Message) -> None:
    """Carry out a message. The caller deletes it afterwards; if this raises, the message comes back."""
    if queue == QUEUE_SWEEPS:
        await app.timers.run_soon(message.text)
    elif not await app.leave_to_newer(queue, message):
        await ACTS[queue](app.scheduler, message, True)
