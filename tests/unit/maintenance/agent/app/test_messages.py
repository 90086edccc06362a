"""Reports to the app: their content and limits, and the app's answers."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.maintenance.agent.app.messages import MOST, MOST_NAMED, ReportReceipt, body_of, near, read_answer
from shared.maintenance.agent.caller_probe import ProbeOrder, ProbeTarget
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions.step import next_wake, step
from shared.maintenance.agent.imds.client import Machine
from shared.maintenance.agent.imds.document import read
from shared.maintenance.agent.model import EventPhase, EventRecord, EventsDocument, LeasedApproval, NodeState, Now, ScheduledEvent
from shared.maintenance.agent.observations import AppCommand, DocumentRead, StartUp, Tick
from shared.maintenance.agent.policy import ActionRule, FleetPolicy
from shared.maintenance.model import (
    AgentReportAnswer,
    AgentReportIn,
    AgentSettingsOut,
    AskedOut,
    HeldEventOut,
    LeasedOut,
    MonitorsOut,
    OrderOut,
    OtherApproverOut,
    RehearsalOut,
    RuleOut,
)
from shared.maintenance.routes import MAX_REPORT
from shared.maintenance.rows import encode_row
from shared.maintenance.service.reports import _node
from tests.unit.maintenance.agent.app.states import MACHINE, NOT_BEFORE, answer, event, state


def test_report_is_what_the_app_takes() -> None:
    record = {"reason": "held\nby \x00 the fleet", "observed_ms": 1200, "outcome": "cancelled"}
    body = body_of(state(EventPhase.DONE, **record), "n1", MACHINE)
    taken = AgentReportIn.model_validate_json(json.dumps({**body, "seq": 7}), strict=True)
    [entry] = taken.events
    assert (taken.node, taken.vm, taken.scope, taken.incarnation, taken.resource_id) == ("n1", "vm_1", "set-1", 4, "/subscriptions/s/vm_1")
    assert (entry.event_id, entry.phase, entry.not_before, entry.duration_s) == ("e1", "DONE", NOT_BEFORE, 9)
    assert (entry.reason, entry.observed_ms, entry.outcome) == ("held by   the fleet", 1200, "cancelled")


def test_report_of_a_node_that_has_seen_nothing_yet_is_taken_too() -> None:
    body = body_of(NodeState("boot-1"), "n1", Machine("vm_1"))
    assert AgentReportIn.model_validate_json(json.dumps({**body, "seq": 1}), strict=True).incarnation is None


def test_report_of_too_much_is_cut_to_what_matters_on_this_node() -> None:
    others = {f"e{number}": EventRecord(event(number), EventPhase.FOREIGN, number) for number in range(2, 2000)}
    crowd = ("", "a\x00b", *(f"vm_{number}" for number in range(5000, 3000, -1)), "vm_1")
    mine = EventRecord(event(1, resources=crowd), EventPhase.WAITING, 0)
    odd = EventRecord(replace(event(3), event_id="an id {of} words"), EventPhase.WAITING, 0)
    body = body_of(NodeState("b", events={**others, "e1": mine, "odd": odd}), "n1", MACHINE)
    taken = AgentReportIn.model_validate_json(json.dumps({**body, "seq": 1}), strict=True)
    assert len(taken.events) == MOST and taken.events[0].event_id == "e1"
    assert len(taken.events[0].resources) == MOST_NAMED and taken.events[0].resources[0] == "vm_1"


@pytest.mark.parametrize("letter", ["v", '"', "\u00fc", "\U0001f4a5"])
def test_report_of_more_names_than_the_app_keeps_leaves_out_whole_events_those_of_others_first(letter: str) -> None:
    def crowd(number: int) -> tuple[str, ...]:
        return (*(f"{other:04}{number}{letter * 50}" for other in range(999)), "vm_1")

    others = {f"e{number}": EventRecord(event(number, resources=crowd(number)), EventPhase.FOREIGN, number) for number in range(10, 60)}
    mine = {f"e{number}": EventRecord(event(number, resources=crowd(number)), EventPhase.WAITING, number) for number in range(3)}
    body = body_of(NodeState("b", events={**others, **mine}), "n1", MACHINE)
    assert len(json.dumps(body)) < MAX_REPORT
    taken = AgentReportIn.model_validate_json(json.dumps({**body, "seq": 1}), strict=True)
    encode_row(_node(taken))
    assert [entry.event_id for entry in taken.events][:1] == (["e2"] if letter.isascii() else [])
    assert all(set(entry.resources) == set(crowd(int(entry.event_id[1:]))) for entry in taken.events), "all names or none"
    short = body_of(NodeState("b", events={**others, "e1": EventRecord(event(1), EventPhase.WAITING, 0)}), "n1", MACHINE)
    assert short["events"][0]["event_id"] == "e1" and all(len(entry["resources"]) == 1000 for entry in short["events"][1:])


TIMES = ["Mon, 19 Sep 2033 18:29:47 GMT", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"EventId": st.text(max_size=200), "Resources": st.lists(st.text(max_size=200) | st.just("vm_1"), max_size=5)},
            optional={
                "EventType": st.text(max_size=200),
                "EventStatus": st.sampled_from(["Scheduled", "Started", "Odd"]),
                "NotBefore": st.text() | st.datetimes().map(str) | st.sampled_from(TIMES),
                "EventSource": st.sampled_from(["User", "Platform", "Odd"]),
                "DurationInSeconds": st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            },
        ),
        max_size=5,
    ),
    st.integers() | st.text(),
    st.text(),
)
def test_report_of_any_document_is_one_that_the_app_takes(events: list[Any], incarnation: Any, where: str) -> None:
    found = read(json.dumps({"DocumentIncarnation": incarnation, "Events": events}).encode())
    assert isinstance(found, EventsDocument)
    settings = AgentSettings("vm_1", hooks={"prepare": 1.0})
    now = Now(NOT_BEFORE, 1.0)
    state, _ = step(step(NodeState(), StartUp("boot-1", "none"), now, settings).state, DocumentRead(found), now, settings)
    body = body_of(state, "n1", Machine("vm_1", where, where * 5, where, where))
    taken = AgentReportIn.model_validate_json(json.dumps({**body, "seq": 1}), strict=True)
    encode_row(_node(taken))


def test_answer_of_the_app_becomes_an_observation() -> None:
    rehearsed = RehearsalOut(
        event_id="r1", type="Reboot", status="Scheduled", not_before=NOT_BEFORE, source="Platform", duration_s=9, resources=["vm_1"]
    )
    sent = AgentReportAnswer(
        next_report_ms=5000,
        steps=100,
        approvals=[LeasedOut(id="a1", event_id="E1", lease_ms=5000, expires=NOT_BEFORE)],
        hold=[HeldEventOut(event_id="E2", reason="another domain is down")],
        others=[OtherApproverOut(event_id="E3", node="n2", approved=False), OtherApproverOut(event_id="E4", node="n3", approved=True)],
        turn_ms=20_000,
        commands=[OrderOut(id="c1", event_id="E1", do="prepare")],
        rehearsals=[rehearsed],
        monitors=MonitorsOut(primary="n1", secondary=None, epoch=3),
        settings=AgentSettingsOut(
            lead_ms=45_000,
            leads_ms={"Reboot": 120_500},
            require_central=True,
            rules=[RuleOut(action="approve", type="Freeze", source="Platform", max_seconds=0), RuleOut(action="hold")],
            guard="prepare",
            catch_up_ms=90_000,
        ),
        permissions=[AskedOut(event_id="E1", state="granted"), AskedOut(event_id="E2", state="refused", reason="E1 goes first")],
    )
    found = read_answer(sent.model_dump_json().encode(), 50.0, frozenset({"e9"}))
    assert isinstance(found, ReportReceipt) and found.next == 5
    assert found.answer.told == {"e9"}
    assert found.answer.grants == (LeasedApproval("a1", "e1", 55.0, NOT_BEFORE),)
    assert found.answer.holds == {"e2": "another domain is down"}
    assert (found.answer.approves, found.answer.approved, found.answer.until) == ({"e3": "n2"}, {"e4": "n3"}, 70.0)
    assert found.answer.commands == (AppCommand("c1", "e1", "prepare"),)
    [rehearsal] = found.answer.rehearsals
    assert rehearsal == ScheduledEvent("r1", "r1", "Reboot", "Scheduled", NOT_BEFORE, duration=9, rehearsal=True)
    assert found.answer.monitors is not None and found.answer.monitors.epoch == 3
    rules = (ActionRule("approve", "Freeze", "Platform", 0), ActionRule("hold"))
    assert found.answer.policy == FleetPolicy("", 45, {"Reboot": 120.5}, True, rules, "prepare", 90.0)
    assert (found.answer.permitted, found.answer.refused) == ({"e1"}, {"e2": "E1 goes first"})


def answered_with(probe: Any, events: Any) -> bytes:
    settings = {"lead_ms": 30_000, "leads_ms": {}, "require_central": False, "rules": [], "probe": probe}
    return json.dumps({"settings": settings, "probe": {"events": events}}).encode()


PROBE = {"url": "https://db.example/ping", "every_ms": 1000, "timeout_ms": 5000, "slow_ms": 250}


def test_answer_says_what_to_probe_and_phases_of_a_later_release_count_for_nothing() -> None:
    found = read_answer(answered_with(PROBE, {"e1": "one_node", "e2": "some-later-phase"}), 50.0, frozenset())
    assert isinstance(found, ReportReceipt)
    assert found.probe == ProbeOrder(ProbeTarget("https://db.example/ping", "", 1.0, 5.0, 250), {"e1": "one_node"})
    plain = read_answer(json.dumps({}).encode(), 50.0, frozenset())
    assert isinstance(plain, ReportReceipt) and plain.probe == ProbeOrder()


@pytest.mark.parametrize(
    "wrong", [{"url": "file:///etc/passwd"}, {"url": "http://x:99999/"}, {"url": "http://x/\n"}, {"url": 7}, {"every_ms": -1}]
)
def test_answer_with_a_wrong_probe_is_refused_as_a_whole(wrong: Any) -> None:
    assert isinstance(read_answer(answered_with(PROBE | wrong, {}), 50.0, frozenset()), str)


def test_answer_of_a_former_release_of_the_app_has_no_guard_and_no_permissions() -> None:
    settings = {"lead_ms": 30_000, "leads_ms": {}, "require_central": False, "rules": []}
    found = read_answer(json.dumps({"settings": settings}).encode(), 50.0, frozenset())
    assert isinstance(found, ReportReceipt) and found.answer.policy is not None
    assert (found.answer.policy.guard, found.answer.permitted, found.answer.refused) == ("approve", frozenset(), {})
    assert (found.answer.approves, found.answer.approved, found.answer.until) == ({}, {}, inf)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"approvals": {}}',
        b'{"approvals": [{"id": "a"}]}',
        b'{"approvals": [{"id": "a", "event_id": "e", "lease_ms": 5, "expires": "soon"}]}',
        b'{"hold": [1]}',
        b'{"commands": [{"id": "c", "event_id": "e", "do": "explode"}]}',
        b'{"next_report_ms": "soon"}',
        b'{"turn_ms": "soon"}',
        b'{"others": [{"event_id": "e", "node": "n2"}]}',
        b'{"monitors": []}',
        b'{"next_report_ms": NaN}',
        b'{"approvals": [{"id": "a", "event_id": "e", "lease_ms": 1' + b"0" * 400 + b', "expires": "2026-01-01T00:00:00Z"}]}',
        b'{"settings": {}}',
        b'{"settings": {"lead_ms": -1, "leads_ms": {}, "require_central": false, "rules": []}}',
        b'{"settings": {"lead_ms": 1, "leads_ms": {"Freeze": "soon"}, "require_central": false, "rules": []}}',
        b'{"settings": {"lead_ms": 1, "leads_ms": {}, "require_central": false, "rules": [{"action": "explode"}]}}',
        b"[" * 100_000,
    ],
)
def test_answer_that_cannot_be_read_as_a_whole_says_nothing(body: bytes) -> None:
    assert isinstance(read_answer(body, 0, frozenset()), str)


@pytest.mark.parametrize(("asked", "seconds"), [(0, 0.5), (5000, 5), (10**9, 900)])
def test_next_report_is_bounded_whatever_the_app_asks(asked: int, seconds: float) -> None:
    found = read_answer(answer(next_report_ms=asked).body, 0, frozenset())
    assert isinstance(found, ReportReceipt) and found.next == seconds


def test_rules_and_rehearsals_of_an_odd_app_are_values_that_an_agent_can_go_by() -> None:
    rules = [{"action": "hold", "type": 5}, {"action": "hold", "source": {}, "max_seconds": "7"}]
    settings = {"lead_ms": 1000, "leads_ms": {}, "require_central": False, "rules": rules}
    body = json.dumps({"settings": settings, "rehearsals": [{"event_id": "r1", "duration_s": 10**400}]}).encode()
    found = read_answer(body, 0, frozenset())
    assert isinstance(found, ReportReceipt)
    node, settled = NodeState("b"), AgentSettings("vm_1", central=True)
    for at, observation in enumerate((StartUp("b", "none"), found.answer, DocumentRead(EventsDocument(1, (event(),))), Tick())):
        now = Now(30_000 * at, 30.0 * at)
        node, _ = step(node, observation, now, settled)
        next_wake(node, now, settled)
    assert set(node.events) == {"r1", "e1"}


def test_near_is_whatever_is_not_over_and_not_of_others() -> None:
    assert {phase for phase in EventPhase if not near(state(phase))} == {EventPhase.FOREIGN, EventPhase.DONE}
