"""What servers do about one another: fence the silent, find what may be claimed, give orders. And creating a fleet's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import batched
from typing import Literal

from ...engine.effects import Steps, get, load, receiving, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Insert, Merge, Props, Refused, Row
from .. import rules, unreadable_rows
from ..rows import (
    FLEET,
    MAX_ORDERS,
    PARTITIONS,
    SERVERS,
    Expected,
    Fleet,
    Partition,
    Server,
    join_expected,
    join_numbers,
    parse_fleet,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
)
from ..rules import Claim, Observation, ServerSession

FEW = 16
"""Partitions that are read one by one; more are read by one query."""
MAX_ORDERED = 100
"""Servers told in one transaction."""
RACES = 4
"""Servers that may beat in between before the others are told one by one."""


def observe_servers(key: str, sights: dict[str, Observation]) -> Steps[list[Row]]:
    """Read all beat rows and bring `sights` (by server) up to date. Dead servers are not watched. Returns the rows that can be read."""
    rows = yield from load(FLEETS, key, *SERVERS)
    at = yield from receiving()
    seen: dict[str, Observation] = {}
    found, _ = unreadable_rows.parse_rows(rows, parse_server)
    for _, server in found:
        if server.state != "dead":
            seen[server.name] = rules.observe(sights.get(server.name), server, at)
    sights.clear()
    sights.update(seen)
    return [row for row, _ in found]


def fence(key: str, server: str, sights: dict[str, Observation], takeover: float) -> Steps[Literal["fenced", "gone", "lives"]]:
    """Read a silent server's row once more, and mark it dead if it has been unchanged for T. `gone`: somebody else did, or it left.

    The mark is conditional on the ETag just read: a beat that comes in meanwhile refuses it, and a beat that is still under way
    is refused by it, now and for good.
    """
    row = yield from get(FLEETS, key, server_key(server))
    at = yield from receiving()
    found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
    if row is None or found is None or found.state == "dead":
        sights.pop(server, None)
        return "gone"
    sight = sights[server] = rules.observe(sights.get(server), found, at)
    if not rules.is_silent(sight, at, takeover):
        return "lives"
    answer = yield from write(FLEETS, key, Merge(row.rk, {"state": "dead"}, row.etag))
    if isinstance(answer, Applied):
        sights.pop(server, None)
        return "fenced"
    # Refused: it beats after all, or somebody else fenced it. Lost: the next look tells.
    return "lives"


def is_still_silent(key: str, server: str, sights: dict[str, Observation], after: float) -> Steps[bool]:
    """Read a server's row once more. Whether it has been unchanged for `after` seconds."""
    row = yield from get(FLEETS, key, server_key(server))
    at = yield from receiving()
    found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
    if found is None or found.state == "dead":
        sights.pop(server, None)
        return False
    sight = sights[server] = rules.observe(sights.get(server), found, at)
    return rules.is_silent(sight, at, after)


def write_orders(key: str, told: Mapping[str, tuple[Props, str]]) -> Steps[list[str]]:
    """Write orders into servers' rows, each on the ETag that it comes with, in one transaction where none has beaten since. So who is to
    take over looks for what the others are told to hand off before they have. Returns those that were not told, or may not have been."""
    left, missed = list(told), list[str]()
    while left and len(missed) <= RACES:
        some = left[:MAX_ORDERED]
        answer = yield from write(FLEETS, key, *(Merge(server_key(name), *told[name]) for name in some))
        if isinstance(answer, Refused):
            missed.append(left.pop(answer.at))
            continue
        left = left[MAX_ORDERED:]
        if not isinstance(answer, Applied):
            missed += some
    return missed + left


def order_props(take: Sequence[int], drop: Sequence[int], generation: int) -> Props:
    """What `write_order` writes."""
    return {"take": join_numbers(take[:MAX_ORDERS]), "drop": join_numbers(drop[:MAX_ORDERS]), "generation": generation}


def write_expected(key: str, server: str, expected: Expected) -> Steps[bool]:
    """Tell a living server what to claim once others are fenced. Its other orders stay. False when another write came first."""
    row = yield from get(FLEETS, key, server_key(server))
    found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
    if row is None or found is None or found.state == "dead":
        return False
    if found.expect == expected:
        return True
    answer = yield from write(FLEETS, key, Merge(row.rk, {"expect": join_expected(expected)}, row.etag))
    return isinstance(answer, Applied)


def scout(session: ServerSession, partitions: Iterable[int], living: set[str] | None = None) -> Steps[list[Claim]]:
    """Of `partitions`, those that may be claimed now. living: incarnations that need not be asked for, since they were there a moment
    ago; those found are added."""
    found, owners = yield from read_owners(session.key, partitions, living if living is not None else set())
    return [
        Claim(partition.number, partition.epoch + 1, etag, partition.generation, 0 if partition.owner else partition.since)
        for partition, etag in found
        if partition.owner in ("", *owners) and rules.is_claimable(partition, owners.get(partition.owner), session)
    ]


def read_owners(
    key: str, partitions: Iterable[int], living: set[str] | None = None
) -> Steps[tuple[list[tuple[Partition, str]], dict[str, Server | None]]]:
    """The rows of `partitions` that are there, with their ETags, and their owners' rows by name, None where there is none. Each owner's row
    is read after the rows of its partitions (`rules.ended`). Partitions whose row, or whose owner's, cannot be read are left out. living:
    incarnations whose servers are not read; those found are added."""
    wanted = [partition_key(number) for number in partitions]
    rows: list[Row] = []
    if len(wanted) > FEW:
        loaded = yield from load(FLEETS, key, *PARTITIONS)
        rows = [row for row in loaded if row.rk in frozenset(wanted)]
    else:
        for rk in wanted:
            one = yield from get(FLEETS, key, rk)
            rows += [one] if one is not None else []
    found = [(partition, row.etag) for row, partition in unreadable_rows.parse_rows(rows, parse_partition)[0]]
    living = living if living is not None else set()
    owners: dict[str, Server | None] = {}
    for owner in sorted({partition.owner for partition, _ in found if partition.owner and partition.incarnation not in living}):
        row = yield from get(FLEETS, key, server_key(owner))
        known, unreadable = unreadable_rows.parse_rows([row] if row is not None else [], parse_server)
        if unreadable:
            found = [each for each in found if each[0].owner != owner]
            continue
        server = owners[owner] = known[0][1] if known else None
        if server is not None and server.state != "dead":
            living.add(server.incarnation)
    return found, owners


def write_order(key: str, server: str, take: Sequence[int], drop: Sequence[int], generation: int = 1) -> Steps[bool]:
    """Put orders into a living server's row; its next beat is refused, and it reads them. False when another write came first.

    generation: the fleet's, which the server goes over to when it is newer than its own.
    """
    row = yield from get(FLEETS, key, server_key(server))
    if row is None:
        return False
    found = unreadable_rows.parse_required(row, parse_server)
    take, drop = tuple(take)[:MAX_ORDERS], tuple(drop)[:MAX_ORDERS]
    if found.state == "dead":
        return False
    generation = max(generation, found.generation)
    if (found.take, found.drop, found.generation) == (take, drop, generation):
        return True
    answer = yield from write(FLEETS, key, Merge(row.rk, order_props(take, drop, generation), row.etag))
    return isinstance(answer, Applied)


def insert_missing_rows(key: str, fleet: Fleet, epoch: int = 0) -> Steps[int]:
    """Insert the rows of partitions that are missing, with this epoch, and return how many were. Safe to abandon and to repeat."""
    found = -1
    while True:
        present = yield from load(FLEETS, key, *PARTITIONS)
        known = {row.rk for row in present}
        missing = [number for number in range(max(fleet.partitions, fleet.former)) if partition_key(number) not in known]
        found = len(missing) if found < 0 else found
        if not missing:
            return found
        for some in batched(missing, 100):
            rows = (Partition(number, epoch=epoch, generation=fleet.generation, closed=fleet.former > 0) for number in some)
            # Refused where others insert too: the next look tells what is still missing.
            yield from write(FLEETS, key, *(Insert(partition_key(row.number), row.props()) for row in rows))


def create_fleet(key: str, fleet: Fleet, epoch: int = 0) -> Steps[bool]:
    """Create the rows of a fleet: partitions first, so that where its own row is, all of them are. False when there is one already.

    epoch: that of its partitions, which have been given no higher one before. Safe to abandon and to repeat.
    """
    row = yield from get(FLEETS, key, FLEET)
    if row is not None:
        return False
    yield from insert_missing_rows(key, fleet, epoch)
    answer = yield from write(FLEETS, key, Insert(FLEET, fleet.props()))
    if isinstance(answer, Applied):
        return True
    row = yield from get(FLEETS, key, FLEET)
    # After a lost answer nobody can tell whose row it is; when it says the same, it does not matter.
    return row is not None and parse_fleet(row.props) == fleet
