"""Two devhosts on one storage, beside the model of them: `python -m bench cluster-pair`.

Emulator, receiver and devhosts share this machine's cores, and so they do in the model. The model takes from the run with one devhost what
an event costs each process. It then says how fast one and two devhosts deliver a herd, and how late its events come.
Shards are small, so that both devhosts get some: the one that polls first takes 64.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from ..report import Figure
from ..tools import machine
from ..tools.stage import Host, Receiving, Run, chunks, devhost, emulator, receiving
from .cpu import Charges
from .instances import Load, Outcome, SharedMachine, play
from .storage import Limits

COUNT: Final = 20_000
SHARD: Final = 100
"""Most events of a shard."""
AHEAD: Final = 25.0
"""Seconds from the posts to the due time: owners come at most six seconds before it."""
SPREAD: Final = 4_000
"""Events that are due evenly over `SPREAD_OVER` seconds, for the lateness without a queue."""
SPREAD_OVER: Final = 10.0
WITHIN: Final = 20.0
"""Per cent by which the model may be wrong."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. CPU in seconds for an event: of the devhosts before and after the due time, of the emulator, of the receiver."""

    rate: float
    p50: float
    p99: float
    before: float
    after: float
    storage: float
    receiver: float


async def measure(run: Run) -> list[Figure]:
    """Measure one devhost and two, in turns, and compute the model's figures."""
    rounds = run.pick(3, 1)
    count = run.scale or run.pick(COUNT, COUNT // 2)
    found: dict[int, list[Measured]] = {1: [], 2: []}
    for turn in range(rounds):
        for hosts in found:
            run.report_progress(f"{hosts} devhosts", 2 * turn + hosts - 1, 2 * rounds + 2)
            found[hosts].append(await _herd(hosts, count))
    one = _median(found[1])
    figures = []
    for hosts, each in found.items():
        run.report_progress(f"model of {hosts}", 2 * rounds + hosts - 1, 2 * rounds + 2)
        model = await asyncio.to_thread(play, _load(hosts, count, one))
        figures += _compare(hosts, _median(each), model, count)
    for hosts in found:
        stats = await _spread(hosts)
        note = f"p50 {stats['p50']:.1f}, max {stats['max']:.0f} ms; {SPREAD:,} events over {SPREAD_OVER:g} s"
        figures.append(Figure(f"cluster-pair: lateness p99, {_named(hosts)}", stats["p99"], "ms", note=note, details=stats))
    return figures


def _named(hosts: int) -> str:
    return "one devhost" if hosts == 1 else f"{hosts} devhosts"


def _median(found: list[Measured]) -> Measured:
    return Measured(*(statistics.median(getattr(each, name) for each in found) for name in Measured.__slots__))


def _load(hosts: int, count: int, one: Measured) -> Load:
    """Return the load of the model. Before its due time an event is loaded and claimed, two rows; settling it is a third."""
    row = one.before / 2
    charges = Charges(ingest=0.0, fire=max(0.0, one.after - row), request=0.0, row=row)
    shared = SharedMachine(os.cpu_count() or 1, one.storage / 3, one.receiver)
    endless = Limits(1e9, 1e9, 1e9, 0.001, 0.002)
    return Load(count, 0.0, hosts, charges=charges, limits=endless, shared=shared, shard=SHARD)


def _compare(hosts: int, real: Measured, model: Outcome, count: int) -> list[Figure]:
    costs = (
        f"{count:,} events at one instant; CPU an event: devhosts {1e6 * (real.before + real.after):.0f} us, emulator "
        f"{1e6 * real.storage:.0f}, receiver {1e6 * real.receiver:.0f}"
    )
    rows = [Figure(f"cluster-pair: {_named(hosts)}, drain rate", real.rate, "/s", note=costs)]
    for what, unit, measured, computed in (
        ("drain rate", "/s", real.rate, model.fired_rate),
        ("lateness p50", "ms", real.p50, model.late_at(0.5) * 1000),
        ("lateness p99", "ms", real.p99, model.late_at(0.99) * 1000),
    ):
        off = abs(computed / measured - 1) * 100
        note = f"model {computed:,.0f}, measured {measured:,.0f} {unit}"
        rows.append(Figure(f"  model of {_named(hosts)}, {what}: off by", off, "%", "<=", WITHIN, note))
    return rows


async def _herd(hosts: int, count: int) -> Measured:
    with emulator() as azurite:
        async with AsyncExitStack() as stack:
            receiver, found = await _open(stack, azurite.connection_string, hosts)
            due = round(time.time() + AHEAD + 1) * 1000
            await _post(found, [due] * count)
            pids = {"storage": [azurite.pid or 0], "receiver": [receiver.pid], "hosts": [each.pid for each in found]}

            def used() -> dict[str, float]:
                return {name: sum(map(machine.cpu_seconds, each)) / count for name, each in pids.items()}

            await asyncio.sleep(max(0.0, due / 1000 - 8.0 - time.time()))
            early = used()
            await asyncio.sleep(max(0.0, due / 1000 - time.time()))
            begun = used()
            await receiver.until(count, 120.0, lambda arrived: None)
            # The last settlements.
            await asyncio.sleep(1.5)
            ended = used()
            stats = await receiver.ask("stats")
    assert stats["count"] == stats["distinct"] == count, stats
    return Measured(
        count / (stats["max"] / 1000),
        stats["p50"],
        stats["p99"],
        begun["hosts"] - early["hosts"],
        ended["hosts"] - begun["hosts"],
        ended["storage"] - early["storage"],
        ended["receiver"] - early["receiver"],
    )


async def _spread(hosts: int) -> dict[str, Any]:
    with emulator() as azurite:
        async with AsyncExitStack() as stack:
            receiver, found = await _open(stack, azurite.connection_string, hosts)
            first = round(time.time() * 1000 + AHEAD * 1000)
            await _post(found, [first + round(number * SPREAD_OVER * 1000 / SPREAD) for number in range(SPREAD)])
            await receiver.until(SPREAD, 120.0, lambda arrived: None)
            return await receiver.ask("stats")


async def _open(stack: AsyncExitStack, connection: str, hosts: int) -> tuple[Receiving, list[Host]]:
    receiver = await stack.enter_async_context(receiving())
    settings = {"TOCSIN_SHARD_EVENTS": str(SHARD)}
    return receiver, [await stack.enter_async_context(devhost(connection, receiver.url, settings)) for _ in range(hosts)]


async def _post(hosts: list[Host], dues: list[int]) -> None:
    """Post the events in batches, to the devhosts in turns."""
    for number, part in enumerate(chunks(dues, 1000)):
        await hosts[number % len(hosts)].batch(part)
