"""Observe and fence other servers, find claimable partitions, write orders, and create a fleet's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import batched
from typing import Literal

from ...engine.effects import Steps, get, load, receiving, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Insert, Merge, Props, Row, WriteRefused
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
from ..rules import Claim, ServerObservation, ServerSession

FEW = 16
"""Partitions that are read one by one. More are read by one query."""
MAX_ORDERED = 100
"""Servers in one transaction of orders."""
RACES = 4
"""Conflicts with heartbeats after which the remaining orders are written one by one."""


def observe_servers(key: str, sights: dict[str, ServerObservation]) -> Steps[list[Row]]:
    """Read all servers' rows and update `sights` (observations by server). Return the readable rows. Dead servers are not observed."""
    rows = yield from load(FLEETS, key, *SERVERS)
    at = yield from receiving()
    seen: dict[str, ServerObservation] = {}
    found, _ = unreadable_rows.parse_rows(rows, parse_server)
    for _, server in found:
        if server.state != "dead":
            seen[server.name] = rules.observe(sights.get(server.name), server, at)
    sights.clear()
    sights.update(seen)
    return [row for row, _ in found]


def fence(key: str, server: str, sights: dict[str, ServerObservation], takeover: float) -> Steps[Literal["fenced", "gone", "lives"]]:
    """Read a silent server's row again, and mark it dead if it has been unchanged for T. `gone`: it was dead or missing already.

    The mark is conditional on the ETag just read: a heartbeat that comes in meanwhile makes the store refuse the mark, and the mark makes
    the store refuse a heartbeat that is still under way, now and for good.
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
    # After a refusal the server has sent a heartbeat or is fenced already. After a lost answer the next read shows the outcome.
    return "lives"


def is_still_silent(key: str, server: str, sights: dict[str, ServerObservation], after: float) -> Steps[bool]:
    """Read a server's row again. Return True if it has been unchanged for `after` seconds."""
    row = yield from get(FLEETS, key, server_key(server))
    at = yield from receiving()
    found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
    if found is None or found.state == "dead":
        sights.pop(server, None)
        return False
    sight = sights[server] = rules.observe(sights.get(server), found, at)
    return rules.is_silent(sight, at, after)


def write_orders(key: str, new_orders: Mapping[str, tuple[Props, str]]) -> Steps[list[str]]:
    """Write orders into servers' rows, each on its ETag, in one transaction unless heartbeats come in between.

    Successors then look for partitions before their owners have released them. Return the servers that may not have received their orders.
    """
    left, missed = list(new_orders), list[str]()
    while left and len(missed) <= RACES:
        some = left[:MAX_ORDERED]
        answer = yield from write(FLEETS, key, *(Merge(server_key(name), *new_orders[name]) for name in some))
        if isinstance(answer, WriteRefused):
            missed.append(left.pop(answer.at))
            continue
        left = left[MAX_ORDERED:]
        if not isinstance(answer, Applied):
            missed += some
    return missed + left


def order_props(take: Sequence[int], drop: Sequence[int], generation: int) -> Props:
    """Return the properties that `write_order` writes."""
    return {"take": join_numbers(take[:MAX_ORDERS]), "drop": join_numbers(drop[:MAX_ORDERS]), "generation": generation}


def write_expected(key: str, server: str, expected: Expected) -> Steps[bool]:
    """Write standby assignments into a living server's row. Return False if another write came first. Its orders stay."""
    row = yield from get(FLEETS, key, server_key(server))
    found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
    if row is None or found is None or found.state == "dead":
        return False
    if found.expect == expected:
        return True
    answer = yield from write(FLEETS, key, Merge(row.rk, {"expect": join_expected(expected)}, row.etag))
    return isinstance(answer, Applied)


def scout(session: ServerSession, partitions: Iterable[int], living: set[str] | None = None) -> Steps[list[Claim]]:
    """Return claims for those of `partitions` that may be claimed now.

    living: incarnations that were live a moment ago and are not read; live ones that are found are added.
    """
    found, owners = yield from read_owners(session.key, partitions, living if living is not None else set())
    return [
        Claim(
            partition.number,
            partition.epoch + 1,
            etag,
            partition.generation,
            0 if partition.owner else partition.since,
            partition.owner == session.server,
        )
        for partition, etag in found
        if partition.owner in ("", *owners) and rules.is_claimable(partition, owners.get(partition.owner), session)
    ]


def read_owners(
    key: str, partitions: Iterable[int], living: set[str] | None = None
) -> Steps[tuple[list[tuple[Partition, str]], dict[str, Server | None]]]:
    """Return the rows of `partitions` with their ETags, and the rows of their owners by name; None for a missing owner.

    Each owner's row is read after the rows of its partitions (`rules.has_ended`). Partitions are left out if their row or their owner's row
    cannot be read. living: incarnations whose servers are not read; live ones that are found are added.
    """
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
    """Write orders into a living server's row. Its next heartbeat is refused, and it reads them. Return False if another write came first.

    generation: of the fleet; the server switches to it if it is newer than its own.
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
    """Insert missing rows of partitions with this epoch, and return their number. Can be interrupted and repeated."""
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
            # Inserts are refused if another process inserts too: the next read shows which rows are still missing.
            yield from write(FLEETS, key, *(Insert(partition_key(row.number), row.props()) for row in rows))


def create_fleet(key: str, fleet: Fleet, epoch: int = 0) -> Steps[bool]:
    """Create the rows of a fleet, partitions first, so that a fleet's row implies all of them. Return False if the fleet exists.

    epoch: of its partitions; they must never have had a higher one. Can be interrupted and repeated.
    """
    row = yield from get(FLEETS, key, FLEET)
    if row is not None:
        return False
    yield from insert_missing_rows(key, fleet, epoch)
    answer = yield from write(FLEETS, key, Insert(FLEET, fleet.props()))
    if isinstance(answer, Applied):
        return True
    row = yield from get(FLEETS, key, FLEET)
    # After a lost answer the author of the row is unknown. It does not matter if the row has the same content.
    return row is not None and parse_fleet(row.props) == fleet
