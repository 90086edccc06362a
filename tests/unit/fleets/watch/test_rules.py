"""The findings of one look and the alarms that follow over time, as pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from shared.fleets.watch import rules
from shared.fleets.watch.alarms import Alarm
from shared.fleets.watch.inspection import alarm_event
from shared.fleets.watch.orders import WatchedOrder
from shared.fleets.watch.rules import Findings, WatchState
from shared.fleets.watch.state import parse_watch_state, watch_state_props
from shared.leases.planner import PartitionPlan
from shared.leases.profiles import PROFILES, Profile
from shared.leases.rows import NO_PARTITION, Fleet, HttpServerState, Intent, MoveLimits, Partition, Server, join_holds
from shared.leases.service import takeover_rules
from shared.leases.service.planning import balance_budget
from shared.leases.service.snapshot import FleetSnapshot, FleetSummary, Versioned
from shared.storage.ports import Row
from tests.texts import assert_text

NOW = 1_800_000_000_000
T = 18.0
DEFAULT = PROFILES["default"]


def server(name: str, age: float = 1.0, state: Any = "live", incarnation: str = "", **more: Any) -> Versioned[Server]:
    return Versioned(Server(name, state, incarnation or f"{name}1", more.pop("beat", 1000), **more), "etag", age)


def row(number: int, owner: str = "", age: float = 1000.0, incarnation: str = "") -> Versioned[Partition]:
    return Versioned(Partition(number, owner, incarnation or (f"{owner}1" if owner else ""), 3), "etag", age)


def seen(
    servers: Iterable[Versioned[Server]] = (),
    rows: Iterable[Versioned[Partition]] = (),
    intents: Iterable[Intent] = (),
    fleet: Fleet | None = None,
    since: float = 1000.0,
) -> FleetSnapshot:
    rows = list(rows)
    summary = FleetSummary(
        "demo:fleet", fleet or Fleet(len(rows)), "etag", since, tuple(intents), {each.value.name: each for each in servers}
    )
    return FleetSnapshot(summary, {each.value.number: each for each in rows})


def found(survey: FleetSnapshot, unplaced: dict[int, str] | None = None) -> Findings:
    return rules.findings_of_snapshot(survey, PartitionPlan({}, (), unplaced or {}), NOW)


def reasons(findings: Findings) -> list[tuple[int, str]]:
    return [(each.partition, each.reason) for each in findings.stale]


def test_a_server_is_ripe_five_seconds_beyond_t() -> None:
    assert not takeover_rules.may_fence(DEFAULT, T + 4.9) and takeover_rules.may_fence(DEFAULT, T + 5)


def test_all_well_is_nothing() -> None:
    assert found(seen([server("a")], [row(0, "a"), row(1, "a")])).subjects() == {}


def test_partitions_without_a_server_are_stale_once_a_take_over_should_have_happened() -> None:
    allowed = rules.allowed_outage(DEFAULT)
    assert allowed == T + 30
    rows = [row(0, age=allowed), row(1, age=allowed - 1), row(2, "gone", allowed), row(3, "dead", 5000), row(4, "back", 5000, "back0")]
    servers = [server("dead", allowed - 1, "dead"), server("back", 1, beat=2)]
    findings = found(seen(servers, rows))
    assert reasons(findings) == [(0, "unowned"), (2, "owner gone")]
    assert [each.partition for each in findings.unserved] == [0, 1, 2, 3, 4]
    assert [each.age for each in findings.unserved if each.reason == "owner gone"] == [allowed, allowed - 1, 11]


def test_a_partition_whose_owner_came_back_as_another_long_ago_is_stale() -> None:
    assert reasons(found(seen([server("back", 1, beat=20)], [row(0, "back", 5000, "back0")]))) == [(0, "owner gone")]


def test_partitions_of_a_silent_owner_are_stale_and_the_alarm_shows_that_it_is_not_fenced() -> None:
    findings = found(seen([server("a", T + 40)], [row(0, "a")]))
    assert reasons(findings) == [(0, "owner silent")] and findings.silent == ("a",)
    assert found(seen([server("a", T + 30)], [row(0, "a")])).silent == ()


def test_what_operators_want_is_not_stale() -> None:
    intents = [Intent("offline", 0, created=NOW)]
    survey = seen([server("a")], [row(0), row(1), row(2)], intents)
    assert reasons(found(survey, {1: "prohibited", 2: "no capacity"})) == [(2, "unowned")]


def test_a_partition_whose_owner_does_not_list_it_and_one_listed_by_another_are_found() -> None:
    servers = [server("a", holds=join_holds([0, 3])), server("b", holds=join_holds([]))]
    findings = found(seen(servers, [row(0, "a"), row(1, "a"), row(2, "b"), row(3, "b")]))
    assert findings.unlisted == (1, 2, 3)
    assert findings.subjects()["unlisted"] == ("1", "2", "3")


def test_servers_of_a_former_release_list_nothing_and_raise_no_alarm() -> None:
    assert found(seen([server("a")], [row(0, "a")])).unlisted == ()


def test_servers_that_speak_http_are_compared_by_what_they_hold() -> None:
    http = HttpServerState(held=((0, 3),), terms="5:15", spread="1:2")
    assert found(seen([server("a", scans=False, http=http)], [row(0, "a"), row(1, "a")])).unlisted == (1,)


def test_the_alarm_of_lists_that_do_not_agree_waits_a_minute_and_reads_again_meanwhile() -> None:
    findings = found(seen([server("a", holds=join_holds([]))], [row(0, "a")]))
    first = rules.next_state(WatchState(), findings, NOW, "f")
    assert first.alarms == {} and first.must_read_partitions("f", NOW + 1000)
    assert list(rules.next_state(first, findings, NOW + 60_000, "f").alarms) == ["unlisted"]


def test_orders_that_a_server_over_http_does_not_follow_for_twice_t_are_an_alarm() -> None:
    http = HttpServerState(held=((0, 3),), terms="5:15", spread="1:3")

    def at(now: int, before: WatchState, take: tuple[int, ...], drop: tuple[int, ...]) -> WatchState:
        servers = [server("a", scans=False, http=http, take=take, drop=drop), server("b")]
        return rules.next_state(before, found(seen(servers, [row(0, "a"), row(1, "b"), row(2, age=10)])), now, "f")

    # Partition 1 still has an owner, so the order to take it cannot be followed yet.
    waits = at(NOW, WatchState(), (1,), ())
    assert waits.orders == {} and waits.alarms == {}
    first = at(NOW, WatchState(), (2,), (0,))
    assert first.alarms == {} and first.must_read_partitions("f", NOW + 1000)
    assert at(NOW + 2 * 18_000 - 1, first, (2,), (0,)).alarms == {}
    late = at(NOW + 2 * 18_000, first, (2,), (0,))
    assert late.alarms["orders"].subjects == ("a",) and late.alarms["orders"].count == 1
    # The server releases 0, so the next order is watched from then on.
    other = at(NOW + 2 * 18_000, first, (2,), ())
    assert other.alarms == {} and other.orders["a"].order == "take 2"
    assert at(NOW + 100_000, late, (), ()).alarms["orders"].cleared


def test_watched_orders_are_stored_and_rows_of_a_former_release_have_none() -> None:
    state = WatchState("f", NOW, orders={"a": WatchedOrder("take 2", NOW)})
    props = watch_state_props(state)
    assert parse_watch_state(Row("p", "r", dict(props), "etag", 0, 0)).value == state
    former = dict(props) | {"state": '{"first": {}, "alarms": {}}'}
    assert parse_watch_state(Row("p", "r", former, "etag", 0, 0)).value.orders == {}


def test_expired_manual_controls_do_not_excuse() -> None:
    over = Intent("offline", 0, created=NOW - 90_000, expires=NOW - 60_000)
    assert reasons(found(seen([server("a")], [row(0)], [over]))) == [(0, "unowned")]


def test_a_partition_counts_as_unserved_from_when_operators_let_go_of_it() -> None:
    just_over = Intent("offline", 0, created=NOW - 90_000, expires=NOW - 1000)
    assert reasons(found(seen([server("a")], [row(0)], [just_over]))) == []
    assert reasons(found(seen([server("a")], [row(0)], since=1.0))) == [], "its end was written a second ago"


def test_missing_rows_are_found() -> None:
    survey = seen([server("a")], [row(0, "a")], fleet=Fleet(3))
    assert reasons(found(survey)) == [(1, "missing"), (2, "missing")]
    assert found(survey).subjects()["missing"] == ("1", "2")


def test_rows_beyond_the_partition_count_are_left_alone() -> None:
    assert found(seen([server("a")], [row(0, "a"), row(7)], fleet=Fleet(1))).subjects() == {}


def test_drained_prohibited_draining_and_dead_servers_do_not_count() -> None:
    servers = [server("a"), server("b"), server("c"), server("d", state="draining"), server("e", state="dead")]
    intents = [Intent("drain", NO_PARTITION, "b", created=NOW), Intent("prohibit", NO_PARTITION, "c", created=NOW)]
    findings = found(seen(servers, [row(0, "a")], intents, Fleet(1, minimum=1, spare=1)))
    assert (findings.live, findings.needed) == (1, 2)
    assert findings.subjects() == {"servers": ("1 of 2",)}
    assert "servers" not in found(seen(servers, [row(0, "a")], (), Fleet(1, minimum=2, spare=1))).subjects()


def test_a_control_without_expiry_is_forgotten_after_a_day() -> None:
    day = 86_400_000
    intents = [
        Intent("offline", 0, created=NOW - day),
        Intent("pin", 1, "a", created=NOW - day + 1),
        Intent("drain", NO_PARTITION, "b", created=NOW - 9 * day, expires=NOW + 1),
    ]
    findings = found(seen([server("a")], [row(0), row(1, "a")], intents))
    assert findings.subjects()["forgotten"] == ("i:offline:00000:",)


@pytest.mark.parametrize(("ages", "late"), [((1, 1, 14), ()), ((14, 14, 1), ("a", "b")), ((14, 1, 1, 14), ("a", "d")), ((14,), ())])
def test_late_beats_of_half_the_servers_are_storages_trouble_one_is_its_own(ages: tuple[float, ...], late: tuple[str, ...]) -> None:
    survey = seen([server("abcd"[number], age) for number, age in enumerate(ages)], [row(0, "a")])
    assert found(survey).late == late
    assert found(survey).oldest == max(ages)


def test_the_fingerprint_changes_with_membership_and_manual_controls_but_not_with_heartbeats() -> None:
    def mark(*servers: Versioned[Server], **fleet: Any) -> str:
        return takeover_rules.fingerprint(seen(servers, fleet=Fleet(4, **fleet)).summary)

    same = mark(server("a"))
    assert mark(server("a", 9, beat=7, load=3.0)) == same
    others = [mark(), mark(server("a", state="dead")), mark(server("a", incarnation="a2")), mark(server("a"), changes=1), mark(server("b"))]
    assert len({same, *others, mark(server("a"), generation=2), mark(server("a", capacity=2))}) == 8


def test_rows_of_servers_go_a_day_after_their_end_once_no_partition_names_them() -> None:
    day = 86_400
    servers = [server("a", day, "dead"), server("b", day, "dead"), server("c", day - 1, "dead"), server("d", day)]
    assert rules.removable_servers(seen(servers, [row(0, "b")])) == ["a"]


def test_bumps_are_over_once_the_epoch_has_moved_on() -> None:
    bump = Intent("bump", 0, epoch=3, created=NOW)
    survey = seen([], [row(0)], [bump, Intent("pin", 1, "a", expires=NOW), Intent("pin", 2, "a", expires=NOW + 1)])
    assert [intent.verb for intent in takeover_rules.expired_intents(survey.summary, NOW)] == ["pin"]
    assert takeover_rules.expired_intents(survey.summary, NOW, {0: 3})[0].partition == 1
    assert takeover_rules.expired_intents(survey.summary, NOW, {0: 4})[0] == bump


@pytest.mark.parametrize(
    ("per_minute", "profile", "expected"), [(32, DEFAULT, 3), (0, DEFAULT, 0), (1, DEFAULT, 1), (32, PROFILES["seed"], 32)]
)
def test_where_no_server_looks_a_look_may_order_a_beats_part_of_a_minutes_moves(per_minute: int, profile: Profile, expected: int) -> None:
    fleet = Fleet(4, profile, MoveLimits(moves_per_minute=per_minute))
    assert balance_budget(seen([server("a", scans=False)], fleet=fleet)) == expected
    assert balance_budget(seen([server("a", scans=False), server("b")], fleet=fleet)) == per_minute


# -- over time

FEW = Findings(live=1, needed=2)
FINE = Findings(live=2, needed=2)


def watch(*steps: tuple[float, Findings]) -> list[WatchState]:
    """Return the known alarms after each look, `whole` all of them. Times in seconds."""
    known, out = WatchState(), []
    for at, findings in steps:
        known = rules.next_state(known, findings, NOW + round(at * 1000), "mark")
        out.append(known)
    return out


def test_what_lasts_for_a_minute_becomes_an_alarm_once() -> None:
    first, young, alarmed, later = watch((0, FEW), (59, FEW), (60, FEW), (600, FEW))
    assert first.alarms == young.alarms == {} and young.pending == {"servers": NOW}
    assert alarmed.alarms == later.alarms == {"servers": Alarm("servers", NOW, ("1 of 2",), 1)}
    assert [rules.alarm_changes(young, alarmed), rules.alarm_changes(alarmed, later)] == [([alarmed.alarms["servers"]], []), ([], [])]


def test_an_alarm_condition_that_ends_within_the_minute_starts_over_the_next_time() -> None:
    *_, last = watch((0, FEW), (30, FINE), (50, FEW), (100, FEW))
    assert last.alarms == {} and last.pending == {"servers": NOW + 50_000}


def test_a_cleared_alarm_stays_until_that_is_reported_and_may_come_back() -> None:
    _, alarmed, cleared, still = watch((0, FEW), (60, FEW), (120, FINE), (180, FINE))
    over = cleared.alarms["servers"]
    assert (over.cleared, over.notified) == (NOW + 120_000, False) and still.alarms == cleared.alarms
    assert rules.alarm_changes(alarmed, cleared) == ([], [over]) and rules.alarm_changes(cleared, still) == ([], [])
    reported = WatchState(alarms={"servers": Alarm("servers", NOW, ("1 of 2",), 1, NOW + 120_000, True)})
    assert rules.next_state(reported, FINE, NOW + 240_000, "mark").alarms == {}
    known = reported
    for at in (240_000, 310_000):
        known = rules.next_state(known, FEW, NOW + at, "mark")
    assert known.alarms["servers"].since == NOW + 240_000 and rules.alarm_changes(reported, known)[0]


def test_an_alarm_that_returns_before_its_end_was_reported_counts_from_its_return() -> None:
    *_, back, later = watch((0, FEW), (60, FEW), (120, FINE), (180, FEW), (300, FEW))
    assert back.alarms["servers"].cleared and back.pending == {"servers": NOW + 180_000}
    assert later.pending == {"servers": NOW + 180_000}


def test_partitions_that_were_not_looked_at_are_as_they_were() -> None:
    bad = found(seen([server("a"), server("b")], [row(0)], fleet=Fleet(1, minimum=1)))
    before = rules.next_state(WatchState(), bad, NOW, "mark")
    assert before.alarms["unserved"].subjects == ("0",) and (before.unserved, before.stale) == (1, 1)
    after = rules.next_state(before, FINE, NOW + 60_000, None)
    assert after == before
    assert rules.next_state(before, FINE, NOW + 60_000, "mark").alarms["unserved"].cleared


@pytest.mark.parametrize(
    ("known", "at", "whole"),
    [
        (WatchState("mark", NOW), 60_000, False),
        (WatchState("mark", NOW), 239_999, False),
        (WatchState("mark", NOW), 240_000, True),
        (WatchState("mark", NOW), -1, True),
        (WatchState("other", NOW), 60_000, True),
        (WatchState("mark", NOW, unserved=1), 60_000, True),
        (WatchState(), 0, True),
    ],
)
def test_partition_rows_are_read_when_something_changed_is_not_in_order_or_it_was_long_ago(known: WatchState, at: int, whole: bool) -> None:
    assert known.must_read_partitions("mark", NOW + at) == whole


def test_an_alarm_names_some_of_its_subjects_and_shows_how_many_there_are() -> None:
    alarm = rules.next_state(WatchState(), found(seen([server("a")], [row(number) for number in range(50)])), NOW, "mark").alarms[
        "unserved"
    ]
    assert len(alarm.subjects) == 20 and alarm.count == 50


def test_events_of_alarms_have_ids_of_their_own_that_follow_from_the_alarm() -> None:
    alarm = Alarm("unserved", NOW, ("5",), 1)
    event = alarm_event("demo:my.fleet", alarm, "ops")
    assert event == alarm_event("demo:my.fleet", alarm, "ops")
    assert event["id"] == f"lease:my~fleet:unserved:{NOW}:raised" and event["due"] == "2027-01-15T08:00:00.000Z"
    text = event["payload"].pop("text")
    assert_text("alarm.unserved", text, fleet="my.fleet", since="2027-01-15T08:00:00.000Z", partitions=5)
    assert event["payload"] == {
        "type": "lease-alarm",
        "tenant": "demo",
        "fleet": "my.fleet",
        "alarm": "unserved",
        "kind": "stale",
        "state": "raised",
        "since": "2027-01-15T08:00:00.000Z",
        "cleared": None,
        "count": 1,
        "subjects": ["5"],
    }
    assert alarm_event("demo:my.fleet", Alarm("unserved", NOW, ("5",), 1, NOW + 1), "ops")["id"].endswith(":cleared")
