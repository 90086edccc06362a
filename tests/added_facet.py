"""A facet that the service does not have, added as anybody would add one: a class, and one more line in the table of facets.

The journal notes each end of an event in a row beside it, and has a row for each shard with events, by which the notes are found:

    table     partition   row         content
    sweeps    journal     {shard}     bucket; ended: true once the shard is finished
    events    {shard}     j{number}   event: its id; end: the state in which it has ended here

An event's property `noted` says the same. A cancelled event has the property alone: users write nothing beside a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import batched
from typing import Any

from shared.engine.effects import Steps, write
from shared.scheduler import facets
from shared.scheduler.keys import FIRST_EVENT
from shared.scheduler.points import Facet, Facets, Filing
from shared.scheduler.rules import GOING, RowOutcome
from shared.scheduler.shard.gate import Counts, Gate
from shared.storage.names import EVENTS, SWEEPS
from shared.storage.ports import ANY, Applied, Delete, Insert, Op, Props, Row, Upsert, WriteRefused

JOURNAL = "journal"
NOTED = "noted"
FIRST_NOTE = "j"
ENDS = frozenset({"delivered", "dead", "lapsed"})


def note_key(row_key: str) -> str:
    """Return the key of the note of an event."""
    return FIRST_NOTE + row_key[1:]


def _surely(table: str, pk: str, op: Op) -> Steps[None]:
    """Make one write whose repetition is harmless."""
    while not isinstance((yield from write(table, pk, op)), Applied | WriteRefused):
        pass


@dataclass(frozen=True, slots=True)
class Journal(Facet):
    """Each end of an event is noted beside it."""

    @property
    def own(self) -> frozenset[str]:
        return frozenset({NOTED})

    def before_store(self, filing: Filing, events: Collection[Mapping[str, Any]]) -> Steps[None]:
        if JOURNAL not in filing.known:
            # Inserted: a shard that is finished already keeps what its row says.
            yield from _surely(SWEEPS, JOURNAL, Insert(filing.shard, {"bucket": filing.bucket}))
            filing.known[JOURNAL] = ""

    def on_move(self, filing: Filing, copies: Collection[Mapping[str, Any]]) -> Steps[None]:
        yield from self.before_store(filing, copies)

    def marks(self, props: Mapping[str, Any], outcome: RowOutcome) -> Props:
        return {NOTED: outcome.state} if outcome.state in ENDS else {}

    def beside(self, row: Row, outcome: RowOutcome, change: Props) -> list[Op]:
        return [Upsert(note_key(row.rk), {"event": row.props["id"], "end": outcome.state})] if NOTED in change else []

    def rows_beside(self, outcome: RowOutcome) -> int:
        return int(outcome.state in ENDS)

    def written(self, change: Props, props: Mapping[str, Any]) -> Props:
        return {**change, NOTED: "cancelled"} if change.get("state") == "cancelled" else change

    def at_end(self, filing: Filing, gate: Gate, rows: Collection[Row]) -> Steps[None]:
        yield from _surely(SWEEPS, JOURNAL, Upsert(filing.shard, {"bucket": filing.bucket, "ended": True}))

    def before_removal(self, filing: Filing, rows: Collection[Row]) -> Steps[None]:
        for some in batched((note_key(row.rk) for row in rows if row.props.get(NOTED) in ENDS), 100):
            left = list(some)
            while left:
                answer = yield from write(EVENTS, filing.shard, *(Delete(key, ANY) for key in left))
                if isinstance(answer, Applied):
                    break
                if isinstance(answer, WriteRefused):
                    # A run that was interrupted has removed it.
                    del left[answer.at]

    def at_removal(self, filing: Filing, counts: Counts) -> Steps[None]:
        yield from _surely(SWEEPS, JOURNAL, Delete(filing.shard, ANY))


@contextmanager
def added(*more: Facet) -> Iterator[None]:
    """Let the table of facets have further lines at its end, for as long as the context lasts."""
    before, plain = facets.FACETS.each, facets._facets

    def _facets(searchable: tuple[str, ...], notices: bool) -> Facets:
        return Facets((*plain(searchable, notices).each[: len(before)], *more))

    _set(facets.FACETS, (*before, *more))
    facets._facets = _facets  # type: ignore[assignment]
    try:
        yield
    finally:
        facets._facets = plain
        _set(facets.FACETS, before)


def _set(table: Facets, each: tuple[Facet, ...]) -> None:
    # Modules have the table of all writes by name, so it is changed in place.
    object.__setattr__(table, "each", each)
    table.__post_init__()


type Stored = Mapping[tuple[str, str, str], Mapping[str, Any]]
"""Rows by table, partition and row key."""


def is_note(row_key: str) -> bool:
    """Return True for the key of a note in a shard's partition."""
    return row_key.startswith(FIRST_NOTE)


def broken(stored: Stored) -> str:
    """Return the sentence about what the journal lacks at this instant, or ''."""
    events = {key: props for key, props in stored.items() if key[0] == EVENTS and key[2].startswith(FIRST_EVENT)}
    going = {props["id"] for props in events.values() if props["state"] in GOING}
    for (_, shard, rk), props in events.items():
        state, noted = props["state"], props.get(NOTED)
        if (SWEEPS, JOURNAL, shard) not in stored and props["id"] not in going:
            return f"J1: {shard}/{rk} is {state}, and its shard is not in the journal"
        # An event that is cancelled in the ingest queue is stored as such: nothing is known of its channel.
        by_user = state == "cancelled" and "by" in props and props["channel"] != ""
        ended = state in ENDS and "epoch" in props
        if (noted is not None or ended or by_user) and noted != state:
            return f"J2: {shard}/{rk} is {state}, and its row says {noted}"
        note = stored.get((EVENTS, shard, note_key(rk)), {})
        if note.get("end") != (noted if noted in ENDS else None):
            return f"J3: {shard}/{rk} is {state}, and the journal says {note.get('end')}"
    return ""


def unfinished(stored: Stored) -> str:
    """Return the sentence about a shard that the journal does not call ended once all shards are finished, or ''."""
    for (table, pk, shard), props in stored.items():
        if (table, pk) == (SWEEPS, JOURNAL) and not props.get("ended"):
            return f"J4: {shard} is finished, and the journal does not say so"
    return ""
