"""The figures of `/api/metrics`, sent once a minute by the process that the timer runs in: of what is in tables one may tell for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from prometheus_client import Metric as Family

from ..clock import Millis

log = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where figures go."""

    @property
    def name(self) -> str:
        """For the log."""

    def send(self, families: Iterable[Family], now: Millis) -> bool:
        """Send them; whether they arrived. Blocks; called in a thread of its own."""


class Publishing:
    """One per process. families: a look at them, at most some seconds old."""

    def __init__(self, families: Callable[[], Awaitable[Sequence[Family]]], outlets: Sequence[Outlet]) -> None:
        self._families, self._outlets = families, outlets

    async def run_once(self, now: Millis) -> dict[str, int]:
        """Look, and send to every outlet. One that cannot be reached gets the next look. Raises `StorageError`."""
        families = await self._families()
        sent = await asyncio.gather(*(asyncio.to_thread(each.send, families, now) for each in self._outlets))
        for outlet, arrived in zip(self._outlets, sent, strict=True):
            if not arrived:
                extra = {"action": "telemetry_unsent", "outlet": outlet.name}
                log.warning("Figures could not be sent to %s; the next minute tries again", outlet.name, extra=extra)
        return {"sent": sum(sent), "unsent": len(sent) - sum(sent)}
