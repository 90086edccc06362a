"""The part of the Functions host that serves queues and runs the timer, on real time, for one process that has the storage to itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, Protocol

from ..app.timers import SWEEP_PERIOD, SweepFailed
from ..core.clock import Clock, Millis
from ..core.errors import StorageError
from ..storage.names import QUEUE_SWEEPS
from ..storage.ports import Message, Queues
from .invocations import ACTS

log = logging.getLogger(__name__)

BATCH: Final = 16
"""Messages that are taken at once. This value, `MOST_RUNNING`, `MOST_TRIES` and `RETRY_AFTER` are those of host.json."""
MOST_RUNNING: Final = 48
"""Number of running messages of a queue from which no more are taken."""
MOST_TRIES: Final = 5
"""Failed tries after which a message goes to the poison queue."""
RETRY_AFTER: Final = 30.0
"""Seconds until the next try of a message that failed."""
LEASE: Final = 30.0
"""Seconds for which a taken message is hidden. The host hides it for ten minutes; here the messages of a killed process come back soon."""
RENEW_EVERY: Final = 10.0
"""Seconds between two renewals of a running message."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Shortest and longest pause in seconds between two reads of an empty queue. `ObservedQueues` ends it for a message of this process."""
LONGEST_SLEEP: Final = 30.0
"""Longest sleep of the timer in seconds: the machine may be suspended meanwhile."""

type Invoke = Callable[[str, Message], Coroutine[None, None, None]]


class Sweeper(Protocol):
    """Runs the jobs of the service: `app.timers.Timers`."""

    async def sweep(self, *, past_due: bool = False) -> object:
        """Run the jobs that are due. Raises `SweepFailed`."""


class ObservedQueues:
    """Queues that set an event when a message of this process becomes visible, so that a queue need not be read often."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._arrived: dict[str, asyncio.Event] = {}

    def arrived(self, queue: str) -> asyncio.Event:
        """Return the event that is set when a message of this queue has become visible."""
        return self._arrived.setdefault(queue, asyncio.Event())

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        """See `ports.Queues`."""
        await self._queues.send(queue, text, visible_in=visible_in)
        if visible_in <= 0:
            self.arrived(queue).set()
        else:
            # Queues know whole seconds, and round up.
            asyncio.get_running_loop().call_later(float(-(-visible_in // 1)) + 0.005, self.arrived(queue).set)

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        """See `ports.Queues`."""
        return await self._queues.receive(queue, limit=limit, lease=lease)

    async def renew(self, queue: str, message: Message, *, lease: float) -> bool:
        """See `ports.Queues`."""
        return await self._queues.renew(queue, message, lease=lease)

    async def delete(self, queue: str, message: Message) -> bool:
        """See `ports.Queues`."""
        return await self._queues.delete(queue, message)

    async def length(self, queue: str) -> int:
        """See `ports.Queues`."""
        return await self._queues.length(queue)

    async def ensure(self, queues: Sequence[str]) -> None:
        """See `ports.Queues`."""
        await self._queues.ensure(queues)

    async def close(self) -> None:
        """See `ports.Queues`."""
        await self._queues.close()


class QueueFunction:
    """Takes the messages of one queue and hands them to the app."""

    def __init__(self, queue: str, queues: ObservedQueues, invoke: Invoke) -> None:
        self._queue, self._queues, self._invoke = queue, queues, invoke
        self._arrived, self._stopping = queues.arrived(queue), False
        self._running: set[asyncio.Task[None]] = set()
        self._down = False

    async def run(self) -> None:
        """Take messages until `stop`."""
        pause = FIRST_PAUSE
        while not self._stopping:
            self._arrived.clear()
            taken = await self._take() if len(self._running) <= MOST_RUNNING else []
            for message in taken:
                task = asyncio.create_task(self._work(message))
                self._running.add(task)
                task.add_done_callback(self._done)
            pause = FIRST_PAUSE if taken else min(2 * pause, LONGEST_PAUSE)
            if not taken and not self._stopping:
                await wait_for_event(self._arrived, pause)

    def stop(self) -> None:
        """Take no more messages."""
        self._stopping = True
        self._arrived.set()

    async def end(self, within: float) -> None:
        """Wait for the running messages. Give back those that do not end in time, so that the next process gets them at once."""
        if self._running:
            await asyncio.wait(self._running, timeout=within)
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _take(self) -> list[Message]:
        try:
            found = await self._queues.receive(self._queue, limit=BATCH, lease=LEASE)
        except StorageError as error:
            if not self._down:
                log.warning("queue %s cannot be read, trying again: %s", self._queue, error, extra={"action": "local_queue_failed"})
            self._down = True
            return []
        self._down = False
        return found

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if len(self._running) == MOST_RUNNING:
            self._arrived.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            extra = {"action": "local_queue_failed"}
            log.error("a message of %s could not be settled; it comes back", self._queue, exc_info=error, extra=extra)

    async def _work(self, message: Message) -> None:
        """Carry out a message. Then delete it, give it back, or move it to the poison queue. Raises `StorageError`."""
        if message.dequeue_count > MOST_TRIES:
            # Its earlier tries ended with their process.
            await self._poison(message)
            return
        run = asyncio.create_task(self._invoke(self._queue, message))
        try:
            # Renewed between waits and not by a separate task, so that a renewal never runs at the same time as the final delete.
            while not (await asyncio.wait((run,), timeout=RENEW_EVERY))[0]:
                await self._renew(message)
        except BaseException:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            await self._queues.renew(self._queue, message, lease=0.0)
            raise
        if (error := run.exception()) is None:
            await self._queues.delete(self._queue, message)
            return
        log.error("a message of %s failed", self._queue, exc_info=error, extra={"action": "queue_function_failed", "function": self._queue})
        if message.dequeue_count >= MOST_TRIES:
            await self._poison(message)
        else:
            await self._queues.renew(self._queue, message, lease=RETRY_AFTER)

    async def _renew(self, message: Message) -> None:
        try:
            await self._queues.renew(self._queue, message, lease=LEASE)
        except StorageError as error:
            # The message runs on; the next renewal tries again.
            log.warning("a message of %s was not renewed: %s", self._queue, error, extra={"action": "local_queue_failed"})

    async def _poison(self, message: Message) -> None:
        await self._queues.send(f"{self._queue}-poison", message.text)
        await self._queues.delete(self._queue, message)


class LocalFunctions:
    """All queue functions and the timer."""

    def __init__(self, queues: ObservedQueues, invoke: Invoke, timers: Sweeper, clock: Clock) -> None:
        self._functions = [QueueFunction(queue, queues, invoke) for queue in (QUEUE_SWEEPS, *ACTS)]
        self._timers, self._clock = timers, clock
        self._pollers: list[asyncio.Task[None]] = []
        self._timer: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin. Nothing runs before the next turn of the event loop."""
        self._pollers = [asyncio.create_task(each.run()) for each in self._functions]
        self._timer = asyncio.create_task(self._tick())

    async def close(self, within: float) -> None:
        """Take no more messages, and end. Running ones have `within` seconds."""
        for each in self._functions:
            each.stop()
        if self._timer is not None:
            self._timer.cancel()
        # A read that is under way may still bring messages. One that does not end means unreachable storage.
        await asyncio.gather(*(asyncio.wait_for(each, within) for each in self._pollers), return_exceptions=True)
        await asyncio.gather(*(each.end(within) for each in self._functions), return_exceptions=True)

    async def _tick(self) -> None:
        """Sweep at the beginning of each minute. Sweeps do not overlap. After a missed minute, the sweep runs at once."""
        due = _next(self._clock.now())
        while True:
            while (left := (due - self._clock.now()) / 1000) > 0:
                await self._clock.sleep(min(left, LONGEST_SLEEP))
                # The machine's clock may have been set back.
                due = min(due, _next(self._clock.now()))
            past_due = _next(due) <= self._clock.now()
            due = _next(max(due, self._clock.now()))
            try:
                await self._timers.sweep(past_due=past_due)
            except (SweepFailed, StorageError) as error:
                log.error("the sweep failed; the next one is in a minute: %s", error, extra={"action": "local_sweep_failed"})
            except Exception:
                # As in the host, a fault of one run does not end the timer.
                log.exception("the sweep failed; the next one is in a minute", extra={"action": "local_sweep_failed"})


def _next(after: Millis) -> Millis:
    """Return the first beginning of a minute later than `after`."""
    period = round(SWEEP_PERIOD * 1000)
    return (after // period + 1) * period


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Return True once the event is set, False after that time."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
