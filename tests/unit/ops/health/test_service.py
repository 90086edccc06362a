"""Probes: what counts as ready, that the answer is at most a second old, and that it tells no secret."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.clock import Millis, Offset, SettableClock
from shared.core.errors import OutcomeUnknown, Rejected, Unavailable, UnsafeSettings
from shared.core.version import version
from shared.ops.health import routes as functions
from shared.ops.health.rules import UNMEASURED, HealthObservation, judge, judge_clocks
from shared.ops.health.service import ExpectedWork, HealthProbe
from shared.scheduler.shard.event_clock import ClockFinding
from shared.scheduler.wakes.service import SweepTimes
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, PK_TICKS, SWEEPS
from shared.storage.ports import Upsert
from shared.web import serve
from shared.web.local_client import LocalClient, LocalReply
from shared.web.routes import Routes
from tests.texts import assert_text

NOW: Millis = 1_800_000_000_000
PERIODS = {"scheduler_scan": 15.0, "retention_scan": 3600.0}


def seen(**change: Any) -> HealthObservation:
    fresh = {"scheduler_scan": NOW - 10_000, "retention_scan": NOW - 3_000_000}
    return HealthObservation(**{"now": NOW, "reachable": True, "ticks": fresh, "up_ms": 600_000} | change)


def test_all_well_is_ready() -> None:
    verdict = judge(seen(), PERIODS)
    assert verdict.wrong == []
    assert verdict.timers["scheduler_scan"] == (10.0, False)


@pytest.mark.parametrize(
    ("change", "key", "values"),
    [
        ({"reachable": False}, "health.storage-silent", {}),
        ({"clock": ClockFinding("wrong", Offset(-11_400.0, -11_000.0), -11_000)}, "health.clock", {"ms": -11000}),
        ({"clock": ClockFinding("wide", Offset(11_000.0, 16_000.0), 0)}, "health.clock", {"ms": 11000}),
        ({"ticks": {"scheduler_scan": NOW - 301_000, "retention_scan": NOW}}, "health.timer-silent", {"timer": "scheduler_scan"}),
        ({"ticks": {"scheduler_scan": NOW, "retention_scan": NOW - 10_801_000}}, "health.timer-silent", {"timer": "retention_scan"}),
        ({"ticks": {"retention_scan": NOW}}, "health.timer-silent", {"timer": "scheduler_scan"}),
    ],
)
def test_bad_health_is_reported(change: dict[str, Any], key: str, values: dict[str, Any]) -> None:
    assert_text(key, judge(seen(**change), PERIODS).wrong, **values)


@pytest.mark.parametrize(
    "clock", [UNMEASURED, ClockFinding("good", Offset(-11_000.0, 3.0), 0), ClockFinding("wide", Offset(9_000.0, 20_000.0), 0)]
)
def test_bounds_that_prove_no_great_difference_are_no_fault(clock: ClockFinding) -> None:
    assert judge(seen(clock=clock), PERIODS).wrong == []


def test_a_timer_never_seen_is_waited_for_after_a_start() -> None:
    verdict = judge(seen(ticks={}, up_ms=299_000), PERIODS)
    assert verdict.wrong == []
    assert verdict.timers["scheduler_scan"] == (None, False)


class Probe:
    def __init__(self) -> None:
        self.clock = SettableClock(NOW)
        self.tables = MemoryTables(self.clock)
        routes = self.routes = Routes[HealthProbe]()
        routes.add(functions.probes, lambda health: None)
        routes.add(functions.readiness, lambda health: health)
        self.health = HealthProbe(
            self.tables, self.clock, ExpectedWork(PERIODS), measured=lambda: ClockFinding("wrong", Offset(3.2, 8.4), 9)
        )
        self.client = LocalClient(routes, self.get_app)

    async def get_app(self) -> HealthProbe:
        return self.health


@pytest.fixture
async def probe() -> Probe:
    probe = Probe()
    await probe.tables.ensure(ALL_TABLES)
    return probe


async def test_ready_answers_the_findings(probe: Probe) -> None:
    await probe.tables.write(SWEEPS, PK_TICKS, [Upsert("scheduler_scan", {"at": NOW - 1500})])
    answer = await probe.client.get("/api/readyz")
    assert answer.status == 200
    assert answer.json() == {
        "status": "ready",
        "version": version(),
        "storage": {"reachable": True},
        "clock_skew_ms": 3,
        "clock": {"state": "wrong", "low_ms": 3, "high_ms": 9, "correction_ms": 9},
        "timers": {"scheduler_scan": {"age_s": 1.5, "late": False}, "retention_scan": {"age_s": None, "late": False}},
        "clocks": {"timer_age_s": None, "message_age_s": None, "running": "none"},
        "wakes": None,
    }


async def test_not_ready_is_a_problem_with_the_findings_in_it(probe: Probe) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("AccountKey=secret")

    probe.tables.query = away  # type: ignore[method-assign]
    answer = await probe.client.get("/api/readyz")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "not-ready", "5")
    assert (answer.json()["storage"], answer.json()["version"]) == ({"reachable": False}, version())
    assert b"secret" not in answer.body


@pytest.mark.parametrize(
    ("failure", "detail"),
    [
        (Unavailable("AccountKey=secret"), "Storage does not answer."),
        (OutcomeUnknown("AccountKey=secret"), "Storage does not answer."),
        (Rejected("AccountKey=secret"), "The service failed unexpectedly."),
        (UnsafeSettings("AccountKey=secret"), "The service does not start with its settings."),
    ],
)
async def test_a_process_that_cannot_open_its_application_answers_the_document_of_readyz(
    probe: Probe, failure: Exception, detail: str
) -> None:
    async def closed() -> HealthProbe:
        raise failure

    answer = await LocalClient(probe.routes, closed).get("/api/readyz")
    assert_not_ready_without_an_application(answer)
    assert answer.json()["detail"].startswith(detail) and b"secret" not in answer.body


async def test_a_process_whose_application_does_not_open_in_time_answers_the_document_of_readyz(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "ANSWER_WITHIN", 0.01)
    opened = asyncio.Event()

    async def opening() -> HealthProbe:
        await opened.wait()
        return probe.health

    answer = await LocalClient(probe.routes, opening).get("/api/readyz")
    assert_not_ready_without_an_application(answer)
    opened.set()


def assert_not_ready_without_an_application(answer: LocalReply) -> None:
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "not-ready", "5")
    members = answer.json()
    assert (members["storage"], members["version"], members["timers"]) == ({"reachable": False}, version(), {})
    assert members["clock"]["state"] == "missing" and members["clock_skew_ms"] is None


async def test_a_flood_of_probes_asks_storage_once_a_second(probe: Probe) -> None:
    for _ in range(50):
        await probe.client.get("/api/readyz")
    assert probe.tables.transactions["query"] == 1
    await probe.clock.advance(1.0)
    await probe.client.get("/api/readyz")
    assert probe.tables.transactions["query"] == 2


async def test_alive_needs_no_application(probe: Probe) -> None:
    probe.app = None  # type: ignore[assignment]
    answer = await probe.client.get("/api/healthz")
    assert (answer.status, answer.json()) == (200, {"status": "alive"})


@pytest.mark.parametrize(
    ("began", "answered", "running"),
    [(NOW - 90_000, 0, "timer"), (NOW - 90_001, NOW - 180_000, "message"), (NOW - 90_001, NOW - 180_001, "none"), (0, 0, "none")],
)
def test_the_clock_by_which_sweeps_come_is_named(began: int, answered: int, running: str) -> None:
    assert judge_clocks(SweepTimes(began, 0, answered), NOW).running == running


@pytest.mark.parametrize(("looked", "age"), [(NOW - 2_500, 2.5), (NOW + 5, 0.0), (0, None)])
def test_the_age_of_the_last_look_at_coming_events_is_told(looked: int, age: float | None) -> None:
    wakes = judge(seen(looked=looked), PERIODS).wakes
    assert wakes is not None and wakes.look_age_s == age
    assert judge(seen(), PERIODS).wakes is None


async def test_a_look_that_cannot_be_read_is_left_out_and_the_rest_is_told() -> None:
    async def away() -> Millis:
        raise Unavailable("the account is away")

    async def looked() -> Millis:
        return NOW - 7_000

    clock = SettableClock(NOW)
    tables = MemoryTables(clock)
    await tables.ensure(ALL_TABLES)
    for read, expected in ((away, None), (looked, 7.0)):
        verdict = await HealthProbe(tables, clock, ExpectedWork(PERIODS, read)).check()
        assert verdict.reachable and (verdict.wakes.look_age_s if verdict.wakes else None) == expected
