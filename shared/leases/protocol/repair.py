"""Rows of partitions that have got lost, and fleets that somebody closed and did not open again.

A partition whose row is lost is not free: whoever had it acts on, since it writes its own row only. What a server that speaks HTTP has is
in that server's row. What a server of the library has is in its memory alone: while one lives, nobody else can know.
"""

from __future__ import annotations

from itertools import batched
from typing import NamedTuple

from ...engine.effects import Steps, load, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Insert, Merge
from .. import unreadable_rows
from ..rows import FLEET, PARTITIONS, SERVERS, Fleet, Partition, join_held, parse_server, partition_key, server_key
from .takeover import insert_missing_rows


class OwnersUnknown(NamedTuple):
    """These partitions have no row, and these servers live and may serve them."""

    partitions: tuple[int, ...]
    servers: tuple[str, ...]


def refill(key: str, fleet: Fleet, epoch: int) -> Steps[int | OwnersUnknown]:
    """Insert the rows of partitions that are missing, and return how many were: as their owners' where these tell that they have them, else
    as nobody's with `epoch`. Safe to abandon and to repeat."""
    rows = yield from load(FLEETS, key, *PARTITIONS)
    known = {row.rk for row in rows}
    missing = frozenset(number for number in range(max(fleet.partitions, fleet.former)) if partition_key(number) not in known)
    if not missing:
        return 0
    # Whoever claims needs the row, so nobody who comes in after this look can have one of them.
    servers = yield from load(FLEETS, key, *SERVERS)
    read, unreadable = unreadable_rows.parse_rows(servers, parse_server)
    living = [(row, server) for row, server in read if server.state != "dead"]
    if unsure := (*(server.name for _, server in living if server.scans), *sorted(unreadable_rows.unreadable_servers(unreadable))):
        return OwnersUnknown(tuple(sorted(missing)), unsure)
    for row, server in living:
        etag = row.etag
        for some in batched([(number, was) for number, was in server.held if number in missing], 99):
            found = (Partition(number, server.name, server.incarnation, was, generation=server.works) for number, was in some)
            inserts = (Insert(partition_key(each.number), each.props()) for each in found)
            # On its ETag: what it gives back meanwhile must not come back as its own.
            answer = yield from write(FLEETS, key, Merge(server_key(server.name), {"held": join_held(server.held)}, etag), *inserts)
            if not isinstance(answer, Applied):
                return (yield from refill(key, fleet, epoch))
            etag = answer.etags[0]
    yield from insert_missing_rows(key, fleet, epoch)
    return len(missing)


def reopen(key: str, etag: str) -> Steps[bool]:
    """Open a fleet that was closed, on the ETag that shows it: whoever closed it, and still is about to change it, is refused."""
    answer = yield from write(FLEETS, key, Merge(FLEET, {"closed": False}, etag))
    return isinstance(answer, Applied)
