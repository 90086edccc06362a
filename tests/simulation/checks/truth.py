"""Parts that all histories share: true time, and the exception that ends one."""

from __future__ import annotations

START = 1_800_000_000_000
"""Milliseconds since 1970 at which histories begin."""


class Violation(Exception):
    """A promise was broken."""


class Time:
    """True time, and the clock of the store: what `MemoryTables` needs of `Clock`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> int:
        """Milliseconds since 1970."""
        return START + int(self.seconds * 1000)

    def monotonic(self) -> float:
        """True seconds since the history began."""
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        """Nobody sleeps here: tasks wait."""
        raise NotImplementedError
