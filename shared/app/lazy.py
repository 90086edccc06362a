"""Opens the application on the first call, inside the worker's running loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..core.errors import UnsafeSettings
from ..ops.export.service import Outlet
from .application import Application


class Lazy:
    """Opens the application once, when it is first needed.

    Calls that arrive while it opens share the outcome; after a failure the next call tries again.
    """

    def __init__(self, outlets: Sequence[Outlet] = ()) -> None:
        """outlets: receivers of the metrics."""
        self._outlets = outlets
        self._app: Application | None = None
        self._start: asyncio.Task[Application] | None = None

    async def __call__(self) -> Application:
        """Return the application of the side that serves; it handles calls and timers."""
        return await (await self.first()).serving()

    async def second(self) -> Application:
        """Return the application on the second account of a mirrored pair; it handles the queues of that account."""
        other = (await self.first()).other
        if other is None:
            raise UnsafeSettings("no second storage account is configured")
        return other

    async def first(self) -> Application:
        """Return the application on the first account; it handles the queues of that account."""
        if self._app is not None:
            return self._app
        if self._start is None or self._start.done():
            self._start = asyncio.create_task(Application.open(outlets=self._outlets))
        # Shielded: when one caller is cancelled, the others still get the application.
        self._app = await asyncio.shield(self._start)
        return self._app

    def leave(self) -> None:
        """Make the application, if it is open, stop accepting work, because the process is about to end."""
        if self._app is not None:
            self._app.leave()

    async def close(self) -> None:
        """Close the application, if it is open."""
        app, self._app = self._app, None
        if app is not None:
            await app.close()
