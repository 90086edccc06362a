"""One run: its lateness, and the bill of a month of such runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from random import Random
from typing import Any, Final

from shared.scheduler import timings

from ..cost import deployed, page
from ..cost.prices import Prices
from ..cost.rules import MONTH, Deployed, Usage, bill, periods, ready, within
from .loads import FAR, FIRST, LOADS, Ahead
from .platform import Group, Instance, Platform
from .service import Service

LATE: Final = 100
"""Milliseconds from which an event counts as late."""
MODES: Final = {"auto": ("auto", False), "off": ("off", False), "always-ready": ("60", True)}
"""By name: the setting `wakes`, and if one instance of the delivering function is always ready."""
LOG_BYTES: Final = 255.0
"""Bytes of telemetry for an event that is posted singly, as `bench cost` has measured them."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run. Times of events in milliseconds; late: share of those later than `LATE`."""

    events: int
    late: float
    p50: float
    p99: float
    longest: float
    undelivered: int
    usd: float
    parts: dict[str, float]
    kilo_gb_seconds: dict[str, float]
    operations: dict[str, float]
    """Executions, and requests to tables and queues, in a month."""
    wakes_a_minute: float
    most_messages: int
    instances: int
    longest_wake: float
    closed: int
    """Events that were due in any stage of the fallback. The argument `stage` of `run` restricts lateness to some of them."""
    sweeps_a_minute: float
    first_instances: int
    """Instances that the controller wants for the delivering function at a bulk's first visible message; 0 for other loads."""


@lru_cache(1)
def _fixed() -> tuple[Deployed, dict[str, float]]:
    """Return the resources with fixed costs, and the bytes of telemetry of an idle app, from the last measurement of `bench cost`."""
    idle = next(each for each in page.read()["loads"] if each["load"] == "idle" and each["memory_mb"] == 512)
    return deployed.load(), {kind: 1e6 * size for kind, size in idle["log_mb"].items()}


def run(
    load: str,
    platform: Platform,
    mode: str = "auto",
    ahead: Ahead = FAR,
    *,
    seconds: float | None = None,
    seed: int = 1,
    stage: int = 0,
) -> Result:
    """Run a load. stage: if any events are due in this stage of the fallback or a later one, the figures of lateness are of them only."""
    wakes, always = MODES[mode]
    length = seconds or LOADS[load].seconds
    service = Service(platform, wakes, length, seed, always=always)
    posts = LOADS[load].make(Random(seed), length, ahead)
    if load == "bulk":
        return _bulk(service, posts, length)
    window = _steady(load, length)
    service.run(posts, window=window)
    expected = sum(len(dues) for _, _, dues in posts)
    # Where messages follow each other closely, no wake meets a cold process, and the pause stays as it is.
    counted = [each for each in service.late if each[2] >= stage]
    late = sorted(lateness for _, lateness, _ in counted or service.late)
    undelivered = expected - len(service.late)
    late += [round(1000 * length)] * undelivered
    return result(service, late, undelivered, window, always=always)


def _steady(load: str, length: float) -> tuple[float, float]:
    """Return the beginning and the end, in seconds, of the time in which a lasting load is as steady as in the middle of a month."""
    return (0.0, length) if load == "herd" else (FIRST, length - FAR[1])


def _bulk(service: Service, posts: list[Any], length: float) -> Result:
    """Run until the first shard's message becomes visible: the controller then wants instances by the number of messages in the queue."""
    service.run(posts, min(dues[0] for _, _, dues in posts) - timings.WAKE_EARLIEST)
    found = result(service, [], 0, (0.0, length), always=False)
    return replace(found, first_instances=ceil(service.fire.length / service.platform.per_instance), usd=0.0)


def result(service: Service, late: list[int], undelivered: int, window: tuple[float, float], *, always: bool) -> Result:
    """Return the result of a run. The bill, and the other amounts for a time, are those of the window, in seconds."""
    prices = Prices()
    length = window[1] - window[0]
    share = MONTH / length
    used = service.used
    groups: dict[str, Group] = {each.name: each for each in (service.http, service.fire, service.timer, service.soon)}
    seconds = {name: share * sum(within(periods(each.spells, prices), window) for each in group.ever()) for name, group in groups.items()}
    listened = sum(_listened(each, service.platform.idle, window) for group in (service.fire, service.soon) for each in group.ever())
    fixed, log_bytes = _fixed()
    on_demand = {name: each for name, each in seconds.items() if not (always and name == "fire")}
    usage = Usage(
        billed_seconds=on_demand,
        executions={name: share * used[name] for name in groups},
        table=share * used["tables"],
        queue=share * 3 * used["sent"],
        polls=share * listened / service.platform.longest_poll,
        blob=(prices.host_leases_minute + prices.timer_leases_minute) * MONTH / 60,
        log_bytes={**log_bytes, "events": share * LOG_BYTES * used["delivered"]},
        events=share * used["delivered"],
    )
    found = bill(usage, fixed, 512, prices)
    parts = dict(found.parts)
    if always:
        parts["always ready"] = ready(1, 512, seconds["fire"] / MONTH, prices)
    return Result(
        events=len(late),
        late=sum(each > LATE for each in late) / len(late) if late else 0.0,
        p50=_at(late, 0.5),
        p99=_at(late, 0.99),
        longest=float(late[-1]) if late else 0.0,
        undelivered=undelivered,
        usd=sum(parts.values()),
        parts=parts,
        kilo_gb_seconds={name: each / 2000 for name, each in seconds.items()},
        operations={"executions": sum(usage.executions.values()), "table": usage.table, "queue": usage.queue, "polls": usage.polls},
        wakes_a_minute=used["wakes"] / length * 60,
        most_messages=service.fire.longest,
        instances=service.fire.most,
        longest_wake=service.longest_wake / 1000,
        closed=sum(bool(stage) for _, _, stage in service.late),
        sweeps_a_minute=used["sweeps"] / length * 60,
        first_instances=0,
    )


def _at(late: list[int], part: float) -> float:
    """Return the lateness below which this part of the events lies."""
    return float(late[min(len(late) - 1, int(part * len(late)))]) if late else 0.0


def _listened(instance: Instance, idle: float, window: tuple[float, float]) -> float:
    """Return the seconds of the window for which an instance polled its queue."""
    last = min(instance.gone / 1000, max(instance.busy_until, instance.ready) / 1000 + idle)
    end = window[1] if instance.always or instance.running else last
    return max(0.0, min(window[1], end) - max(window[0], instance.ready / 1000))
