"""The features of events that hang on the points of the core (`points`).

finding     rows that make events findable: dead and retrying ones, held ones, and those with searchable labels
long_work   receivers that complete an event later: tokens, and what becomes of the event
fanouts     the ids of a fan-out's events; not a facet
this file   `Answers`: heads of receivers' answers, kept beside their event (`properties.attempts`)
            `Callbacks`: what an event owes after its end (`properties.owed`); `outcomes` stores it
            `Copies`: which row is a copy of another account's (`protocol.mirroring`)

The core gets the facets as an argument: an owner's are those of its tenant (`facets_for`). What is called for many tenants, or for a user
who changes one event, uses `FACETS`. A new facet has a file here and an entry in the table below, which fixes the order. CONTRIBUTING.md
says what it may do, and which tests it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ...storage.ports import Op, Props, Row
from ..keys import MIRRORED, Address, place_of
from ..points import Facet, Facets
from ..properties.attempts import add_answer
from ..properties.overlap import SKIPPED
from ..properties.owed import CALLBACK, OWED, owed_after, with_callbacks
from ..rules import RowOutcome
from .finding import Held, Labels, States
from .long_work import LongWork


@dataclass(frozen=True, slots=True)
class Answers(Facet):
    """The transaction that settles an attempt stores the head of its answer."""

    def beside(self, row: Row, outcome: RowOutcome, change: Props) -> list[Op]:
        return [add_answer(row, change, outcome.answer)] if outcome.answer is not None else []

    def rows_beside(self, outcome: RowOutcome) -> int:
        return int(outcome.answer is not None)


@dataclass(frozen=True, slots=True)
class Callbacks(Facet):
    """The write that ends an event says what is owed. notices: the tenant is to be told of events that end without a delivery."""

    notices: bool = False

    @property
    def own(self) -> frozenset[str]:
        return frozenset({OWED, CALLBACK})

    def marks(self, props: Mapping[str, Any], outcome: RowOutcome) -> Props:
        # A skipped occurrence has the notice of a missed one.
        return owed_after(props, outcome.state, self.notices and SKIPPED not in outcome.props)

    def written(self, change: Props, props: Mapping[str, Any]) -> Props:
        return with_callbacks(change, props)

    def owes(self, props: Mapping[str, Any]) -> bool:
        return bool(props.get(OWED))


ORIGIN: Final = "origin"
"""Property of a copy in another account: the ETag of the row that it was copied from."""
CAME: Final = "came"
"""Property of a mirrored event that was moved or redriven here: its former place, so that no copy shows it as alive at both."""


@dataclass(frozen=True, slots=True)
class Copies(Facet):
    """A row that is changed here is no longer taken for a copy of the other account's row.

    A process that has not heard of a change of sides may make the change in the account that does not serve. The next pass of the copying
    then sees that the row differs.
    """

    @property
    def own(self) -> frozenset[str]:
        return frozenset({ORIGIN, CAME})

    def touched(self, props: Mapping[str, Any]) -> Props:
        return {ORIGIN: ""} if props.get(ORIGIN) else {}

    def came_from(self, former: Address) -> Props:
        return {CAME: former.text} if place_of(former.shard) == MIRRORED else {}


def facets_for(searchable: Collection[str] = (), *, notices: bool = False) -> Facets:
    """Return the facets of a tenant's events. searchable, notices: what the tenant has asked for (`Labels`, `Callbacks`)."""
    return _facets(tuple(searchable), notices)


@lru_cache
def _facets(searchable: tuple[str, ...], notices: bool) -> Facets:
    return Facets((States(), Held(), Labels(searchable), LongWork(), Callbacks(notices), Answers(), Copies()))


FACETS: Final = facets_for()
"""The facets for writes that depend on nothing the tenant has asked for."""
