"""Copies of mirrored events in another account (`protocol.mirroring`): what the event's row says about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...storage.ports import Props
from ..keys import MIRRORED, Address, place_of
from ..points import Facet

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
