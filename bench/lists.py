"""Lists with a filter that matches nothing: `python -m bench.lists`.

Stores 40 shards of 8 MiB of one tenant. Prints what one such request reads, and what ten at once of that tenant cost other calls.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any, Final

from shared.scheduler.queries.event_filter import EventFilter
from shared.scheduler.queries.lookup import START, ListPosition

from .bodies import percentiles, probing
from .tools.stage import KEY, TENANT, Host, application, devhost, emulator

SHARDS: Final = 40
LARGE: Final = 250_000
"""Bytes of a payload, so that a shard of 8 MiB holds 33 events."""
PROBES: Final = {"liveness (reads no storage)": "/api/v1/healthz", "another tenant's list": "/api/v1/events?limit=1&tenant=other"}
SECONDS: Final = 5.0
ADMIN: Final = {"authorization": "Bearer local-admin-key"}


def _batch(count: int, size: int) -> bytes:
    return b"\n".join([b'{"delay":"P3650D","payload":"%s"}' % (b"x" * size)] * count)


async def fill(host: Host, events: int, size: int) -> None:
    """Store events of one minute, as many at once as a batch of 16 MiB holds."""
    most = min(5000, 16_000_000 // (size + 50))
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/x-ndjson"}
    for at in range(0, events, most):
        body = _batch(min(most, events - at), size)
        async with host.session.post(f"{host.url}/api/v1/events/batch", data=body, headers=headers) as answer:
            assert answer.status == 200 and (await answer.json())["rejected"] == 0


async def one(connection: str) -> dict[str, Any]:
    """Read all pages in this process; return what the first page read, and the pages."""
    async with application(connection) as (app, _):
        tables: Any = app.storage.tables
        counts = tables.transactions
        first: dict[str, Any] = {}
        position: ListPosition | None = START
        pages = 0
        while position is not None:
            before, received, started, cpu = dict(counts), tables.bytes_read, time.perf_counter(), time.process_time()
            rows, position = await app.scheduler.lookup.events(TENANT, EventFilter(wanted=lambda props: False), 100, position)
            assert not rows
            pages += 1
            first = first or {
                **{name: counts[name] - before.get(name, 0) for name in ("query", "get", "rows_read")},
                "bytes_read": tables.bytes_read - received,
                "seconds": time.perf_counter() - started,
                "cpu": time.process_time() - cpu,
            }
        return first | {"pages": pages}


async def beside(host: Host, requests: int, path: str) -> tuple[float, float, float]:
    """Return p50, p99 and the most of the times of a small request, in ms, while requests of the first are repeated for `SECONDS`."""
    url = f"{host.url}/api/v1/events?state=lapsed"

    async def ask(ends: float) -> None:
        while time.perf_counter() < ends:
            async with host.session.get(url, headers={"authorization": f"Bearer {KEY}"}) as answer:
                assert answer.status in (200, 429)
                await answer.read()

    async with probing(host.port, path, "local-admin-key") as finish:
        ends = time.perf_counter() + SECONDS
        await asyncio.gather(asyncio.sleep(SECONDS), *(ask(ends) for _ in range(requests)))
        return percentiles((await finish())["took"])


async def run(large: bool) -> None:
    events, size = (SHARDS * 33, LARGE) if large else (SHARDS * 990, 200)
    with emulator() as azurite:
        async with devhost(azurite.connection_string) as host:
            async with host.session.put(f"{host.url}/api/v1/tenants/other", json={}, headers=ADMIN) as answer:
                assert answer.status in (200, 201), await answer.text()
            await fill(host, events, size)
            print(f"{events:,} events of {size:,} bytes")
            for requests in (0, 1, 10):
                for name, path in PROBES.items():
                    p50, p99, most = await beside(host, requests, path)
                    print(f"  {name} beside {requests:2} requests: p50 {p50:.1f} p99 {p99:.1f} max {most:.1f} ms", flush=True)
        found = await one(azurite.connection_string)
    print(
        f"  one page: {found['query']} queries, {found['get']} single reads, {found['rows_read']:,} rows, {found['bytes_read']:,} bytes, "
        f"{found['seconds']:.2f} s, {found['cpu']:.2f} s of CPU; {found['pages']} pages in all"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.lists", description="Measures lists with a filter that matches nothing.")
    parser.add_argument("--small", action="store_true", help="shards of 990 small events instead of 33 large ones")
    asyncio.run(run(not parser.parse_args().small))


if __name__ == "__main__":
    main()
