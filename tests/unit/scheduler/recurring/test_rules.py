"""The next steps of a chain: late occurrences, ids, jitter, rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from shared.core.clock import Millis, to_text
from shared.scheduler.recurring import rules
from shared.scheduler.recurring.definition import Definition, RevisionUndo, definition_of, event_ids, offset, parse_pointer_key
from shared.scheduler.recurring.model import MAX_ID, Recurrence
from shared.scheduler.recurring.rules import (
    BATCH,
    advanced,
    changed,
    claimed,
    deleted,
    overdue_of,
    plan,
    pointed_at,
    redefined,
    shown_next,
    undone,
)
from shared.scheduler.recurring.timing import occurrences
from shared.scheduler.timings import OCCURRENCES_AHEAD
from shared.storage.ports import Row

NOW: Millis = 1_800_000_000_000
"""2027-01-15T08:00:00Z."""
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def schedule(done: Millis, **spec: Any) -> Definition:
    spec = spec or {"cron": "* * * * *"}
    return pointed_at(Definition("demo", "tick", "u1", Recurrence(**spec), b"{}", created=done, by="n", done=done), NOW)


def fired(definition: Definition, now: Millis = NOW) -> list[str]:
    return [to_text(at)[11:16] for at in plan(definition, now).fire]


# ---- catch-up


@pytest.mark.parametrize(
    ("policy", "within", "expected"),
    [
        ("none", "PT1H", ["07:59", "08:00", "08:01", "08:02", "08:03", "08:04", "08:05"]),
        ("last", "PT1H", ["07:58", "07:59", "08:00", "08:01", "08:02", "08:03", "08:04", "08:05"]),
        ("all", "PT4M", ["07:56", "07:57", "07:58", "07:59", "08:00", "08:01", "08:02", "08:03", "08:04", "08:05"]),
        ("all", "PT1M", ["07:59", "08:00", "08:01", "08:02", "08:03", "08:04", "08:05"]),
        ("last", "PT1M", ["07:59", "08:00", "08:01", "08:02", "08:03", "08:04", "08:05"]),
    ],
)
def test_catch_up_is_as_the_policy_says_within_its_window(policy: str, within: str, expected: list[str]) -> None:
    given = schedule(NOW - 10 * MINUTE, cron="* * * * *", catch_up={"policy": policy, "within": within})
    assert fired(given) == expected
    assert plan(given, NOW).done == NOW + OCCURRENCES_AHEAD


def test_last_fires_one_of_a_rare_rule_and_nothing_beyond_its_window() -> None:
    daily = {"cron": "0 6 * * *", "catch_up": {"policy": "last", "within": "PT24H"}}
    assert fired(schedule(NOW - 9 * DAY, **daily)) == ["06:00"]
    assert fired(schedule(NOW - 9 * DAY, **(daily | {"catch_up": {"policy": "last", "within": "PT1H"}}))) == []
    assert fired(schedule(NOW - HOUR, **daily)) == []


def test_all_goes_on_where_a_sweep_stopped() -> None:
    dense = schedule(NOW - HOUR, every="PT1S", start="2027-01-15T07:00:00Z", catch_up={"policy": "all"})
    seen: list[Millis] = []
    while (planned := plan(dense, NOW)).fire:
        assert len(planned.fire) <= BATCH
        seen += planned.fire
        dense = replace(dense, done=planned.done)
    assert seen == list(range(NOW - HOUR + 1000, NOW + OCCURRENCES_AHEAD + 1, 1000))


def test_jitter_is_no_lateness() -> None:
    held_back = schedule(NOW - 5 * MINUTE, cron="* * * * *", jitter="PT4M", catch_up={"policy": "none"})
    assert fired(held_back)[:2] == ["07:56", "07:57"]


def test_an_occurrence_that_no_sweep_has_stored_is_overdue_after_a_minute_and_its_jitter() -> None:
    behind = schedule(NOW - 5 * MINUTE, every="PT2M", start="2027-01-15T07:57:30Z")
    assert overdue_of(behind, NOW) == NOW - 5 * MINUTE // 2
    assert overdue_of(replace(behind, done=NOW + MINUTE), NOW) is None
    assert overdue_of(replace(behind, paused=True), NOW) is None
    assert overdue_of(replace(behind, ahead=(NOW - 5 * MINUTE // 2,)), NOW) is None
    assert overdue_of(schedule(NOW - 5 * MINUTE, every="PT2M", start="2027-01-15T07:57:30Z", jitter="PT2M"), NOW) is None
    assert overdue_of(schedule(NOW - DAY, cron="0 6 1 1 *"), NOW) is None


def test_what_was_taken_is_not_fired_again() -> None:
    given = replace(schedule(NOW), taken=(NOW + MINUTE,))
    assert fired(given) == ["08:02", "08:03", "08:04", "08:05"]
    assert pointed_at(given, NOW).pointer == "n:202701150802:demo:tick"


@seed(11)
@settings(max_examples=200, deadline=None, database=None)
@given(
    ticks=st.lists(st.integers(1, 170), min_size=1, max_size=12),
    spec=st.sampled_from(["PT1S", "PT7S", "PT1M", "PT11M"]),
    jitter=st.sampled_from([None, "PT1S"]),
)
def test_sweeps_at_any_times_fire_each_occurrence_once_in_order(ticks: list[int], spec: str, jitter: str | None) -> None:
    definition = schedule(NOW, every=spec, start="2027-01-15T08:00:01Z", jitter=jitter)
    now, seen = NOW, list[Millis]()
    for seconds in (0, *ticks):
        now += seconds * 1000
        for _ in range(2):
            planned = plan(definition, now)
            definition = replace(claimed(definition, planned, now), done=planned.done)
            seen += planned.fire
    assert seen == [each.at for each in _until(definition, NOW, now + OCCURRENCES_AHEAD)]


def _until(definition: Definition, after: Millis, until: Millis) -> list[Any]:
    found = []
    for each in occurrences(definition.timing, after):
        if each.at > until:
            break
        found.append(each)
    return found


# ---- changes


def test_change_names_what_the_former_revision_may_have_stored_and_uses_none_of_its_ids() -> None:
    before = replace(schedule(NOW + MINUTE), ahead=(NOW - MINUTE, NOW + MINUTE, NOW + 2 * MINUTE))
    after = changed(before, NOW, "n2", paused=True)
    assert after.undo == RevisionUndo(1, 0, (NOW + MINUTE, NOW + 2 * MINUTE), False)
    assert (after.revision, after.burnt, after.ahead, after.last) == (2, NOW + 2 * MINUTE, (), NOW - MINUTE)
    assert after.pointer == "n:202701150800:demo:tick"


def test_new_revision_takes_over_what_was_taken_back_and_leaves_what_has_fired() -> None:
    before = replace(schedule(NOW + 2 * MINUTE), ahead=(NOW + MINUTE, NOW + 2 * MINUTE))
    after = redefined(before, before.spec, b"[]", NOW, "n2")
    done = undone(after, [NOW + 2 * MINUTE], [NOW + MINUTE], NOW)
    assert done.undo is None and fired(done) == ["08:02", "08:03", "08:04", "08:05"]
    done = undone(after, [NOW + MINUTE], [NOW + 2 * MINUTE], NOW)
    assert fired(done) == ["08:01", "08:03", "08:04", "08:05"]


def test_other_rule_holds_from_now_on() -> None:
    before = replace(schedule(NOW - HOUR), ahead=())
    after = redefined(before, Recurrence(cron="*/30 * * * *"), b"{}", NOW, "n2")
    assert (after.done, after.undo, after.pointer) == (NOW, None, "n:202701150830:demo:tick")


def test_delete_leaves_overdue_occurrences_that_are_just_being_stored_only_if_asked() -> None:
    before = replace(schedule(NOW - 2 * MINUTE), ahead=(NOW - 2 * MINUTE, NOW - MINUTE, NOW + MINUTE))
    cancelled, kept = deleted(before, NOW, "n2"), deleted(before, NOW, "n2", keep_overdue=True)
    assert cancelled.undo is not None and cancelled.undo.instants == (NOW - MINUTE, NOW + MINUTE)
    assert kept.undo is not None and kept.undo.instants == (NOW + MINUTE,) and NOW - MINUTE in kept.taken


# ---- the next occurrence


def test_the_next_occurrence_is_read_and_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given = schedule(NOW, every="PT2M", start="2027-01-15T08:01:00Z")
    ahead = advanced(claimed(given, plan(given, NOW), NOW), plan(given, NOW), NOW)
    monkeypatch.delattr(rules, "occurrences")
    assert shown_next(given, NOW) == NOW + MINUTE
    assert [shown_next(ahead, NOW + late * MINUTE) for late in (0, 1, 4, 5, 6)] == [NOW + at * MINUTE for at in (1, 3, 5, 7, 7)]
    assert shown_next(replace(ahead, paused=True), NOW) is None
    assert overdue_of(ahead, NOW + 9 * MINUTE) == NOW + 7 * MINUTE


def test_the_next_occurrence_is_searched_for_while_the_stored_one_is_past_or_being_changed() -> None:
    given = schedule(NOW, every="PT2M", start="2027-01-15T08:01:00Z")
    assert shown_next(given, NOW + 6 * MINUTE) == NOW + 7 * MINUTE
    assert shown_next(replace(given, following=None, undo=RevisionUndo(1, 0, (NOW + MINUTE,), True)), NOW) == NOW + MINUTE


@pytest.mark.parametrize("jitter", [None, "PT40M"])
def test_a_schedule_ends_once_its_last_occurrence_is_due(jitter: str | None) -> None:
    given = schedule(NOW, every="PT1H", start="2027-01-15T08:03:00Z", end="2027-01-15T08:10:00Z", jitter=jitter)
    stored = advanced(claimed(given, plan(given, NOW), NOW), plan(given, NOW), NOW)
    due = NOW + 3 * MINUTE + offset("demo", "tick", NOW + 3 * MINUTE, given.spec.jitter)
    assert stored.following is None and stored.pointer == stored.pointer_at(due + OCCURRENCES_AHEAD + MINUTE)
    for now in (due - 1, due):
        assert (advanced(stored, plan(stored, now), now).pointer == "") is (now == due)


# ---- ids, jitter, rows


def test_ids_name_the_occurrence_and_marked_ones_the_revision() -> None:
    assert event_ids("tick", NOW, 3, NOW - 1000) == ("tick:20270115T080000Z", "tick:20270115T080000Z~3")
    assert event_ids("tick", NOW, 3, NOW) == ("tick:20270115T080000Z~3",)
    assert len(event_ids("x" * MAX_ID, NOW, 10**12, NOW)[0]) <= 200


@seed(3)
@settings(max_examples=100, database=None)
@given(at=st.integers(0, 4_000_000_000), jitter=st.integers(1, DAY))
def test_jitter_stays_within_its_window_and_is_always_the_same(at: int, jitter: int) -> None:
    found = offset("demo", "tick", at * 1000, jitter)
    assert 0 <= found < jitter and found == offset("demo", "tick", at * 1000, jitter)


def test_jitter_spreads_schedules_over_the_window() -> None:
    found = [offset("demo", f"s{number}", NOW, 1000) for number in range(1000)]
    assert len(set(found)) > 500 and 450 < sum(found) / 1000 < 550
    assert offset("demo", "tick", NOW, None) == 0


def test_definition_survives_its_row() -> None:
    body = ('{"text":"' + "\u00e9" * 40_000 + '"}').encode()
    whole = replace(
        schedule(NOW, cron="5 4 * * SUN", timezone="Europe/Berlin", start="2027-01-01T00:00:00Z", jitter="PT1M"),
        id="a:b~c@d",
        body=body,
        revision=7,
        paused=True,
        burnt=NOW,
        ahead=(NOW, NOW + MINUTE),
        taken=(NOW + MINUTE,),
        last=NOW - MINUTE,
        undo=RevisionUndo(6, NOW, (NOW,), True),
        pointer="n:202701150800:demo:a:b~c@d",
    )
    assert definition_of(Row(whole.partition, whole.key, whole.props(), "e", 0, 0)) == whole
    assert parse_pointer_key(whole.pointer) == ("demo", "a:b~c@d")


def test_longest_list_of_occurrences_fits_a_property() -> None:
    # A day of jitter on every minute, a sweep's batch of late ones on top, and the way ahead.
    longest = DAY // MINUTE + BATCH + OCCURRENCES_AHEAD // MINUTE + 2
    props = replace(schedule(NOW), ahead=tuple(range(NOW, NOW + longest * MINUTE, MINUTE))).chain_props()
    assert len(str(props["ahead"])) < 32_000
