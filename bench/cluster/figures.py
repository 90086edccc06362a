"""The rows of `python -m bench cluster`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from shared.core.settings import Settings

from ..report import Figure
from ..tools.stage import Run
from .instances import Load, Outcome, play

EVENTS: Final = 1_000_000
"""The benchmark of the event scheduler that Tocsin is modelled on: so many events of 500 bytes, on four machines."""
STORED_WITHIN, FIRED_WITHIN = 52.0, 60.0
"""Seconds for all of them."""
OFFERED: Final = 20_000.0
"""Events a second that the clients send."""
INSTANCES: Final = 4
ACCOUNTS: Final = 4
MOST_ACCOUNTS: Final = 16
FLEETS: Final = (1, 2, 4, 8, 16)
IN_FLIGHT: Final = Settings.model_fields["target_concurrency"].default
"""Most deliveries that one instance has under way to one channel."""
EACH: Final = 6_000
"""Events a second that are due for each instance in the runs that show throughput against instances: half of what its core can deliver,
because an instance gets up to twice its even share."""
WITHIN: Final = 10.0
"""Seconds for which they are due. In a shorter time, whoever polls first would get them all."""


async def seed(run: Run) -> list[Figure]:
    """The seed's benchmark on four instances, with as many accounts as it takes and with one account less."""
    count = run.scale or run.pick(EVENTS, EVENTS // 10)
    whole = await asyncio.to_thread(_seed, run, count, ACCOUNTS)
    fewer = await asyncio.to_thread(_seed, run, min(count, EVENTS // 10), ACCOUNTS - 1)
    part = count / EVENTS
    share = [each / count for each in whole.shares]
    note = (
        f"{INSTANCES} instances of one core, {ACCOUNTS} accounts; {count / whole.stored_in:,.0f}/s of {OFFERED:,.0f}/s offered; "
        f"busiest instance {whole.cpu_storing:.0%} of its core, busiest account {whole.entities_storing:,.0f} entities/s; "
        f"{whole.sent_again} events sent again"
    )
    out = (
        f"due evenly over {_width(count):g} s; late {whole.late_at(0.5) * 1000:.0f} ms (p50), {whole.late_at(0.99) * 1000:,.0f} ms (p99); "
        f"busiest instance {whole.cpu_firing:.0%}, busiest account {whole.entities_firing:,.0f} entities/s, "
        f"at most {whole.entities_peak:,} in a second; {_refusals(whole)}; "
        f"{whole.shards:,} shards, at most {whole.slots} at once on an instance; {whole.repeated} doubled"
    )
    details = {"seed": _details(whole), "fewer": _details(fewer)}
    return [
        Figure(f"cluster: {count:,} events stored", whole.stored_in, "s", "<=", STORED_WITHIN * part, note, details),
        Figure(f"cluster: {count:,} events delivered", whole.fired_in, "s", "<=", FIRED_WITHIN * part, out),
        Figure("  worst lateness", whole.late[-1], "s"),
        Figure("  share of the least busy instance, even: 25", 100 * min(share), "%", note=f"the busiest: {100 * max(share):.0f} %"),
        Figure(
            f"  delivered with {ACCOUNTS - 1} accounts, {fewer.load.events:,} events",
            fewer.fired_in,
            "s",
            note=f"due over {_width(fewer.load.events):g} s; {_refusals(fewer)}; worst lateness {fewer.late[-1]:.1f} s",
        ),
    ]


async def scale(run: Run) -> list[Figure]:
    """Throughput against instances: clients store as fast as each fleet can, and then as many events are due as it has instances for."""
    each = run.scale or round(EACH * WITHIN)
    fleets = run.pick(FLEETS, FLEETS[:3])
    found: list[Outcome] = []
    for number, count in enumerate(fleets):

        def progress(done: float, total: float, number: int = number, count: int = count) -> None:
            run.report_progress(f"{count} instances", number + done / total, len(fleets))

        load = Load(each * count, each / EACH, count, MOST_ACCOUNTS)
        found.append(await asyncio.to_thread(play, load, progress))
    return [_throughput(outcome, found[0]) for outcome in found]


def _width(count: int) -> float:
    """Seconds over which the seed's events are due: a second less than a minute for all of them."""
    return round(59.0 * count / EVENTS, 3)


def _seed(run: Run, count: int, accounts: int) -> Outcome:
    load = Load(count, _width(count), INSTANCES, accounts, OFFERED)
    return play(load, lambda done, total: run.report_progress(f"{count:,} events, {accounts} accounts", done, total))


def _throughput(outcome: Outcome, one: Outcome) -> Figure:
    load = outcome.load
    even = load.events / load.instances
    note = (
        f"{outcome.fired_rate / one.fired_rate:.1f} times one instance; stored at {outcome.stored_rate:,.0f}/s; first at its limit: "
        f"{_limit(outcome)}; worst lateness {outcome.late[-1]:.1f} s; least and busiest instance "
        f"{min(outcome.shares) / even:.0%}, {max(outcome.shares) / even:.0%} of an even share; {_refusals(outcome)}"
    )
    named = f"cluster: delivered by {load.instances} instance{'s' if load.instances > 1 else ''}, {load.accounts} accounts"
    return Figure(named, outcome.fired_rate, "/s", note=note, details=_details(outcome))


def _limit(outcome: Outcome) -> str:
    """Return what was used most, relative to its limit, while events were delivered."""
    used = {
        "CPU": outcome.cpu_firing,
        "entities of an account": outcome.entities_firing / outcome.load.limits.account,
        "slots of the queue trigger": outcome.slots / 64,
        "deliveries in flight to one channel": outcome.in_flight / IN_FLIGHT,
    }
    return ", ".join(f"{name} {share:.0%}" for name, share in sorted(used.items(), key=lambda item: -item[1])[:2])


def _refusals(outcome: Outcome) -> str:
    return f"{outcome.refused.total():,} requests refused with 503, {outcome.failed} invocations failed"


def _details(outcome: Outcome) -> dict[str, Any]:
    load = outcome.load
    return {
        "events": load.events,
        "instances": load.instances,
        "accounts": load.accounts,
        "due_over": load.over,
        "stored_in": outcome.stored_in,
        "fired_in": outcome.fired_in,
        "stored_per_second": outcome.stored_rate,
        "fired_per_second": outcome.fired_rate,
        "late": {str(share): outcome.late_at(share) for share in (0.5, 0.9, 0.99, 0.999)} | {"max": outcome.late[-1]},
        "shares": outcome.shares,
        "cpu": {"storing": outcome.cpu_storing, "firing": outcome.cpu_firing},
        "entities": {"storing": outcome.entities_storing, "firing": outcome.entities_firing, "peak": outcome.entities_peak},
        "refused": dict(outcome.refused),
        "slots": outcome.slots,
        "in_flight": outcome.in_flight,
        "shards": outcome.shards,
        "failed": outcome.failed,
        "repeated": outcome.repeated,
    }
