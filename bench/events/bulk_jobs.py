"""A bulk job over events with one label, and the lateness of other events while it runs.

Everything goes through HTTP to one devhost, which serves all functions in one process; in Azure, the function that carries bulk jobs on has
instances of its own.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from shared.core.clock import to_text

from ..report import Figure
from ..tools.stage import Host, Run, devhost, emulator, event_text, receiving
from .singles import HEADERS
from .sparse_tenants import ADMIN
from .stream import _post

RATE = 30
"""Other events that are posted in a second, due 1 to 5 s later."""
LEAD = 2.5
BATCH = 5_000


async def measure(run: Run) -> list[Figure]:
    """Cancel many events by one label; p99 of the lateness of others without the job and beside it."""
    count, alone = run.pick(100_000, 10_000), run.pick(60.0, 20.0)
    late: dict[str, dict[str, Any]] = {}
    with emulator() as azurite:
        async with receiving() as receiver, devhost(azurite.connection_string, receiver.url) as host:
            await _declare(host)
            run.report_progress(f"{count:,} events are stored", 0, 3)
            await _fill(host, count)
            run.report_progress("other events, alone", 1, 3)
            sent = await _stream(host, 0, alone, asyncio.Event())
            await receiver.until(sent, 60.0, lambda arrived: None)
            late["alone"] = await receiver.ask("stats")
            await receiver.ask("reset")
            run.report_progress(f"other events, while {count:,} are cancelled", 2, 3)
            over = asyncio.Event()
            beside = asyncio.create_task(_stream(host, sent, 1e9, over))
            counted, took, report = await _job(host, count)
            over.set()
            sent = await beside
            await receiver.until(sent, 60.0, lambda arrived: None)
            late["beside"] = await receiver.ask("stats")
    note = f"{report['done']:,} cancelled, {report['skipped']} skipped, {report['failed']} failed; counted within {counted:.1f} s"
    plain, busy = late["alone"]["p99"], late["beside"]["p99"]
    return [
        Figure(f"bulk job: {count:,} events by one label", took, "s", "<=", count / 200, note, {"counted": counted, "report": report}),
        Figure("lateness p99 of other events beside it", busy, "ms", "<=", plain + 25, f"alone {plain:.1f} ms; {RATE} a second", late),
    ]


async def _declare(host: Host) -> None:
    tenant = f"{host.url}/api/v1/tenants/demo"
    async with host.session.get(tenant, headers=ADMIN) as answer:
        found = await answer.json()
    fields = {name: found[name] for name in ("durability", "limits") if name in found} | {"searchable": ["order"]}
    async with host.session.put(tenant, json=fields, headers=ADMIN) as answer:
        assert answer.status == 200, await answer.text()
    # By then, all processes mark events.
    await asyncio.sleep(6.0)


async def _fill(host: Host, count: int) -> None:
    """Store events that are due tomorrow, over an hour."""
    start, headers = round(1000 * time.time()) + 86_400_000, HEADERS | {"content-type": "application/x-ndjson"}
    for first in range(0, count, BATCH):
        numbers = range(first, min(count, first + BATCH))
        lines = [f'{{"due":"{to_text(start + 36 * number)}","payload":{number},"labels":{{"order":"17"}}}}' for number in numbers]
        async with host.session.post(f"{host.url}/api/v1/events/batch", data="\n".join(lines), headers=headers) as answer:
            assert (await answer.json())["accepted"] == len(numbers)


async def _stream(host: Host, first: int, seconds: float, over: asyncio.Event) -> int:
    """Post events at the rate until the time or the job is over; return their number."""
    began = time.monotonic()
    calls: list[asyncio.Task[None]] = []
    while not over.is_set() and (moment := began + len(calls) / RATE) < began + seconds:
        await asyncio.sleep(max(0.0, moment - time.monotonic()))
        number = first + len(calls)
        due = round(1000 * (time.time() + LEAD + number % 5 / 2))
        calls.append(asyncio.create_task(_post(host, event_text(number, due))))
    await asyncio.gather(*calls)
    return len(calls)


async def _job(host: Host, count: int) -> tuple[float, float, dict[str, Any]]:
    """Count, confirm and follow a job; return the seconds that its count and its run took, and its report."""
    url = f"{host.url}/api/v1/jobs"
    began = time.monotonic()
    async with host.session.post(url, json={"action": "cancel", "filter": {"labels": {"order": "17"}}}, headers=HEADERS) as answer:
        assert answer.status == 201, await answer.text()
        job: dict[str, Any] = await answer.json()
    job = await _follow(host, f"{url}/{job['id']}", "counting")
    assert job["count"] == count, job
    counted = time.monotonic() - began
    async with host.session.post(f"{url}/{job['id']}/confirm", json={"confirmation": job["confirmation"]}, headers=HEADERS) as answer:
        assert answer.status == 202, await answer.text()
    began = time.monotonic()
    job = await _follow(host, f"{url}/{job['id']}", "running")
    return counted, time.monotonic() - began, job


async def _follow(host: Host, url: str, state: str) -> dict[str, Any]:
    while True:
        async with host.session.get(url, headers=HEADERS) as answer:
            job: dict[str, Any] = await answer.json()
        if job["state"] != state:
            return job
        await asyncio.sleep(0.5)
