"""Changing a fleet's partition count while its servers run. See `generations` for the states of a row, docs/leases.md for why it is safe.

`begin` writes what is wanted; `sweep` carries it on and may be called by anybody, at any time and by several at once. Both are safe to
abandon between any two steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...core.clock import Millis
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


@dataclass(frozen=True, slots=True)
class ResizeBegun:
    """The fleet's row says so now; or it said so before (`again`)."""

    fleet: Fleet
    again: bool = False


@dataclass(frozen=True, slots=True)
class ResizeUnderWay:
    """Another change is under way."""

    fleet: Fleet


@dataclass(frozen=True, slots=True)
class PartitionsOffline:
    """Operators keep these partitions from being served: under another count their keys would be served again."""

    partitions: tuple[int, ...]


type ResizeOutcome = ResizeBegun | ResizeUnderWay | PartitionsOffline | Literal["missing", "contended"]


def begin(key: str, partitions: int, now: Millis) -> Steps[ResizeOutcome]:
    """Have the fleet use so many partitions. now: wall time, for expiries. `contended`: others changed the fleet again and again meanwhile.

    New rows come first, closed: where the fleet's row names a number, its row is there.
    """
    for _ in range(MAX_LOST):
        rows = yield from load(FLEETS, key, FLEET, INTENTS[1])
        row = next((row for row in rows if row.rk == FLEET), None)
        if row is None:
            return "missing"
        fleet = parse_fleet(row.props)
        if fleet.partitions == partitions:
            return ResizeBegun(fleet, again=True)
        if fleet.former:
            return ResizeUnderWay(fleet)
        # Operators' words change the fleet's row, too: none can come in before the write.
        if offline := active_intents(unreadable_rows.parse_intents(rows)[0], now).offline:
            return PartitionsOffline(tuple(sorted(offline)))
        wanted = replace(
            fleet, partitions=partitions, former=fleet.partitions, generation=fleet.generation + 1, changes=fleet.changes + 1
        )
        yield from _insert(key, wanted)
        props: Props = {"partitions": partitions, "former": wanted.former, "generation": wanted.generation, "changes": wanted.changes}
        answer = yield from write(FLEETS, key, Merge(FLEET, props, row.etag))
        if isinstance(answer, Applied):
            return ResizeBegun(wanted)
        # Refused or lost: the row tells, whoever wrote it.
    return "contended"


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
    """Close and open what can be, and end the change once all is open. None when none is under way.

    Rows that others write meanwhile are left to the next sweep, and so are those of which nobody can tell whether they are free: a row that
    cannot be read, its own or its owner's, holds up what it shares keys with, and nothing else.
    """
    row = yield from get(FLEETS, key, FLEET)
    fleet = parse_fleet(row.props) if row is not None else None
    if row is None or fleet is None or not fleet.former:
        return None
    loaded = yield from load(FLEETS, key, *PARTITIONS)
    # The owners' rows after those that name them (`rules.ended`).
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
        # Lost or refused: the next sweep finds it done or does it.
        yield from write(FLEETS, key, Merge(FLEET, {"former": 0, "changes": fleet.changes + 1}, row.etag))
    return found


def _put(changed: Sequence[Partition], rows: dict[int, Partition], etags: dict[int, str], key: str) -> Steps[None]:
    """Write the rows, on the ETags they were judged by, and note those that were written."""
    for start in range(0, len(changed), MAX_EGT_ROWS):
        chunk = changed[start : start + MAX_EGT_ROWS]
        ops = tuple(Replace(partition_key(each.number), each.props(), etags[each.number]) for each in chunk)
        answer = yield from write(FLEETS, key, *ops)
        if isinstance(answer, Applied):
            for each, etag in zip(chunk, answer.etags, strict=True):
                rows[each.number], etags[each.number] = each, etag
