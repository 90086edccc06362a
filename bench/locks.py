"""Measures locks: the storage requests of each call, and the calls a second that a devhost serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

from shared.app.application import Application
from shared.app.timers import PERIODS
from shared.client.concurrent import AsyncClient
from shared.locks.model import LockHeldOut, LockIn, LockReleaseQuery

from .bodies import percentiles
from .report import Figure
from .tools.stage import FLIGHT, KEY, TENANT, Host, Run, application, devhost, emulator, flight, requests_of

HEADERS: Final = {"authorization": f"Bearer {KEY}"}
TTL: Final = "PT1H"
"""Validity: no grant runs out during the measurement."""
HANDOVERS: Final = 20


async def measure(run: Run) -> list[Figure]:
    """Measure locks: requests to storage in this process, the rest through a devhost."""
    count = run.pick(10_000, 1_000)
    with emulator() as azurite:
        async with application(azurite.connection_string) as (app, _):
            costs = await _costs(app)
            before = await _timers(app)
        async with devhost(azurite.connection_string) as host:
            figures = await _handover(host)
            # Together with the two other locks, these are as many as a tenant may have.
            figures += await _rates(host, count - 2)
        async with application(azurite.connection_string) as (app, _):
            idle = await _timers(app)
    costs.append(Figure(f"locks: further storage requests of all timers with {count:,} idle locks", idle - before, "", "<=", 0))
    return costs + figures


def _transactions(app: Application) -> int:
    tables: Any = app.storage.tables
    return requests_of(tables.transactions)


async def _timers(app: Application) -> int:
    """Return the storage requests of one run of each timer."""
    for name in PERIODS:
        await app.timers.run_once(name)
    before = _transactions(app)
    for name in PERIODS:
        await app.timers.run_once(name)
    return _transactions(app) - before


async def _costs(app: Application) -> list[Figure]:
    """Return the storage requests of the calls."""
    figures = []
    ask = LockIn.model_validate({"holder": "a", "nonce": "n1", "ttl": TTL})
    held = await app.locks.ask(TENANT, "cost", ask)

    async def cost(name: str, call: Callable[[], Awaitable[Any]], most: int) -> Any:
        before = _transactions(app)
        answer = await call()
        figures.append(Figure(f"locks: storage requests of {name}", _transactions(app) - before, "", "<=", most))
        return answer

    assert isinstance(held, LockHeldOut)
    token, version = held.token, held.version
    await cost("a renewal", lambda: app.locks.ask(TENANT, "cost", ask.model_copy(update={"token": token, "version": version})), 1)
    await cost("a release", lambda: app.locks.release(TENANT, "cost", LockReleaseQuery(holder="a", nonce="n1"), {}), 2)
    await cost("an acquisition", lambda: app.locks.ask(TENANT, "cost", ask.model_copy(update={"nonce": "n2"})), 2)
    return figures


async def _rates(host: Host, count: int) -> list[Figure]:
    versions: dict[int, dict[str, Any]] = {}
    took: list[float] = []

    async def put(number: int) -> None:
        body = {"holder": f"holder-{number}", "nonce": "n1", "ttl": TTL, **versions.get(number, {})}
        started = time.perf_counter()
        async with host.session.put(f"{host.url}/api/v1/locks/lock-{number:05}", json=body, headers=HEADERS) as answer:
            found = await answer.json()
            assert answer.status == 200, found
        took.append((time.perf_counter() - started) * 1000)
        versions[number] = {"token": found["token"], "version": found["version"]}

    figures = []
    for what in ("new locks", "renewals"):
        took.clear()
        wall, _ = await flight([lambda number=number: put(number) for number in range(count)], FLIGHT)  # type: ignore[misc]
        p50, p99, _ = percentiles(took)
        note = f"{count:,} locks, {FLIGHT} connections: p50 {p50:.0f} ms, p99 {p99:.0f} ms"
        figures.append(Figure(f"locks: {what} a second", count / wall, "/s", note=note))
    took.clear()
    for number in range(100):
        await put(number)
    p50, p99, _ = percentiles(took)
    figures.append(Figure("locks: a renewal on one connection, p50", p50, "ms", note=f"p99 {p99:.1f} ms"))
    started = time.perf_counter()
    async with host.session.get(f"{host.url}/api/v1/locks?limit=100", headers=HEADERS) as answer:
        assert len((await answer.json())["items"]) == 100
    figures.append(Figure(f"locks: a page of 100 of {count + 2:,}", (time.perf_counter() - started) * 1000, "ms"))
    return figures


async def _handover(host: Host) -> list[Figure]:
    """Measure the time from the release of a lock to the first waiter's grant."""
    took = []
    async with AsyncClient(host.url, KEY) as client:
        for _ in range(HANDOVERS):
            async with asyncio.TaskGroup() as group:
                async with client.lock("handover", holder="first"):
                    waiting = group.create_task(_acquired(client))
                    while not (await client.call("GET", "locks/handover"))["waiters"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                    # The release comes at any moment between two requests of the waiter.
                    await asyncio.sleep(0.1 + 0.5 * len(took) / HANDOVERS)
                    released = time.perf_counter()
                took.append(((await waiting) - released) * 1000)
    p50, _, most = percentiles(took)
    return [Figure("locks: release to the first waiter's grant, p50", p50, "ms", note=f"most {most:.0f} ms, with the release itself")]


async def _acquired(client: AsyncClient) -> float:
    async with client.lock("handover", holder="second", wait=timedelta(minutes=1)):
        return time.perf_counter()
