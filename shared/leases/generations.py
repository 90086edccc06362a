"""Decide the steps of a resize. Pure. Keys map to partitions by `hash mod partitions`; each partition count has a generation.

Partition p of N and partition q of M share keys exactly when p = q modulo gcd(N, M) (Chinese remainder theorem). A row therefore goes
through

    open under g  ──no owner, or its owner has ended──►  closed under g + 1  ──all rows with shared keys are closed──►  open under g + 1

A closed row has no owner. Rows only go forward, each step on the ETag of the row that was judged. A server that claims under g has read a
row that was open under g, so the store refuses a claim that comes too late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Final

from .rows import Fleet, Partition, Server
from .rules import has_ended


def overlapping_partitions(partition: int, partitions: int, former: int) -> range:
    """Return those of `former` partitions that share keys with `partition` of `partitions`."""
    step = gcd(partitions, former)
    return range(partition % step, former, step)


def is_behind(row: Partition, generation: int) -> bool:
    """Return True if the row may still be claimed or held under a generation before this one."""
    return row.generation < generation and not row.closed


def closed_row(row: Partition, server: Server | None, generation: int) -> Partition | None:
    """Return the row as closed; None if it must not be closed yet. server: its owner's row, read after this one."""
    if not is_behind(row, generation) or (row.owner and not has_ended(row.incarnation, server)):
        return None
    return replace(row, owner="", incarnation="", generation=generation, closed=True)


def opened_rows(rows: Mapping[int, Partition], fleet: Fleet) -> list[Partition]:
    """Return the closed rows that may be opened, as open rows, by number.

    Their epochs continue from the highest epoch of all rows with shared keys. The epochs of a key therefore grow over resizes, and a former
    token is refused whatever partition the key was in. They have had no owner under this generation yet: `since` is 0.
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
    """Return the planner's initial owners of partitions that have had no owner since the resize.

    A server that was ordered to take the partition comes first, so that plans are stable. Otherwise it is the owner of the former partition
    with the same number, or of the lowest one with shared keys.
    """
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
    """Return the seconds between one server's reads during a resize. All servers read all rows at that time, so more rows need more."""
    return max(least, fleet.partitions / ROWS_PER_SECOND)


ROWS_PER_SECOND: Final = 1000.0
"""Partition rows per second that one server reads at most while it waits for a resize. Storage serves about 2,000 per second and partition
key."""


@dataclass(frozen=True, slots=True)
class ResizeProgress:
    """Progress of a resize. closed: rows of the former count that can no longer be claimed under it. opened: rows of the new count that can
    be claimed."""

    generation: int
    former: int
    partitions: int
    closed: int
    opened: int

    @property
    def done(self) -> bool:
        """Return True if all rows of the new count can be claimed. All former rows are closed then: each shares keys with one of them."""
        return self.opened == self.partitions


def resize_progress(rows: Iterable[Partition], fleet: Fleet) -> ResizeProgress | None:
    """Return the progress that the rows show; None if no resize is under way."""
    if not fleet.former:
        return None
    closed = opened = 0
    for row in rows:
        forward = row.generation >= fleet.generation
        closed += forward and row.number < fleet.former
        opened += forward and not row.closed and row.number < fleet.partitions
    return ResizeProgress(fleet.generation, fleet.former, fleet.partitions, closed, opened)
