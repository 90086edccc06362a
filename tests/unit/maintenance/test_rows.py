"""Rows of maintenance: what is stored comes back, however long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.engine.json_codec import TooLarge
from shared.maintenance.rows import (
    ApprovalRow,
    EventHold,
    EventRow,
    MaintenanceRow,
    MonitorsRow,
    NodeEntry,
    NodeRow,
    encode_row,
    parse_event,
    parse_monitors,
    parse_node,
)
from shared.storage.ports import MAX_STRING_UNITS, Row

NODE = NodeRow("n1", "vm_1", "set", 3, 1000, entries=(NodeEntry("e", "Freeze", "Scheduled", "WAITING", 5, resources=("vm_1",)),))
EVENT = EventRow("e", "set", "Freeze", "scheduled", 1, 5, resources=("vm_1",), phases={"n1": ("DONE", 7)}, observed={"n1": 12})


def stored(kept: MaintenanceRow) -> Row:
    props = encode_row(kept)
    assert all(len(value.encode("utf-16-le")) // 2 <= MAX_STRING_UNITS for value in props.values() if isinstance(value, str))
    return Row("pk", "rk", props, "etag", 0, 0)


def test_what_is_stored_comes_back() -> None:
    assert parse_node(stored(NODE)) == NODE
    made = replace(
        EVENT, grant=ApprovalRow("e.1", "k", "r", 1, 5), hold=EventHold("e.hold", "k", "r", 1), alarms=("silent",), told=("+silent",)
    )
    assert parse_event(stored(made)) == made
    assert parse_monitors(stored(MonitorsRow("a", "b", 3, 4))) == MonitorsRow("a", "b", 3, 4)
    assert parse_monitors(None) == MonitorsRow()


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), st.integers(0, 400))
def test_names_of_any_letters_and_any_number_come_back(name: str, times: int) -> None:
    made = replace(EVENT, resources=tuple(f"{name}{number}" for number in range(times)))
    assert parse_event(stored(made)) == made


def test_a_thousand_named_machines_fit_and_what_does_not_is_refused() -> None:
    made = replace(EVENT, resources=tuple(f"{number:0128d}" for number in range(1000)))
    assert parse_event(stored(made)) == made
    with pytest.raises(TooLarge):
        encode_row(replace(NODE, entries=tuple(replace(NODE.entries[0], event_id=str(n), resources=made.resources) for n in range(3))))


def test_what_a_later_release_stores_beside_is_left_alone() -> None:
    row = stored(NODE)
    row.props["json0"] = str(row.props["json0"])[:-1] + ',"news":1}'
    assert parse_node(row) == NODE
