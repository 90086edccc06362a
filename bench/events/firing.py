"""Lateness at the receiver, and the herd: signed HTTP from a devhost process to a receiver process; BullMQ beside it."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from ..report import Figure
from ..tools import machine
from ..tools.stage import Host, Receiving, Run, chunks, devhost, emulator, receiving
from . import bullmq

COUNT = 5000
CONCURRENCY = 64
"""Deliveries in flight to one channel: the app's default, and BullMQ's here."""


async def lateness(run: Run) -> list[Figure]:
    """Measure the lateness of events that are spread evenly over 20 s."""
    count, width = run.pick((COUNT, 20_000), (COUNT // 2, 10_000))
    with emulator() as azurite:
        async with receiving() as receiver, devhost(azurite.connection_string, receiver.url) as host:
            first = _soon(12.0, width / 1000)
            dues = [first + number * width // count for number in range(count)]
            await _post(host, dues)
            before = machine.cpu_seconds(host.pid)
            await receiver.until(count, 60 + width / 1000, lambda arrived: run.report_progress("lateness", arrived, count))
            # Settlements come in after the deliveries.
            used = (machine.cpu_seconds(host.pid) - before) / count * 1e6
            stats = await receiver.ask("stats")
    _check(stats, count)
    note = (
        f"{count:,} events over {width / 1000:g} s; p90 {stats['p90']:.1f}, max {stats['max']:.0f} ms; "
        f"{used:.0f} us CPU an event in the devhost"
    )
    return [
        Figure("lateness at the receiver, p50", stats["p50"], "ms", "<=", 5, note, stats),
        Figure("lateness at the receiver, p99", stats["p99"], "ms", "<=", 100),
        Figure("lateness at the receiver, early", stats["early"], "", "==", 0, f"the earliest came {stats['min']:.2f} ms after its time"),
    ]


async def herd(run: Run) -> list[Figure]:
    """Measure events that are all due at one instant, and the same with BullMQ, in turns."""
    rounds, count = run.pick(3, 1), COUNT
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    rival = await bullmq.prepare()
    async with receiving() as receiver:
        for turn in range(rounds):
            run.report_progress("herd", 2 * turn, 2 * rounds)
            ours.append(await _herd(run, receiver, count))
            if rival.ready:
                run.report_progress("herd, BullMQ", 2 * turn + 1, 2 * rounds)
                try:
                    theirs.append(await bullmq.herd(rival, receiver, count, CONCURRENCY))
                except (RuntimeError, TimeoutError) as error:
                    rival.ready, rival.what = False, str(error)
    rate = statistics.median(each["rate"] for each in ours)
    note = (
        f"{rounds} rounds of {count:,}; from the due instant to the last arrival; first after {ours[0]['min']:.0f} ms; "
        f"{statistics.median(each['cpu_us'] for each in ours):.0f} us CPU an event in the devhost, claims and settlements included"
    )
    figures = [Figure("herd at one instant, drain rate", rate, "/s", ">=", 3000, note, {"ours": ours, "bullmq": theirs})]
    if theirs:
        other = statistics.median(each["rate"] for each in theirs)
        text = (
            f"{other:,.0f}/s with {rival.what}: {CONCURRENCY} in flight, same signed POST, nothing persisted; "
            f"first after {theirs[0]['min']:.0f} ms"
        )
        figures.append(Figure("  herd / BullMQ + Redis", rate / other, "", ">=", 3, text))
    else:
        figures.append(Figure("  herd / BullMQ + Redis", None, "", ">=", 3, f"not measured: {rival.what}"))
    return figures


async def _herd(run: Run, receiver: Receiving, count: int) -> dict[str, Any]:
    with emulator() as azurite:
        async with devhost(azurite.connection_string, receiver.url) as host:
            await receiver.ask("reset")
            due = _soon(12.0, 1.0)
            await _post(host, [due] * count)
            await asyncio.sleep(max(0.0, due / 1000 - 5.0 - time.time()))
            before = machine.cpu_seconds(host.pid)
            await receiver.until(count, 60.0, lambda arrived: None)
            stats = await receiver.ask("stats")
            # The last settlements.
            await asyncio.sleep(1.5)
            stats["cpu_us"] = (machine.cpu_seconds(host.pid) - before) / count * 1e6
    _check(stats, count)
    return {**stats, "rate": count / (stats["max"] / 1000)}


def _soon(ahead: float, width: float) -> int:
    """An instant, in milliseconds, at least `ahead` seconds from now, with the `width` seconds after it in the same minute."""
    at = time.time() + ahead
    if at % 60 + width >= 60:
        at += 60 - at % 60
    return round(at * 1000)


async def _post(host: Host, dues: list[int]) -> None:
    for part in chunks(dues, 2500):
        await host.batch(part)


def _check(stats: dict[str, Any], count: int) -> None:
    assert stats["count"] == stats["distinct"] == stats["signed"] == count, stats
