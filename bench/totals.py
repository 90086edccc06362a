"""Lists of dead events and totals of a tenant with many open events: answers of a devhost over HTTP."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import batched
from typing import Any, Final

from shared.core.clock import Millis, to_text
from shared.scheduler.keys import HOME, index_key, index_partition, minute_text, shard_key
from shared.scheduler.protocol.ingest import counts_props
from shared.scheduler.shard.gate import Counts, Tally
from shared.scheduler.timings import NOTE_AFTER
from shared.storage.names import SHARDS
from shared.storage.ports import MAX_EGT_ROWS, Applied, Insert, Tables

from .report import Figure
from .tools.stage import KEY, TENANT, Host, Run, application, batch_text, chunks, devhost, emulator, spread

EVENTS: Final = 500_000
QUICK: Final = 50_000
BATCH: Final = 5_000
HOUR: Final[Millis] = 3_600_000
ROUNDS: Final = 15
SHARDS_OF_25: Final = 20_000
TTL: Final = 10.5
"""Seconds after which `/metrics` is computed anew."""
ADMIN: Final = "local-admin-key"


@asynccontextmanager
async def filled(run: Run, what: str) -> AsyncIterator[tuple[Host, int, Millis]]:
    """A devhost whose tenant has open events in the ten hours from tomorrow noon on, none of them dead. Yields it, their number, the first
    minute.
    """
    events = QUICK if run.quick else EVENTS
    first = (int(time.time() * 1000) // HOUR + 24) * HOUR
    with emulator() as azurite:
        async with devhost(azurite.connection_string) as host:
            headers = {"authorization": f"Bearer {KEY}", "content-type": "application/x-ndjson"}
            for number, dues in enumerate(chunks(sorted(spread(events, first, 10 * HOUR)), BATCH)):
                run.report_progress(what, number * BATCH, events)
                async with host.session.post(f"{host.url}/api/v1/events/batch", data=batch_text(dues), headers=headers) as answer:
                    assert answer.status == 200 and (await answer.json())["rejected"] == 0
            # Until the last shards have their counts.
            await asyncio.sleep(2 * NOTE_AFTER)
            yield host, events, first


async def timed(host: Host, path: str, key: str = KEY, pause: float = 0.0, rounds: int = ROUNDS) -> tuple[list[float], Any]:
    """Return the times of a GET in ms, all pages of a list included, in order; and the last answer."""
    found, last = [], None
    for _ in range(rounds):
        began, cursor = time.perf_counter(), ""
        while True:
            async with host.session.get(f"{host.url}{path}{cursor}", headers={"authorization": f"Bearer {key}"}) as answer:
                assert answer.status == 200, await answer.text()
                last = await answer.json() if "json" in answer.content_type else await answer.text()
            following = last.get("next") if isinstance(last, dict) else None
            if following is None:
                break
            cursor = f"{'&' if '?' in path else '?'}cursor={following}"
        found.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(pause)
    return sorted(found), last


def row(name: str, times: list[float], limit: float, note: str) -> Figure:
    """Return the median as a row of the table."""
    return Figure(name, times[len(times) // 2], "ms", "<=", limit, note, {"ms": [round(each, 1) for each in times]})


async def dead(run: Run) -> list[Figure]:
    """Measure the empty lists of dead events, each from its first page to its last."""
    async with filled(run, "list-dead") as (host, events, _):
        figures = []
        for path in ("/events?state=dead", "/dead-letters"):
            name = f"GET {path}, empty"
            times, found = await timed(host, f"/api/v1{path}")
            assert found["items"] == []
            figures.append(row(name, times, 200, f"median of {ROUNDS}, all pages, {events:,} open events; worst {times[-1]:.0f} ms"))
        return figures


async def totals(run: Run) -> list[Figure]:
    """Measure `/stats`, `/load` over a day and `/metrics`."""
    async with filled(run, "stats-open") as (host, events, first):
        return await _totals(host, events, first, f"{events:,} open events")


async def shards(run: Run) -> list[Figure]:
    """Measure the same with as many open events in small shards. Only their index rows exist, which is all that totals read."""
    count = run.pick(SHARDS_OF_25, SHARDS_OF_25 // 20)
    first = (int(time.time() * 1000) // HOUR + 24) * HOUR
    with emulator() as azurite:
        async with devhost(azurite.connection_string) as host:
            async with application(azurite.connection_string) as (app, _):
                await _file(app.storage.tables, count, first)
            return await _totals(host, 25 * count, first, f"{count:,} shards of 25 open events")


async def _file(tables: Tables, count: int, first: Millis) -> None:
    """Store index rows of shards with 25 open events each, in the ten hours from `first` on."""
    chance = random.Random(1)
    partitions: dict[str, list[Insert]] = {}
    for number in range(count):
        shard, wake = shard_key(TENANT, f"{HOME}{number:015x}"), first + chance.randrange(10 * HOUR)
        props = {"state": "pending", "wake": wake, "bucket": minute_text(wake), "tenant": TENANT, **counts_props(wake, Tally(Counts(25)))}
        partitions.setdefault(index_partition(shard), []).append(Insert(index_key(shard, wake), props))
    for partition, rows in partitions.items():
        for some in batched(rows, MAX_EGT_ROWS):
            assert isinstance(await tables.write(SHARDS, partition, some), Applied)


async def _totals(host: Host, events: int, first: Millis, note: str) -> list[Figure]:
    stats, found = await timed(host, "/api/v1/stats")
    assert found["open"] == events and "incomplete" not in found, found
    load, found = await timed(host, f"/api/v1/load?from={to_text(first)}&to={to_text(first + 24 * HOUR)}")
    assert sum(each["scheduled"] for each in found["items"]) == events and "incomplete" not in found
    metrics, text = await timed(host, "/api/metrics", ADMIN, TTL, 3)
    assert "tocsin_events" in text
    return [
        row("GET /stats", stats, 300, f"median of {ROUNDS}, {note}; worst {stats[-1]:.0f} ms"),
        row("GET /load over a day", load, 300, f"median of {ROUNDS}, {note}; worst {load[-1]:.0f} ms"),
        row("GET /metrics", metrics, 300, f"median of 3, each computed anew, {note}; worst {metrics[-1]:.0f} ms"),
    ]
