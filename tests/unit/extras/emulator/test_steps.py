"""Steps that scenarios and the control API can take, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.core.errors import Problem
from shared.extras.emulator import rules
from shared.extras.emulator.model import World
from tests.texts import assert_text
from tests.unit.extras.emulator.worlds import at, do, event, get, kinds, on, pass_to, post, read, world

UPDATE = {"name": "update", "vms": ["n1"]}


@pytest.fixture
def there() -> World:
    """Two machines that have asked, and an event for the first."""
    return on(do(world("n1", "n2"), event=UPDATE))


def incarnation(world: World, vm: str = "n1") -> int:
    return int(read(world, vm)[1]["DocumentIncarnation"])


def test_a_changed_not_before_is_reported_with_a_new_incarnation(there: World) -> None:
    moved = do(pass_to(there, 60), change={"event": "update", "notice": "PT1H"})
    assert incarnation(moved) == incarnation(there) + 1
    assert event(pass_to(moved, 3659), "update").started is False
    assert event(pass_to(moved, 3660), "update").started_at == at(3660)


def test_a_change_shows_in_the_document(there: World) -> None:
    moved = do(
        there, change={"event": "update", "type": "Reboot", "duration": -1, "source": "User", "description": "x", "vms": ["n2", "n1"]}
    )
    shown = read(moved)[1]["Events"][0]
    described = [shown[key] for key in ("EventType", "DurationInSeconds", "EventSource", "Description", "Resources")]
    assert described == ["Reboot", -1, "User", "x", ["n2", "n1"]]


def test_a_cancelled_event_is_no_longer_listed_and_never_hits(there: World) -> None:
    moved = do(there, cancel="update")
    assert read(moved)[1]["Events"] == [] and event(moved, "update").outcome == "cancelled"
    assert "impact-began" not in kinds(pass_to(moved, 3600))


def test_an_event_can_vanish_scheduled_or_started(there: World) -> None:
    for moved in (do(there, vanish="update"), do(pass_to(there, 900), vanish="update")):
        assert read(moved)[1]["Events"] == [] and event(moved, "update").outcome == "vanished"


def test_an_event_can_start_before_its_time_and_be_over_before_its_time(there: World) -> None:
    moved = do(there, start="update")
    assert read(moved)[1]["Events"][0]["EventStatus"] == "Started"
    moved = do(moved, complete="update")
    assert read(moved)[1]["Events"] == [] and event(moved, "update").outcome == "completed"


def test_an_event_can_be_seen_started_first() -> None:
    moved = do(on(world()), event={**UPDATE, "type": "Reboot", "started": True})
    shown = read(moved)[1]["Events"][0]
    assert (shown["EventStatus"], shown["NotBefore"]) == ("Started", "") and kinds(moved, "impact-began") == ["impact-began"]


def test_a_second_impact_hits_without_any_trace_in_the_document(there: World) -> None:
    there = pass_to(there, 960)
    moved = do(there, impact={"event": "update", "lasts": "PT5S"})
    assert incarnation(moved) == incarnation(there)
    assert kinds(pass_to(moved, 966), "impact-began", "impact-ended") == ["impact-began", "impact-ended"] * 2


def test_an_event_hidden_from_one_machine_is_listed_for_the_others(there: World) -> None:
    moved = do(there, hide={"event": "update", "vms": ["n2"]})
    assert [len(read(moved, vm)[1]["Events"]) for vm in ("n1", "n2")] == [1, 0]
    assert [incarnation(moved, vm) - incarnation(there, vm) for vm in ("n1", "n2")] == [0, 1]
    assert post(moved, event(moved, "update").shown.id, vm="n2")[1].status == 400
    assert len(read(do(moved, show={"event": "update"}), "n2")[1]["Events"]) == 1


def test_an_approval_from_outside_counts_like_a_machine_s(there: World) -> None:
    assert event(do(there, approve={"event": "update"}), "update").approved_by == "operator"
    assert event(do(there, approve={"event": "update", "vm": "n2"}), "update").started


def test_a_reset_service_is_off_until_it_is_asked_and_counts_from_the_given_number(there: World) -> None:
    moved = do(there, reset={"vms": ["n1"], "incarnation": 40})
    assert [moved.vms[name].on_at is None for name in ("n1", "n2")] == [True, False]
    assert incarnation(moved) == 40 and kinds(read(moved)[0])[-2:] == ["on", "read"]


def test_a_reset_may_come_back_with_a_number_that_was_there_before(there: World) -> None:
    had = read(there)[1]
    moved = do(do(there, cancel="update"), reset={"incarnation": had["DocumentIncarnation"]})
    now = read(moved)[1]
    assert now["DocumentIncarnation"] == had["DocumentIncarnation"] and now["Events"] != had["Events"]


def test_incarnations_can_be_skipped_with_and_without_a_change(there: World) -> None:
    alike = do(there, skip={"by": 3, "vms": ["n1"]})
    assert incarnation(alike) == incarnation(there) + 3 and read(alike)[1]["Events"] == read(there)[1]["Events"]
    assert incarnation(do(alike, cancel="update")) == incarnation(there) + 4


def test_documents_of_each_machine_are_counted_for_themselves(there: World) -> None:
    alone = on(do(world({"name": "n1", "incarnation": 5}, "n2", {"name": "x", "scope": "other"}), event=UPDATE))
    alone = do(alone, change={"event": "update", "duration": 3})
    assert [incarnation(alone, vm) for vm in ("n1", "n2", "x")] == [6, 2, 1]


def test_an_event_is_listed_for_all_of_its_scope_and_for_no_other() -> None:
    moved = on(do(world("n1", "n2", {"name": "x", "scope": "other"}), event=UPDATE))
    found = [[each["EventId"] for each in read(moved, vm)[1]["Events"]] for vm in ("n1", "n2", "x")]
    assert found[0] == found[1] and len(found[0]) == 1 and found[2] == []


def test_machines_of_two_scopes_get_an_event_each() -> None:
    moved = do(world("n1", {"name": "x", "scope": "other"}), event={"name": "update", "vms": ["n1", "x"]})
    assert [each.shown.resources for each in moved.events] == [("n1",), ("x",)]


def test_what_documents_say_of_an_event_can_be_bent() -> None:
    raw = {"NotBefore": "soon", "EventStatus": "Paused", "Resources": ["n10"], "Extra": {"deep": [1]}}
    moved = on(do(world(), event={**UPDATE, "raw": raw, "omit": ["EventSource"]}))
    shown = read(moved)[1]["Events"][0]
    assert {key: shown[key] for key in raw} == raw and "EventSource" not in shown
    back = do(moved, change={"event": "update", "raw": {}, "omit": []})
    assert read(back)[1]["Events"][0]["EventStatus"] == "Scheduled" and incarnation(back) == incarnation(moved) + 1


def test_ids_are_new_in_every_run_and_can_be_given() -> None:
    ids = {event(do(world(seed=seed), event=UPDATE), "update").shown.id for seed in ("a", "b")}
    assert len(ids) == 2
    given = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
    assert event(do(world(), event={**UPDATE, "id": given}), "update").shown.id == given


def test_an_id_may_come_back_when_its_event_is_over(there: World) -> None:
    gone = do(there, vanish="update")
    again = do(gone, event={**UPDATE, "name": "again", "id": event(gone, "update").shown.id})
    assert read(again)[1]["Events"][0]["EventId"] == event(gone, "update").shown.id


def test_an_event_without_a_name_gets_one() -> None:
    assert [each.name for each in do(do(world(), event={"vms": ["n1"]}), event={"vms": ["n1"]}).events] == ["event-1", "event-2"]


def test_of_several_steps_at_once_all_happen_or_none(there: World) -> None:
    from shared.extras.emulator.scenario import steps_of

    before = there
    with pytest.raises(Problem, match="there is no event other"):
        rules.inject_steps(there, steps_of([{"cancel": "update"}, {"cancel": "other"}]))
    assert there is before and event(there, "update").outcome is None


def started(world: World) -> World:
    return do(world, start="update")


def ended(world: World) -> World:
    return do(world, cancel="update")


REFUSED: list[tuple[Callable[[World], World] | None, dict[str, Any], int]] = [
    (None, {"cancel": "none"}, 422),
    (ended, {"cancel": "update"}, 409),
    (started, {"cancel": "update"}, 409),
    (started, {"start": "update"}, 409),
    (started, {"approve": {"event": "update"}}, 409),
    (started, {"change": {"event": "update", "notice": "PT1M"}}, 409),
    (None, {"complete": "update"}, 409),
    (None, {"impact": {"event": "update", "lasts": "PT1S"}}, 409),
    (None, {"event": UPDATE}, 409),
    (ended, {"event": UPDATE}, 409),
    (None, {"event": {"vms": ["n9"]}}, 422),
    (None, {"event": {"host": "h9"}}, 422),
    (None, {"skip": {"vms": ["n9"], "by": 1}}, 422),
    (None, {"approve": {"event": "update", "vm": "x"}}, 409),
    (None, {"change": {"event": "update", "vms": ["x"]}}, 409),
    (None, {"event": {"vms": ["n1", "x"], "id": "C7061BAC-AFDC-4513-B24B-AA5F13A16123"}}, 422),
]


def test_what_cannot_be_is_refused_with_the_reason() -> None:
    found = []
    for first, step, status in REFUSED:
        there = on(do(world("n1", {"name": "x", "scope": "other"}), event=UPDATE))
        with pytest.raises(Problem) as refused:
            do(first(there) if first else there, **step)
        assert refused.value.status == status, step
        found.append(refused.value.detail)
    assert_text("emulator.refused-steps", found)


def test_an_id_that_is_listed_is_not_given_twice(there: World) -> None:
    taken = event(there, "update").shown.id.upper()
    with pytest.raises(Problem, check=lambda refused: taken in refused.detail):
        do(there, event={"vms": ["n1"], "id": taken})


def test_faults_take_so_many_requests_or_so_long_or_until_they_are_cleared(there: World) -> None:
    counted = do(there, fault={"status": 503, "times": 2})
    statuses = []
    for vm in ("n1", "n2", "n1"):
        counted, answer = get(counted, vm)
        statuses.append(answer.status)
    assert statuses == [503, 503, 200]
    timed = do(there, fault={"status": 503, "lasts": "PT10S"})
    assert [get(pass_to(timed, second))[1].status for second in (9.999, 10)] == [503, 200]
    lasting = do(there, fault={"status": 503})
    assert get(pass_to(lasting, 600))[1].status == 503
    partly = do(lasting, clear={"vms": ["n1"]})
    assert [get(partly, vm)[1].status for vm in ("n1", "n2")] == [200, 503]
    assert get(do(partly, clear={}), "n2")[1].status == 200


def test_of_two_faults_the_later_one_counts(there: World) -> None:
    assert get(do(do(there, fault={"status": 503}), fault={"status": 410}))[1].status == 410
