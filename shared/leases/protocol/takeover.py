"""What servers do about one another: fence the silent, find what may be claimed, give orders. And creating a fleet's rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import batched
from typing import Literal

from ...storage.names import FLEETS
from ...storage.ports import Applied, Insert, Merge, Props, Row
from .. import rules
from ..rows import (
    FLEET,
    MAX_ORDERS,
    PARTITIONS,
    SERVERS,
    Fleet,
    Partition,
    Server,
    join,
    parse_fleet,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
)
from ..rules import Claim, Session, Sight
from ..stamps import ReceivedAt
from .effects import RECEIVING, Get, Load, Steps, Write

FEW = 16
"""Partitions that are read one by one; more are read by one query."""


def look(key: str, sights: dict[str, Sight]) -> Steps[list[Row]]:
    """Read all beat rows and bring `sights` (by server) up to date. Dead servers are not watched. Returns the rows."""
    rows: list[Row] = yield Load(FLEETS, key, *SERVERS)
    at: ReceivedAt = yield RECEIVING
    seen: dict[str, Sight] = {}
    for row in rows:
        server = parse_server(row)
        if server.state != "dead":
            seen[server.name] = rules.look(sights.get(server.name), server, at)
    sights.clear()
    sights.update(seen)
    return rows


def fence(key: str, server: str, sights: dict[str, Sight], takeover: float) -> Steps[Literal["fenced", "gone", "lives"]]:
    """Read a silent server's row once more, and mark it dead if it has been unchanged for T. `gone`: somebody else did, or it left.

    The mark is conditional on the ETag just read: a beat that comes in meanwhile refuses it, and a beat that is still under way
    is refused by it, now and for good.
    """
    row: Row | None = yield Get(FLEETS, key, server_key(server))
    at: ReceivedAt = yield RECEIVING
    found = parse_server(row) if row is not None else None
    if row is None or found is None or found.state == "dead":
        sights.pop(server, None)
        return "gone"
    sight = sights[server] = rules.look(sights.get(server), found, at)
    if not rules.silent(sight, at, takeover):
        return "lives"
    answer = yield Write(FLEETS, key, (Merge(row.rk, {"state": "dead"}, row.etag),))
    if isinstance(answer, Applied):
        sights.pop(server, None)
        return "fenced"
    # Refused: it beats after all, or somebody else fenced it. Lost: the next look tells.
    return "lives"


def scout(session: Session, partitions: Iterable[int]) -> Steps[list[Claim]]:
    """Of `partitions`, those that may be claimed now."""
    found, owners = yield from owned(session.key, partitions)
    return [
        Claim(partition.number, partition.epoch + 1, etag, partition.generation, 0 if partition.owner else partition.since)
        for partition, etag in found
        if rules.claimable(partition, owners.get(partition.owner), session)
    ]


def owned(key: str, partitions: Iterable[int]) -> Steps[tuple[list[tuple[Partition, str]], dict[str, Server | None]]]:
    """The rows of `partitions` that are there, with their ETags, and their owners' rows by name, None where there is none. Each owner's row
    is read after the rows of its partitions (`rules.ended`)."""
    wanted = [partition_key(number) for number in partitions]
    rows: list[Row] = []
    if len(wanted) > FEW:
        loaded: list[Row] = yield Load(FLEETS, key, *PARTITIONS)
        rows = [row for row in loaded if row.rk in frozenset(wanted)]
    else:
        for rk in wanted:
            one: Row | None = yield Get(FLEETS, key, rk)
            rows += [one] if one is not None else []
    found = [(parse_partition(row), row.etag) for row in rows]
    owners: dict[str, Server | None] = {}
    for owner in sorted({partition.owner for partition, _ in found} - {""}):
        row: Row | None = yield Get(FLEETS, key, server_key(owner))
        owners[owner] = parse_server(row) if row is not None else None
    return found, owners


def order(key: str, server: str, take: Sequence[int], drop: Sequence[int], generation: int = 1) -> Steps[bool]:
    """Put orders into a living server's row; its next beat is refused, and it reads them. False when another write came first.

    generation: the fleet's, which the server goes over to when it is newer than its own.
    """
    row: Row | None = yield Get(FLEETS, key, server_key(server))
    if row is None:
        return False
    found = parse_server(row)
    take, drop = tuple(take)[:MAX_ORDERS], tuple(drop)[:MAX_ORDERS]
    if found.state == "dead":
        return False
    generation = max(generation, found.generation)
    if (found.take, found.drop, found.generation) == (take, drop, generation):
        return True
    orders: Props = {"take": join(take), "drop": join(drop), "generation": generation}
    answer = yield Write(FLEETS, key, (Merge(row.rk, orders, row.etag),))
    return isinstance(answer, Applied)


def fill(key: str, fleet: Fleet, epoch: int = 0) -> Steps[int]:
    """Insert the rows of partitions that are missing, with this epoch, and return how many were. Safe to abandon and to repeat."""
    found = -1
    while True:
        present: list[Row] = yield Load(FLEETS, key, *PARTITIONS)
        known = {row.rk for row in present}
        missing = [number for number in range(max(fleet.partitions, fleet.former)) if partition_key(number) not in known]
        found = len(missing) if found < 0 else found
        if not missing:
            return found
        for some in batched(missing, 100, strict=False):
            rows = (Partition(number, epoch=epoch, generation=fleet.generation, closed=fleet.former > 0) for number in some)
            # Refused where others insert too: the next look tells what is still missing.
            yield Write(FLEETS, key, tuple(Insert(partition_key(row.number), row.props()) for row in rows))


def create(key: str, fleet: Fleet, epoch: int = 0) -> Steps[bool]:
    """Create the rows of a fleet: partitions first, so that where its own row is, all of them are. False when there is one already.

    epoch: that of its partitions, which have been given no higher one before. Safe to abandon and to repeat.
    """
    row: Row | None = yield Get(FLEETS, key, FLEET)
    if row is not None:
        return False
    yield from fill(key, fleet, epoch)
    answer = yield Write(FLEETS, key, (Insert(FLEET, fleet.props()),))
    if isinstance(answer, Applied):
        return True
    row = yield Get(FLEETS, key, FLEET)
    # After a lost answer nobody can tell whose row it is; when it says the same, it does not matter.
    return row is not None and parse_fleet(row.props) == fleet
