"""The loads. Events of 500 bytes, delivered by signed HTTP to a receiver that answers at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from ..tools.stage import chunks, payload, spread
from . import fleets, observed
from .measuring import ShowProgress, Stage, Window, measure, pass_time, stage
from .rules import Record

LEAD: Final = 45.0
"""Seconds between the post of an event and its due time."""

type Drive = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Load:
    """A load that goes on all month."""

    title: str
    drive: Drive
    warm: float = 75.0
    """Seconds until it is steady."""


@dataclass(frozen=True, slots=True)
class Bulk:
    """Events that are posted in batches and due over a minute. At the end all of them have been delivered."""

    title: str
    batch: int = 1000
    per_core: int = 120_000
    """Events for an instance of one core, about as many as it delivers in a minute; half of them for a smaller instance."""


BULK_LEAD: Final = 60.0
"""Seconds between the first post of a bulk and the first due time."""
BULK_WIDTH: Final = 60.0
"""Seconds over which a bulk is due."""
SETTLING: Final = 30.0
"""Seconds after the last delivery within which the owners of the shards end."""


async def nothing(found: Stage) -> None:
    """Leave the app alone."""


def posted(per_minute: float) -> Drive:
    """Return a load of events that are posted one by one, evenly, each due `LEAD` seconds later."""

    async def post(found: Stage) -> None:
        async def go() -> None:
            started, number, posts = time.time(), 0, set[asyncio.Task[object]]()
            while True:
                await asyncio.sleep(started + number * 60.0 / per_minute - time.time())
                number += 1
                body = {"delay": f"PT{LEAD:g}S", "payload": payload(number)}
                posts.add(task := asyncio.create_task(found.call("POST", "/events", body)))
                task.add_done_callback(posts.discard)

        found.tasks.append(asyncio.create_task(go()))

    return post


def scheduled(per_minute: int) -> Drive:
    """Return a load of events from schedules; one of them makes at most one a second."""

    async def make(found: Stage) -> None:
        count = max(1, per_minute // 60)
        every = 60 * count // per_minute
        for number in range(count):
            await found.call("PUT", f"/schedules/s{number}", {"every": f"PT{every}S", "payload": payload(number)})

    return make


LOADS: Final[dict[str, Load | Bulk]] = {
    "idle": Load("idle", nothing),
    "posted-1": Load("1 event a minute, posted singly", posted(1)),
    "posted-4": Load("4 events a minute, posted singly", posted(4)),
    "posted-60": Load("60 events a minute, posted singly", posted(60)),
    "posted-1000": Load("1,000 events a minute, posted singly", posted(1000)),
    "scheduled-1": Load("1 event a minute, from a schedule", scheduled(1)),
    "scheduled-4": Load("4 events a minute, from a schedule", scheduled(4)),
    "scheduled-60": Load("60 events a minute, from a schedule", scheduled(60)),
    "scheduled-1020": Load("1,020 events a minute, from 17 schedules", scheduled(1020)),
    "evenly-10M": Load("10 million events a month, posted singly", posted(10_000_000 / 43_200)),
    "fleet-table": Load(f"a fleet of {fleets.SERVERS} servers, by table", fleets.by_table, warm=60.0),
    "fleet-http": Load(f"a fleet of {fleets.SERVERS} servers, over HTTP", fleets.over_http, warm=60.0),
    "turns": Load(f"checkpoint turns of {fleets.REPLICAS} replicas", fleets.turns, warm=60.0),
    "bulk": Bulk("1 million events in batches of 1,000"),
}


ALONE: Final = {"bulk"}
"""The loads that are measured alone, one size after the other."""


async def run(load: Load | Bulk, memory_mb: int, seconds: float, show: ShowProgress) -> tuple[Record, dict[str, object]]:
    """Measure a load on instances of one size. Return the record, and notes about it.

    seconds: the length of the measurement; below 90 s, a bulk has fewer events.
    """
    async with stage(memory_mb) as found:
        what = f"{load.title}, {memory_mb} MB"
        if isinstance(load, Bulk):
            count = load.per_core // (1 if memory_mb >= 2048 else 2) // (1 if seconds >= 90 else 6)
            record = await _bulk(found, load, count, what, show)
        else:
            await load.drive(found)
            record = await measure(found, load.warm, seconds, what, show)
        for task in found.tasks:
            if task.done():
                task.result()
        return record, notes(found)


async def _bulk(found: Stage, load: Bulk, count: int, what: str, show: ShowProgress) -> Record:
    window = Window(found)
    # A first event starts the processes that the bulk needs.
    await found.call("POST", "/events", {"delay": "PT5S", "payload": payload(0)})
    await found.receiver.until(1, 120, lambda _: None)
    await window.begin()
    first = time.time() + BULK_LEAD
    dues = spread(count, round(first * 1000), round(BULK_WIDTH * 1000))
    for number, batch in enumerate(chunks(dues, load.batch)):
        show(what, number * load.batch, 3 * count)
        await found.host.batch(batch)
    await found.receiver.until(count + 1, 420, lambda done: show(what, count + done, 3 * count))
    await pass_time(SETTLING, what, show, 2 * SETTLING, 3 * SETTLING)
    await window.end()
    record = window.record([])
    # The timers would also have run without the bulk.
    return replace(record, invocations=[each for each in record.invocations if each.function not in record.timers])


def notes(found: Stage) -> dict[str, object]:
    """Return the limit, the failures, the cold starts and the telemetry records of a run."""
    return {
        "limit": found.limit.name,
        "failed": dict(observed.failures(found.invocations)),
        "cold_starts": {group: [round(each, 3) for each in pair] for group, pair in observed.cold_starts(found.invocations).items()},
        "telemetry_records": dict(found.telemetry.records),
    }
