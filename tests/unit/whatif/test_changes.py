"""The language of changes, and what does not fit an export."""

from __future__ import annotations

from datetime import UTC

import pytest

from shared.core.clock import to_text
from shared.core.durations import parse_time
from shared.whatif.changes import (
    ANNOUNCED_BEFORE,
    DEFAULT_LASTS,
    OPTIONS,
    AddedEvents,
    BadChange,
    Change,
    DomainChange,
    RateChange,
    ReceiverChange,
    ServerRemoval,
    parse_changes,
    parse_duration_text,
)
from shared.whatif.snapshot import MAX_EVENTS, ExportedChannel, ExportedFleet, ExportedNode, PlannedEvent, Snapshot

FIRST = parse_time("2026-11-23T11:30:00Z")
NODES = tuple(ExportedNode(f"n{number}", fault_domain=str(number % 3)) for number in range(6))
SNAPSHOT = Snapshot(
    FIRST,
    FIRST + 4 * 3_600_000,
    (PlannedEvent(FIRST, "orders", times=10),),
    (ExportedChannel("orders"), ExportedChannel("bills")),
    fleets=(ExportedFleet("store", {"partitions": 6}, NODES), ExportedFleet("search", {"partitions": 6}, NODES[:4])),
)


def parsed(name: str, text: str) -> Change:
    [found] = parse_changes({name: [text]}, SNAPSHOT, UTC)
    return found


def at(clock: str) -> int:
    return parse_time(f"2026-11-23T{clock}Z")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("slow", "orders=2s@12:00", ReceiverChange("orders", at("12:00:00"), None, 2000)),
        ("slow", "orders=1m30s@12:00-12:30", ReceiverChange("orders", at("12:00:00"), at("12:30:00"), 90_000)),
        ("slow", "orders=300ms@+10m/5m", ReceiverChange("orders", at("11:40:00"), at("11:45:00"), 300)),
        ("fail", "bills=20%@12:00", ReceiverChange("bills", at("12:00:00"), None, 0, 0.2)),
        ("down", "bills@12:00:30/10m", ReceiverChange("bills", at("12:00:30"), at("12:10:30"), 0, 1.0)),
        ("down", "bills@2026-11-23T12:00:00Z", ReceiverChange("bills", at("12:00:00"), None, 0, 1.0)),
        ("rate", "orders=10/s@12:00", RateChange("orders", 10.0, at("12:00:00"))),
        ("rate", "orders=none@12:00", RateChange("orders", None, at("12:00:00"))),
        ("add-events", "500@12:00", AddedEvents(500, "orders", at("12:00:00"), 0)),
        ("add-events", "500:bills@12:00/1m", AddedEvents(500, "bills", at("12:00:00"), 60_000)),
        ("maintenance", "2@14:00/10m", DomainChange("maintenance", "", "2", at("14:00:00"), 600_000)),
        ("outage", "store/2@14:00", DomainChange("outage", "store", "2", at("14:00:00"), DEFAULT_LASTS)),
        ("remove-servers", "3@13:00", ServerRemoval("", 3, at("13:00:00"))),
        ("remove-servers", "store/5@13:00", ServerRemoval("store", 5, at("13:00:00"))),
    ],
)
def test_each_change_is_read(name: str, text: str, expected: Change) -> None:
    assert parsed(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("slow", "order=2s@12:00", "it has orders, bills"),
        ("slow", "orders=2s", "no @ with a time"),
        ("slow", "orders=quick@12:00", "not a duration"),
        ("slow", "orders=2s@25:00", "not a time"),
        ("slow", "orders=2s@11:00", "not within the window"),
        ("slow", "orders=2s@13:00-12:00", "is not after"),
        ("fail", "orders=120%@12:00", "not a share"),
        ("fail", "orders=0.2@12:00", "not a share"),
        ("rate", "orders=0/s@12:00", "not a rate"),
        ("rate", "orders=nan@12:00", "not a rate"),
        ("slow", f"orders={'9' * 400}h@12:00", "not a duration"),
        ("slow", "orders=2s@+999999999999h", "longer than a day"),
        ("slow", "orders=2s@12:00/25h", "longer than a day"),
        ("rate", "orders=1e-320/s@12:00", "not a rate"),
        ("add-events", f"{'9' * 5000}@12:00", "not a count"),
        ("add-events", "-3@12:00", "not a count"),
        ("maintenance", "7@14:00", "the export has 0, 1, 2"),
        ("outage", "stores/2@14:00", "it has store, search"),
        ("remove-servers", "4@13:00", "at least one server must stay"),
        ("explode", "x@12:00", "is not a change"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_with_its_reason(name: str, text: str, reason: str) -> None:
    with pytest.raises(BadChange, match=reason):
        parsed(name, text)


def test_a_time_of_day_before_the_window_is_that_of_the_next_day() -> None:
    late = Snapshot(at("23:00:00"), at("23:00:00") + 2 * 3_600_000, channels=(ExportedChannel("orders"),))
    [found] = parse_changes({"down": ["orders@00:30"]}, late, UTC)
    assert isinstance(found, ReceiverChange) and to_text(found.first) == "2026-11-24T00:30:00.000Z"


def test_the_examples_of_all_options_are_read() -> None:
    for name, example in OPTIONS.items():
        assert parsed(name, example)
    assert parse_duration_text("15m") == ANNOUNCED_BEFORE


def test_added_events_count_for_the_bound_of_a_run() -> None:
    with pytest.raises(BadChange, match="exceed"):
        parsed("add-events", f"{MAX_EVENTS}@12:00")
