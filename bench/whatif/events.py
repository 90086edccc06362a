"""Events whose receiver becomes slow half-way, for real and as the twin predicts it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from aiohttp import web

from shared.cli.connections import Connection
from shared.cli.session import CommandSession, read_if_allowed
from shared.core.clock import Millis, to_text
from shared.whatif.changes import parse_changes
from shared.whatif.export import ExportOptions, SnapshotExporter
from shared.whatif.outcome import OVERDUE, backlog_of, quantile
from shared.whatif.play import play
from shared.whatif.snapshot import Snapshot

from ..tools.serving import serving
from ..tools.stage import TENANT, Host, devhost, emulator

OVER: Final = 20.0
"""Seconds over which the events are due."""
SLOW_AFTER: Final = 10.0
"""Seconds after the first due time from which the receiver is slow."""
QUICK, SLOW = 0.005, 0.300
"""Seconds of the receiver's answers, before and after."""
CONCURRENCY: Final = 4
"""Deliveries in flight that the channel allows: at 0.3 s each, they are fewer a second than are due."""
KNOWN: Final = 50
"""Events that are delivered before, from which the export has the receiver's answer times."""
AHEAD: Final = 90.0
"""Seconds from the posts to the first due time."""
CHANNEL: Final = "orders"
ENDS_WITHIN: Final = 180.0


@dataclass(slots=True)
class RealEvents:
    """The export before the change, the time from which the receiver is slow, and what was measured: value and unit, by name."""

    snapshot: Snapshot
    slow_from: Millis
    measured: dict[str, tuple[float, str]]


async def real(count: int) -> RealEvents:
    """Deliver `count` events. Raises TimeoutError if they do not all come."""
    arrivals: dict[str, tuple[float, float, float]] = {}
    slow_from = [float("inf")]

    async def take(request: web.Request) -> web.Response:
        due, now = datetime.fromisoformat(request.headers["ce-tocsindue"]).timestamp(), time.time()
        seconds = SLOW if now >= slow_from[0] else QUICK
        await asyncio.sleep(seconds)
        arrivals[request.headers["ce-id"]] = due, now, time.time()
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/", take)
    with emulator() as azurite:
        async with serving(app) as url, devhost(azurite.connection_string, url) as host:
            await put_channel(host, url)
            now = time.time()
            known = set(await host.batch([round((now + 6 + number / 10) * 1000) for number in range(KNOWN)], CHANNEL))
            await _until(lambda: known <= arrivals.keys())
            await asyncio.sleep(3.0)
            first = time.time() + AHEAD
            dues = [round((first + OVER * number / count) * 1000) for number in range(count)]
            ids = set(await host.batch(dues, CHANNEL))
            snapshot = await asyncio.to_thread(export, host, round(time.time() * 1000), round((first + OVER + 10) * 1000))
            slow_from[0] = first + SLOW_AFTER
            await _until(lambda: ids <= arrivals.keys())
    mine = [arrivals[each] for each in ids]
    late = sorted(max(0.0, at - due) for due, at, _ in mine)
    begin, end = round(1000 * first), round(1000 * max(ended for *_, ended in mine)) + 1000
    waits = [(round(1000 * due) + OVERDUE, round(1000 * ended)) for due, _, ended in mine]
    most, drained, _ = backlog_of(waits, begin, end)
    return RealEvents(snapshot, round(1000 * slow_from[0]), _named(quantile(late, 0.5), quantile(late, 0.99), late[-1], most, drained))


def predict(real: RealEvents) -> dict[str, float]:
    """Return the twin's prediction for the same events."""
    slower = round(1000 * (SLOW - QUICK))
    found = play(real.snapshot, parse_changes({"slow": [f"{CHANNEL}={slower}ms@{to_text(real.slow_from)}"]}, real.snapshot))
    named = _named(found.late_at(0.5), found.late_at(0.99), found.late_at(1.0), found.largest_backlog, found.drained_after)
    return {name: value for name, (value, _) in named.items()}


def _named(p50: float, p99: float, most: float, backlog: float, drained: float | None) -> dict[str, tuple[float, str]]:
    return {
        "lateness p50": (p50, "s"),
        "lateness p99": (p99, "s"),
        "lateness max": (most, "s"),
        "largest backlog": (backlog, ""),
        "drain": (float("inf") if drained is None else drained, "s"),
    }


def export(host: Host, first: Millis, end: Millis) -> Snapshot:
    """Export from the API, as the command does."""
    connection: dict[str, Any] = {"url": host.url, "key": "local-admin-key", "allow_plain_http": True}
    session = CommandSession(Connection(tenant=TENANT, **connection))
    admin = CommandSession(Connection(tenant=None, **connection))
    try:
        return SnapshotExporter(session, admin, read_if_allowed, TENANT, ExportOptions(first, end)).read()
    finally:
        session.close()
        admin.close()


async def put_channel(host: Host, url: str) -> None:
    """Create the channel."""
    body = {"type": "http", "url": url, "limits": {"concurrency": CONCURRENCY}}
    headers = {"authorization": "Bearer local-admin-key"}
    async with host.session.put(f"{host.url}/api/v1/tenants/{TENANT}/channels/{CHANNEL}", json=body, headers=headers) as answer:
        assert answer.status in (200, 201), await answer.text()


async def _until(satisfied: Any) -> None:
    ends = time.monotonic() + ENDS_WITHIN
    while not satisfied():
        if time.monotonic() > ends:
            raise TimeoutError(f"not all events came within {ENDS_WITHIN:.0f} s")
        await asyncio.sleep(0.1)
