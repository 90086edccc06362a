"""Sends the metrics every few minutes, from the process that runs the sweep: their figures are in tables, so one process is enough."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ...core.clock import Millis

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

log = logging.getLogger(__name__)

PATIENCE: Final = 15.0
"""Seconds that the timer waits for an outlet, because its sweeps of storage are more urgent."""


SLACK: Final[Millis] = 30_000
"""The time by which an export may be early, because the timer is not exact."""


class Outlet(Protocol):
    """A receiver of the metrics."""

    @property
    def name(self) -> str:
        """The name in log lines."""

    @property
    def period(self) -> Millis:
        """The time between two successful exports."""

    def send(self, families: Iterable[Family], now: Millis) -> bool:
        """Send the families and return True if they arrived. Blocks; called in a separate thread."""


async def all_there() -> None:
    """Return at once: all outlets are there."""


class Outlets(NamedTuple):
    """The receivers of the metrics. `ready` returns when all of them are in the sequence."""

    receivers: Sequence[Outlet] = ()
    ready: Callable[[], Awaitable[None]] = all_there


NO_OUTLETS: Final = Outlets()


class _Sending:
    """The transmission to one outlet. At most one runs, so that a hanging outlet does not collect a thread each minute."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet
        self.arriving = True
        """True if the last transmission arrived."""
        self.due: Millis = 0
        """The earliest time of the next transmission."""
        self._under_way: Future[bool] | None = None

    async def send(self, families: Sequence[Family], now: Millis, patience: float) -> bool:
        """Send the families; return True if they arrived within `patience` seconds. An unexpected exception is logged."""
        if self._under_way is not None and not self._under_way.done():
            return False
        sending = self._under_way = Future[bool]()
        # A daemon thread: neither the loop nor the process waits for it at its end.
        Thread(target=self._run, args=(sending, families, now), name=f"figures to {self.outlet.name}", daemon=True).start()
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(asyncio.wrap_future(sending))
        except TimeoutError:
            return False
        except Exception:
            extra = {"action": "telemetry_failed", "outlet": self.outlet.name}
            log.exception("Metrics could not be sent to %s", self.outlet.name, extra=extra)
            return False

    def _run(self, sending: Future[bool], families: Sequence[Family], now: Millis) -> None:
        try:
            sending.set_result(self.outlet.send(families, now))
        except Exception as error:
            sending.set_exception(error)


class MetricsPublisher:
    """Sends the metrics to every outlet once in its period, and after a failure again at the next call.

    families: returns them, at most some seconds old. outlets: may be added until `ready` returns. patience: seconds for an outlet.
    """

    def __init__(
        self,
        families: Callable[[], Awaitable[Sequence[Family]]],
        outlets: Sequence[Outlet],
        patience: float = PATIENCE,
        ready: Callable[[], Awaitable[None]] = all_there,
    ) -> None:
        self._families, self._patience, self._outlets, self._ready = families, patience, outlets, ready
        self._sendings: list[_Sending] = []

    async def run_once(self, now: Millis) -> dict[str, int]:
        """Read the metrics and send them to every outlet that is due. Read nothing if none is due. Raises `StorageError`."""
        await self._ready()
        self._sendings = self._sendings or [_Sending(outlet) for outlet in self._outlets]
        sendings = [each for each in self._sendings if now >= each.due]
        if not sendings:
            return {}
        families = await self._families()
        sent = await asyncio.gather(*(each.send(families, now, self._patience) for each in sendings))
        for sending, arrived in zip(sendings, sent, strict=True):
            name = sending.outlet.name
            if sending.arriving and not arrived:
                extra = {"action": "telemetry_unsent", "outlet": name}
                log.warning("Metrics could not be sent to %s; the next attempt is in a minute", name, extra=extra)
            elif arrived and not sending.arriving:
                log.info("Metrics are sent to %s again", name, extra={"action": "telemetry_resumed", "outlet": name})
            sending.arriving = arrived
            if arrived:
                sending.due = now + sending.outlet.period - SLACK
        return {"sent": sum(sent), "unsent": len(sent) - sum(sent)}
