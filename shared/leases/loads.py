"""Published loads of partitions: smoothing, the stored form, and what the rows of a fleet tell the planner. Pure.

A load is one number per partition in a unit of the application's own, such as requests per second. A server's row has the loads of the
partitions that it owns, and for some minutes those of partitions that it has given up, until their next owner's own figures are smooth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from ..core.clock import Millis
from . import rules
from .rows import Fleet, Partition, Server, join_holds, split_holds

SMOOTHING: Final = 60.0
"""Seconds after which a smoothed load has followed 63 % of a sudden change (time constant of the exponential moving average)."""
WARM_UP: Final = 30.0
"""Seconds after the first report before which a server with the library does not publish a load: one number says little."""
KEPT: Final = 600.0
"""Seconds for which a server's row keeps the loads of partitions that the server has given up."""
HOLD: Final = 120.0
"""Seconds after a claim in which a partition does not move for load. Its load has settled by then."""
MINUTE: Final = 60.0

_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_WIDTH: Final = 3
_LEVELS: Final = 64**_WIDTH - 1
_LEAST, MOST = 1e-9, 1e15
_STEP: Final = math.log(MOST / _LEAST) / (_LEVELS - 1)
"""Logarithm of the quotient of two neighbouring levels. A stored load differs from the true one by at most 0.011 %."""


class PartitionLoad(NamedTuple):
    """The load of one partition at a moment. value: smoothed. number: the one that holds from `at` (steady seconds) on. first: time of the
    first report; minus infinity if the value is that of an earlier owner."""

    value: float
    number: float
    at: float
    first: float = -math.inf


def smoothed(value: float, number: float, seconds: float, age: float = math.inf) -> float:
    """Return the moving average that was `value`, after `number` has held for `seconds`.

    It is exponential. For the first `SMOOTHING` seconds it is the plain average since the first report, so that no single number outweighs
    the others. age: seconds from the first report to the beginning of this time.
    """
    seconds = max(0.0, seconds)
    if age < SMOOTHING and seconds:
        plain = min(seconds, SMOOTHING - age)
        value, seconds = number + (value - number) * age / (age + plain), seconds - plain
    return number + (value - number) * math.exp(-seconds / SMOOTHING)


def observe(before: PartitionLoad | None, number: float, now: float) -> PartitionLoad:
    """Return the load after the application has reported `number`."""
    if before is None:
        return PartitionLoad(number, number, now, now)
    return PartitionLoad(load_at(before, now), number, now, before.first)


def load_at(load: PartitionLoad, now: float) -> float:
    """Return the smoothed load at `now` (steady seconds)."""
    return smoothed(load.value, load.number, now - load.at, load.at - load.first)


def is_settled(load: PartitionLoad, now: float) -> bool:
    """Return True if the load rests on enough time to be published."""
    return now - load.first >= WARM_UP


# -- the stored form


def join_loads(generation: int, loads: Mapping[int, float]) -> str:
    """Encode loads of partitions as one property: generation, bit map of the partitions, and three digits for each load.

    10,000 partitions take 32,512 characters at most; a property has room for 32,768. '' for no loads. Loads beyond 1e-9 and 1e15 are stored
    as these.
    """
    if not loads:
        return ""
    return f"{generation}:{join_holds(loads)}:{''.join(_digits(loads[number]) for number in sorted(loads))}"


def _digits(load: float) -> str:
    level = 0 if load <= 0 else 1 + round(math.log(min(max(load, _LEAST), MOST) / _LEAST) / _STEP)
    return _DIGITS[level >> 12] + _DIGITS[level >> 6 & 63] + _DIGITS[level & 63]


@lru_cache(maxsize=2048)
def split_loads(text: str) -> tuple[int, Mapping[int, float]]:
    """Return the generation and the loads by partition. Text that cannot be read, and '', have none: a plan can do without loads."""
    generation, _, rest = text.partition(":")
    bits, _, digits = rest.partition(":")
    try:
        partitions = sorted(split_holds(bits) or ())
        levels = [
            _VALUES[digits[at]] << 12 | _VALUES[digits[at + 1]] << 6 | _VALUES[digits[at + 2]] for at in range(0, len(digits), _WIDTH)
        ]
        loads = [_LEAST * math.exp((level - 1) * _STEP) if level else 0.0 for level in levels]
        return int(generation), MappingProxyType(dict(zip(partitions, loads, strict=True)))
    except (ValueError, KeyError, IndexError):
        return 0, MappingProxyType({})


def stored_loads(server: Server, generation: int) -> Mapping[int, float]:
    """Return the loads in a server's row; none if they belong to another generation of the partition count."""
    of, loads = split_loads(server.loads or "")
    return loads if of == generation else MappingProxyType({})


def published_load(server: Server, held: Iterable[int], generation: int) -> float | None:
    """Return the sum of the loads that a server publishes for these partitions, with four digits; None if it publishes none of them."""
    loads = stored_loads(server, generation)
    found = [loads[number] for number in held if number in loads]
    return float(f"{math.fsum(found):.4g}") if found else None


def reported_loads(server: Server, reported: Mapping[int, float], seconds: float, now: Millis) -> str:
    """Return the loads of a server that speaks HTTP, as stored, after it has reported numbers. Its row is the memory of the smoothing.

    seconds: since the row was written, during which the numbers have held. now: wall time. Only partitions that the server owns count. The
    loads of others stay until `KEPT` has passed since the last release.
    """
    generation = server.http.mapped_generation
    before = stored_loads(server, generation)
    held = {number for number, _ in server.http.held}
    kept = now - server.http.released < KEPT * 1000
    loads = {number: load for number, load in before.items() if number in held or kept}
    for number in held & reported.keys():
        loads[number] = smoothed(before.get(number, reported[number]), reported[number], seconds)
    return join_loads(generation, loads)


# -- what a planner knows


@dataclass(frozen=True, slots=True)
class FleetLoads:
    """The loads of a fleet, as its rows give them.

    weights: load of each partition; for unpublished ones the mean of the others. resting: partitions that must not move for load, because
    they have moved lately. coming: partitions with the servers that are ordered to take them from living owners. budget: moves for load
    that may be under way now; those of the last minute are subtracted.
    """

    weights: Mapping[int, float]
    resting: frozenset[int] = frozenset()
    coming: Mapping[int, str] = MappingProxyType({})
    budget: int = 0


def fleet_loads(fleet: Fleet, partitions: Mapping[int, Partition], servers: Mapping[str, Server], now: Millis) -> FleetLoads | None:
    """Return what is known about load; None if shares must be equal. now: wall time.

    Shares are equal if no living server publishes a load above 0, during a resize, and while a living server runs a former release, whose
    plans know equal shares only: the two would move partitions to and fro.
    """
    living = [server for server in servers.values() if server.state != "dead"]
    if fleet.former or any(server.scans and server.loads is None for server in living):
        return None
    if not any(load > 0 for server in living for load in stored_loads(server, fleet.generation).values()):
        return None
    weights = _weights(fleet, partitions, servers, now)
    if not any(weights.values()):
        return None
    ages = {number: abs(now - row.since) / 1000 for number, row in partitions.items() if row.since}
    return FleetLoads(
        weights,
        frozenset(number for number, age in ages.items() if age < HOLD),
        _coming(fleet, partitions, servers),
        max(0, fleet.limits.moves_per_minute - sum(age < MINUTE for age in ages.values())),
    )


def _weights(fleet: Fleet, partitions: Mapping[int, Partition], servers: Mapping[str, Server], now: Millis) -> dict[int, float]:
    """Return the load of each partition of the fleet.

    The owner's figure counts, except in the first minute after its claim if a former owner's row has one: a cache that fills, or work that
    was left, make the first figures wrong. Among former owners living ones come first, and then the highest figure.
    """
    known: dict[int, float] = {}
    published = {name: stored_loads(server, fleet.generation) for name, server in servers.items()}
    former: dict[int, tuple[bool, float]] = {}
    for name, loads in published.items():
        lives = servers[name].state != "dead"
        for number, load in loads.items():
            if number not in partitions or partitions[number].owner != name:
                former[number] = max(former.get(number, (False, 0.0)), (lives, load))
    for number in range(fleet.partitions):
        row = partitions.get(number)
        own = published.get(row.owner, {}).get(number) if row is not None else None
        fresh = row is not None and abs(now - row.since) < SMOOTHING * 1000
        if own is not None and not (fresh and number in former):
            known[number] = own
        elif number in former:
            known[number] = former[number][1]
    mean = math.fsum(known.values()) / len(known) if known else 0.0
    return {number: known.get(number, mean) for number in range(fleet.partitions)}


def _coming(fleet: Fleet, partitions: Mapping[int, Partition], servers: Mapping[str, Server]) -> dict[int, str]:
    found: dict[int, str] = {}
    for name in sorted(servers, reverse=True):
        server = servers[name]
        if server.state != "live" or server.generation != fleet.generation:
            continue
        for number in server.take:
            row = partitions.get(number)
            owner = servers.get(row.owner) if row is not None else None
            if row is not None and row.owner != name and owner is not None and not rules.has_ended(row.incarnation, owner):
                found[number] = name
    return found


def server_loads(fleet: Fleet, servers: Iterable[Server]) -> dict[str, dict[int, float]] | None:
    """Return the partitions of each living server with their loads, by the servers' own rows; None if shares must be equal.

    Unpublished partitions count as the mean. For the decision that a plan is due, which reads all rows.
    """
    living = [server for server in servers if server.state != "dead"]
    if fleet.former or any(server.scans and server.loads is None for server in living):
        return None
    published = {server.name: stored_loads(server, fleet.generation) for server in living}
    listed: dict[str, Collection[int]] = {server.name: server.listed or () for server in living}
    known = [published[name][number] for name, numbers in listed.items() for number in numbers if number in published[name]]
    if not any(known):
        return None
    mean = math.fsum(known) / len(known)
    return {name: {number: published[name].get(number, mean) for number in numbers} for name, numbers in listed.items()}
