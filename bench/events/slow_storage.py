"""Lateness of many tenants on storage that answers each request after 8 ms at any load, so that the rest of it is the app's own.

python -m bench.events.slow_storage TENANTS RATE SECONDS LEAST MOST RECEIVER     prints JSON: milliseconds of CPU an event

RATE: events a second. LEAST, MOST: seconds from the POST to the due time. RECEIVER: URL of the deliveries.
The app runs in a process of its own, with storage in memory. Its API is called without HTTP; deliveries are requests over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from typing import Final

from devhost.loops import chosen_loop, loop_factory
from shared.app.application import Application
from shared.core.clock import Millis, SystemClock
from shared.delivery.channels.model import HttpChannel
from shared.local.invocations import LocalApi
from shared.storage import Storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.ports import Applied, Message, Op, Page, Row, RowQuery, WriteRefused
from shared.tenants.model import KeyIn, Tenant
from shared.whatif.twin.trigger import QueueTrigger, ticking

from ..report import Figure
from ..tools.stage import child, event_text, local_settings, receiving

ANSWERS_AFTER: Final = 0.008
"""Seconds until storage answers, as in `bench quiet`."""
UNUSED_CONNECTION: Final = "UseDevelopmentStorage=true"
"""Connection string that the settings need and that nothing uses."""


class SlowTables(MemoryTables):
    """Tables in memory that answer after `ANSWERS_AFTER`."""

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        await asyncio.sleep(ANSWERS_AFTER)
        return await super().get(table, pk, rk)

    async def query(self, query: RowQuery) -> Page:
        await asyncio.sleep(ANSWERS_AFTER)
        return await super().query(query)

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        await asyncio.sleep(ANSWERS_AFTER)
        return await super().write(table, pk, ops)


class SlowQueues(MemoryQueues):
    """Queues in memory that answer after `ANSWERS_AFTER`."""

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        await asyncio.sleep(ANSWERS_AFTER)
        await super().send(queue, text, visible_in=visible_in)

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        await asyncio.sleep(ANSWERS_AFTER)
        return await super().receive(queue, limit=limit, lease=lease)

    async def delete(self, queue: str, message: Message) -> bool:
        await asyncio.sleep(ANSWERS_AFTER)
        return await super().delete(queue, message)


async def lateness(tenants: int, rate: int, seconds: float, lead: tuple[float, float], limit: float) -> Figure:
    """Return the lateness p99 at the receiver.

    rate: events a second. lead: least and most seconds from the POST to the due time. limit: greatest p99 in milliseconds.
    """
    async with receiving() as receiver:
        arguments = [str(each) for each in (tenants, rate, seconds, *lead, receiver.url)]
        async with child("-m", "bench.events.slow_storage", *arguments, stdin=True) as process:
            assert process.stdout is not None
            cpu = json.loads(await asyncio.wait_for(process.stdout.readline(), seconds + 240.0))
        stats = await receiver.ask("stats")
    name = f"lateness p99, {tenants:,} tenants, {rate} a second, storage that answers in {1000 * ANSWERS_AFTER:g} ms"
    note = f"p50 {stats['p50']:.1f}, p90 {stats['p90']:.1f}, max {stats['max']:.0f} ms; {stats['distinct']:,} events; "
    note += f"early {stats['early']}; {cpu:.1f} ms CPU an event in the app"
    return Figure(name, stats["p99"], "ms", "<=", limit, note, stats | {"cpu_ms": cpu})


async def _play(tenants: int, rate: int, seconds: float, lead: tuple[float, float], receiver: str) -> float:
    """Post events, and wait until they are settled. Return the milliseconds of CPU an event."""
    clock = SystemClock()
    storage = Storage(SlowTables(clock), SlowQueues(clock))
    await storage.ensure()
    app = await Application.open(local_settings(UNUSED_CONNECTION, receiver), clock=clock, storage=storage)
    try:
        async with QueueTrigger(app.scheduler, storage.queues, clock) as pump, ticking(app):
            await asyncio.gather(*[_make_tenant(app, number, receiver) for number in range(tenants)])
            await app.timers.sweep()
            cpu, count = time.process_time(), round(rate * seconds)
            await _post(app, tenants, rate, count, lead)
            await asyncio.sleep(lead[1])
            await pump.idle()
            if pump.errors:
                raise RuntimeError(f"{len(pump.errors)} messages failed: {pump.errors[0]}")
            return 1000 * (time.process_time() - cpu) / count
    finally:
        await app.close()


async def _make_tenant(app: Application, number: int, receiver: str) -> None:
    name = f"t{number:04}"
    await app.directory.put(name, Tenant())
    await app.directory.keys.plant(name, _key(number), KeyIn(scopes=["events"], note=""))
    await app.directory.channels.plant(name, "default", HttpChannel(type="http", url=receiver))


async def _post(app: Application, tenants: int, rate: int, count: int, lead: tuple[float, float]) -> None:
    """Post `count` events at this rate, each at its planned time even if earlier ones are not answered."""

    async def get_app() -> Application:
        return app

    api, chance, calls = LocalApi(get_app), random.Random(tenants), list[asyncio.Task[None]]()

    async def call(number: int, due: Millis) -> None:
        headers = {"authorization": f"Bearer {_key(chance.randrange(tenants))}", "content-type": "application/json"}
        answer = await api.answer("POST", "http://localhost/api/v1/events", "/api/v1/events", headers, event_text(number, due).encode())
        assert answer.status == 201, answer.body[:500]

    began = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        calls.append(asyncio.create_task(call(number, round(1000 * (time.time() + chance.uniform(*lead))))))
    await asyncio.gather(*calls)


def _key(number: int) -> str:
    return f"bench-key-of-tenant-{number}"


def main() -> None:
    tenants, rate, seconds, least, most, receiver = sys.argv[1:]
    work = _play(int(tenants), int(rate), float(seconds), (float(least), float(most)), receiver)
    print(json.dumps(asyncio.run(work, loop_factory=loop_factory(chosen_loop(os.environ)))), flush=True)


if __name__ == "__main__":
    main()
