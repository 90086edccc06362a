"""The CPU that the service takes, and the cores that give it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Charges:
    """Seconds of CPU, as measured; see docs/explain/performance.md for the benchmarks and their dates.

    The sum for a bulk event that is delivered by signed HTTP is what `python -m bench herd` measures in the devhost.
    """

    ingest: float = 19e-6
    """An event of a batch, without storage requests (`bench cpu`, ingest)."""
    fire: float = 160e-6
    """An event from its claim to its settlement with a signed POST, without storage requests."""
    request: float = 250e-6
    """A request to storage."""
    row: float = 12e-6
    """A row that is written or read."""


class Machine:
    """Cores that several processes share."""

    def __init__(self, cores: int = 1) -> None:
        self._free_at = [0.0] * cores

    def reserve(self, earliest: float, seconds: float) -> float:
        """Take the core that is free first, not before `earliest`. Return the time at which the work is done."""
        core = min(range(len(self._free_at)), key=self._free_at.__getitem__)
        end = max(earliest, self._free_at[core]) + seconds
        self._free_at[core] = end
        return end


@dataclass(slots=True)
class Processor:
    """A process with one event loop: it uses one core at a time, one piece of work after the other."""

    machine: Machine = field(default_factory=Machine)
    busy: float = 0.0
    """Seconds of CPU used so far."""
    _free_at: float = 0.0

    async def use(self, seconds: float) -> None:
        """Work for `seconds` of CPU, after all work that was asked for before. Returns when it is done."""
        now = asyncio.get_running_loop().time()
        self._free_at = self.machine.reserve(max(now, self._free_at), seconds)
        self.busy += seconds
        await asyncio.sleep(self._free_at - now)
