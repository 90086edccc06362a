"""Two devhosts on one storage, beside the model of them: `python -m bench cluster-pair`.

Emulator, receiver and devhosts share this machine's cores, and so they do in the model. The model takes from the runs with one devhost what
an event costs each process. It then says how fast one and two devhosts deliver a herd, and how late its events come.

The load is one that measures the scheduler and neither the emulator nor chance:

- There are 49 shards for each devhost: one that serves 48 or fewer polls for 16 more, so no shard waits for a slot.
- All shards are claimed before their events are due, so that the emulator, which answers one request after the other, is not what the
  drain waits for.
- Posts come slowly, so that each shard has a message of its own. Shards wake at a whole minute, and their events are due some seconds
  later: a devhost that polls its empty queue two seconds late is in time. Without that, the median is the chance of the polls.
- Rates are of the first nine tenths of the events: the last arrival depends on one shard.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from shared.whatif.twin.cpu import Charges
from shared.whatif.twin.storage import StorageLimits

from ..report import Figure
from ..tools import machine
from ..tools.stage import Host, Receiving, Run, chunks, devhost, emulator, receiving
from .instances import Load, Outcome, SharedMachine, play

SLOTS: Final = 49
"""Shards for each devhost: it stops to poll only with that many or more, as `host.json` says."""
SHARD: Final = 50
"""Most events of a shard."""
SIZE: Final = 2_000
"""Bytes of a payload: shards of up to 64 KiB would share slots."""
PAUSE: Final = 1.5
"""Seconds between two batches to a devhost: its announcements do not share messages then."""
AFTER: Final = 3.0
"""Seconds from the wake-up of the shards to the due time."""
SEEDS: Final = 5
"""Runs of the model, as many as rounds: both differ by when the devhosts poll."""
EARLY: Final = 8.0
"""Seconds before the due time from which CPU is counted: owners come at most six seconds before it."""
AHEAD: Final = 25.0
"""Seconds from the posts of events that are due over some time to the first of them."""
SPREAD: Final = 4_000
"""Events that are due evenly over `SPREAD_OVER` seconds, for the lateness without a queue."""
SPREAD_OVER: Final = 10.0
SAMPLED: Final = 0.01
"""Seconds between two looks at the CPU of the processes, while events come."""
FINISHING: Final = 6
"""Requests of a shard's owner after its events: it settles, rests or finishes, and deletes index row and message."""
WITHIN: Final = 20.0
"""Per cent by which the model may be wrong."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. Milliseconds until events came; CPU in seconds for an event: of the devhosts before and after the due time, of the emulator
    before and after it, of the receiver.

    fired: of the devhosts from the due time until nine tenths of the events have come, for each of these. settling: the share of the
    emulator's CPU after the due time that it has used by then. share: of the CPU of the devhost that worked more.
    """

    p50: float
    p90: float
    p99: float
    before: float
    after: float
    fired: float
    settling: float
    claimed: float
    settled: float
    receiver: float
    share: float


async def measure(run: Run) -> list[Figure]:
    """Measure one devhost and two, in turns, and compute the model's figures."""
    rounds = run.pick(5, 1)
    shard = max(1, run.scale // SLOTS) if run.scale else SHARD
    found: dict[int, list[Measured]] = {1: [], 2: []}
    for turn in range(rounds):
        for hosts in found:
            run.report_progress(f"{hosts} devhosts", 2 * turn + hosts - 1, 2 * rounds + 2)
            found[hosts].append(await _herd(hosts, shard))
    one = _median(found[1])
    figures = []
    for hosts, each in found.items():
        run.report_progress(f"model of {hosts}", 2 * rounds + hosts - 1, 2 * rounds + 2)
        models = [await asyncio.to_thread(play, _load(hosts, shard, one, seed)) for seed in range(1, run.pick(SEEDS, 1) + 1)]
        figures += _compare(hosts, _median(each), models)
    for hosts in found:
        stats = await _spread(hosts)
        note = f"p50 {stats['p50']:.1f}, max {stats['max']:.0f} ms; {SPREAD:,} events over {SPREAD_OVER:g} s"
        figures.append(Figure(f"cluster-pair: lateness p99, {_named(hosts)}", stats["p99"], "ms", note=note, details=stats))
    return figures


def _named(hosts: int) -> str:
    return "one devhost" if hosts == 1 else f"{hosts} devhosts"


def _median(found: list[Measured]) -> Measured:
    return Measured(*(statistics.median(getattr(each, name) for each in found) for name in Measured.__slots__))


def _rate(count: int, p90: float) -> float:
    """Return events a second, from the milliseconds in which nine tenths of them came."""
    return 900 * count / p90


def _load(hosts: int, shard: int, one: Measured, seed: int) -> Load:
    """Return the load of the model. What a devhost uses after the due time is deliveries, and what its owners write.

    Owners write most of it after the deliveries. By the time at which nine tenths of the events have come, a devhost has used
    0.9 * fire + settling * written, and in the end fire + written.
    """
    plain = Charges()
    written = max(0.0, one.after - one.fired) / max(0.3, 1 - one.settling / 0.9)
    requests = FINISHING * plain.request / shard
    charges = Charges(ingest=0.0, fire=max(0.0, one.after - written), request=plain.request, row=max(0.0, written - requests))
    # A row is loaded and claimed before its due time.
    shared = SharedMachine(os.cpu_count() or 1, one.claimed / 2, one.settled, one.receiver)
    endless = StorageLimits(1e9, 1e9, 1e9, 0.001, 0.002)
    rate = hosts * 5 * shard / PAUSE
    return Load(
        hosts * SLOTS * shard,
        0.0,
        hosts,
        rate=rate,
        charges=charges,
        limits=endless,
        shared=shared,
        shard=shard,
        batch=5 * shard,
        size=SIZE,
        after=AFTER,
        seed=seed,
    )


def _compare(hosts: int, real: Measured, models: list[Outcome]) -> list[Figure]:
    count = models[0].load.events
    costs = (
        f"{count:,} events at one instant; CPU an event: devhosts {1e6 * (real.before + real.after):.0f} us "
        f"({1e6 * real.fired:.0f} while nine tenths came), emulator "
        f"{1e6 * (real.claimed + real.settled):.0f}, receiver {1e6 * real.receiver:.0f}; the busier devhost {real.share:.0%}, in the model "
        f"{statistics.median(max(each.shares) for each in models) / count:.0%}"
    )
    rate = _rate(count, real.p90)
    p50, p90, p99 = (1000 * statistics.median(each.late_at(share) for each in models) for share in (0.5, 0.9, 0.99))
    rows = [Figure(f"cluster-pair: {_named(hosts)}, drain rate", rate, "/s", note=costs)]
    for what, unit, measured, computed in (
        ("drain rate", "/s", rate, _rate(count, p90)),
        ("lateness p50", "ms", real.p50, p50),
        ("lateness p99", "ms", real.p99, p99),
    ):
        off = abs(computed / measured - 1) * 100
        note = f"model {computed:,.0f}, measured {measured:,.0f} {unit}"
        rows.append(Figure(f"  model of {_named(hosts)}, {what}: off by", off, "%", "<=", WITHIN, note))
    return rows


async def _herd(hosts: int, shard: int) -> Measured:
    with emulator() as azurite:
        async with AsyncExitStack() as stack:
            receiver, found = await _open(stack, azurite.connection_string, hosts, shard)
            each = SLOTS * shard
            count = hosts * each
            takes = PAUSE * each / (5 * shard) + EARLY + 2.0
            due = round(60 * (1 + (time.time() + takes) // 60) + AFTER) * 1000
            await asyncio.gather(*(_post_slowly(host, [due] * each, 5 * shard) for host in found))
            pids = {"storage": [azurite.pid or 0], "receiver": [receiver.pid]} | {f"host {n}": [host.pid] for n, host in enumerate(found)}

            def used() -> dict[str, float]:
                return {name: sum(map(machine.cpu_seconds, each)) for name, each in pids.items()}

            await asyncio.sleep(max(0.0, due / 1000 - EARLY - time.time()))
            early = used()
            await asyncio.sleep(max(0.0, due / 1000 - 0.05 - time.time()))
            begun = used()
            samples = [(time.time(), begun)]

            async def sample() -> None:
                while True:
                    await asyncio.sleep(SAMPLED)
                    samples.append((time.time(), used()))

            sampling = asyncio.create_task(sample())
            await receiver.until(count, 120.0, lambda arrived: None)
            # The last settlements.
            await asyncio.sleep(1.5)
            sampling.cancel()
            ended = used()
            stats = await receiver.ask("stats")
    assert stats["count"] == stats["distinct"] == count, stats
    names = [f"host {number}" for number in range(hosts)]
    after = [ended[name] - begun[name] for name in names]
    _, then = min(samples, key=lambda each: abs(each[0] - (due + stats["p90"]) / 1000))
    return Measured(
        stats["p50"],
        stats["p90"],
        stats["p99"],
        sum(begun[name] - early[name] for name in names) / count,
        sum(after) / count,
        sum(then[name] - begun[name] for name in names) / (0.9 * count),
        (then["storage"] - begun["storage"]) / max(1e-9, ended["storage"] - begun["storage"]),
        (begun["storage"] - early["storage"]) / count,
        (ended["storage"] - begun["storage"]) / count,
        (ended["receiver"] - begun["receiver"]) / count,
        max(after) / max(1e-9, sum(after)),
    )


async def _spread(hosts: int) -> dict[str, Any]:
    with emulator() as azurite:
        async with AsyncExitStack() as stack:
            receiver, found = await _open(stack, azurite.connection_string, hosts, SHARD)
            first = round(time.time() * 1000 + AHEAD * 1000)
            await _post(found, [first + round(number * SPREAD_OVER * 1000 / SPREAD) for number in range(SPREAD)])
            await receiver.until(SPREAD, 120.0, lambda arrived: None)
            return await receiver.ask("stats")


async def _open(stack: AsyncExitStack, connection: str, hosts: int, shard: int) -> tuple[Receiving, list[Host]]:
    receiver = await stack.enter_async_context(receiving())
    settings = {"TOCSIN_SHARD_EVENTS": str(shard)}
    return receiver, [await stack.enter_async_context(devhost(connection, receiver.url, settings)) for _ in range(hosts)]


async def _post(hosts: list[Host], dues: list[int]) -> None:
    """Post the events in batches, to the devhosts in turns."""
    for number, part in enumerate(chunks(dues, 1000)):
        await hosts[number % len(hosts)].batch(part)


async def _post_slowly(host: Host, dues: list[int], size: int) -> None:
    """Post the events in batches, with a pause after each."""
    for part in chunks(dues, size):
        await host.batch(part, size=SIZE)
        await asyncio.sleep(PAUSE)
