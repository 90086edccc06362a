"""The judgement of a run, on observations of good and of faulty services."""

from __future__ import annotations

import json

import pytest

from shared.cli.deployment.plan import SHORT, Plan
from shared.cli.deployment.rules import judge
from shared.cli.deployment.seen import Look, OffsetBounds, Seen
from shared.cli.findings import Line

from .making import T0, clocks, delivered, look, probe, seen


def lines(found: Seen, plan: Plan | None = None) -> dict[str, Line]:
    judged = judge(found, plan or Plan())
    assert len({line.check for line in judged}) == len(judged)
    for line in judged:
        # What is not good says what it means and what to do, in sentences.
        assert bool(line.means) == bool(line.do) == (line.result != "ok"), line
        assert all(text.endswith(".") for text in (line.means, line.do) if text), line
        json.dumps(line.document())
    return {line.check: line for line in judged}


def bad(found: Seen) -> set[str]:
    return {name for name, line in lines(found).items() if line.result == "bad"}


def test_a_good_service_has_only_good_lines() -> None:
    assert {line.result for line in lines(seen()).values()} == {"ok"}
    assert {line.result for line in lines(seen(), SHORT).values()} == {"ok"}


def old(at: float = 0.0) -> Look:
    """Return an answer of a version without planned wakes."""
    found = look(at)
    return found._replace(document={name: value for name, value in found.document.items() if name not in ("clocks", "wakes")})


def test_a_service_without_the_clocks_is_an_older_version_and_no_fault() -> None:
    found = lines(seen(looks=[old(0), old(310)]))
    assert found["planned wakes"].result == "look" and "older version" in found["planned wakes"].means
    assert found["timer"].result == "ok" and found["timer"].figures["age_s"] == 12.0


def test_a_silent_timer_is_a_fault_and_the_messages_that_replace_it_are_named() -> None:
    found = lines(seen(looks=[look(0), look(310, clocks=clocks(91.0, "message"))]))
    assert found["timer"].result == "bad" and "Messages make the sweeps" in found["timer"].means
    assert "AzureWebJobs.sweep.Disabled" in found["timer"].do and found["planned wakes"].result == "ok"
    alone = lines(seen(looks=[look(0), look(310, clocks=clocks(91.0, "none"))]))
    assert alone["timer"].result == "bad" and "Messages" not in alone["timer"].means


def test_a_timer_that_was_silent_during_the_run_is_a_fault_although_it_runs_again() -> None:
    found = lines(seen(looks=[look(0, clocks=clocks(400.0)), look(310)]))
    assert found["timer"].result == "bad" and "now runs again" in found["timer"].found


def test_a_timer_without_a_tick_is_a_fault_only_after_its_time() -> None:
    none = clocks(None, "none")
    assert lines(seen(looks=[look(0, clocks=none), look(60, clocks=none)]))["timer"].result == "look"
    assert lines(seen(looks=[look(0, clocks=none), look(310, clocks=none)]))["timer"].result == "bad"


def test_planned_wakes_that_have_stopped_are_a_fault_and_switched_off_ones_a_thing_to_know() -> None:
    assert bad(seen(looks=[look(0), look(310, clocks=clocks(700.0, "none"), wakes={"look_age_s": 700.0})])) == {"timer", "planned wakes"}
    off = lines(seen(looks=[look(0, wakes=None)]))
    assert off["planned wakes"].result == "look" and "off" in off["planned wakes"].found
    never = lines(seen(looks=[look(0, wakes={"look_age_s": None})]))
    assert never["planned wakes"].result == "look" and "yet" in never["planned wakes"].found


def test_another_version_is_a_fault_unless_it_names_the_same_commit() -> None:
    assert bad(seen(looks=[look(version="0.2.0.dev11+g99999999")])) == {"versions"}
    assert bad(seen(looks=[look(version="0.2.0.dev0+g1a2b3c4d")])) == set()
    assert bad(seen(looks=[look(version="0.1.9")], expected_version="0.1.9")) == {"versions"}, "the senders have another one"


def test_one_group_with_an_older_package_is_a_fault() -> None:
    found = seen()
    found.probes[0] = probe("far", version="0.2.0.dev11+g99999999")
    line = lines(found)["versions"]
    assert line.result == "bad" and "deliveries come from 0.2.0.dev11+g99999999" in line.found


def bounds(low: float, high: float) -> OffsetBounds:
    made = OffsetBounds()
    made.low, made.high = low, high
    return made


def test_a_wrong_clock_of_the_app_is_a_fault() -> None:
    for skew, way in ((5_000, "ahead of"), (-5_000, "behind")):
        line = lines(seen(looks=[look(clock_skew_ms=skew)]))["clock"]
        assert line.result == "bad" and f"5.0 s {way} storage's" in line.found
    assert bad(seen(service_offset=bounds(3.0, 4.0), storage_offset=bounds(-0.5, 0.4))) == {"clock"}
    assert bad(seen(service_offset=bounds(-0.6, 0.4), storage_offset=bounds(-0.5, 0.4))) == set()


def test_a_delivery_before_storage_has_it_shows_a_fast_clock() -> None:
    found = seen()
    found.probes[0].deliveries = [delivered("far-0", late=4_000, inserted=T0)]
    assert "clock" in bad(found)


def test_a_wrong_clock_of_this_machine_is_no_fault_of_the_service() -> None:
    found = lines(seen(service_offset=bounds(7.0, 8.0), storage_offset=bounds(7.1, 7.9)))
    assert found["clock"].result == "look" and "this machine's clock is 7.1 s behind" in found["clock"].found


def test_a_missing_role_names_the_command_that_assigns_it_and_ends_the_checks() -> None:
    code = "storage refuses to create the queue: AuthorizationPermissionMismatch (403)"
    found = lines(seen(probes=[], queue_error=code, queue_status=403))
    assert found["queue"].result == "bad" and "Storage Queue Data Contributor" in found["queue"].do and "due now" not in found
    by_signature = lines(seen(probes=[], queue_error=code, queue_status=403, by_login=False))
    assert "signature" in by_signature["queue"].do
    network = lines(seen(probes=[], queue_error="storage refuses to create the queue: AuthorizationFailure (403)", queue_status=403))
    assert "network" in network["queue"].do


def test_a_fire_function_that_is_off_is_named_if_only_events_that_are_due_now_arrive() -> None:
    late: dict[str, int | None] = dict.fromkeys(("soon", "middle", "far", "batch"))
    found = lines(seen(late=late))
    faults = {name for name, line in found.items() if line.result == "bad"}
    assert faults == {"due in 10 s", "due in 1 min", "due in 5 min", "batch of 100"}
    assert all("AzureWebJobs.fire_shard.Disabled" in found[name].do for name in faults)


def test_a_fire_function_that_is_off_is_named_also_if_the_service_says_that_it_is_not_ready() -> None:
    late: dict[str, int | None] = dict.fromkeys(("soon", "middle", "far", "batch"))
    found = lines(seen(late=late, looks=[look(0, 503, detail="Settings of the host disable functions that must run.")]))
    assert "AzureWebJobs.fire_shard.Disabled" in found["due in 10 s"].do
    gone = lines(seen(late=late, looks=[look(0), look(310, 0)]))
    assert "AzureWebJobs.fire_shard.Disabled" not in gone["due in 10 s"].do


def test_a_queue_that_refuses_the_app_is_told_apart_from_silence() -> None:
    late: dict[str, int | None] = dict.fromkeys(("soon", "middle", "far", "batch", "now", "background", "idle"))
    silent, refused = seen(late=late), seen(late=late)
    assert "No delivery at all" in lines(silent)["due now"].means
    for each in refused.probes:
        each.state, each.error = "retrying", "queue x refuses the message (AuthorizationPermissionMismatch)"
    refused.of("cancel")[0].error = ""
    line = lines(refused)["due now"]
    assert "refused" in line.means and "Storage Queue Data Contributor" in line.do and "AuthorizationPermissionMismatch" in line.found


def test_a_queue_that_the_app_does_not_reach_is_no_missing_role() -> None:
    found = seen(late={"far": None})
    found.of("far")[0].error = "queue x cannot be reached"
    line = lines(found)["due in 5 min"]
    assert "did not reach" in line.means and "Contributor" not in line.do


def test_a_service_that_has_ended_is_told_apart_from_a_lost_event() -> None:
    gone = seen(late={"far": None}, looks=[look(0), look(310, 0)])
    gone.of("far")[0].unread = "The app does not answer: no connection"
    line = lines(gone)["due in 5 min"]
    assert line.result == "bad" and "readyz" in line.do and "no connection" in line.found and "queue refused" not in line.means
    away = lines(seen(late={"far": None}, looks=[look(0), look(310, 503, detail="Storage does not answer.")]))
    assert "readyz" in away["due in 5 min"].do


def test_events_are_not_judged_by_a_queue_that_cannot_be_read() -> None:
    found = lines(seen(late={"far": None}, queue_error="storage did not answer: ConnectError"))
    assert {name for name, line in found.items() if line.result == "bad"} == {"queue"}
    assert "the queue" in found["due in 5 min"].do


def test_one_event_that_did_not_arrive_is_a_fault_of_its_own() -> None:
    found = lines(seen(late={"far": None}))
    assert [name for name, line in found.items() if line.result == "bad"] == ["due in 5 min"]
    assert "fire_shard" not in found["due in 5 min"].do


@pytest.mark.parametrize(
    ("kind", "check", "ok", "look_at"),
    [
        ("now", "due now", 1_000, 5_000),
        ("background", "after the answer", 1_000, 3_000),
        ("soon", "due in 10 s", 1_000, 20_000),
        ("middle", "due in 1 min", 1_000, 15_000),
        ("far", "due in 5 min", 250, 2_000),
        ("batch", "batch of 100", 1_000, 20_000),
        ("idle", "first after 3 min idle", 1_000, 10_000),
    ],
)
def test_lateness_is_judged_by_how_early_the_event_was_stored(kind: str, check: str, ok: int, look_at: int) -> None:
    for late, result in ((ok, "ok"), (ok + 1, "look"), (look_at, "look"), (look_at + 1, "bad")):
        assert lines(seen(late={kind: late}))[check].result == result, late


def test_lateness_that_only_storage_proves_counts() -> None:
    found = seen()
    [far] = found.of("far")
    far.deliveries = [delivered("far-0", late=0, inserted=T0 + 9_000)]
    assert far.late_ms == 9_000 and "due in 5 min" in bad(found)


def test_an_event_before_its_time_is_a_fault() -> None:
    found = seen()
    found.of("far")[0].deliveries = [delivered("far-0", late=0, inserted=T0 - 3_000)]
    line = lines(found)["due in 5 min"]
    assert line.result == "bad" and "2.0 s early" in line.found


def test_a_cancelled_event_that_arrives_is_a_fault() -> None:
    found = seen()
    found.of("cancel")[0].deliveries = [delivered("cancel-0")]
    assert bad(found) == {"cancel"}


def test_an_event_that_was_not_accepted_shows_the_reason() -> None:
    found = seen()
    [far] = found.of("far")
    far.id, far.error, far.deliveries = "", "Storage unavailable: try again", []
    assert "Storage unavailable" in lines(found)["due in 5 min"].found


def test_a_second_delivery_is_a_thing_to_know() -> None:
    found = seen()
    found.probes[0].deliveries *= 2
    assert lines(found)["once each"].result == "look" and bad(found) == set()


def test_a_slow_first_answer_after_silence_is_a_fault() -> None:
    found = seen()
    found.of("idle")[0].answer_ms = 20_000
    assert "answered in 20.0 s" in lines(found)["first after 3 min idle"].found and bad(found) == {"first after 3 min idle"}


def test_a_service_that_is_not_ready_or_silent_shows_its_reason() -> None:
    assert "503: Timer lease_scan is silent." in lines(seen(looks=[look(0, 503, detail="Timer lease_scan is silent.")]))["readyz"].found
    recovered = lines(seen(looks=[look(0, 503, detail="Storage does not answer."), look(310)]))
    assert recovered["readyz"].result == "look"
    assert bad(seen(looks=[look(0), look(70, 0), look(310)])) == {"readyz"}
    empty = seen(looks=[look(0)])
    empty.looks = [look._replace(document={}) for look in empty.looks]
    assert lines(empty)["versions"].result == "look"


def test_what_could_not_be_removed_is_a_fault() -> None:
    assert bad(seen(left=["tenant x: no answer"])) == {"removal"}


def test_dates_of_answers_bound_the_offset_and_a_clock_that_is_set_begins_anew() -> None:
    offset = OffsetBounds()
    assert not offset.known
    offset.observe("Fri, 15 Jan 2027 08:00:00 GMT", T0 / 1000 - 2.1, T0 / 1000 - 2.0)
    assert (round(offset.low, 1), round(offset.high, 1)) == (2.0, 3.1)
    offset.observe("Fri, 15 Jan 2027 08:00:00 GMT", T0 / 1000 - 1.8, T0 / 1000 - 1.7)
    assert (round(offset.low, 1), round(offset.high, 1)) == (2.0, 2.8)
    offset.observe("Fri, 15 Jan 2027 08:00:00 GMT", T0 / 1000 + 9, T0 / 1000 + 9)
    assert (round(offset.low, 1), round(offset.high, 1)) == (-9.0, -8.0)
    offset.observe("no date", 0, 0)
    assert round(offset.low, 1) == -9.0


@pytest.mark.parametrize("date", ["Mon, 01 Jan 2026 99:99:99 +99999999999999", ",,,", "1 1 1 1 1", "x" * 10_000, ""])
def test_date_that_is_none_says_nothing_about_a_clock(date: str) -> None:
    bounds = OffsetBounds()
    bounds.observe(date, 1.0, 2.0)
    assert not bounds.known


def test_date_without_a_zone_is_utc() -> None:
    bounds, same = OffsetBounds(), OffsetBounds()
    bounds.observe("Fri, 15 Jan 2027 08:00:00 -0000", 1_800_000_000.0, 1_800_000_000.0)
    same.observe("Fri, 15 Jan 2027 08:00:00 GMT", 1_800_000_000.0, 1_800_000_000.0)
    assert (bounds.low, bounds.high) == (same.low, same.high) == (0.0, 1.0)
