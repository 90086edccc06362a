"""The event rows of one shard, as its owner knows them, with what each step asks of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...storage.ports import Props, Row, Value
from ..properties.work_rows import WORK
from ..rules import FINAL, USER_ENDED


class ShardRows(dict[str, Row]):
    """Event rows by their keys. Rows are set and never removed: no other way to change them keeps the rest up to date.

    An owner looks at all rows of its shard several times a step. Those of a large shard do not fit a processor's cache; `states` does.
    """

    __slots__ = ("_owes", "firing", "owing", "states", "user_ended")

    def __init__(self, owes: Callable[[Props], bool], rows: Iterable[Row] = ()) -> None:
        """owes: returns True if something is left to do for an ended event with these properties."""
        super().__init__()
        self._owes = owes
        self.states: dict[str, Value] = {}
        """The state of each row, in the order of the rows."""
        self.firing: set[str] = set()
        """Keys of the rows that are claimed, by this owner or a former one."""
        self.owing: set[str] = set()
        """Keys of the ended events for which something is left to do."""
        self.user_ended: dict[str, Row] = {}
        """Rows of events that may have ended without their owner."""
        for row in rows:
            self[row.rk] = row

    def __setitem__(self, row_key: str, row: Row) -> None:
        super().__setitem__(row_key, row)
        props = row.props
        state = self.states[row_key] = props["state"]
        if state == "firing":
            self.firing.add(row_key)
        else:
            self.firing.discard(row_key)
        if state in FINAL and self._owes(props):
            self.owing.add(row_key)
        else:
            self.owing.discard(row_key)
        if state in USER_ENDED or WORK in props:
            self.user_ended[row_key] = row
        else:
            self.user_ended.pop(row_key, None)
