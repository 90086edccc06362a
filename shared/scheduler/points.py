"""The points at which facets act. The core of a shard calls them in a fixed order and names no facet.

A facet is one feature of events, such as searchable labels or callbacks. Its class derives from `Facet` and overrides the points that it
needs; the table in `facets/__init__` gives the order. The points, in the order of a shard's life:

    recall           an owner takes the shard: what the gate says about rows beside it
    before_store     events are about to be stored
    before_settle    counts of the shard are about to be stored
    still            an owner settles an outcome: does it still apply?
    marks, beside    the write that settles it: further properties of the event's row, and rows in the same transaction
    written          a user changes an event: what is written for it
    owes             an ended event: is there something left to do for it?
    before_release   the owner is about to release or to finish the shard; `kept` is what its last gate says about rows beside the shard
    touched          an event's row is changed, by anyone but its owner, beside what the change says
    came_from        an event gets a new place
    on_move          a moved event and the index row of its new place are stored; its former place does not point to it yet
    at_end           the gate is done and the ledger row is stored
    before_removal   retention is about to remove the event rows
    at_removal       the event rows and the gate are gone; the ledger row is not

Points that store something are generators of effects, like the protocol that calls them. The others are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from ..engine.effects import Steps
from ..storage.ports import Op, Props, Row
from .keys import Address
from .rules import RowOutcome
from .shard.gate import Counts, Gate

type Known = dict[str, str]
"""The rows that make a shard findable, as far as a process knows them, by their names: the digest of a row's content, '' if it has none."""

NOTHING: Final[frozenset[str]] = frozenset()


class Filing(NamedTuple):
    """A shard whose rows beside it are looked after. bucket: the minute for which it was opened. known: updated by whoever files a row."""

    shard: str
    bucket: str
    known: Known


class Facet:
    """One feature of events. A point that it does not override does nothing."""

    @property
    def own(self) -> frozenset[str]:
        """The properties of an event's row that belong to its place or due time: a copy starts without them."""
        return NOTHING

    def recall(self, gate: Gate) -> Known:
        """Return what a gate that is about to be taken says about rows beside the shard."""
        return {}

    def before_store(self, filing: Filing, events: Collection[Mapping[str, Any]]) -> Steps[None]:
        """Store what must be there before these events are."""
        yield from ()

    def before_settle(self, filing: Filing, counts: Counts) -> Steps[None]:
        """Store what must be there before the shard has events in the states that `counts` has."""
        yield from ()

    def still(self, outcome: RowOutcome, props: Props) -> bool | None:
        """Return True if an outcome still applies to its row, and False if it does not. None: the facet has no say in it."""
        return None

    def marks(self, props: Mapping[str, Any], outcome: RowOutcome) -> Props:
        """Return what the write that settles an event with these properties must say about it."""
        return {}

    def beside(self, row: Row, outcome: RowOutcome, change: Props) -> list[Op]:
        """Return the operations that go with the change of an event's row, which may be completed. `Upsert` alone: a refused operation
        would refuse the change, each time."""
        return []

    def rows_beside(self, outcome: RowOutcome) -> int:
        """Return the most operations that `beside` returns for an outcome. Only facets that override `beside` are asked."""
        return 1

    def written(self, change: Props, props: Mapping[str, Any]) -> Props:
        """Return a user's change as it is written to a row with these properties."""
        return change

    def owes(self, props: Mapping[str, Any]) -> bool:
        """Return True if something is left to do for an event that has ended. Its shard is not finished before that.

        After False, the owner asks again only after a change of the row.
        """
        return False

    def wakes_early(self, props: Mapping[str, Any]) -> bool:
        """Return True if an event of a resting shard may call an owner before the shard's wake-up."""
        return False

    def before_release(self, filing: Filing, rows: Collection[Row]) -> Steps[None]:
        """Store what must be there before the owner of these rows leaves the shard."""
        yield from ()

    def kept(self, gate: Gate, known: Known, epoch: int) -> str | None:
        """Return what the owner's last gate says about rows beside the shard. None: there are none."""
        return None

    def touched(self, props: Mapping[str, Any]) -> Props:
        """Return what every change of a row with these properties says, unless the owner of the shard makes it."""
        return {}

    def came_from(self, former: Address) -> Props:
        """Return what the row of a moved or redriven event says about its former place."""
        return {}

    def on_move(self, filing: Filing, copies: Collection[Mapping[str, Any]]) -> Steps[None]:
        """Store what leads to events at their new place. filing: of that place."""
        yield from ()

    def at_end(self, filing: Filing, gate: Gate, rows: Collection[Row]) -> Steps[None]:
        """Do what is due for a finished shard. A repetition must be harmless."""
        yield from ()

    def before_removal(self, filing: Filing, rows: Collection[Row]) -> Steps[None]:
        """Remove what leads to events whose rows are removed next. A repetition must be harmless."""
        yield from ()

    def at_removal(self, filing: Filing, counts: Counts) -> Steps[None]:
        """Remove what is left beside a shard. counts: of the events that it had. A repetition must be harmless."""
        yield from ()


@dataclass(frozen=True)
class Facets(Facet):
    """Several facets, in their order, as one."""

    each: tuple[Facet, ...] = ()
    _at: ClassVar[Mapping[str, tuple[Facet, ...]]] = {}
    """The facets that act at each point. An instance has its own."""

    def __post_init__(self) -> None:
        # Most facets act at few points. Some points are reached for each event.
        object.__setattr__(self, "_at", {point: self._acting(point) for point in vars(Facet) if not point.startswith("_")})

    def _acting(self, point: str) -> tuple[Facet, ...]:
        """Return the facets that override the point."""
        return tuple(facet for facet in self.each if getattr(type(facet), point) is not getattr(Facet, point))

    @property
    def own(self) -> frozenset[str]:
        return NOTHING.union(*(facet.own for facet in self._at["own"]))

    def recall(self, gate: Gate) -> Known:
        return {name: content for facet in self._at["recall"] for name, content in facet.recall(gate).items()}

    def before_store(self, filing: Filing, events: Collection[Mapping[str, Any]]) -> Steps[None]:
        for facet in self._at["before_store"]:
            yield from facet.before_store(filing, events)

    def before_settle(self, filing: Filing, counts: Counts) -> Steps[None]:
        for facet in self._at["before_settle"]:
            yield from facet.before_settle(filing, counts)

    def still(self, outcome: RowOutcome, props: Props) -> bool | None:
        for facet in self._at["still"]:
            if (found := facet.still(outcome, props)) is not None:
                return found
        return None

    def marks(self, props: Mapping[str, Any], outcome: RowOutcome) -> Props:
        found: Props = {}
        for facet in self._at["marks"]:
            found |= facet.marks(props, outcome)
        return found

    def beside(self, row: Row, outcome: RowOutcome, change: Props) -> list[Op]:
        found: list[Op] = []
        for facet in self._at["beside"]:
            found += facet.beside(row, outcome, change)
        return found

    def rows_beside(self, outcome: RowOutcome) -> int:
        return sum([facet.rows_beside(outcome) for facet in self._at["beside"]])

    def written(self, change: Props, props: Mapping[str, Any]) -> Props:
        for facet in self._at["written"]:
            change = facet.written(change, props)
        return change

    def owes(self, props: Mapping[str, Any]) -> bool:
        # A list: a generator takes twice as long, and this is asked for each ended event.
        return any([facet.owes(props) for facet in self._at["owes"]])

    def wakes_early(self, props: Mapping[str, Any]) -> bool:
        return any(facet.wakes_early(props) for facet in self._at["wakes_early"])

    def before_release(self, filing: Filing, rows: Collection[Row]) -> Steps[None]:
        for facet in self._at["before_release"]:
            yield from facet.before_release(filing, rows)

    def kept(self, gate: Gate, known: Known, epoch: int) -> str | None:
        return next((found for facet in self._at["kept"] if (found := facet.kept(gate, known, epoch)) is not None), None)

    def touched(self, props: Mapping[str, Any]) -> Props:
        return self._joined("touched", props)

    def came_from(self, former: Address) -> Props:
        return self._joined("came_from", former)

    def _joined(self, point: str, given: Any) -> Props:
        """Return the properties that the facets return at this point."""
        return {name: value for facet in self._at[point] for name, value in getattr(facet, point)(given).items()}

    def on_move(self, filing: Filing, copies: Collection[Mapping[str, Any]]) -> Steps[None]:
        for facet in self._at["on_move"]:
            yield from facet.on_move(filing, copies)

    def at_end(self, filing: Filing, gate: Gate, rows: Collection[Row]) -> Steps[None]:
        for facet in self._at["at_end"]:
            yield from facet.at_end(filing, gate, rows)

    def before_removal(self, filing: Filing, rows: Collection[Row]) -> Steps[None]:
        for facet in self._at["before_removal"]:
            yield from facet.before_removal(filing, rows)

    def at_removal(self, filing: Filing, counts: Counts) -> Steps[None]:
        for facet in self._at["at_removal"]:
            yield from facet.at_removal(filing, counts)
