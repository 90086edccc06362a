"""`tocsin events import` against a sink that answers at once, and against the app on Azurite: what bounds a large import."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from devhost.azurite import ROOT

from ..report import Figure
from ..tools.serving import serving
from ..tools.stage import KEY, Run, devhost, emulator

MINUTES = 10
"""Minutes over which the events of the app's share are due: few enough that shards fill up, as those of a large import do."""


async def measure(run: Run) -> list[Figure]:
    """CPU of the command an event, beside what an event takes on the way to storage."""
    many, few = run.pick(1_000_000, 100_000), run.pick(50_000, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large.ndjson", Path(folder) / "small.ndjson"
        _write(large, many)
        _write(small, few)
        run.report_progress("import, a sink", 0, 3)
        async with _sink() as url:
            _, start = await _import(url, Path(os.devnull), "make", large.parent)
            wall, cpu = await _import(url, large, "make", large.parent)
        rates: dict[str, float] = {}
        with emulator() as azurite:
            async with devhost(azurite.connection_string) as host:
                for done, ids in enumerate(("none", "make"), 1):
                    run.report_progress(f"import, Azurite, ids {ids}", done, 3)
                    took, _ = await _import(host.url, small, ids, large.parent)
                    rates[ids] = few / took
    each = (cpu - start) / many * 1e6
    spent = {ids: 1e6 / rate for ids, rate in rates.items()}
    note = (
        f"{many:,} events in {wall:.1f} s against a sink that answers at once, {start:.1f} s CPU to start beside. The app on Azurite: "
        f"{rates['none']:,.0f} events/s without ids and {rates['make']:,.0f} with, {spent['none']:,.0f} and {spent['make']:,.0f} us each"
    )
    details: dict[str, Any] = {"wall": wall, "cpu": cpu, "start": start, "rates": rates}
    return [
        Figure("import: the command's CPU an event", each, "us", "<=", 20, note, details),
        Figure("import: storage path / command", spent["none"] / each, "", ">=", 5, "times that an event takes on the way to storage"),
    ]


def _write(file: Path, count: int) -> None:
    first = time.time() + 48 * 3600
    with file.open("w") as out:
        for number in range(count):
            due = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first + number % (MINUTES * 60)))
            payload = {"order": number, "customer": f"c{number % 9999:06}", "text": "please call back " * 3}
            out.write(json.dumps({"due": due, "payload": payload}) + "\n")


@asynccontextmanager
async def _sink() -> AsyncIterator[str]:
    """Accepts every batch. Answers are made once for each length."""
    made: dict[int, bytes] = {}

    async def take(request: web.Request) -> web.Response:
        count = (await request.read()).count(b"\n") + 1
        if count not in made:
            results = [{"index": index, "status": 201, "id": f"~{index:032x}"} for index in range(count)]
            made[count] = json.dumps({"accepted": count, "rejected": 0, "results": results}).encode()
        return web.Response(body=made[count], content_type="application/json")

    app = web.Application(client_max_size=32 * 1024 * 1024)
    app.router.add_post("/api/v1/events/batch", take)
    async with serving(app) as url:
        yield url


async def _import(url: str, file: Path, ids: str, scratch: Path) -> tuple[float, float]:
    """Return the seconds by the clock, and of CPU, that the command took."""
    beside = ("--rejects", str(scratch / f"rejects-{ids}"), "--progress", str(scratch / f"progress-{ids}"))
    environment = {**os.environ, "TOCSIN_URL": url, "TOCSIN_KEY": KEY, "TOCSIN_PROFILES": os.devnull}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shared.cli", "events", "import", str(file), "--ids", ids, *beside),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
