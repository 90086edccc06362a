"""The figures of an owner's rows follow from the rows, whatever the changes that led to them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shared.scheduler import rules
from shared.scheduler.facets import FACETS
from shared.scheduler.keys import event_row
from shared.scheduler.properties.owed import OWED
from shared.scheduler.properties.work_rows import WORK
from shared.scheduler.protocol.owned_rows import OwnedRows
from shared.storage.ports import Props, Row

STATES = st.sampled_from(["scheduled", "retrying", "firing", "moving", "joining", *sorted(rules.FINAL)])
MARKS: st.SearchStrategy[Props] = st.sampled_from([{}, {OWED: ""}, {OWED: "callback"}, {WORK: "1"}])
CHANGES = st.lists(st.tuples(st.integers(0, 3), STATES, MARKS, st.booleans()))


def row_of(number: int, props: Props) -> Row:
    return Row("shard", event_row(number), props, "etag", 0, 0)


@given(CHANGES)
def test_figures_are_those_of_the_rows(changes: list[tuple[int, str, Props, bool]]) -> None:
    rows = OwnedRows()
    for number, state, marks, asked in changes:
        rows[event_row(number)] = row_of(number, {"state": state, **marks})
        if asked:
            rows.owed(FACETS.owes)
    found = {rk: row.props for rk, row in rows.items()}
    ended = {rk for rk, props in found.items() if props["state"] in rules.FINAL}
    assert rows.open == {rk: props for rk, props in found.items() if rk not in ended}
    assert +rows.states == Counter(props["state"] for props in found.values())
    assert set(rows.owed(FACETS.owes)) == {rk for rk in ended if found[rk].get(OWED)}
    ends = {rules.event_number(rk) for rk, props in found.items() if rules.is_user_end(props["state"], props)}
    assert rows.user_ends == sum(1 << number for number in ends)


def test_an_ended_event_is_asked_about_once_after_each_change() -> None:
    asked: list[Props] = []
    rows = OwnedRows([row_of(0, {"state": "delivered"})])
    for _ in range(2):
        assert rows.owed(lambda props: bool(asked.append(props))) == []
    rows[event_row(0)] = row_of(0, {"state": "delivered", OWED: ""})
    rows.owed(lambda props: bool(asked.append(props)))
    assert asked == [{"state": "delivered"}, {"state": "delivered", OWED: ""}]


def test_nothing_is_left_of_rows_that_were_cleared() -> None:
    rows = OwnedRows([row_of(0, {"state": "cancelled"}), row_of(1, {"state": "firing"}), row_of(2, {"state": "delivered", OWED: "notice"})])
    rows.clear()
    assert (rows, rows.open, +rows.states, rows.user_ends, rows.owed(FACETS.owes)) == ({}, {}, {}, 0, [])
