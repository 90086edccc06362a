"""The reporter: when reports are sent, which of them wait on disk while the app is away, and which are repeated."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.core.http_exchange import HttpReply, TransportFailure
from shared.maintenance.agent.app.reporter import MAX_STEPS, STEPS_OF_REPORT, AppClient, Reporter, ReportSubject
from shared.maintenance.agent.caller_probe import CallerProber, ProbeConsent
from shared.maintenance.agent.config.config import AppSettings
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.effects import SendResult, WriteLog
from shared.maintenance.agent.journal import DiskFolder, ReportBacklog
from shared.maintenance.agent.model import EventPhase, EventRecord, NodeState
from shared.maintenance.agent.observability.health import AgentFigures
from shared.maintenance.agent.observability.logs import LogContext
from shared.maintenance.agent.observations import AppAnswer, AppUnreachable, Observation
from shared.maintenance.agent.process import AgentProcess
from tests.logs import actions
from tests.texts import assert_text
from tests.unit.maintenance.agent.app.states import MACHINE, answer, event, state

KEY = "an-agents-own-key"


def problem(status: int, code: str) -> HttpReply:
    return HttpReply(status, json.dumps({"type": f"https://tocsin.dev/problems/{code}", "detail": f"because {code}"}).encode())


class App:
    """Stands for the app: gives its answers in turn, then accepts all; records the requests."""

    def __init__(self, *answers: HttpReply | TransportFailure) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(
        self, method: str, url: str, *, headers: dict[str, str], body: bytes, timeout: float, tls: object, proxy: object
    ) -> HttpReply | TransportFailure:
        assert method == "POST" and headers["Authorization"] == f"Bearer {KEY}"
        self.asked.append((url, json.loads(body)))
        return self.answers.pop(0) if self.answers else answer()

    def reports(self) -> list[dict[str, Any]]:
        return [body for url, body in self.asked if url.endswith("/maintenance/reports")]


class ReporterFixture:
    """A reporter without its thread, on a clock that the test moves."""

    def __init__(
        self, folder: Path, *answers: HttpReply | TransportFailure, wall: int = 1000, probing: bool = False, lead: int = 0
    ) -> None:
        self.app, self.observed, self.time, self.figures = App(*answers), list[Observation](), 100.0, AgentFigures()
        self.backlog = ReportBacklog(DiskFolder(folder), 5)
        client = AppClient(AppSettings("https://app.example", "search", KEY), ask=self.app)
        self.reporter = Reporter(
            client,
            self.backlog,
            self.observed.append,
            ReportSubject("n1", MACHINE, lead),
            AgentProcess(self.figures, LogContext("n1"), lambda: wall, lambda: self.time, lambda: 1.0),
            CallerProber(ProbeConsent(frozenset({"db.example"})), run="r", steady=lambda: self.time) if probing else None,
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
    # It is tried once more without the fields that a former release of the app refuses.
    it = reporting(problem(422, "invalid-content"), problem(422, "invalid-content"))
    assert len(it.change(state(EventPhase.PREPARING), state(EventPhase.PREPARED))) == 3
    assert len(it.backlog) == 0
    assert it.observed == [AppUnreachable("status 422: because invalid-content"), AppAnswer(frozenset({"e1"}))]
    assert actions(caplog) == ["agent_report_refused"]


def test_the_longest_lead_of_the_nodes_own_file_is_reported_and_left_out_for_a_former_release(tmp_path: Path) -> None:
    it = ReporterFixture(tmp_path, problem(422, "invalid-content"), lead=45_000)
    first, second = it.change(state(EventPhase.WAITING))
    assert first["lead_ms"] == 45_000 and "lead_ms" not in second
    assert AgentSettings("vm", lead=30.0, leads={"Reboot": 45.0}).longest_lead() == 45.0
    assert AgentSettings("vm").longest_lead() == 0


def test_results_of_the_caller_probe_are_left_out_for_an_instance_of_a_former_release(tmp_path: Path) -> None:
    target = {"url": "https://db.example/", "every_ms": 1000, "timeout_ms": 5000}
    policy = {"lead_ms": 1, "leads_ms": {}, "require_central": False, "rules": [], "guard": "approve", "probe": target}
    it = ReporterFixture(tmp_path, answer(settings=policy), problem(422, "invalid-content"), probing=True)
    it.change(state(EventPhase.PREPARED))
    # An agent that learns of the probe soon reports that it can run it.
    assert len(it.wait(10.0)) == 2
    first, refused, plain = it.app.reports()
    assert "probe" not in first and "probe" not in plain
    assert refused["probe"] == {"state": "ready", "run": "r.1", "events": {}}
    assert it.observed[-1] == AppAnswer(frozenset({"e1"}))


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_other_refusals_count_as_away_and_keep_the_report(reporting: Callable[..., ReporterFixture], status: int) -> None:
    it = reporting(problem(status, "no"))
    it.change(state(EventPhase.PREPARED))
    assert it.observed == [AppUnreachable(f"status {status}: because no", status in (401, 403, 404))] and len(it.backlog) == 1
    assert it.figures.value("tocsin_agent_reports_total", outcome="refused") == 1


def test_sequence_leaps_over_a_higher_one_that_the_app_has_seen(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(problem(409, "stale-seq"), problem(409, "stale-seq"))
    sent = it.change(state())
    assert [report["seq"] for report in sent] == [1001, 2002, 10003] and it.observed == [AppAnswer()]


def test_conflict_of_another_kind_is_tried_again_without_a_leap(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(problem(409, "changed-meanwhile"))
    assert [report["seq"] for report in it.change(state())] == [1001, 1002]


def test_number_of_waiting_reports_is_bounded(reporting: Callable[..., ReporterFixture]) -> None:
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
    [unreachable] = it.observed
    assert isinstance(unreachable, AppUnreachable)
    assert_text("agent.reports-not-kept", unreachable.reason, failure="No space left on device")
    assert [record.action for record in caplog.records] == ["agent_reports_unkept"]  # type: ignore[attr-defined]


# -- steps of stories


FIELDS: dict[str, str | int] = {"type": "Freeze", "phase": "PREPARE_FAILED", "attempt": 2}
LINE = WriteLog("warning", "agent_prepare_failed", "the node is not prepared", "e1", FIELDS)


def test_steps_go_with_the_next_report_once_and_with_the_clock_of_the_node(reporting: Callable[..., ReporterFixture]) -> None:
    taken = answer(steps=100)
    it = reporting(taken, taken, taken)
    it.reporter.note(LINE, "e1")
    # Its reports leave this event out, too.
    it.reporter.note(LINE, "no id of the app")
    it.reporter.note(LINE, "e1")
    [report] = it.change(state(EventPhase.PREPARING))
    text = "the node is not prepared (attempt 2)"
    step = {"at": to_text(1000), "event_id": "e1", "action": "agent_prepare_failed", "text": text, "level": "warning"}
    assert report["steps"] == [{"number": 1000, **step}, {"number": 1001, **step}] and report["sent"] == to_text(1000)
    assert it.change(state(EventPhase.PREPARED))[0]["steps"] == []


def test_steps_wait_on_disk_while_the_app_is_away_and_are_bounded(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(TransportFailure("away"), answer(steps=100), answer(steps=100))
    for _ in range(MAX_STEPS + 10):
        it.reporter.note(LINE, "e1")
    it.change(state(EventPhase.PREPARING))
    [kept] = it.backlog.first(10)
    assert len(kept["steps"]) == STEPS_OF_REPORT and kept["steps"][0]["number"] == 1010
    sent = it.wait(60)
    assert [len(report["steps"]) for report in sent] == [STEPS_OF_REPORT] * 2
    assert [step["number"] for report in sent for step in report["steps"]] == list(range(1010, 1210))


def test_a_former_release_of_the_app_gets_reports_as_it_knows_them(reporting: Callable[..., ReporterFixture]) -> None:
    it = reporting(problem(422, "invalid-content"))
    it.reporter.note(LINE, "e1")
    first, second = it.change(state(EventPhase.PREPARING))
    assert {"steps", "sent"} <= first.keys() and not {"steps", "sent"} & second.keys()
    [third] = it.change(state(EventPhase.PREPARED))
    assert not {"steps", "sent"} & third.keys() and it.observed == [AppAnswer(), AppAnswer(frozenset({"e1"}))]
    # A later release says that it takes steps.
    it.app.answers = [answer(steps=100)]
    it.change(state(EventPhase.APPROVED))
    it.reporter.note(LINE, "e1")
    assert len(it.change(state(EventPhase.STARTED))[0]["steps"]) == 1
