"""Lateness of events that share little: many tenants with few events each, and events that are moved one by one.

Everything goes through HTTP to a devhost, as a user's requests do. No batch helps: each tenant has shards of its own, so what counts is how
many shards a process can serve side by side.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from devhost.azurite import Azurite
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


@dataclass(frozen=True, slots=True)
class Streamed:
    """The outcome of a load: `count` events that were sent within `seconds`.

    stats: the receiver's, with the lateness in milliseconds. cpu: milliseconds of CPU an event in the devhost. thread: the same in the
    emulator's one thread.
    """

    stats: dict[str, Any]
    count: int
    seconds: float
    cpu: float
    thread: float

    @property
    def busy(self) -> float:
        """Share of the emulator's one thread that the load takes, where events are delivered at the rate at which they are sent."""
        return self.thread / 1000 * self.count / self.seconds

    def figure(self, name: str, limit: float) -> Figure:
        """Return the lateness p99. limit: greatest p99 in milliseconds."""
        stats = self.stats
        note = (
            f"p50 {stats['p50']:.1f}, p90 {stats['p90']:.1f}, max {stats['max']:.0f} ms; {self.count:,} events in {self.seconds:.0f} s; "
            f"early {stats['early']}, doubled {stats['count'] - stats['distinct']}; {self.cpu:.1f} ms CPU an event in the devhost, "
            f"{self.thread:.1f} ms in Azurite's one thread, {self.busy:.0%} busy"
        )
        return Figure(name, stats["p99"], "ms", "<=", limit, note, stats | {"cpu_ms": self.cpu, "azurite_ms": self.thread})


def lateness_of(tenants: int, rate: float) -> str:
    """Return the name of the figure for single events of many tenants. rate: events a second."""
    return f"lateness p99, {tenants:,} tenants, {rate:g} single POSTs a second in all, due in {LEAD[0]:g} to {LEAD[1]:g} s"


class TenantPosts:
    """Posts each event with the key of a tenant that is chosen at random."""

    def __init__(self, host: Host, keys: Sequence[str]) -> None:
        self._host, self._keys, self._chance = host, keys, random.Random(len(keys))
        self.sent: dict[str, Millis] = {}
        """The due time of each event by its id."""

    async def send(self, number: int, due: Millis) -> None:
        headers = HEADERS | {"authorization": f"Bearer {self._chance.choice(self._keys)}"}
        async with self._host.session.post(f"{self._host.url}/api/v1/events", data=event_text(number, due), headers=headers) as answer:
            assert answer.status == 201, await answer.text()
            self.sent[(await answer.json())["id"]] = due


async def tenants_300(run: Run) -> list[Figure]:
    """30 single POSTs a second in all, by 300 tenants."""
    count, rate, seconds = 300, 30, run.pick(60.0, 20.0)
    name = lateness_of(count, rate)
    run.report_progress(f"{count} tenants are made", 0, 2)
    with emulator() as azurite:
        async with receiving() as receiver, devhost(azurite.connection_string, receiver.url) as host:
            post = TenantPosts(host, await make_tenants(host, receiver.url, count))
            run.report_progress(name, 1, 2)
            return [(await stream(host, azurite, receiver, rate, seconds, LEAD, post.send)).figure(name, 50.0)]


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
            return [(await stream(host, azurite, receiver, rate, seconds, MOVED_LEAD, move)).figure(name, 50.0)]


async def make_tenants(host: Host, receiver: str, count: int) -> Sequence[str]:
    """Make the tenants `t0000`, `t0001` and so on, which deliver to the receiver; return one key of each."""
    keys: list[str] = []

    async def make(number: int) -> None:
        tenant = f"{host.url}/api/v1/tenants/t{number:04}"
        async with host.session.put(tenant, json={}, headers=ADMIN) as answer:
            assert answer.status == 201, await answer.text()
        async with host.session.put(f"{tenant}/channels/default", json={"type": "http", "url": receiver}, headers=ADMIN) as answer:
            assert answer.status == 201, await answer.text()
        async with host.session.post(f"{tenant}/keys", json={"scopes": ["events"]}, headers=ADMIN) as answer:
            assert answer.status == 201, await answer.text()
            keys.append((await answer.json())["key"])

    await flight([lambda number=number: make(number) for number in range(count)], 16)
    return keys


async def stream(
    host: Host, azurite: Azurite, receiver: Receiving, rate: float, seconds: float, lead: tuple[float, float], send: SendEvent
) -> Streamed:
    """Send events at this rate, each at its planned time even if earlier ones are not answered, and wait for their deliveries.

    rate: events a second. lead: least and most seconds from the sending to the due time.
    """
    assert azurite.pid is not None
    chance = random.Random(round(rate))
    await receiver.ask("reset")
    cpu, thread = machine.cpu_seconds(host.pid), machine.thread_seconds(azurite.pid)
    began = time.monotonic()
    calls: list[asyncio.Task[None]] = []
    for number in range(round(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        calls.append(asyncio.create_task(send(number, round(1000 * (time.time() + chance.uniform(*lead))))))
    await asyncio.gather(*calls)
    await receiver.until(len(calls), 120.0, lambda arrived: None)
    each = 1000 / len(calls)
    cpu, thread = machine.cpu_seconds(host.pid) - cpu, machine.thread_seconds(azurite.pid) - thread
    return Streamed(await receiver.ask("stats"), len(calls), seconds, each * cpu, each * thread)
