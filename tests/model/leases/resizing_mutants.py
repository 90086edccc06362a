"""Broken changes of the partition count. Each leaves out one rule of the protocol; the checker must find what it leads to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shared.engine.effects import Write
from shared.leases import generations, rules
from shared.leases.protocol import resizing, takeover
from shared.leases.rows import Partition
from shared.storage.ports import ANY, Replace
from tests.model.checking.checker import Report, explore
from tests.model.checking.mutants import Mutant, Patch, relay

from .resizing import RESIZES, ResizeWorld


def hunt_resize(mutant: Mutant, limit: int = 1_000_000) -> Report:
    """Explore the mutant's play with the hole in it."""
    with mutant.applied():
        return explore(ResizeWorld(RESIZES[mutant.play](0)), limit=limit)


def open_at_once() -> list[Patch]:
    """A closed row is opened, whatever the rows that it shares keys with."""

    def openings(rows: Any, fleet: Any) -> list[Partition]:
        found = [row for number, row in sorted(rows.items()) if number < fleet.partitions and row.closed]
        return [replace(row, epoch=max(each.epoch for each in rows.values()), generation=fleet.generation, closed=False) for row in found]

    return [(generations, "opened_rows", openings)]


def close_owned() -> list[Patch]:
    def closing(row: Partition, server: Any, generation: int) -> Partition | None:
        return (
            replace(row, owner="", incarnation="", generation=generation, closed=True) if generations.is_behind(row, generation) else None
        )

    return [(generations, "closed_row", closing)]


def _claimable(may: Any) -> list[Patch]:
    plain = rules.is_claimable

    def claimable(row: Partition, server: Any, session: Any) -> bool:
        return may(row, session) and plain(replace(row, closed=False, generation=session.generation), server, session)

    return [(rules, "is_claimable", claimable)]


def any_generation() -> list[Patch]:
    plain = takeover.scout

    def scout(session: Any, partitions: Any, *living: Any) -> Any:
        claims = yield from plain(session, partitions)
        return [claim._replace(generation=session.generation) for claim in claims]

    return [*_claimable(lambda row, session: not row.closed), (takeover, "scout", scout)]


def claim_closed() -> list[Patch]:
    return _claimable(lambda row, session: row.generation == session.generation)


def epochs_start_over() -> list[Patch]:
    plain = generations.opened_rows
    return [(generations, "opened_rows", lambda rows, fleet: [replace(row, epoch=rows[row.number].epoch) for row in plain(rows, fleet)])]


def close_unconditionally() -> list[Patch]:
    plain = resizing._put

    def put(changed: Any, rows: Any, etags: Any, key: str) -> Any:
        def change(write: Write) -> Write:
            return write._replace(ops=tuple(op._replace(etag=ANY) if isinstance(op, Replace) else op for op in write.ops))

        return relay(plain(changed, rows, etags, key), change)

    return [(resizing, "_put", put)]


def release_open() -> list[Patch]:
    plain = rules.released_row
    return [(rules, "released_row", lambda session, partition, now: replace(plain(session, partition, now), closed=False))]


RESIZE_MUTANTS = [
    Mutant("opened before all that share keys are closed", "halving", open_at_once),
    Mutant("closed while it is owned", "doubling", close_owned),
    Mutant("claimed by a server of the former generation", "doubling", any_generation),
    Mutant("claimed while it is closed", "halving", claim_closed),
    Mutant("epochs that start over", "doubling", epochs_start_over),
    Mutant("closed without its ETag", "doubling", close_unconditionally),
    Mutant("released as open", "halving", release_open),
]
