"""The caller probe on a node: what may run, when it runs, and what is counted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.core.clock import steady
from shared.maintenance.agent.caller_probe import MOST_WAITING, ORDER_LASTS, CallerProber, ProbeConsent, ProbeOrder, ProbeTarget
from shared.maintenance.model import ProbeIn

from .byte_server import peer, saying

TARGET = ProbeTarget("http://db.example/ping", "", 0.2, 5.0, 250)
CONSENT = ProbeConsent(frozenset({"db.example"}), {"reads": ("true",)})
BEFORE, OUT = ProbeOrder(TARGET, {"e1": "before"}), ProbeOrder(TARGET, {"e1": "out"})
LONGEST = 60.0
"""Seconds that anything may take on a machine that does much else."""


def until(done: Callable[[], Any]) -> None:
    end = time.monotonic() + LONGEST
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def counted(prober: CallerProber, order: ProbeOrder | None = None, phase: str = "before", event_id: str = "e1") -> tuple[int, int, int]:
    """Let an answer of the app repeat its order. Return the numbers of answers, failures and slow answers."""
    prober.follow(BEFORE if order is None else order)
    found = ((prober.report() or {}).get("events", {})).get(event_id, {}).get(phase, {"buckets": {}, "failures": 0, "slow": 0})
    return sum(found["buckets"].values()), found["failures"], found["slow"]


class Service:
    """The probed service. It answers at once unless `open` is unset. `asked`: number of probes."""

    def __init__(self) -> None:
        self.asked, self.good, self.open = 0, True, threading.Event()
        self.open.set()

    def ask(self, target: ProbeTarget) -> bool:
        self.asked += 1
        self.open.wait(LONGEST)
        return self.good


@pytest.fixture
def service() -> Iterator[Service]:
    it = Service()
    yield it
    it.open.set()


@pytest.fixture
def prober(service: Service) -> Iterator[CallerProber]:
    it = CallerProber(CONSENT, run="r", steady=steady, ask=service.ask)
    yield it
    it.close()


def test_probes_count_in_the_phase_of_the_last_answer_and_the_app_takes_the_results(prober: CallerProber, service: Service) -> None:
    assert prober.report() is None
    assert prober.follow(ProbeOrder(TARGET)) and not prober.follow(ProbeOrder(TARGET))
    assert prober.report() == {"state": "ready", "run": "r.1", "events": {}} and service.asked == 0
    prober.follow(BEFORE)
    until(lambda: counted(prober)[0] >= 2)
    service.good = False
    prober.follow(OUT)
    until(lambda: counted(prober, OUT, "out")[1] >= 2)
    ProbeIn.model_validate(prober.report())
    prober.follow(ProbeOrder(TARGET))
    # What was counted is still reported.
    assert counted(prober, ProbeOrder(TARGET))[0] >= 2
    # Another bound is another series.
    assert prober.follow(ProbeOrder(ProbeTarget(TARGET.url, "", 0.2, 5.0, 100)))
    assert prober.report() == {"state": "ready", "run": "r.2", "events": {}}
    prober.follow(ProbeOrder())
    assert prober.report() is None


def test_probes_between_answers_of_different_phases_count_for_neither(prober: CallerProber, service: Service) -> None:
    prober.follow(BEFORE)
    until(lambda: service.asked >= 2)
    prober.follow(OUT)
    until(lambda: counted(prober, OUT, "out")[0])
    assert counted(prober, OUT, "before") == (0, 0, 0)


def test_a_service_that_stands_still_is_asked_on_time_by_a_bounded_number_of_callers(prober: CallerProber, service: Service) -> None:
    service.open.clear()
    prober.follow(BEFORE)
    until(lambda: service.asked == MOST_WAITING)
    service.open.set()
    until(lambda: sum(counted(prober)[:2]) >= MOST_WAITING)


class HandClock:
    """A steady clock that a test moves. It stands still in between."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def callers() -> int:
    """Return the number of probes under way."""
    return sum(thread.name == "caller" for thread in threading.enumerate())


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def timed(service: Service, clock: HandClock) -> Iterator[CallerProber]:
    """A prober on a clock that the test moves, with its first probe under way."""
    it = CallerProber(CONSENT, run="r", steady=clock, ask=service.ask)
    service.open.clear()
    it.follow(BEFORE)
    until(lambda: service.asked == 1)
    yield it
    it.close()


@pytest.mark.parametrize(("took", "result"), [(0.2, (1, 0, 0)), (0.3, (1, 0, 1)), (5.5, (0, 1, 0))])
def test_answers_after_the_bound_are_slow_and_those_after_the_time_limit_are_failures(
    timed: CallerProber, service: Service, clock: HandClock, took: float, result: tuple[int, int, int]
) -> None:
    timed.close()
    clock.now += took
    service.open.set()
    until(lambda: counted(timed) == result)


def test_probes_during_which_the_machine_itself_paused_are_not_counted(timed: CallerProber, service: Service, clock: HandClock) -> None:
    clock.now += 4.0
    until(lambda: service.asked == 2)
    service.open.set()
    until(lambda: not callers())
    # The second one began after the pause.
    assert counted(timed) == (1, 0, 0)


def test_probing_ends_when_the_app_falls_silent(timed: CallerProber, service: Service, clock: HandClock) -> None:
    clock.now += ORDER_LASTS + 1
    service.open.set()
    until(lambda: not any(thread.name == "caller-probe" for thread in threading.enumerate()))
    assert service.asked == 1


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (ProbeTarget("http://db.example:8080/", "", 1, 1), "probe.hosts of the node's file does not list db.example:8080"),
        (ProbeTarget("http://169.254.169.254/metadata", "", 1, 1), "probe.hosts of the node's file does not list 169.254.169.254"),
        (ProbeTarget("http://db.example.evil/", "", 1, 1), "probe.hosts of the node's file does not list db.example.evil"),
        (ProbeTarget("", "writes", 1, 1), "probe.commands of the node's file has no writes"),
        (ProbeTarget("", "true", 1, 1), "probe.commands of the node's file has no true"),
    ],
)
def test_the_app_can_name_only_what_the_file_of_the_node_lists(
    prober: CallerProber, service: Service, target: ProbeTarget, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    prober.follow(ProbeOrder(target, {"e1": "before"}))
    assert prober.report() == {"state": why, "run": "r.1", "events": {}}
    assert service.asked == 0 and not [thread for thread in threading.enumerate() if thread.name == "caller-probe"]
    assert [getattr(each, "action", "") for each in caplog.records] == ["agent_probe_refused"]


@pytest.mark.parametrize(
    "url", ["http://db.example/", "https://db.example:443/x", "HTTP://DB.example", "http://db.example:80", "http://[fd00::1]:9/"]
)
def test_hosts_are_compared_without_case_and_with_the_port(url: str) -> None:
    consent = ProbeConsent(frozenset({"db.example", "db.example:443", "db.example:80", "[fd00::1]:9"}))
    prober = CallerProber(consent, run="r", steady=steady)
    prober.follow(ProbeOrder(ProbeTarget(url, "", 1, 1)))
    assert (prober.report() or {})["state"] == "ready"


@pytest.mark.parametrize(("status", "good"), [(204, True), (302, True), (404, False), (503, False)])
def test_an_answer_below_400_is_a_good_one(status: int, good: bool) -> None:
    with peer(saying(status, b"")) as server:
        prober = CallerProber(ProbeConsent(frozenset({server.url.removeprefix("http://")})), run="r", steady=steady)
        order = ProbeOrder(ProbeTarget(f"{server.url}/ping?deep", "", 0.2, LONGEST), {"e1": "before"})
        until(lambda: counted(prober, order)[0 if good else 1])
        prober.close()
    assert counted(prober, order)[1 if good else 0] == 0
    assert server.heard[0].startswith(b"GET /ping?deep HTTP/1.1") and b"authorization" not in server.heard[0].lower()


def test_a_command_succeeds_by_its_exit_code_and_is_ended_with_its_children_at_its_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOCSIN_KEY", "a-secret")
    child = tmp_path / "child"
    consent = ProbeConsent(
        commands={
            "good": ("sh", "-c", 'test -z "$TOCSIN_KEY"'),
            "bad": ("false",),
            "none": ("/no/such/program",),
            "slow": ("sh", "-c", f"sleep 600 & echo $! > {child}.new; mv {child}.new {child}; wait"),
        }
    )
    for command, at in {"good": 0, "bad": 1, "none": 1}.items():
        prober = CallerProber(consent, run="r", steady=steady)
        order = ProbeOrder(ProbeTarget("", command, 0.2, LONGEST), {"e1": "before"})
        until(lambda it=prober, order=order: sum(counted(it, order)))
        assert counted(prober, order)[1 - at] == 0
        prober.close()
    prober = CallerProber(consent, run="r", steady=steady)
    prober.follow(ProbeOrder(ProbeTarget("", "slow", 60.0, 1.0), {"e1": "before"}))
    until(child.exists)
    until(lambda: not _lives(int(child.read_text())))
    prober.close()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
