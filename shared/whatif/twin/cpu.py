"""The CPU time that the service needs, and the cores that it runs on."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Charges:
    """Seconds of CPU as measured on a quiet machine; docs/explain/performance.md has the figures."""

    ingest: float = 19e-6
    """An event of a batch, without requests to storage (`bench cpu`)."""
    fire: float = 63e-6
    """An event from its claim to its settlement, with a signed POST: what `bench herd` measures in the devhost (86 us), less requests and
    rows."""
    request: float = 160e-6
    """A request to storage (`bench storage-cpu`)."""
    row: float = 6e-6
    """A row that is written or read (`bench storage-cpu`; a row that is read costs half of it)."""


class SharedCores:
    """Cores that several processes share: the process with the least CPU time so far gets the next free core, as with a fair scheduler."""

    def __init__(self, cores: int = 1, turn: float = math.inf) -> None:
        """turn: seconds for which a process keeps a core, while its piece of work lasts."""
        self._idle, self._turn = cores, turn
        self._ready: list[VirtualProcessor] = []
        self._least = 0.0

    def ask(self, processor: VirtualProcessor) -> None:
        """Give the process a core when its turn comes."""
        # A process without work gathers no claim to more time later.
        processor.had = max(processor.had, self._least)
        self._ready.append(processor)
        self._start()

    def _start(self) -> None:
        while self._idle and self._ready:
            self._idle -= 1
            processor = min(self._ready, key=lambda each: each.had)
            self._ready.remove(processor)
            self._least = max(self._least, processor.had)
            seconds = min(processor.next_piece, self._turn)
            asyncio.get_running_loop().call_later(seconds, self._done, processor, seconds)

    def _done(self, processor: VirtualProcessor, seconds: float) -> None:
        self._idle += 1
        if processor.work(seconds):
            self._ready.append(processor)
        self._start()


class VirtualProcessor:
    """A process with one event loop: it uses one core at a time, one piece of work after the other."""

    def __init__(self, machine: SharedCores | None = None) -> None:
        """machine: the cores; None: one of its own."""
        self._machine = machine or SharedCores()
        self._pieces: deque[tuple[float, asyncio.Future[None]]] = deque()
        self.had = 0.0
        """Seconds of a core, for the order of turns."""
        self.busy = 0.0
        """Seconds of CPU used so far, and asked for."""

    @property
    def next_piece(self) -> float:
        """Seconds that are left of the oldest piece of work."""
        return self._pieces[0][0]

    def work(self, seconds: float) -> bool:
        """Work on the oldest piece, which ends if no more is left of it. Return True if there is more work."""
        self.had += seconds
        left, done = self._pieces.popleft()
        if left > seconds:
            self._pieces.appendleft((left - seconds, done))
        elif not done.done():
            done.set_result(None)
        return bool(self._pieces)

    async def use(self, seconds: float) -> None:
        """Work for `seconds` of CPU, after all work that was asked for before. Returns when it is done."""
        if not seconds:
            return
        done = asyncio.get_running_loop().create_future()
        self._pieces.append((seconds, done))
        self.busy += seconds
        if len(self._pieces) == 1:
            self._machine.ask(self)
        await done
