"""The facets that keep finding rows: states, held events and searchable labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ....engine.effects import Steps
from ....storage.ports import Row
from ...points import Facet, Filing, Known
from ...rules import tally
from ...shard.gate import Counts, Gate
from .held import HELD, recalled, stamp
from .labels import marked_digests, unmarked_digests
from .rows import LABEL_ROWS, STATE_ROWS, file_missing, remove_rows
from .states import has_retried


@dataclass(frozen=True, slots=True)
class States(Facet):
    """Dead and retrying events are found by state rows."""

    def before_store(self, filing: Filing, events: Collection[Mapping[str, Any]]) -> Steps[None]:
        # Events come as dead if they waited in the ingest queue for too long.
        yield from self.before_settle(filing, tally(props["state"] for props in events))

    def before_settle(self, filing: Filing, counts: Counts) -> Steps[None]:
        yield from file_missing(STATE_ROWS, filing, [name for name in ("dead", "retrying") if getattr(counts, name)])

    def at_end(self, filing: Filing, gate: Gate, rows: Collection[Row]) -> Steps[None]:
        # A former owner, or the one of a copy, may have counted them without their rows.
        yield from self.before_settle(filing, gate.counts)
        if has_retried(rows):
            yield from remove_rows(STATE_ROWS, filing.shard, ("retrying",))

    def at_removal(self, filing: Filing, counts: Counts) -> Steps[None]:
        if counts.dead:
            yield from remove_rows(STATE_ROWS, filing.shard, ("dead",))


@dataclass(frozen=True, slots=True)
class Held(Facet):
    """The gate says what an owner knows of the shard's held row, and the finisher removes it. `protocol.holding` writes it."""

    def recall(self, gate: Gate) -> Known:
        return recalled(gate)

    def kept(self, gate: Gate, known: Known, epoch: int) -> str | None:
        return stamp(gate, known, epoch)

    def at_end(self, filing: Filing, gate: Gate, rows: Collection[Row]) -> Steps[None]:
        if gate.beside is not None:
            yield from remove_rows(STATE_ROWS, filing.shard, (HELD,))


@dataclass(frozen=True, slots=True)
class Labels(Facet):
    """Events are found by their labels. searchable: names of the labels by which the tenant searches."""

    searchable: Collection[str] = ()

    def before_store(self, filing: Filing, events: Collection[Mapping[str, Any]]) -> Steps[None]:
        yield from file_missing(LABEL_ROWS, filing, marked_digests(events))

    def before_release(self, filing: Filing, rows: Collection[Row]) -> Steps[None]:
        if self.searchable:
            yield from file_missing(LABEL_ROWS, filing, unmarked_digests(rows, self.searchable))

    def on_move(self, filing: Filing, copies: Collection[Mapping[str, Any]]) -> Steps[None]:
        yield from self.before_store(filing, copies)

    def before_removal(self, filing: Filing, rows: Collection[Row]) -> Steps[None]:
        yield from remove_rows(LABEL_ROWS, filing.shard, marked_digests(row.props for row in rows))
