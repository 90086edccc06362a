"""The figures of `/api/metrics`, sent once a minute by the process that the timer runs in: of what is in tables one may tell for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Final, Protocol

from prometheus_client import Metric as Family

from ...core.clock import Millis

log = logging.getLogger(__name__)

PATIENCE: Final = 15.0
"""Seconds that the timer waits for an outlet: its sweeps of storage are more urgent."""


class Outlet(Protocol):
    """Where figures go."""

    @property
    def name(self) -> str:
        """For the log."""

    def send(self, families: Iterable[Family], now: Millis) -> bool:
        """Send them; whether they arrived. Blocks; called in a thread of its own."""


class _Sending:
    """What is on its way to an outlet, at most one look: one that hangs is not joined by another each minute."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet
        self.arriving = True
        """Whether the last look arrived."""
        self._under_way: Future[bool] | None = None

    async def send(self, families: Sequence[Family], now: Millis, patience: float) -> bool:
        """Whether the look arrived within so many seconds. An unexpected exception of the exporter is logged."""
        if self._under_way is not None and not self._under_way.done():
            return False
        sending = self._under_way = Future[bool]()
        # A daemon: neither the loop's end nor the process's waits for it.
        Thread(target=self._run, args=(sending, families, now), name=f"figures to {self.outlet.name}", daemon=True).start()
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(asyncio.wrap_future(sending))
        except TimeoutError:
            return False
        except Exception:
            extra = {"action": "telemetry_failed", "outlet": self.outlet.name}
            log.exception("Figures could not be sent to %s", self.outlet.name, extra=extra)
            return False

    def _run(self, sending: Future[bool], families: Sequence[Family], now: Millis) -> None:
        try:
            sending.set_result(self.outlet.send(families, now))
        except Exception as error:
            sending.set_exception(error)


class MetricsPublisher:
    """One per process. families: a look at them, at most some seconds old. patience: seconds for an outlet."""

    def __init__(self, families: Callable[[], Awaitable[Sequence[Family]]], outlets: Sequence[Outlet], patience: float = PATIENCE) -> None:
        self._families, self._patience = families, patience
        self._sendings = [_Sending(outlet) for outlet in outlets]

    async def run_once(self, now: Millis) -> dict[str, int]:
        """Look, and send to every outlet. One that cannot be reached gets the next look. Raises `StorageError`."""
        families = await self._families()
        sent = await asyncio.gather(*(each.send(families, now, self._patience) for each in self._sendings))
        for sending, arrived in zip(self._sendings, sent, strict=True):
            name = sending.outlet.name
            if sending.arriving and not arrived:
                extra = {"action": "telemetry_unsent", "outlet": name}
                log.warning("Figures could not be sent to %s; each minute tries again", name, extra=extra)
            elif arrived and not sending.arriving:
                log.info("Figures are sent to %s again", name, extra={"action": "telemetry_resumed", "outlet": name})
            sending.arriving = arrived
        return {"sent": sum(sent), "unsent": len(sent) - sum(sent)}
