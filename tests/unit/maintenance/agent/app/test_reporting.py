"""Reports: their content and times, those that wait on disk while the app is away, and the app's answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.maintenance.agent.app.messages import MOST, MOST_NAMED, ReportReceipt, body_of, near, read_answer
from shared.maintenance.agent.app.reporter import AppClient, Reporter
from shared.maintenance.agent.config.config import AppSettings
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions.step import next_wake, step
from shared.maintenance.agent.effects import SendResult
from shared.maintenance.agent.http_exchange import HttpReply, TransportFailure
from shared.maintenance.agent.imds.client import Machine
from shared.maintenance.agent.imds.document import read
from shared.maintenance.agent.journal import DiskFolder, ReportBacklog
from shared.maintenance.agent.model import EventPhase, EventRecord, EventsDocument, LeasedApproval, NodeState, Now, ScheduledEvent
from shared.maintenance.agent.observability.figures import AgentFigures
from shared.maintenance.agent.observations import AppAnswer, AppCommand, AppUnreachable, DocumentRead, Observation, StartUp, Tick
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
    RehearsalOut,
    RuleOut,
)
from shared.maintenance.routes import MAX_REPORT
from shared.maintenance.rows import encode_row
from shared.maintenance.service.service import _node
from tests.logs import actions

MACHINE = Machine("vm_1", "westeurope", "set-1", "2", "/subscriptions/s/vm_1")
NOT_BEFORE = 1_800_000_000_000
KEY = "an-agents-own-key"


def event(number: int = 1, **more: Any) -> ScheduledEvent:
    name = f"e{number}"
    return replace(ScheduledEvent(name, name, "Freeze", "Scheduled", NOT_BEFORE, duration=9, resources=("vm_1",)), **more)


def state(phase: EventPhase = EventPhase.WAITING, *, number: int = 1, **more: Any) -> NodeState:
    record = EventRecord(event(number), phase, 1)
    return NodeState("boot-1", incarnation=4, events={f"e{number}": replace(record, **more)})


def answer(**more: Any) -> HttpReply:
    usual = {"next_report_ms": 5000, "approvals": [], "hold": [], "commands": [], "rehearsals": [], "monitors": None}
    return HttpReply(200, json.dumps(usual | more).encode())


def problem(status: int, code: str) -> HttpReply:
    return HttpReply(status, json.dumps({"type": f"https://tocsin.dev/problems/{code}", "detail": f"because {code}"}).encode())


class App:
    """Stands for the app: gives its answers in turn, then accepts all; records the requests."""

    def __init__(self, *answers: HttpReply | TransportFailure) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(
        self, method: str, url: str, *, headers: dict[str, str], body: bytes, timeout: float, tls: object
    ) -> HttpReply | TransportFailure:
        assert method == "POST" and headers["Authorization"] == f"Bearer {KEY}"
        self.asked.append((url, json.loads(body)))
        return self.answers.pop(0) if self.answers else answer()

    def reports(self) -> list[dict[str, Any]]:
        return [body for url, body in self.asked if url.endswith("/maintenance/reports")]


class ReporterFixture:
    """A reporter without its thread, on a clock that the test moves."""

    def __init__(self, folder: Path, *answers: HttpReply | TransportFailure, wall: int = 1000) -> None:
        self.app, self.observed, self.time, self.figures = App(*answers), list[Observation](), 100.0, AgentFigures()
        self.backlog = ReportBacklog(DiskFolder(folder), 5)
        client = AppClient(AppSettings("https://app.example", "search", KEY), ask=self.app)
        self.reporter = Reporter(
            client,
            self.backlog,
            self.observed.append,
            self.figures,
            node="n1",
            machine=MACHINE,
            wall=lambda: wall,
            steady=lambda: self.time,
            chance=lambda: 1.0,
        )

    def change(self, *states: NodeState) -> list[dict[str, Any]]:
        """Change the state. Return the reports that were sent for it."""
        before = len(self.app.reports())
        for each in states:
            self.reporter.changed(each)
            self.reporter.latest(each)
        self.reporter.run_once()
        return self.app.reports()[before:]

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Let time pass. Return the reports that were sent at its end."""
        self.time += seconds
        return self.change()


@pytest.fixture
def reporting(tmp_path: Path) -> Callable[..., ReporterFixture]:
    return lambda *answers, **more: ReporterFixture(tmp_path, *answers, **more)


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
        approvals=[LeasedOut(id="a1", event_id="E1", lease_ms=5000, expires=NOT_BEFORE)],
        hold=[HeldEventOut(event_id="E2", reason="another domain is down")],
        commands=[OrderOut(id="c1", event_id="E1", do="prepare")],
        rehearsals=[rehearsed],
        monitors=MonitorsOut(primary="n1", secondary=None, epoch=3),
        settings=AgentSettingsOut(
            lead_ms=45_000,
            leads_ms={"Reboot": 120_500},
            require_central=True,
            rules=[RuleOut(action="approve", type="Freeze", source="Platform", max_seconds=0), RuleOut(action="hold")],
            guard="prepare",
        ),
        permissions=[AskedOut(event_id="E1", state="granted"), AskedOut(event_id="E2", state="refused", reason="E1 goes first")],
    )
    found = read_answer(sent.model_dump_json().encode(), 50.0, frozenset({"e9"}))
    assert isinstance(found, ReportReceipt) and found.next == 5
    assert found.answer.told == {"e9"}
    assert found.answer.grants == (LeasedApproval("a1", "e1", 55.0, NOT_BEFORE),)
    assert found.answer.holds == {"e2": "another domain is down"}
    assert found.answer.commands == (AppCommand("c1", "e1", "prepare"),)
    [rehearsal] = found.answer.rehearsals
    assert rehearsal == ScheduledEvent("r1", "r1", "Reboot", "Scheduled", NOT_BEFORE, duration=9, rehearsal=True)
    assert found.answer.monitors is not None and found.answer.monitors.epoch == 3
    rules = (ActionRule("approve", "Freeze", "Platform", 0), ActionRule("hold"))
    assert found.answer.policy == FleetPolicy("", 45, {"Reboot": 120.5}, True, rules, "prepare")
    assert (found.answer.permitted, found.answer.refused) == ({"e1"}, {"e2": "E1 goes first"})


def test_answer_of_a_former_release_of_the_app_has_no_guard_and_no_permissions() -> None:
    settings = {"lead_ms": 30_000, "leads_ms": {}, "require_central": False, "rules": []}
    found = read_answer(json.dumps({"settings": settings}).encode(), 50.0, frozenset())
    assert isinstance(found, ReportReceipt) and found.answer.policy is not None
    assert (found.answer.policy.guard, found.answer.permitted, found.answer.refused) == ("approve", frozenset(), {})


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


def test_change_goes_out_at_once_and_vouches_for_what_it_shows_prepared(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting()
    [report] = it.change(state(EventPhase.PREPARED))
    assert report["events"][0]["phase"] == "PREPARED" and report["seq"] == 1001
    assert it.app.asked[0][0] == "https://app.example/api/v1/fleets/search/maintenance/reports"
    assert it.observed == [AppAnswer(frozenset({"e1"}))] and len(it.backlog) == 0


def test_only_the_newest_of_several_changes_vouches_for_what_is_prepared(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting()
    it.change(state(EventPhase.PREPARING), state(EventPhase.PREPARED))
    assert it.observed == [AppAnswer(), AppAnswer(frozenset({"e1"}))]
    it.change(state(EventPhase.PREPARED), state(EventPhase.STARTED))
    assert it.observed[2:] == [AppAnswer(), AppAnswer()]


def test_what_a_report_has_no_room_for_is_not_vouched_for(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting()
    names = tuple(f"{number:04}{'v' * 55}" for number in range(999))
    crowd = {f"e{number}": EventRecord(event(number, resources=("vm_1", *names)), EventPhase.WAITING, number) for number in (8, 9)}
    small = {
        "e1": EventRecord(event(1, resources=("vm_1", *names)), EventPhase.PREPARED, 2),
        "e2": EventRecord(event(2), EventPhase.PREPARED, 1),
    }
    odd = {"{e}": EventRecord(event(3, event_id="{e}"), EventPhase.PREPARED, 0)}
    [report] = it.change(NodeState("b", events={**crowd, **small, **odd}))
    shown = {each["event_id"] for each in report["events"]}
    assert shown == {"e9", "e2"} and it.observed == [AppAnswer(frozenset({"e2"}))]


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


def test_report_without_a_change_goes_out_when_the_app_wants_it(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(answer(next_report_ms=5000))
    it.change(state(EventPhase.PREPARED))
    assert it.wait(4.9) == []
    assert len(it.wait(0.2)) == 1 and it.observed[-1] == AppAnswer(frozenset({"e1"}))


def test_first_report_goes_out_without_any_change(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting()
    it.reporter.latest(state())
    assert it.change() == [] and len(it.wait(5)) == 1


def test_what_changes_while_the_app_is_away_waits_on_disk_in_order(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(TransportFailure("refused"))
    assert len(it.change(state(EventPhase.PREPARING))) == 1
    assert it.observed == [AppUnreachable("refused")] and len(it.backlog) == 1
    # The app is not asked for each change while it is away, and nothing is lost by that.
    assert it.change(state(EventPhase.PREPARED)) == [] and len(it.backlog) == 2
    sent = it.wait(1)
    assert [report["events"][0]["phase"] for report in sent] == ["PREPARING", "PREPARED"]
    assert [report["seq"] for report in sent] == [1002, 1003] and len(it.backlog) == 0
    assert it.observed[1:] == [AppAnswer(), AppAnswer()], "what waited vouches for nothing"


def test_what_waits_outlives_the_process(reporting: Callable[..., ReporterFixture]) -> None:
    reporting(TransportFailure("refused")).change(state(EventPhase.PREPARING))
    it = reporting(wall=5000)
    sent = it.wait(5)
    assert [report["events"][0]["phase"] for report in sent] == ["PREPARING"] and sent[0]["seq"] == 5001


def test_attempts_get_rarer_and_stay_frequent_while_an_event_is_near(reporting: Callable[..., ReporterFixture]) -> None:
    def attempts(phase: EventPhase) -> int:
        it = reporting(*[TransportFailure("refused")] * 1000)
        it.change(state(phase))
        return sum(len(it.wait(1)) for _ in range(300))

    assert attempts(EventPhase.PREPARED) >= 300 / 5 - 2
    assert 5 <= attempts(EventPhase.FOREIGN) <= 15


def test_refused_report_is_dropped_and_does_not_stop_what_is_behind_it(
    reporting: Callable[..., ReporterFixture], caplog: pytest.LogCaptureFixture
) -> None:
    it = reporting(problem(422, "invalid-content"))
    assert len(it.change(state(EventPhase.PREPARING), state(EventPhase.PREPARED))) == 2
    assert len(it.backlog) == 0
    assert it.observed == [AppUnreachable("status 422: because invalid-content"), AppAnswer(frozenset({"e1"}))]
    assert actions(caplog) == ["agent_report_refused"]


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_other_refusals_count_as_away_and_keep_the_report(reporting: Callable[..., ReporterFixture], status: int) -> None:
    it = reporting(problem(status, "no"))
    it.change(state(EventPhase.PREPARED))
    assert it.observed == [AppUnreachable(f"status {status}: because no")] and len(it.backlog) == 1
    assert it.figures.value("tocsin_agent_reports_total", outcome="refused") == 1


def test_sequence_leaps_over_a_higher_one_that_the_app_has_seen(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(problem(409, "stale-seq"), problem(409, "stale-seq"))
    sent = it.change(state())
    assert [report["seq"] for report in sent] == [1001, 2002, 10003] and it.observed == [AppAnswer()]


def test_conflict_of_another_kind_is_tried_again_without_a_leap(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(problem(409, "changed-meanwhile"))
    assert [report["seq"] for report in it.change(state())] == [1001, 1002]


def test_only_so_many_reports_wait(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(*[TransportFailure("refused")] * 100)
    it.change(*(state(number=number) for number in range(20)))
    kept = [report["events"][0]["event_id"] for report in it.backlog.first(100)]
    assert 1 <= len(kept) <= 5 and kept[-1] == "e19"


def test_result_of_an_approval_goes_out_and_comes_again_until_it_is_taken(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(answer(), TransportFailure("refused"), answer(), HttpReply(503, b""), answer(), HttpReply(204, b""))
    it.reporter.result(SendResult("a/1", "posted", 200))
    it.change(state())
    for _ in range(10):
        it.wait(5)
    results = [(url, body) for url, body in it.app.asked if "approvals" in url]
    where = "https://app.example/api/v1/fleets/search/maintenance/approvals/a%2F1/result"
    assert results == [(where, {"node": "n1", "outcome": "posted", "http_status": 200})] * 3


def test_result_that_comes_too_late_is_not_repeated(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(answer(), problem(409, "lease-lost"))
    it.reporter.result(SendResult("a1", "gone"))
    it.change(state())
    for _ in range(10):
        it.wait(5)
    assert [body for url, body in it.app.asked if "approvals" in url] == [{"node": "n1", "outcome": "gone"}]


def test_thread_sends_what_changes_and_ends_when_all_is_out(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting()
    it.reporter.start()
    it.reporter.changed(state(EventPhase.PREPARED))
    it.reporter.close(60)
    assert len(it.app.reports()) == 1


def test_reports_that_cannot_be_kept_do_not_have_the_node_wait_for_the_fleet(
    reporting: Callable[..., ReporterFixture], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(report: object) -> None:
        raise OSError(28, "No space left on device")

    it, observed = reporting(), threading.Event()
    monkeypatch.setattr(it.backlog, "add", full)
    monkeypatch.setattr(it.reporter, "_observe", lambda observation: (it.observed.append(observation), observed.set()))
    it.reporter.changed(state(EventPhase.PREPARED))
    it.reporter.start()
    assert observed.wait(60)
    it.reporter.close(60)
    assert it.observed == [AppUnreachable("reports cannot be kept: No space left on device")]
    assert [record.action for record in caplog.records] == ["agent_reports_unkept"]  # type: ignore[attr-defined]


def test_near_is_whatever_is_not_over_and_not_of_others() -> None:
    assert {phase for phase in EventPhase if not near(state(phase))} == {EventPhase.FOREIGN, EventPhase.DONE}
