"""Change a fleet's partition count while its servers run. `generations` has the states of a row, docs/explain/leases.md the proof.

`begin` writes the new count. `sweep` continues the resize, and may be called by any process, at any time and several times at once. Both
may be interrupted between any two steps.

A change that no server may run under first closes the fleet, so that no server can register unnoticed. A server that registers reads the
fleet's row again after it has written its own row, and leaves if the fleet is closed, gone or changed. A writer that closes the fleet reads
the servers' rows after it has written the mark. At least one of the two therefore sees the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ...core.clock import Millis
from ...engine.conflicts import WriteConflict, retry_steps, write_for
from ...engine.effects import MAX_LOST, Steps, get, load, write
from ...storage.names import FLEETS
from ...storage.ports import MAX_EGT_ROWS, Applied, Insert, Merge, Props, Replace
from .. import generations, unreadable_rows
from ..generations import ResizeProgress
from ..rows import (
    FLEET,
    INTENTS,
    PARTITIONS,
    SERVERS,
    Fleet,
    Partition,
    Server,
    active_intents,
    parse_fleet,
    parse_partition,
    parse_server,
    partition_key,
)


class FleetClosed(NamedTuple):
    """No server runs, and none can register. etag: of the fleet's row."""

    etag: str


class ServersLive(NamedTuple):
    """The names of servers that are not dead."""

    servers: Sequence[str]


def live_servers(key: str) -> Steps[list[str]]:
    """Return the names of the servers that are not dead, or may not be."""
    rows = yield from load(FLEETS, key, *SERVERS)
    known, unreadable = unreadable_rows.parse_rows(rows, parse_server)
    return sorted([server.name for _, server in known if server.state != "dead"] + [*unreadable_rows.unreadable_servers(unreadable)])


def close(key: str, fleet: Fleet, etag: str) -> Steps[FleetClosed | ServersLive | Literal["changed"]]:
    """Close the fleet unless servers live. `changed`: its row has changed, or an answer was lost.

    Can be interrupted and repeated: an interrupted call leaves a closed fleet, in which no server can register until its row is written
    again or the takeover sweep reopens it.
    """
    if found := (yield from live_servers(key)):
        if fleet.closed:
            # An interrupted call has left the fleet closed, so that no server could register.
            yield from write(FLEETS, key, Replace(FLEET, replace(fleet, closed=False).props(), etag))
        return ServersLive(found)
    answer = yield from write(FLEETS, key, Replace(FLEET, replace(fleet, closed=True).props(), etag))
    if not isinstance(answer, Applied):
        return "changed"
    closed = answer.etags[0]
    if found := (yield from live_servers(key)):
        yield from write(FLEETS, key, Replace(FLEET, replace(fleet, closed=False).props(), closed))
        return ServersLive(found)
    return FleetClosed(closed)


@dataclass(frozen=True, slots=True)
class ResizeBegun:
    """The fleet's row has the new count. again: it had it before."""

    fleet: Fleet
    again: bool = False


@dataclass(frozen=True, slots=True)
class ResizeUnderWay:
    """Another resize is under way."""

    fleet: Fleet


@dataclass(frozen=True, slots=True)
class PartitionsOffline:
    """These partitions are offline: with another count their keys would be served again."""

    partitions: tuple[int, ...]


type ResizeOutcome = ResizeBegun | ResizeUnderWay | PartitionsOffline | Literal["missing", "contended"]


def begin(key: str, partitions: int, now: Millis) -> Steps[ResizeOutcome]:
    """Change the partition count. now: wall time, for expiries. `contended`: other writes to the fleet kept coming in between.

    New rows are inserted first, closed, so that every partition of the fleet's row has a row.
    """

    def attempt() -> Steps[ResizeOutcome | WriteConflict]:
        rows = yield from load(FLEETS, key, FLEET, INTENTS[1])
        row = next((row for row in rows if row.rk == FLEET), None)
        if row is None:
            return "missing"
        fleet = parse_fleet(row.props)
        if fleet.partitions == partitions:
            return ResizeBegun(fleet, again=True)
        if fleet.former:
            return ResizeUnderWay(fleet)
        # Manual controls change the fleet's row too, so none can come in before the write.
        if offline := active_intents(unreadable_rows.parse_intents(rows)[0], now).offline:
            return PartitionsOffline(tuple(sorted(offline)))
        wanted = replace(fleet, partitions=partitions, former=fleet.partitions, generation=fleet.generation + 1, changes=fleet.changes + 1)
        yield from _insert(key, wanted)
        props: Props = {"partitions": partitions, "former": wanted.former, "generation": wanted.generation, "changes": wanted.changes}
        return (yield from write_for(ResizeBegun(wanted), FLEETS, key, Merge(FLEET, props, row.etag)))

    ended = yield from retry_steps(attempt, MAX_LOST)
    return "contended" if isinstance(ended, WriteConflict) else ended


def _insert(key: str, wanted: Fleet) -> Steps[None]:
    while True:
        present = yield from load(FLEETS, key, *PARTITIONS)
        known = {row.rk for row in present}
        new = [Partition(number, generation=wanted.generation, closed=True) for number in range(wanted.former, wanted.partitions)]
        missing = [each for each in new if partition_key(each.number) not in known]
        if not missing:
            return
        for start in range(0, len(missing), MAX_EGT_ROWS):
            chunk = missing[start : start + MAX_EGT_ROWS]
            yield from write(FLEETS, key, *(Insert(partition_key(each.number), each.props()) for each in chunk))


def sweep(key: str) -> Steps[ResizeProgress | None]:
    """Close and open all rows that can be, and end the resize when all are open. None if no resize is under way.

    Rows that other processes write meanwhile are left to the next sweep. A row delays the rows with shared keys, and no others, if it or
    its owner's row cannot be read.
    """
    row = yield from get(FLEETS, key, FLEET)
    fleet = parse_fleet(row.props) if row is not None else None
    if row is None or fleet is None or not fleet.former:
        return None
    loaded = yield from load(FLEETS, key, *PARTITIONS)
    # Read the owners' rows after the rows that name them (`rules.has_ended`).
    servers = yield from load(FLEETS, key, *SERVERS)
    known, unreadable = unreadable_rows.parse_rows(servers, parse_server)
    owners: dict[str, Server] = {server.name: server for _, server in known}
    readable, _ = unreadable_rows.parse_rows(loaded, parse_partition)
    rows = {found.number: found for _, found in readable}
    etags = {found.number: each.etag for each, found in readable}
    kept = unreadable_rows.undecidable_partitions(unreadable, ((found.number, found.owner) for found in rows.values()))
    sure = [found for number, found in rows.items() if number not in kept]
    closed = [generations.closed_row(found, owners.get(found.owner), fleet.generation) for found in sure]
    yield from _put([found for found in closed if found is not None], rows, etags, key)
    yield from _put(generations.opened_rows(rows, fleet), rows, etags, key)
    found = generations.resize_progress(rows.values(), fleet)
    if found is not None and found.done:
        # If the write is refused or its answer is lost, the next sweep finds it done or repeats it.
        yield from write(FLEETS, key, Merge(FLEET, {"former": 0, "changes": fleet.changes + 1}, row.etag))
    return found


def _put(changed: Sequence[Partition], rows: dict[int, Partition], etags: dict[int, str], key: str) -> Steps[None]:
    """Write the rows on the ETags that they were judged by, and record those that were written."""
    for start in range(0, len(changed), MAX_EGT_ROWS):
        chunk = changed[start : start + MAX_EGT_ROWS]
        ops = tuple(Replace(partition_key(each.number), each.props(), etags[each.number]) for each in chunk)
        answer = yield from write(FLEETS, key, *ops)
        if isinstance(answer, Applied):
            for each, etag in zip(chunk, answer.etags, strict=True):
                rows[each.number], etags[each.number] = each, etag
