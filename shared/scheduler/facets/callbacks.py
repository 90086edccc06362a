"""Callbacks and notices: an event that has ended may owe one. `owed` has the marks, and `outcomes` stores what is owed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...storage.ports import Props
from ..overlap import SKIPPED
from ..owed import CALLBACK, OWED, owed_after, with_callbacks
from ..points import Facet
from ..rules import RowOutcome


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
