"""The file of an export, its bounds, and a sample that stands for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.core.durations import parse_time
from shared.whatif.export import scaled, slices
from shared.whatif.snapshot import (
    MAX_EVENTS,
    MAX_NODE_SECONDS,
    MAX_WINDOW,
    AnnouncedMaintenance,
    BadSnapshot,
    ExportedChannel,
    ExportedFleet,
    ExportedNode,
    PlannedEvent,
    Snapshot,
    parse_snapshot,
)

FIRST = parse_time("2026-11-23T12:00:00Z")
MINUTE = 60_000
NODES = (ExportedNode("n1", "vm1", "scope", "west", "0", 5, True, True, "secondary"), ExportedNode("n2"))
SNAPSHOT = Snapshot(
    FIRST,
    FIRST + 10 * MINUTE,
    (PlannedEvent(FIRST + 5, "orders", 120, 3, 7), PlannedEvent(FIRST + 17, "bills")),
    (ExportedChannel("orders", took=(10, 20), failed=0.25, rate=5.0, per_key={"ordered": True}), ExportedChannel("bills")),
    ({"every": "PT1M", "channel": "bills"},),
    (ExportedFleet("store", {"partitions": 4}, NODES, (AnnouncedMaintenance(("n1",), FIRST + MINUTE, 7000),), (61.5,)),),
    {"attempts": 3},
    100.0,
    None,
    ("A note.",),
)


def test_a_file_is_read_as_it_was_written() -> None:
    assert parse_snapshot(SNAPSHOT.text()) == SNAPSHOT and SNAPSHOT.total == 8


def test_a_file_may_hold_events_that_were_overdue() -> None:
    found = replace(SNAPSHOT, events=(PlannedEvent(FIRST - 47_017, "orders"),))
    assert parse_snapshot(found.text()) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"tocsin_what_if": 2}',
        SNAPSHOT.text().replace('"orders", 120', '"orders", -1'),
        SNAPSHOT.text().replace('"notes"', '"n"'),
    ],
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(BadSnapshot):
        parse_snapshot(text)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"end": FIRST + MAX_WINDOW + 1}, "24 hours"),
        ({"end": FIRST}, "24 hours"),
        ({"events": (PlannedEvent(FIRST, "orders", times=MAX_EVENTS + 1),)}, "events are more"),
        ({"channels": (ExportedChannel("c"),) * 201}, "channels are more"),
        ({"fleets": (ExportedFleet("f", {}, NODES[1:] * 301),)}, "nodes are more"),
        (
            {"fleets": (ExportedFleet("f", {}, NODES[1:] * 100),), "end": FIRST + MAX_NODE_SECONDS * 11},
            "over 73 min are too many; export 67 min",
        ),
    ],
)
def test_what_is_too_large_for_a_run_is_refused(part: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSnapshot, match=reason):
        replace(SNAPSHOT, **part).check()


def test_slices_hold_about_as_many_events_each_and_all_minutes() -> None:
    counts = {FIRST + MINUTE * number: 10 for number in (0, 1, 2, 5, 6, 9)} | {FIRST + 3 * MINUTE: 60}
    assert slices(counts, 1) == [(FIRST, FIRST + 10 * MINUTE)]
    found = slices(counts, 3)
    assert [sum(count for minute, count in counts.items() if first <= minute < end) for first, end in found] == [90, 30]
    assert slices({}, 5) == []


def test_a_sample_stands_for_as_many_events_as_each_minute_has() -> None:
    sample = [PlannedEvent(FIRST + 100, "orders", 10), PlannedEvent(FIRST + 200, "bills", 20, 4)]
    found = scaled(sample, {FIRST: 5, FIRST + MINUTE: 3, FIRST + 2 * MINUTE: 0})
    by_minute = {minute: [event for event in found if event.due // MINUTE * MINUTE == minute] for minute in (FIRST, FIRST + MINUTE)}
    assert [sum(event.times for event in each) for each in by_minute.values()] == [5, 3]
    assert sum(event.times for event in found) == 8 and {event.channel for event in by_minute[FIRST + MINUTE]} == {"orders", "bills"}
