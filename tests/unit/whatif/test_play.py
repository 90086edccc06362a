"""Whole runs of a twin: production's code on virtual time."""

from __future__ import annotations

from datetime import UTC
from random import Random

import pytest

from shared.core.durations import parse_time
from shared.whatif import play as play_module
from shared.whatif.changes import parse_changes
from shared.whatif.outcome import RunOutcome
from shared.whatif.play import MAX_DRAIN, play
from shared.whatif.service import spread_events
from shared.whatif.snapshot import AnnouncedMaintenance, BadSnapshot, ExportedChannel, ExportedFleet, ExportedNode, PlannedEvent, Snapshot

FIRST = parse_time("2026-11-23T12:00:00Z")
MINUTE = 60_000
EVENTS = Snapshot(
    FIRST,
    FIRST + 5 * MINUTE,
    tuple(PlannedEvent(FIRST + MINUTE + 100 * number, "orders" if number % 2 else "bills", 50) for number in range(300)),
    (ExportedChannel("orders", took=(20, 30, 60)), ExportedChannel("bills", concurrency=8)),
    ({"every": "PT30S", "start": "2026-11-23T12:00:15Z", "end": "2026-11-23T12:04:00Z", "channel": "orders"},),
    retry={"schedule": ["PT5S", "PT5S"]},
)
ROLES = ("primary", *["secondary"] * 5)
NODES = tuple(
    ExportedNode(f"n{number}", f"vm{number}", f"scope-{number % 2}", "west", str(number % 3), agent=True, role=role)
    for number, role in enumerate(ROLES)
)
FLEET = ExportedFleet("store", {"partitions": 12, "maintenance": {"guard": "approve"}}, NODES, checkpoints_took=(20.0, 30.0))
FLEETS = Snapshot(FIRST, FIRST + 6 * MINUTE, fleets=(FLEET,))


def run(snapshot: Snapshot, seed: int = 1, **changes: str) -> RunOutcome:
    given = {name.replace("_", "-"): [text] for name, text in changes.items()}
    return play(snapshot, parse_changes(given, snapshot, UTC), seed=seed)


@pytest.fixture(scope="module")
def unchanged() -> RunOutcome:
    return run(EVENTS)


def test_an_unchanged_run_delivers_everything_in_time(unchanged: RunOutcome) -> None:
    # Eight occurrences of the schedule are within its span.
    assert (unchanged.events, unchanged.delivered, unchanged.dead, unchanged.unfinished) == (308, 308, 0, 0)
    assert unchanged.late_at(0.99) < 0.1 and unchanged.largest_backlog == 0


def test_the_same_export_change_and_seed_give_the_same_outcome(unchanged: RunOutcome) -> None:
    assert run(EVENTS) == unchanged
    assert run(EVENTS, slow="bills=4s@+1m") == run(EVENTS, slow="bills=4s@+1m")


def test_a_slow_receiver_makes_its_own_channel_late_alone(unchanged: RunOutcome) -> None:
    slow = run(EVENTS, slow="bills=4s@+1m")
    # Eight at a time, each for four seconds, of five a second.
    assert slow.delivered == 308 and slow.late_by_channel["bills"] > 10 > 1 > slow.late_by_channel["orders"]
    assert slow.largest_backlog > 50 and slow.drained_after is not None and slow.drained_after > 10


def test_a_receiver_that_is_down_leaves_dead_events_once_retries_end() -> None:
    down = run(EVENTS, down="orders@12:01/20s")
    assert down.dead + down.delivered == 308 and down.failed_attempts > 0 and down.unfinished == 0
    assert down.late_by_channel["orders"] > 5


def test_a_limit_and_more_events_make_a_backlog() -> None:
    limited = run(EVENTS, rate="orders=2/s@12:00:30", add_events="100:orders@12:01")
    assert limited.events == 408 and limited.delivered == 408
    assert limited.largest_backlog > 100 and limited.late_by_channel["orders"] > 60


def test_a_run_ends_an_hour_after_the_window_at_the_latest() -> None:
    few = Snapshot(FIRST, FIRST + 2 * MINUTE, (PlannedEvent(FIRST + MINUTE, "orders", times=5),), (ExportedChannel("orders"),))
    down = run(few, down="orders@12:00")
    assert (down.events, down.unfinished, down.dead, down.drained_after) == (5, 5, 0, None)
    assert 120 + MAX_DRAIN <= down.ran_for < 125 + MAX_DRAIN


def test_schedules_that_make_too_many_events_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_module, "MAX_EVENTS", 5)
    with pytest.raises(BadSnapshot, match="schedules make more"):
        run(Snapshot(FIRST, FIRST + 3 * MINUTE, channels=EVENTS.channels, schedules=({"every": "PT5S", "channel": "orders"},)))


def test_repeated_events_stay_in_their_minute_and_overdue_ones_come_at_once() -> None:
    found = list(spread_events([PlannedEvent(FIRST - 5, "c", times=1), PlannedEvent(FIRST + 90_000, "c", times=50)], FIRST, Random(1)))
    assert found[0].due == FIRST and len(found) == 51
    assert all(FIRST + MINUTE <= event.due < FIRST + 2 * MINUTE for event in found[1:])


@pytest.fixture(scope="module")
def quiet() -> RunOutcome:
    return run(FLEETS)


def test_an_unchanged_fleet_keeps_its_partitions_and_takes_its_turns(quiet: RunOutcome) -> None:
    fleet = quiet.fleets["store"]
    assert (fleet.moves, fleet.unowned, fleet.without_owner, fleet.unapproved) == (0, 0.0, 0, 0)
    assert fleet.turns >= 1 and fleet.turns_failed == 0


def test_announced_maintenance_moves_partitions_before_it_and_is_approved() -> None:
    fleet = run(FLEETS, maintenance="2@+3m/2m").fleets["store"]
    assert len(fleet.approved) == 2 and fleet.unapproved == 0 and fleet.approved[-1] < 30
    assert fleet.moves >= 4 and fleet.longest_unowned < 5 and fleet.without_owner == 0


def test_maintenance_of_the_export_needs_no_change() -> None:
    known = ExportedFleet("store", FLEET.definition, NODES, (AnnouncedMaintenance(("n2",), FIRST + 3 * MINUTE, 7_000),))
    fleet = run(Snapshot(FIRST, FIRST + 6 * MINUTE, fleets=(known,))).fleets["store"]
    assert len(fleet.approved) == 1 and fleet.moves >= 2


def test_an_outage_leaves_partitions_without_an_owner_until_others_take_over() -> None:
    fleet = run(FLEETS, outage="2@+3m/2m").fleets["store"]
    # Four partitions, for the time after which the default profile takes over.
    assert fleet.unowned > 40 and 10 < fleet.longest_unowned < 40 and fleet.approved == []


def test_servers_that_leave_hand_off_first() -> None:
    fleet = run(FLEETS, remove_servers="2@+3m").fleets["store"]
    assert fleet.moves >= 4 and fleet.longest_unowned < 2 and fleet.without_owner == 0
