"""The functions that the host calls for queue messages and timer ticks.

The worker reads a function's signature and annotations when it indexes the app, so the handlers get their names by hand: `functools.wraps`
would show it another signature.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from typing import Any

import azure.functions as func

from ..core.clock import Millis, to_millis
from ..core.setting_names import CONNECTION
from ..scheduler.ingest.message_lease import serve_leased
from ..scheduler.queue_functions import QUEUE_FUNCTIONS, Act
from ..scheduler.timings import CARRIED_FROM_TRY
from ..storage.names import QUEUE_INGEST, QUEUE_SWEEPS
from ..storage.ports import Message
from .application import Application
from .timers import SCHEDULES, SOON_FUNCTION

log = logging.getLogger(__name__)

type GetApplication = Callable[[], Awaitable[Application]]


def queue_functions(
    get_app: GetApplication,
    connection: str = CONNECTION,
    suffix: str = "",
    serving: GetApplication | None = None,
) -> func.Blueprint:
    """Return the queue functions, bound to the queues of one account.

    The queues of failed messages have no functions: the sweep takes what is in them.

    suffix: appended to their names. serving: for a mirrored pair, returns the application of the side that serves; it accepts events,
    whichever account's queue holds them.
    """
    blueprint = func.Blueprint()  # type: ignore[no-untyped-call]

    def register(name: str, queue: str, serve: Callable[[func.QueueMessage], Awaitable[None]]) -> None:
        async def handler(msg: func.QueueMessage) -> None:
            try:
                await serve(msg)
            except Exception:
                # The host logs it again and counts the failure; this record has the function's name.
                log.exception("%s failed", name, extra={"action": "queue_function_failed", "function": name})
                raise

        handler.__name__ = handler.__qualname__ = name
        # Bytes: a message that is not UTF-8 could not be bound to text, and would fail in the host until it is lost.
        trigger = blueprint.queue_trigger(arg_name="msg", queue_name=queue, connection=connection, data_type=func.DataType.BINARY)
        blueprint.function_name(name)(trigger(handler))

    def on_message(name: str, queue: str, act: Act) -> None:
        ingest = queue.startswith(QUEUE_INGEST)

        async def serve(msg: func.QueueMessage) -> None:
            app = await get_app()
            message = _message(msg, app.scheduler.clock.now())
            if await app.leave_to_newer(queue, message):
                return
            # One that failed several times goes back to the queue that it came from, whichever side serves.
            goes_back = queue != QUEUE_INGEST or message.dequeue_count >= CARRIED_FROM_TRY
            scheduler = app.scheduler if serving is None or goes_back else (await serving()).scheduler
            own = scheduler is app.scheduler
            if ingest:
                # The lease is on the message's own account, whichever account's tables get its events.
                await serve_leased(app.storage.queues, app.clock, queue, message, lambda taken: act(scheduler, taken, own))
            else:
                await act(scheduler, message, own)

        register(name, queue, serve)

    async def sweep_soon(msg: func.QueueMessage) -> None:
        # As with the timer, the side that serves does the work, whichever account's queue had the message.
        await (await (serving or get_app)()).timers.run_soon(msg.get_body().decode(errors="replace"))

    for name, queue, act in QUEUE_FUNCTIONS:
        on_message(name + suffix, queue, act)
    register(SOON_FUNCTION + suffix, QUEUE_SWEEPS, sweep_soon)
    return blueprint


def _message(msg: func.QueueMessage, now: Millis) -> Message:
    """Return the message as storage's port has it. Bytes that are not UTF-8 survive as surrogates."""
    sent = msg.insertion_time
    inserted = now if sent is None else to_millis(sent if sent.tzinfo is not None else sent.replace(tzinfo=UTC))
    return Message(msg.id or "", msg.pop_receipt or "", msg.get_body().decode(errors="surrogateescape"), msg.dequeue_count or 0, inserted)


def timer_functions(get_app: GetApplication, schedules: Mapping[str, str] = SCHEDULES) -> func.Blueprint:
    """Return one timer function per schedule."""
    blueprint = func.Blueprint()  # type: ignore[no-untyped-call]

    def on_tick(name: str, schedule: str) -> None:
        async def handler(timer: func.TimerRequest) -> None:
            timers = (await get_app()).timers
            counts: Any = await (timers.sweep(past_due=timer.past_due) if name == "sweep" else timers.run_once(name))
            log.debug("%s: %s", name, counts, extra={"action": "sweep_done", "timer": name})

        handler.__name__ = handler.__qualname__ = name
        # With the monitor a host that starts after the tick makes up for it. Where groups of functions go to zero, that is each tick.
        trigger = blueprint.timer_trigger(arg_name="timer", schedule=schedule, run_on_startup=False, use_monitor=True)
        blueprint.function_name(name)(trigger(handler))

    for name, schedule in schedules.items():
        on_tick(name, schedule)
    return blueprint
