"""The CPU that the service takes, and the cores that give it."""

from __future__ import annotations

import asyncio
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


class Machine:
    """Cores that several processes share: whoever has waited longest gets the core that becomes free."""

    def __init__(self, cores: int = 1) -> None:
        self._idle = cores
        self._ready: deque[Processor] = deque()

    def ask(self, processor: Processor) -> None:
        """Give the process a core when its turn comes."""
        self._ready.append(processor)
        self._start()

    def _start(self) -> None:
        while self._idle and self._ready:
            self._idle -= 1
            processor = self._ready.popleft()
            asyncio.get_running_loop().call_later(processor.next_piece, self._done, processor)

    def _done(self, processor: Processor) -> None:
        self._idle += 1
        if processor.finish_piece():
            self._ready.append(processor)
        self._start()


class Processor:
    """A process with one event loop: it uses one core at a time, one piece of work after the other."""

    def __init__(self, machine: Machine | None = None) -> None:
        """machine: the cores; None: one of its own."""
        self._machine = machine or Machine()
        self._pieces: deque[tuple[float, asyncio.Future[None]]] = deque()
        self.busy = 0.0
        """Seconds of CPU used so far, and asked for."""

    @property
    def next_piece(self) -> float:
        """Seconds of the oldest piece of work."""
        return self._pieces[0][0]

    def finish_piece(self) -> bool:
        """End the oldest piece of work. Return True if there are others."""
        _, done = self._pieces.popleft()
        if not done.done():
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
