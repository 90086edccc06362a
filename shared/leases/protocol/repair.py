"""Restore missing rows of partitions, and reopen a fleet that an interrupted change has left closed.

A partition with a missing row is not free: its owner continues, since it writes only its own row. The row of a server that speaks HTTP
lists its partitions. A server with the library keeps them in memory, so while one lives, no other process can know them.

After the storage service has lost acknowledged writes, raise epochs, so that none is given to two owners.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import batched
from typing import NamedTuple

from ...engine.effects import Steps, load, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Insert, Merge
from .. import rules, unreadable_rows
from ..rows import FLEET, PARTITIONS, SERVERS, Fleet, Partition, join_held, parse_server, partition_key, server_key
from .takeover import insert_missing_rows, read_owners


class OwnersUnknown(NamedTuple):
    """These partitions have no row, and these living servers may serve them."""

    partitions: tuple[int, ...]
    servers: tuple[str, ...]


def refill(key: str, fleet: Fleet, epoch: int) -> Steps[int | OwnersUnknown]:
    """Insert missing rows of partitions, and return their number. Can be interrupted and repeated.

    A row names the owner if a server's row lists the partition; otherwise it has no owner, and `epoch`.
    """
    rows = yield from load(FLEETS, key, *PARTITIONS)
    known = {row.rk for row in rows}
    missing = frozenset(number for number in range(max(fleet.partitions, fleet.former)) if partition_key(number) not in known)
    if not missing:
        return 0
    # A claim needs the partition's row, so a server that registers after this read cannot own one of them.
    servers = yield from load(FLEETS, key, *SERVERS)
    read, unreadable = unreadable_rows.parse_rows(servers, parse_server)
    living = [(row, server) for row, server in read if server.state != "dead"]
    if unsure := (*(server.name for _, server in living if server.scans), *sorted(unreadable_rows.unreadable_servers(unreadable))):
        return OwnersUnknown(tuple(sorted(missing)), unsure)
    for row, server in living:
        etag = row.etag
        for some in batched([(number, was) for number, was in server.http.held if number in missing], 99):
            found = (
                Partition(number, server.name, server.incarnation, was, generation=server.http.mapped_generation) for number, was in some
            )
            inserts = (Insert(partition_key(each.number), each.props()) for each in found)
            # Conditional on its ETag: a partition that it releases meanwhile must not be restored as its own.
            answer = yield from write(FLEETS, key, Merge(server_key(server.name), {"held": join_held(server.http.held)}, etag), *inserts)
            if not isinstance(answer, Applied):
                return (yield from refill(key, fleet, epoch))
            etag = answer.etags[0]
    yield from insert_missing_rows(key, fleet, epoch)
    return len(missing)


def reopen(key: str, etag: str) -> Steps[bool]:
    """Reopen a closed fleet, on the ETag that shows it: a writer that still wants to change the closed fleet is refused."""
    answer = yield from write(FLEETS, key, Merge(FLEET, {"closed": False}, etag))
    return isinstance(answer, Applied)


def raise_epochs(key: str, known: Mapping[int, int]) -> Steps[list[int]]:
    """Raise the stored epochs of partitions to `known`, and return the partitions that are settled.

    known: epochs under which the caller acted before the rollback, by partition. A partition is settled if its row is missing or has that
    epoch or a higher one. While a living owner has a lower one, only that owner may write the row. The next claim then has a higher epoch
    than all that acted.
    """
    found, owners = yield from read_owners(key, sorted(known), set())
    settled = set(known)
    for partition, etag in found:
        if partition.epoch >= known[partition.number]:
            continue
        settled.discard(partition.number)
        if not partition.owner or rules.has_ended(partition.incarnation, owners.get(partition.owner)):
            answer = yield from write(FLEETS, key, Merge(partition_key(partition.number), {"epoch": known[partition.number]}, etag))
            if isinstance(answer, Applied):
                settled.add(partition.number)
    return sorted(settled)
