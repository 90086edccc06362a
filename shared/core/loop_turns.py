"""Turns of the event loop that long work gives to other tasks, so that no step of it takes longer than `MOST_STEP`."""

from __future__ import annotations

import asyncio
from typing import Final

MOST_STEP: Final = 0.020
"""Most seconds of CPU that one step of the event loop takes, on a machine like that of `make bench`, whatever is sent."""
PACE: Final = 8 * 1024
"""Bytes that are read or built before other tasks may run, unless they cost more than most: about a millisecond."""
EVENTS: Final = 50
"""Events, or occurrences of schedules, that are made before other tasks may run: one or two milliseconds."""


class LoopTurns:
    """Lets other tasks run after every `every` bytes, or other pieces, of work."""

    def __init__(self, every: int = PACE) -> None:
        self._every, self._spent = every, 0

    async def spend(self, pieces: int = 1) -> None:
        """Count pieces of work, and let other tasks run if it is time."""
        self._spent += pieces
        if self._spent >= self._every:
            self._spent = 0
            await asyncio.sleep(0)
