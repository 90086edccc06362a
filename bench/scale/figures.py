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
from ..flex.run import LOG_BYTES
from ..flex.service import FULL
from ..report import Figure, number
from ..tools.stage import Run
from .meters import LIMITS, parts
from .service import CHARGES, LARGE, SMALL, ScaledService, Size

SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
QUICK_SIZES: Final = (1, 4)
USED: Final = 0.5
"""The part of what an instance delivers that is due for each of them: who polls first gets up to twice an even share."""
STEADY: Final = {SMALL: 150.0, LARGE: 90.0}
"""Seconds for which a load lasts."""
QUICK_STEADY: Final = 90.0
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

    memory_mb: int
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


def steady(instances: int, seconds: float, size: Size = SMALL) -> Outcome:
    """Play a load that begins at once and lasts."""
    chance, posts, rate, step = Random(instances), list[Post](), round(USED / size.deliver * instances), size.step
    for at in range(round(rate * seconds / FULL)):
        due = 1000 * FIRST + at * 1000 * FULL / rate
        dues = [round(due) + each // step * step for each in range(FULL)]
        posts.append((round(due - 1000 * chance.uniform(*AHEAD)), at, dues))
    return _play(size, instances, posts, FIRST + seconds, FIRST + RAMP, rate)


def herd(instances: int, size: Size = SMALL) -> Outcome:
    """Play a herd after an idle hour."""
    due, events = 1000 * (FIRST + 3600), HERD * instances
    many = ceil(events / FULL)
    left = [FULL] * (events // FULL) + ([events % FULL] if events % FULL else [])
    posts: list[Post] = [(round(1000 * (FIRST + 60 * at / many)), at, [round(due)] * some) for at, some in enumerate(left)]
    return _play(size, instances, posts, FIRST + 3600, 0.0, 0.0)


def _play(size: Size, instances: int, posts: list[Post], seconds: float, steady_from: float, rate: float) -> Outcome:
    service = ScaledService(size, seconds, instances, steady_from)
    service.run(sorted(posts, key=lambda post: post[0]))
    events = sum(len(dues) for _, _, dues in posts)
    delivered = service.first.total() + service.steady.total()
    assert delivered == events, f"{delivered:,} of {events:,} events were delivered"
    meters = service.meters
    if rate:
        # While instances start, storage slows a backlog down.
        meters.window = range(round(steady_from), round(seconds))
    used = meters.used() | {
        "slots of an instance": service.fire.slots / 64,
        "a look's time until the next": service.longest_wake / 60_000,
    }
    if rate:
        busiest = max(service.delivered.values())
        used["the busiest instance"] = busiest * size.deliver / (events / rate)
        # Each event is read and deleted; the accounts take this side by side.
        stored = 2 * FULL / (LIMITS.account * meters.accounts)
        used["retention"] = rate / FULL * max(_removal(size), stored) * RETAINED
    return Outcome(
        size.memory_mb,
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
        _usd(service, size, len(posts), events),
    )


def _removal(size: Size) -> float:
    """Return the seconds of computing for the removal of a full shard: it reads its events, deletes them, its gate and its ledger row."""
    return ((1 + parts(FULL) + 3) * CHARGES.request + FULL * 1.5 * CHARGES.row) / size.cores


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


def _usd(service: ScaledService, size: Size, posts: int, events: int) -> dict[str, float]:
    """Return the variable costs of a million events, by part."""
    prices, per = Prices(), 1e6 / events
    groups = (service.http, service.fire, service.timer, service.soon)
    billed = {
        group.name: per * sum(end - start for each in group.ever() for start, end in periods(each.spells, prices)) for group in groups
    }
    billed["retention"] = per * posts * _removal(size)
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
        size.memory_mb,
        prices,
    )
    return {name: usd for name, usd in found.parts.items() if usd}


async def measure(run: Run) -> list[Figure]:
    """Play a lasting load for each size of instance, and a herd for the smallest."""
    found: list[Figure] = []
    work = [(size, many) for size in (SMALL, LARGE) for many in run.pick(SIZES, QUICK_SIZES)]
    for at, (size, many) in enumerate(work):
        run.report_progress(f"a load for {many} instances of {size.memory_mb:,} MB", at, len(work))
        found.append(_steady_row(await asyncio.to_thread(steady, many, run.pick(STEADY[size], QUICK_STEADY), size)))
        if size is SMALL:
            found.append(_herd_row(await asyncio.to_thread(herd, many)))
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
    name = f"load for {found.instances} of {found.memory_mb:,} MB: {found.rate:,.0f} events a second, lateness p99"
    return Figure(name, later["p99"], "ms", "<=", MOST_P99, note, asdict(found))


def _herd_row(found: Outcome) -> Figure:
    late = found.steady
    note = f"p50 {late['p50'] / 1000:.1f}, p99 {late['p99'] / 1000:.1f} s; {_about(found)}"
    name = f"herd for {found.instances} of {found.memory_mb:,} MB: {found.events:,} events at one instant, all within"
    return Figure(name, late["max"] / 1000, "s", note=note, details=asdict(found))
