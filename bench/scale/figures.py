"""The rows of `python -m bench cluster-scale`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from random import Random
from typing import Final

from shared.scheduler.timings import RETENTION_GOES_ON_FOR

from ..cost.prices import Prices
from ..cost.rules import Usage, bill, periods
from ..flex.loads import FIRST, Post
from ..flex.platform import Platform
from ..flex.run import LOG_BYTES
from ..flex.service import FULL
from ..report import Figure, number
from ..tools.stage import Run
from .meters import parts
from .service import CHARGES, CORE, DELIVER, ScaledService

SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
QUICK_SIZES: Final = (1, 4)
EACH: Final = round(0.8 / DELIVER)
"""Events a second for each instance: four fifths of what it delivers."""
STEADY: Final = 240.0
"""Seconds for which such a load lasts."""
QUICK_STEADY: Final = 120.0
RAMP: Final = 60.0
"""Seconds after which it counts as steady: by then the instances have started."""
AHEAD: Final = (120.0, 420.0)
"""Seconds from the storing of events until they are due; evenly spread."""
HERD: Final = 5_000
"""Events of a herd for each instance, stored an hour before over a minute."""
MOST_P99: Final = 100.0
RETAINED: Final = 60 / RETENTION_GOES_ON_FOR
"""Pauses of retention, as a factor on the time that it takes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a load. Lateness in milliseconds; used: shares of each limit; usd: variable costs of a million events, which for a herd
    include the hour before it."""

    instances: int
    events: int
    rate: float
    first: Mapping[str, int]
    steady: Mapping[str, int]
    started: int
    """Instances that the controller wanted for deliveries, at most."""
    http: int
    answered_p99: int
    used: Mapping[str, float]
    accounts: int
    entities: float
    """Entities for an event."""
    transactions: float
    usd: Mapping[str, float]

    @property
    def limit(self) -> str:
        """The limits that are used most."""
        most = sorted(self.used.items(), key=lambda item: -item[1])[:2]
        return ", ".join(f"{name} {share:.0%}" for name, share in most)


def steady(instances: int, seconds: float) -> Outcome:
    """Play a load that begins at once and lasts."""
    chance, posts = Random(instances), list[Post]()
    many = round(EACH * instances * seconds / FULL)
    for at in range(many):
        due = 1000 * FIRST + at * 1000 * FULL / (EACH * instances)
        dues = [round(due + 10 * (each // 10)) for each in range(FULL)]
        posts.append((round(due - 1000 * chance.uniform(*AHEAD)), at, dues))
    return _play(instances, posts, FIRST + seconds, FIRST + RAMP, EACH * instances)


def herd(instances: int) -> Outcome:
    """Play a herd after an idle hour."""
    due, many = 1000 * (FIRST + 3600), ceil(HERD * instances / FULL)
    left = [FULL] * (HERD * instances // FULL) + ([HERD * instances % FULL] if HERD * instances % FULL else [])
    posts: list[Post] = [(round(1000 * (FIRST + 60 * at / many)), at, [round(due)] * some) for at, some in enumerate(left)]
    return _play(instances, posts, FIRST + 3600, 0.0, 0.0)


def _play(instances: int, posts: list[Post], seconds: float, steady_from: float, rate: float) -> Outcome:
    service = ScaledService(Platform(), seconds, instances, steady_from)
    service.run(sorted(posts, key=lambda post: post[0]))
    events = sum(len(dues) for _, _, dues in posts)
    delivered = service.first.total() + service.steady.total()
    assert delivered == events, f"{delivered:,} of {events:,} events were delivered"
    meters = service.meters
    used = meters.used() | {
        "slots of an instance": service.fire.slots / 64,
        "a look's time until the next": service.longest_wake / 60_000,
    }
    if rate:
        used["retention"] = rate / FULL * _removal(FULL)
    return Outcome(
        instances,
        events,
        rate,
        _shares(service.first),
        _shares(service.steady),
        service.fire.most,
        service.http_most,
        _at(service.answered, 0.99),
        used,
        meters.accounts,
        meters.entities.total() / events,
        (meters.transactions + service.tables) / events,
        _usd(service, len(posts), events),
    )


def _removal(events: int) -> float:
    """Return the seconds that retention takes for a shard, pauses included: it reads its events, deletes them, and its gate and ledger."""
    cpu = (1 + parts(events) + 3) * CHARGES.request + events * 1.5 * CHARGES.row
    return RETAINED * cpu / CORE


def _shares(late: Counter[int]) -> dict[str, int]:
    return {"p50": _at(late, 0.5), "p99": _at(late, 0.99), "max": max(late)} if late else {}


def _at(counted: Counter[int], share: float) -> int:
    """Return the value that this share does not exceed."""
    left = share * counted.total()
    for value in sorted(counted):
        left -= counted[value]
        if left <= 0:
            return value
    return max(counted, default=0)


def _usd(service: ScaledService, posts: int, events: int) -> dict[str, float]:
    """Return the variable costs of a million events, by part."""
    prices, per = Prices(), 1e6 / events
    groups = (service.http, service.fire, service.timer, service.soon)
    billed = {
        group.name: per * sum(end - start for each in group.ever() for start, end in periods(each.spells, prices)) for group in groups
    }
    billed["retention"] = per * posts * _removal(FULL) / RETAINED
    found = bill(
        Usage(
            billed_seconds=billed,
            executions={group.name: per * group.executions for group in groups},
            # A removal reads the events, deletes them, and then the gate and the ledger's row.
            table=per * (service.meters.transactions + service.tables + posts * (parts(FULL) + 4)),
            queue=per * service.meters.queue.total(),
            polls=billed["fire"] / service.platform.longest_poll,
            blob=0.0,
            log_bytes={"requests": per * posts * LOG_BYTES},
            events=1e6,
        ),
        None,
        512,
        prices,
    )
    return {name: usd for name, usd in found.parts.items() if usd}


async def measure(run: Run) -> list[Figure]:
    """Play both loads for each size."""
    sizes, seconds = run.pick(SIZES, QUICK_SIZES), run.pick(STEADY, QUICK_STEADY)
    found: list[Figure] = []
    for at, size in enumerate(sizes):
        run.report_progress(f"a load for {size} instances", at, len(sizes))
        found.append(_steady_row(await asyncio.to_thread(steady, size, seconds)))
        found.append(_herd_row(await asyncio.to_thread(herd, size)))
    return found


def _about(found: Outcome) -> str:
    return (
        f"{found.started} instances wanted; {found.accounts} account{'s' if found.accounts > 1 else ''} for the busiest second, "
        f"{found.entities:.1f} entities and {found.transactions:.3f} transactions an event; used most: {found.limit}"
    )


def _steady_row(found: Outcome) -> Figure:
    later, first = found.steady, found.first
    usd = ", ".join(f"{name} {number(amount)}" for name, amount in sorted(found.usd.items(), key=lambda item: -item[1])[:3])
    note = (
        f"p50 {later['p50']:,}, max {later['max']:,} ms; from zero, in the first minute, p99 {first['p99']:,} ms; "
        f"{found.http} instances for POSTs, p99 {found.answered_p99:,} ms; {_about(found)}; "
        f"{number(sum(found.usd.values()))} USD a million ({usd})"
    )
    name = f"load for {found.instances}: {found.rate:,.0f} events a second, lateness p99"
    return Figure(name, later["p99"], "ms", "<=", MOST_P99, note, asdict(found))


def _herd_row(found: Outcome) -> Figure:
    late = found.steady
    note = f"p50 {late['p50'] / 1000:.1f}, p99 {late['p99'] / 1000:.1f} s; {_about(found)}"
    name = f"herd for {found.instances}: {found.events:,} events at one instant, all within"
    return Figure(name, late["max"] / 1000, "s", note=note, details=asdict(found))
