"""The rows that list all fleets, and those that remember ended ones.

TocsinFleets, partition    row                  content
{tenant}:{fleet}           fleet, s:, p:, i:    the fleet itself (leases/rows.py)
:fleets                    {tenant}:{fleet}     the fleet's index entry: creation time, and whether it is ending
:gone                      {tenant}:{fleet}     the highest epoch of a fleet that has ended
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..core.clock import Millis
from ..engine.row_codec import RowCodec
from ..storage.ports import Props, Row

GONE: Final = ":gone"
"""A storage partition of its own: a tenant's name is never empty."""


class FleetEntry(NamedTuple):
    """A fleet's entry in the index."""

    key: str
    created: Millis
    ending: bool
    etag: str

    @property
    def tenant(self) -> str:
        """The fleet's tenant."""
        return self.key.partition(":")[0]

    @property
    def name(self) -> str:
        """The fleet's name."""
        return self.key.partition(":")[2]


_ENTRY: Final = RowCodec(FleetEntry, given=("key", "etag"))


def entry_props(created: Millis, *, ending: bool = False) -> Props:
    """Return the properties of an index entry."""
    return _ENTRY.encode(FleetEntry("", created, ending, ""))


def parse_entry(row: Row) -> FleetEntry:
    """Return the index entry in its row."""
    return _ENTRY.decode(row.props, row.rk, row.etag)


class EndedFleet(NamedTuple):
    """A fleet that has ended. epoch: the highest one of its partitions. at: when it ended."""

    epoch: int
    at: Millis

    def props(self) -> Props:
        """Return the row's properties."""
        return _ENDED.encode(self)


_ENDED: Final = RowCodec(EndedFleet)


def parse_ended(props: Props) -> EndedFleet:
    """Return the ended fleet of a row's properties."""
    return _ENDED.decode(props)
