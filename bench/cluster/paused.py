"""A process that gets a part of a core: Linux lets it run until it has used its share of a period, and then stops it until the next one.

Its event loop sees neither answers nor timers meanwhile, and measures its own pauses in all that it waits for.
"""

from __future__ import annotations

from typing import Final

from shared.whatif.twin.cpu import VirtualProcessor
from shared.whatif.twin.loop import VirtualLoop

PERIOD: Final = 0.1
"""Seconds of a period: what Linux and Flex Consumption use."""


class PausedLoop(VirtualLoop):
    """The event loop of one process with a part of a core. Time passes while it works, and jumps while it is stopped."""

    def __init__(self, share: float) -> None:
        """share: part of a core; from 1 on it is never stopped."""
        super().__init__()
        self._quota = share * PERIOD
        self._left, self._period = self._quota, 0
        self.stopped = 0.0
        """Seconds for which the process was stopped."""

    def work(self, seconds: float) -> None:
        """Use `seconds` of CPU, stopped whenever the share of a period is used up."""
        while seconds > 0:
            period = int(self.now / PERIOD)
            if period != self._period:
                self._period, self._left = period, self._quota
            if self._quota < PERIOD and self._left <= 0:
                self._stop(period)
                continue
            part = min(seconds, self._left) if self._quota < PERIOD else seconds
            self.now += part
            self._left -= part
            seconds -= part

    def _stop(self, period: int) -> None:
        # A little more than the end, which is no exact fraction: the next period must have begun.
        until = (period + 1) * PERIOD + 1e-9
        self.stopped += until - self.now
        self.now = until


class PausedProcessor(VirtualProcessor):
    """The processor of such a process: work keeps the loop from everything else."""

    def __init__(self, loop: PausedLoop) -> None:
        super().__init__()
        self._loop = loop

    async def use(self, seconds: float) -> None:
        self.busy += seconds
        self._loop.work(seconds)
