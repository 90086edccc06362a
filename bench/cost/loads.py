"""The loads. Events of 500 bytes, delivered by signed HTTP to a receiver that answers at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ..tools.stage import payload
from .measuring import ShowProgress, Stage, measure, stage
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


LOADS: Final[dict[str, Load]] = {
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
}


async def run(load: Load, memory_mb: int, seconds: float, show: ShowProgress) -> tuple[Record, dict[str, object]]:
    """Measure a load on instances of one size. Return the record, and what is worth knowing beside it."""
    async with stage(memory_mb) as found:
        await load.drive(found)
        record = await measure(found, load.warm, seconds, f"{load.title}, {memory_mb} MB", show)
        for task in found.tasks:
            if task.done():
                task.result()
        return record, notes(found)


def notes(found: Stage) -> dict[str, object]:
    """Return what is worth knowing beside a record."""
    from . import observed

    return {
        "limit": found.limit.name,
        "failed": dict(observed.failures(found.invocations)),
        "cold_starts": {group: [round(each, 3) for each in pair] for group, pair in observed.cold_starts(found.invocations).items()},
        "telemetry_records": dict(found.telemetry.records),
    }
