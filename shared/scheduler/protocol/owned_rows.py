"""The rows of an owner's shard, with the figures that each of its steps needs.

A full shard has a thousand rows and is settled in twenty steps. So no step walks all rows: each row is counted when it changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from ...storage.ports import Props, Row, Value
from .. import rules


class OwnedRows(dict[str, Row]):
    """The rows by their keys. Only the assignment of one row and `clear` change them: other methods of `dict` leave the figures wrong."""

    __slots__ = ("_may_owe", "open", "states", "user_ends")

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        super().__init__()
        self.open: dict[str, Props] = {}
        """Properties of the rows whose events have not ended: no others concern `rules.agenda`."""
        self.states: Counter[Value] = Counter()
        """Number of rows by state."""
        self.user_ends = 0
        """The events for which `rules.is_user_end` is true, as bits by their numbers."""
        self._may_owe: dict[str, Props] = {}
        """Properties of the ended rows, except those that were found to owe nothing."""
        for row in rows:
            self[row.rk] = row

    def __setitem__(self, rk: str, row: Row) -> None:
        if rk in self:
            self.states[self[rk].props["state"]] -= 1
        super().__setitem__(rk, row)
        props = row.props
        state = props["state"]
        self.states[state] += 1
        if state in rules.FINAL:
            self.open.pop(rk, None)
            self._may_owe[rk] = props
        else:
            self.open[rk] = props
            self._may_owe.pop(rk, None)
        if rules.is_user_end(state, props):
            self.user_ends |= 1 << rules.event_number(rk)
        elif self.user_ends:
            self.user_ends &= ~(1 << rules.event_number(rk))

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        for part in (self.open, self.states, self._may_owe):
            part.clear()
        self.user_ends = 0

    def owed(self, owes: Callable[[Props], bool]) -> list[str]:
        """Return the ended events for which something is left to do.

        owes: returns True if this is so for an event. After False, it is asked again only after a change of the row.
        """
        for rk in [rk for rk, props in self._may_owe.items() if not owes(props)]:
            del self._may_owe[rk]
        return list(self._may_owe)
