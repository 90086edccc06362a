"""A changing partition count: pure decisions. Keys are spread by `hash mod partitions`; each count has its generation.

Partition p of N and partition q of M share keys exactly when p = q modulo gcd(N, M) (Chinese remainder theorem). So a row goes through

    open under g  ──nobody's, or its owner ended──►  closed under g + 1  ──all that it shares keys with are closed──►  open under g + 1

A closed row is nobody's. Rows only go forward, each step on the ETag of the row that was judged: whoever claims under g read a row that was
open under g, so that a claim which comes too late is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Final

from .rows import Fleet, Partition, Server
from .rules import has_ended


def overlapping_partitions(partition: int, partitions: int, former: int) -> range:
    """Of `former` partitions, those that share keys with `partition` of `partitions`."""
    step = gcd(partitions, former)
    return range(partition % step, former, step)


def is_behind(row: Partition, generation: int) -> bool:
    """Whether the row may still be claimed, or held, under a generation before this one."""
    return row.generation < generation and not row.closed


def closed_row(row: Partition, server: Server | None, generation: int) -> Partition | None:
    """The row once it is closed, None when that may not be yet. server: its owner's row, read after this one."""
    if not is_behind(row, generation) or (row.owner and not has_ended(row.incarnation, server)):
        return None
    return replace(row, owner="", incarnation="", generation=generation, closed=True)


def opened_rows(rows: Mapping[int, Partition], fleet: Fleet) -> list[Partition]:
    """The closed rows that may be opened, as they are then, by number.

    Their epochs go on from the highest of all that they share keys with. So epochs grow for each key, over changes of the count, and a
    token of before is refused whatever partition the key was in. Nobody has had them under this generation yet: `since` is 0.
    """
    step = gcd(fleet.partitions, fleet.former)
    epochs: dict[int, int | None] = {}
    for residue in range(step):
        before = [rows.get(number) for number in range(residue, fleet.former, step)]
        past = [row.epoch for row in before if row is not None and row.generation >= fleet.generation]
        epochs[residue] = max(past) if len(past) == len(before) else None
    found = []
    for number in range(fleet.partitions):
        row, epoch = rows.get(number), epochs[number % step]
        if row is not None and epoch is not None and row.closed and row.generation <= fleet.generation:
            found.append(replace(row, epoch=max(row.epoch, epoch), since=0, generation=fleet.generation, closed=False))
    return found


def planned_owners(rows: Mapping[int, Partition], servers: Mapping[str, Server], fleet: Fleet) -> dict[int, str]:
    """For the planner to start from: who should have the partitions that nobody has had since the count changed. Who was ordered to take
    it, so that plans do not change their mind; else who has, of those it shares keys with, the one of its number or the lowest."""
    ordered = {
        number: server.name
        for server in servers.values()
        if server.state != "dead" and server.generation >= fleet.generation
        for number in server.take
    }
    step = gcd(fleet.partitions, fleet.former)
    found: dict[int, str] = {}
    for number in range(fleet.partitions if fleet.generation > 1 else 0):
        row = rows.get(number)
        if row is None or not (row.closed or is_behind(row, fleet.generation) or not (row.owner or row.since)):
            continue
        before = rows.get(number if number < fleet.former else number % step) if fleet.former else None
        heir = ordered.get(number, before.owner if before is not None else "")
        if heir:
            found[number] = heir
    return found


def poll_interval(fleet: Fleet, least: float) -> float:
    """Seconds between looks of one server while the count changes: more for more rows, which all servers read at that time."""
    return max(least, fleet.partitions / ROWS_PER_SECOND)


ROWS_PER_SECOND: Final = 1000.0
"""What one server reads of partition rows, at most, while it waits for a change of the count. Storage serves some 2,000 a second and
partition key."""


@dataclass(frozen=True, slots=True)
class ResizeProgress:
    """How far a change of the partition count is. closed: rows of the former count that are no longer claimed under it. opened: rows of the
    new count that may be claimed."""

    generation: int
    former: int
    partitions: int
    closed: int
    opened: int

    @property
    def done(self) -> bool:
        """Whether all of the new count may be claimed. Then all of the former one are closed, since each shares keys with some."""
        return self.opened == self.partitions


def resize_progress(rows: Iterable[Partition], fleet: Fleet) -> ResizeProgress | None:
    """What the rows say; None when no change is under way."""
    if not fleet.former:
        return None
    closed = opened = 0
    for row in rows:
        forward = row.generation >= fleet.generation
        closed += forward and row.number < fleet.former
        opened += forward and not row.closed and row.number < fleet.partitions
    return ResizeProgress(fleet.generation, fleet.former, fleet.partitions, closed, opened)
