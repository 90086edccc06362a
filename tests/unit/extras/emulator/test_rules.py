"""Spontaneous steps of the emulated world, and their order."""

from __future__ import annotations

import pytest

from shared.extras.emulator import rules
from tests.texts import assert_text
from tests.unit.extras.emulator.worlds import START, at, do, event, get, kinds, on, pass_to, post, read, world

MINUTE = 60.0


def update(**more: object) -> dict[str, object]:
    return {"name": "update", "vms": ["n1"], **more}


def test_an_unapproved_event_starts_at_not_before_and_ends_when_it_has_settled() -> None:
    there = on(do(world(), event=update(duration=9)))
    assert not event(pass_to(there, 15 * MINUTE - 0.001), "update").started
    there = pass_to(there, 15 * MINUTE)
    assert event(there, "update").started_at == at(15 * MINUTE)
    assert [line.at for line in pass_to(there, 16 * MINUTE).log if line.kind == "impact-ended"] == [at(15 * MINUTE + 9)]
    assert event(pass_to(there, 25 * MINUTE - 0.001), "update").outcome is None
    assert event(pass_to(there, 25 * MINUTE), "update").outcome == "completed"


def test_an_approved_event_starts_at_once() -> None:
    there = pass_to(on(do(world(), event=update())), 60)
    there, answer = post(there, event(there, "update").shown.id)
    assert answer.status == 200
    assert event(pass_to(there, 60), "update").started_at == at(60)


def test_azure_may_take_its_time_after_approval_and_after_not_before() -> None:
    there = on(do(world("n1", "n2"), event=update(delay="PT6M")))
    late = pass_to(there, 15 * MINUTE)
    assert not event(late, "update").started and event(pass_to(late, 21 * MINUTE), "update").started_at == at(21 * MINUTE)
    there, _ = post(pass_to(there, 60), event(there, "update").shown.id)
    assert event(pass_to(there, 21 * MINUTE), "update").started_at == at(7 * MINUTE)


def test_notice_is_what_azure_gives_by_type() -> None:
    notices = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Preempt": 30, "Terminate": 300, "Unheard": 900}
    for kind, seconds in notices.items():
        assert event(do(world(), event=update(type=kind)), "update").shown.not_before == at(seconds)


def test_not_before_is_a_whole_second_and_no_event_starts_before_it() -> None:
    there = do(rules.tick(world(), START + 1), event=update(notice="PT10S"))
    assert event(there, "update").shown.not_before == START + 11_000
    assert not event(rules.tick(there, START + 10_999), "update").started


@pytest.mark.parametrize("order", [["n1", "x1"], ["x1", "n1"]])
def test_the_events_of_one_host_start_together_once_every_tenant_has_approved(order: list[str]) -> None:
    there = world({"name": "n1", "host": "h"}, {"name": "n2", "host": "h"}, {"name": "x1", "scope": "other", "host": "h"})
    there = on(do(there, event={"name": "update", "host": "h"}))
    mine, theirs = event(there, "update"), event(there, "update", 1)
    assert (mine.shown.resources, theirs.shown.resources) == (("n1", "n2"), ("x1",)) and mine.shown.id != theirs.shown.id
    ids = {"n1": mine.shown.id, "x1": theirs.shown.id}
    there, _ = post(pass_to(there, 60), ids[order[0]], vm=order[0])
    there = pass_to(there, 120)
    assert not any(each.started for each in there.events)
    there, _ = post(there, ids[order[1]], vm=order[1])
    there = pass_to(there, 120)
    assert [event(there, "update", index).started_at for index in (0, 1)] == [at(120)] * 2


def test_one_tenant_that_never_approves_makes_all_of_its_host_wait_for_not_before() -> None:
    there = world({"name": "n1", "host": "h"}, {"name": "x1", "scope": "other", "host": "h"})
    there = on(do(there, event={"name": "update", "host": "h"}))
    there, _ = post(there, event(there, "update").shown.id)
    there = pass_to(there, 15 * MINUTE)
    assert [event(there, "update", index).started_at for index in (0, 1)] == [at(15 * MINUTE)] * 2


def test_tenants_that_the_scenario_does_not_list_approve_when_it_says_or_never() -> None:
    for others, start in {"PT2M": 120, "never": 15 * MINUTE, "PT20M": 15 * MINUTE}.items():
        there = on(do(world(), event=update(others=others)))
        there, _ = post(there, event(there, "update").shown.id)
        assert event(pass_to(there, 16 * MINUTE), "update").started_at == at(start)


def test_hosts_of_one_fault_domain_do_not_wait_for_each_other() -> None:
    there = world({"name": "n1", "host": "h1"}, {"name": "n2", "host": "h2"}, {"name": "n3", "fault_domain": 1})
    there = on(do(there, event={"name": "update", "fault_domain": 0}))
    first, second = event(there, "update"), event(there, "update", 1)
    assert (first.shown.resources, second.shown.resources) == (("n1",), ("n2",))
    there, _ = post(there, first.shown.id)
    there = pass_to(there, 1)
    assert event(there, "update").started and not event(there, "update", 1).started


def test_one_approval_is_for_all_machines_of_the_event() -> None:
    there = on(do(world("n1", "n2"), event={"name": "update", "vms": ["n1", "n2"]}))
    there, _ = post(there, event(there, "update").shown.id, vm="n2")
    there = pass_to(there, 1)
    assert event(there, "update").approved_by == "n2"
    assert sorted(line.vm for line in there.log if line.kind == "impact-began") == ["n1", "n2"]


def test_an_event_is_not_over_while_an_impact_of_it_lasts() -> None:
    there = do(pass_to(do(world(), event=update(notice="PT0S", settles="PT1M")), 50), impact={"event": "update", "lasts": "PT1M"})
    assert event(pass_to(there, 109.999), "update").outcome is None
    assert event(pass_to(there, 110), "update").ended_at == at(110)


def test_a_late_tick_leads_to_the_same_result_as_many_early_ones() -> None:
    there = on(do(world("n1", "n2"), event=update(others="PT1M", delay="PT3S")))
    there = do(there, at="PT2M", event={"name": "more", "vms": ["n2"], "notice": "PT1M"})
    slow, fast = pass_to(there, 3600), there
    for second in range(1, 3601):
        fast = pass_to(fast, second)
    assert fast == slow


def test_time_that_steps_back_changes_nothing() -> None:
    there = pass_to(do(world(), event=update()), 60)
    assert rules.tick(there, START) == there


def test_a_step_that_does_not_fit_when_its_time_comes_is_reported_and_changes_nothing() -> None:
    there = world(steps=[{"event": update(notice="PT10S")}, {"at": "PT20S", "cancel": "update"}])
    there = pass_to(there, 20)
    assert event(there, "update").outcome is None and there.log[-1].kind == "step-refused"
    assert_text("emulator.started", there.log[-1].text, event="update")


def test_steps_of_one_instant_happen_in_the_order_of_the_file() -> None:
    steps = [{"at": "PT5S", "event": update()}, {"at": "PT5S", "cancel": "update"}, {"event": {"name": "first", "vms": ["n1"]}}]
    assert kinds(pass_to(world(steps=steps), 5)) == ["scheduled", "scheduled", "cancelled"]


def test_speed_shortens_every_span_but_what_documents_advertise() -> None:
    there = on(do(world(speed=60), event=update(duration=60)))
    there, document = read(there)
    assert document["Events"][0]["DurationInSeconds"] == 60
    there = pass_to(there, 15)
    assert event(there, "update").started_at == at(15)
    there = pass_to(there, 25)
    assert [line.at for line in there.log if line.kind == "impact-ended"] == [at(16)]
    assert event(there, "update").ended_at == at(25)


def test_the_service_switches_itself_off_after_a_day_without_requests_and_counts_again() -> None:
    there = on(do(world({"name": "n1", "incarnation": 7}), event=update(notice="P2D")))
    there, document = read(pass_to(do(there, skip={"by": 5}), 3600))
    assert document["DocumentIncarnation"] == 12
    day = 86_400.0
    assert pass_to(there, 3600 + day - 0.001).vms["n1"].on_at is not None
    there = pass_to(there, 3600 + day)
    assert there.vms["n1"].on_at is None and there.log[-1].kind == "off"
    there, document = read(there)
    assert document["DocumentIncarnation"] == 7 and len(document["Events"]) == 1


def test_the_first_call_is_answered_late_and_events_flow_later_still() -> None:
    there = do(world(first_call="PT2M", flow="PT3M"), event=update(notice="PT1H"))
    there, answer = get(there)
    assert answer.delay == 120_000 and answer.body == b'{"DocumentIncarnation": 1, "Events": []}'
    there, answer = get(pass_to(there, 60))
    assert answer.delay == 60_000
    there, document = read(pass_to(there, 299.999))
    assert document == {"DocumentIncarnation": 1, "Events": []}
    there, document = read(pass_to(there, 300))
    assert document["DocumentIncarnation"] == 2 and len(document["Events"]) == 1


def test_next_due_is_when_something_happens_and_none_when_nothing_will() -> None:
    there = world()
    assert rules.next_due(there) is None
    there = do(there, event=update(notice="PT1M", settles="PT2M"))
    assert rules.next_due(there) == at(60)
    there = pass_to(there, 60)
    assert rules.next_due(there) == at(67)
    assert rules.next_due(pass_to(there, 67)) == at(180)
    assert rules.next_due(pass_to(there, 180)) is None
