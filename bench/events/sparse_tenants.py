"""Lateness of events that share little: many tenants with few events each, and events that are moved one by one.

Everything goes through HTTP to a devhost, as a user's requests do. No batch helps: each tenant has shards of its own, so what counts is how
many shards a process can serve side by side.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from shared.core.clock import Millis, to_text

from ..report import Figure
from ..tools import machine
from ..tools.stage import Host, Receiving, Run, devhost, emulator, event_text, flight, receiving
from .singles import HEADERS

ADMIN = {"authorization": "Bearer local-admin-key"}
LEAD = (5.0, 30.0)
"""Seconds from the request to the due time: least and most."""
MOVED_LEAD = (10.0, 40.0)

type SendEvent = Callable[[int, Millis], Awaitable[None]]


async def tenants_300(run: Run) -> list[Figure]:
    """30 single POSTs a second in all, by 300 tenants."""
    return [await _tenants(run, 300, 30, 50.0)]


async def tenants_1000(run: Run) -> list[Figure]:
    """100 single POSTs a second in all, by 1,000 tenants."""
    return [await _tenants(run, 1000, 100, 100.0)]


async def moved(run: Run) -> list[Figure]:
    """30 PATCHes a second, each of which moves another event of one tenant to its due time."""
    rate, seconds = 30, run.pick(60.0, 20.0)
    with emulator() as azurite:
        async with receiving() as receiver, devhost(azurite.connection_string, receiver.url) as host:
            first = round(1000 * time.time()) + 3_600_000
            ids = await host.batch([first + 1000 * number for number in range(round(rate * seconds))])

            async def move(number: int, due: Millis) -> None:
                path = f"{host.url}/api/v1/events/{ids[number]}"
                async with host.session.patch(path, data=f'{{"due":"{to_text(due)}"}}', headers=HEADERS) as answer:
                    assert answer.status == 200, await answer.text()

            name = f"lateness p99, {rate} events a second moved to {MOVED_LEAD[0]:g} to {MOVED_LEAD[1]:g} s ahead"
            run.report_progress(name, 0, 1)
            return [await _stream(host, receiver, name, 50.0, rate, seconds, MOVED_LEAD, move)]


async def _tenants(run: Run, count: int, rate: int, limit: float) -> Figure:
    seconds = run.pick(60.0, 20.0)
    name = f"lateness p99, {count:,} tenants, {rate} single POSTs a second in all, due in {LEAD[0]:g} to {LEAD[1]:g} s"
    run.report_progress(f"{count} tenants are made", 0, 2)
    with emulator() as azurite:
        async with receiving() as receiver, devhost(azurite.connection_string, receiver.url) as host:
            keys = await _make_tenants(host, receiver.url, count)
            chance = random.Random(count)

            async def post(number: int, due: Millis) -> None:
                headers = HEADERS | {"authorization": f"Bearer {chance.choice(keys)}"}
                async with host.session.post(f"{host.url}/api/v1/events", data=event_text(number, due), headers=headers) as answer:
                    assert answer.status == 201, await answer.text()

            run.report_progress(name, 1, 2)
            return await _stream(host, receiver, name, limit, rate, seconds, LEAD, post)


async def _make_tenants(host: Host, receiver: str, count: int) -> Sequence[str]:
    """Make tenants that deliver to the receiver; return one key of each."""
    keys: list[str] = []

    async def make(number: int) -> None:
        tenant = f"{host.url}/api/v1/tenants/t{number}"
        async with host.session.put(tenant, json={}, headers=ADMIN) as answer:
            assert answer.status == 201, await answer.text()
        async with host.session.put(f"{tenant}/channels/default", json={"type": "http", "url": receiver}, headers=ADMIN) as answer:
            assert answer.status == 201, await answer.text()
        async with host.session.post(f"{tenant}/keys", json={"scopes": ["events"]}, headers=ADMIN) as answer:
            assert answer.status == 201, await answer.text()
            keys.append((await answer.json())["key"])

    await flight([lambda number=number: make(number) for number in range(count)], 16)
    return keys


async def _stream(
    host: Host, receiver: Receiving, name: str, limit: float, rate: int, seconds: float, lead: tuple[float, float], send: SendEvent
) -> Figure:
    """Send events at this rate, each at its instant even if earlier ones are not answered; return the lateness of their deliveries."""
    chance = random.Random(rate)
    cpu = machine.cpu_seconds(host.pid)
    began = time.monotonic()
    calls: list[asyncio.Task[None]] = []
    for number in range(round(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        calls.append(asyncio.create_task(send(number, round(1000 * (time.time() + chance.uniform(*lead))))))
    await asyncio.gather(*calls)
    await receiver.until(len(calls), 120.0, lambda arrived: None)
    stats: dict[str, Any] = await receiver.ask("stats")
    cpu = 1000 * (machine.cpu_seconds(host.pid) - cpu) / len(calls)
    note = (
        f"p50 {stats['p50']:.1f}, p90 {stats['p90']:.1f}, max {stats['max']:.0f} ms; {len(calls):,} events in {seconds:.0f} s; "
        f"early {stats['early']}, doubled {stats['count'] - stats['distinct']}; {cpu:.1f} ms CPU an event in the devhost"
    )
    return Figure(name, stats["p99"], "ms", "<=", limit, note, stats | {"cpu_ms": cpu})
