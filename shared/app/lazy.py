"""Opens the application inside the worker's running loop: on the first call, or soon after the app was loaded."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from ..core.errors import TocsinError, UnsafeSettings
from ..core.process_identity import ProcessIdentity
from ..core.version import version
from ..ops.export.service import NO_OUTLETS, Outlets, all_there
from .application import Application
from .parent_watch import ParentWatch
from .parts import Part
from .warming import warm

log = logging.getLogger(__name__)

OPEN_AFTER: Final = 1.0
"""Seconds after which a loaded app opens without a call."""
OPEN_TRIES: Final = 20
OPEN_AGAIN: Final = 2.0
"""Seconds between two tries to open without a call, for storage that starts later than the app."""
ORPHAN_ENDS_WITHIN: Final = 20.0
"""Seconds for which an orphan finishes what it has begun: well below the time after which others take its shards."""
CLOSE_WITHIN: Final = 5.0


class Lazy:
    """Opens the application once, when it is first needed.

    Calls that arrive while it opens share the outcome; after a failure the next call tries again.
    """

    def __init__(
        self,
        parts: Sequence[Part] = (),
        outlets: Outlets = NO_OUTLETS,
        on_call: Callable[[], Awaitable[None]] = all_there,
        functions: Callable[[], tuple[Iterable[str], Mapping[str, str]]] | None = None,
        parent: ParentWatch | None = None,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        """parts: the optional parts of the service. outlets: receivers of the metrics. on_call: awaited before each call is served.
        functions: returns the names of the functions that the host was given, and the variables of this process; `readyz` judges them.
        parent: watches the host; by default, the host that the command line shows. end: ends this process, without waiting for threads."""
        self._parts, self._outlets, self._on_call, self._functions = parts, outlets, on_call, functions
        self._parent, self._end = parent or ParentWatch(sys.argv), end
        self._app: Application | None = None
        self._start: asyncio.Task[Application] | None = None
        self._duties: set[asyncio.Task[None]] = set()

    async def __call__(self) -> Application:
        """Return the application of the side that serves; it handles calls and timers."""
        await self._on_call()
        return await self.within_call()

    async def within_call(self) -> Application:
        """Return the application of the side that serves. For a caller that has already awaited `on_call`."""
        app = self._app or await self._opened()
        app.glance()
        return app if app.other is None else await app.serving()

    async def second(self) -> Application:
        """Return the application on the second account of a mirrored pair; it handles the queues of that account."""
        other = (await self.first()).other
        if other is None:
            raise UnsafeSettings("no second storage account is configured")
        return other

    async def first(self) -> Application:
        """Return the application on the first account; it handles the queues of that account."""
        await self._on_call()
        app = self._app or await self._opened()
        app.glance()
        return app

    async def _opened(self) -> Application:
        if self._app is not None:
            return self._app
        if self._start is None or self._start.done():
            self._start = asyncio.create_task(self._open())
        # Shielded: when one caller is cancelled, the others still get the application.
        return await asyncio.shield(self._start)

    async def _open(self) -> Application:
        # In a clone the first question runs git; `readyz` asks again, and the answer is kept.
        opening = Application.open(parts=self._parts, outlets=self._outlets, process=ProcessIdentity())
        app, _ = await asyncio.gather(opening, asyncio.to_thread(version))
        if self._functions is not None:
            app.judge(*self._functions())
        # Set before this task is done: a call that came between its end and the callers' going on would open another application.
        self._app = app
        self._begin(app.recover())
        self._begin(self._end_with_host(app))
        self._begin(app.stalls.run())
        self._begin(warm())
        return app

    def open_soon(self) -> None:
        """Open the application soon, also if nothing calls it.

        After a hard kill the timers are silent for up to a minute and the messages of the killed process are hidden for ten, so a process
        that waited for a call would leave the former one's shards alone. Without a running loop nothing happens: the app is only looked at.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        # A task and not a timer of the loop, so that `close` ends it.
        self._begin(self._open_uncalled())

    async def _open_uncalled(self) -> None:
        await asyncio.sleep(OPEN_AFTER)
        for _ in range(OPEN_TRIES):
            try:
                await self._opened()
                return
            except TocsinError as error:
                # A call would report it to its caller; here there is none.
                log.debug("The app could not be opened yet: %s", error, extra={"action": "open_failed"})
            await asyncio.sleep(OPEN_AGAIN)

    async def _end_with_host(self, app: Application) -> None:
        """End this process in order when its host has ended."""
        await self._parent.wait(asyncio.sleep)
        log.warning("The host of this process has ended; the process releases its shards and ends", extra={"action": "host_ended"})
        app.leave()
        loop = asyncio.get_running_loop()
        until = loop.time() + ORPHAN_ENDS_WITHIN
        while app.busy and loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        try:
            await asyncio.wait_for(app.close(), CLOSE_WITHIN)
        finally:
            # The worker waits for its host in threads that never end.
            self._end(1)

    def _begin(self, duty: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(duty)
        # The loop keeps no reference to a task.
        self._duties.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._duties.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A duty of the process ended with an unexpected error", exc_info=error, extra={"action": "duty_failed"})

    async def close(self) -> None:
        """Close the application, if it is open or just opens."""
        begun: list[asyncio.Task[Any]] = [*self._duties, *([self._start] if self._start is not None else [])]
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        app, self._app = self._app, None
        if app is not None:
            await app.close()
