"""The hooks of an agent on Kubernetes, against an API server: who leaves, who may refuse, what is put back, and what is never touched.

Time passes only while a hook sleeps, so that each test has the real pauses and limits and waits for none of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.agent.kubernetes import drain_node
from tests.kubernetes_api import NODE, OTHER, Call, KubernetesApi, Refusal, rights_of_the_role
from tests.paths import ROOT
from tests.waiting import DEADLINE, all_output, run

PROGRAM = ROOT / "infra" / "agent" / "kubernetes" / "drain_node.py"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
EVENT = "e1b2c3d4-0000-4000-8000-000000000001"


class Clock:
    """The time of the hook and of the server. woken: called after each pause with the seconds since the beginning."""

    def __init__(self) -> None:
        self.passed, self._lock = 0.0, threading.Lock()
        self.woken: Callable[[float], None] = lambda passed: None

    def monotonic(self) -> float:
        return 1_000.0 + self.passed

    def time(self) -> float:
        return 1_800_000_000.0 + self.passed

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.passed += seconds
        self.woken(self.passed)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    found = KubernetesApi(tmp_path, clock.time)
    found.begin()
    state = tmp_path / "state"
    state.mkdir()
    event = {"TOCSIN_EVENT_ID": EVENT, "TOCSIN_TYPE": "Reboot", "TOCSIN_NOT_BEFORE": "", "TOCSIN_DEADLINE_SECONDS": "40"}
    for name, value in {**found.environment(), **event, "TOCSIN_STATE": str(state)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(drain_node, "time", clock)
    yield found
    found.end()


def hook(name: str) -> int:
    return drain_node.main([name])


def impact_in(seconds: float, clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: str = "Reboot") -> None:
    """Let the event's NotBefore be so far away."""
    monkeypatch.setenv("TOCSIN_NOT_BEFORE", datetime.fromtimestamp(clock.time() + seconds, UTC).isoformat().replace("+00:00", "Z"))
    monkeypatch.setenv("TOCSIN_TYPE", kind)


def once(resource: str, action: Callable[[], Any], *, number: int = 1) -> Callable[[Call], None]:
    """Return a function that does something before the given call for a resource is answered."""
    seen: list[Call] = []

    def before(call: Call) -> None:
        if call.right[1:] == tuple(resource.split()):
            seen.append(call)
            if len(seen) == number:
                action()

    return before


# -- who leaves


def test_node_is_cordoned_for_the_event_and_all_pods_leave_but_those_that_belong_to_the_machine(api: KubernetesApi) -> None:
    api.add("web-1")
    api.add("alone", owner="")
    api.add("task", owner="Job")
    api.add("logs", namespace="kube-system", owner="DaemonSet")
    api.add("proxy", namespace="kube-system", owner="Node", mirror=True)
    api.add("ended", owner="Job", phase="Succeeded")
    api.add("broken", owner="Job", phase="Failed")
    elsewhere = api.add("web-2", node=OTHER)
    assert hook("prepare") == 0
    assert api.is_cordoned() and api.annotations() == {"tocsin/cordoned-for": EVENT} and not api.is_cordoned(OTHER)
    assert api.on_node() == ["logs", "proxy", "ended", "broken"] and elsewhere.deletion is None
    assert {body["metadata"]["name"] for body in api.evictions()} == {"web-1", "alone", "task"}


def test_node_is_cordoned_before_the_first_pod_leaves_and_is_prepared_only_when_the_last_one_has_ended(
    api: KubernetesApi, clock: Clock
) -> None:
    api.add("slow", lingers=25)
    cordoned: list[bool] = []
    api.before = once("pods/eviction create", lambda: cordoned.append(api.is_cordoned()))
    assert hook("prepare") == 0
    assert cordoned == [True] and clock.passed >= 25 and api.on_node() == []


def test_pod_that_the_scheduler_still_sends_to_the_cordoned_node_leaves_too(api: KubernetesApi) -> None:
    api.add("early", lingers=5)
    api.before = once("pods list", lambda: api.add("late"), number=2)
    assert hook("prepare") == 0
    assert api.on_node() == []


def test_pod_that_tolerates_the_cordon_and_comes_again_does_not_hold_the_node_up(api: KubernetesApi, clock: Clock) -> None:
    api.add("clinging-1", lingers=5)
    clock.woken = lambda passed: None if passed < 4 or "clinging-2" in api.on_node() else api.add("clinging-2") and None
    assert hook("prepare") == 0
    assert api.on_node() == ["clinging-2"] and api.evictions("clinging-2") == []


def test_empty_node_is_prepared_within_seconds(api: KubernetesApi, clock: Clock) -> None:
    assert hook("prepare") == 0
    assert api.is_cordoned() and clock.passed <= 3


# -- budgets


def test_budget_is_kept_to_and_pods_leave_one_after_the_other_as_new_ones_come_up(api: KubernetesApi) -> None:
    api.minimum["web"], api.recreated_after = 2, 4.0
    for number in range(3):
        api.add(f"web-{number}", app="web", lingers=3)
    assert hook("prepare") == 0
    assert api.on_node() == [] and api.lowest["web"] == 2


def test_eviction_that_is_refused_is_asked_for_again(api: KubernetesApi) -> None:
    api.add("web-1")
    api.refusals["web-1"] = [Refusal(429, BUDGET), Refusal(429, BUDGET)]
    assert hook("prepare") == 0
    assert len(api.evictions("web-1")) == 3 and api.on_node() == []


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(429, BUDGET),
        # Two budgets for one pod: the server creates a Status that says no.
        Refusal(201, "This pod has more than one PodDisruptionBudget", code=500),
        Refusal(500, "This pod has more than one PodDisruptionBudget"),
        Refusal(403, "the namespace is being terminated"),
        Refusal(504, "a webhook did not answer"),
    ],
)
def test_eviction_that_is_refused_to_the_end_fails_the_hook_in_time_and_names_pod_and_reason(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], refusal: Refusal
) -> None:
    impact_in(30, clock, monkeypatch, "Preempt")
    api.add("web-1")
    free = api.add("web-2")
    api.refusals["web-1"], api.stubborn = [refusal], {"web-1"}
    assert hook("prepare") == 1
    said = capfd.readouterr().err
    assert "still on the node: shop/web-1 (" in said and refusal.message in said and "web-2" not in said
    assert 25 <= clock.passed < 30 and api.on_node() == ["web-1"] and free.deletion is not None
    assert hook("restore") == 0 and not api.is_cordoned()


def test_budget_that_refuses_is_named_with_its_numbers(api: KubernetesApi, capfd: pytest.CaptureFixture[str]) -> None:
    api.minimum["db"] = 1
    api.add("db-0", app="db", owner="StatefulSet")
    assert hook("prepare") == 1
    assert "shop/db-0 (429 The disruption budget db needs 1 healthy pods and has 1 currently)" in capfd.readouterr().err


def test_pause_that_the_server_asks_for_is_kept_to(api: KubernetesApi, clock: Clock) -> None:
    api.add("web-1")
    api.refusals["web-1"] = [Refusal(429, BUDGET, retry_after=10)]
    assert hook("prepare") == 0
    assert 10 <= clock.passed < 15


def test_pause_that_is_longer_than_the_notice_is_cut_so_that_the_pod_is_asked_again(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    impact_in(30, clock, monkeypatch, "Preempt")
    api.add("web-1")
    api.refusals["web-1"] = [Refusal(429, BUDGET, retry_after=600)]
    assert hook("prepare") == 0
    assert clock.passed < 28 and api.on_node() == []


def test_evictions_that_each_take_long_end_with_the_time_of_the_hook(
    api: KubernetesApi, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(30):
        api.add(f"web-{number}")
    api.before = lambda call: clock.sleep(10) if call.right[1] == "pods/eviction" else None
    assert hook("prepare") == 1
    assert len(api.evictions()) < 20 and "no time was left to ask" in capfd.readouterr().err


# -- grace periods


def test_grace_period_that_does_not_fit_is_cut_and_one_that_fits_is_not(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    impact_in(30, clock, monkeypatch, "Preempt")
    api.add("long", grace=600, lingers=600)
    api.add("short", grace=20)
    assert hook("prepare") == 0
    assert api.evictions("long")[0]["deleteOptions"]["gracePeriodSeconds"] == 27
    assert "gracePeriodSeconds" not in api.evictions("short")[0]["deleteOptions"]
    assert clock.passed < 30


def test_grace_period_that_fits_before_the_impact_is_not_cut_to_the_time_of_the_hook(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    impact_in(300, clock, monkeypatch)
    api.add("long", grace=90, lingers=60)
    assert [hook("prepare"), hook("prepare")] == [1, 0]
    [eviction] = api.evictions("long")
    assert "gracePeriodSeconds" not in eviction["deleteOptions"] and 60 <= clock.passed <= 64


def test_grace_period_is_never_cut_to_nothing(api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_DEADLINE_SECONDS", "2.5")
    api.add("long", grace=600, lingers=600)
    assert hook("prepare") == 0
    assert {body["deleteOptions"]["gracePeriodSeconds"] for body in api.evictions()} == {1}


def test_freeze_cuts_no_grace_period(api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    impact_in(60, clock, monkeypatch, "Freeze")
    pod = api.add("long", grace=600, lingers=600)
    assert hook("prepare") == 1
    assert pod.deletion is not None and pod.deletion >= clock.time() + 500


def test_pod_that_another_drain_asked_to_leave_too_slowly_is_asked_to_hurry_once(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    impact_in(30, clock, monkeypatch, "Preempt")
    api.add("long", grace=600, lingers=600).end(None, clock.time())
    api.add("soon", grace=20, lingers=10).end(None, clock.time())
    assert hook("prepare") == 0
    assert [body["metadata"]["name"] for body in api.evictions()] == ["long"]


def test_pod_is_asked_to_hurry_only_once_where_the_servers_clock_is_ahead(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    impact_in(30, clock, monkeypatch, "Preempt")
    pod = api.add("long", grace=600, lingers=20)
    pod.end(None, clock.time())
    clock.woken = lambda passed: setattr(pod, "deletion", clock.time() + 60)
    assert hook("prepare") == 0 and len(api.evictions("long")) == 1


# -- the option that deletes


@pytest.mark.parametrize("kind", ["Preempt", "Terminate", "Redeploy", "Reboot", "Freeze"])
def test_pod_that_is_refused_is_deleted_in_the_last_seconds_if_the_option_says_so_and_the_machine_is_lost(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    impact_in(30, clock, monkeypatch, kind)
    api.rights.add(("", "pods", "delete"))
    api.minimum["db"] = 1
    pod = api.add("db-0", app="db", grace=600)
    code, is_lost = drain_node.main(["prepare", "--delete-refused"]), kind in ("Preempt", "Terminate")
    assert (code == 0) == is_lost == (pod.deletion is not None)
    deletions = [call.body for call in api.calls if call.right[2] == "delete"]
    assert [body["gracePeriodSeconds"] for body in deletions] == ([9] if is_lost else [])
    assert all(body["preconditions"] == {"uid": pod.uid} for body in deletions)
    assert not is_lost or 18 <= clock.passed <= 28


def test_option_deletes_nothing_while_the_impact_is_far_away(api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    impact_in(100, clock, monkeypatch, "Terminate")
    api.rights.add(("", "pods", "delete"))
    api.minimum["db"] = 1
    api.add("db-0", app="db")
    delete = ["prepare", "--delete-refused"]
    assert [drain_node.main(delete), drain_node.main(delete)] == [1, 1] and clock.passed == 76
    assert api.on_node() == ["db-0"] and drain_node.main(delete) == 0 and 88 <= clock.passed <= 98


def test_option_that_deletes_needs_a_right_that_the_role_does_not_give(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    impact_in(30, clock, monkeypatch, "Preempt")
    api.minimum["db"] = 1
    api.add("db-0", app="db")
    assert drain_node.main(["prepare", "--delete-refused"]) == 1
    assert "cannot delete pods" in capfd.readouterr().err and api.on_node() == ["db-0"]


# -- what is gone, and what changes meanwhile


def test_pod_that_is_gone_has_left(api: KubernetesApi) -> None:
    pod = api.add("web-1")
    api.before = once("pods/eviction create", lambda: api.pods.remove(pod))
    assert hook("prepare") == 0


def test_pod_of_the_same_name_on_another_node_is_left_alone(api: KubernetesApi) -> None:
    first = api.add("db-0", owner="StatefulSet")

    def move() -> None:
        api.pods.remove(first)
        api.add("db-0", owner="StatefulSet", node=OTHER)

    api.before = once("pods/eviction create", move)
    assert hook("prepare") == 0
    [second] = api.pods
    assert second.node == OTHER and second.deletion is None


def test_node_that_is_gone_is_no_failure_and_its_pods_are_still_looked_after(api: KubernetesApi) -> None:
    api.add("web-1")
    del api.nodes[NODE]
    assert [hook(name) for name in ("prepare", "emergency", "restore", "verify", "start")] == [0] * 5
    assert api.on_node() == []


@pytest.mark.parametrize("name", ["prepare", "restore"])
def test_change_of_the_node_in_between_is_read_and_the_hook_goes_on(api: KubernetesApi, name: str) -> None:
    if name == "restore":
        assert hook("prepare") == 0
    api.before = once("nodes patch", lambda: api.change_node(podCIDR="10.0.0.0/24"))
    assert hook(name) == 0
    assert api.is_cordoned() == (name == "prepare") and api.nodes[NODE]["spec"]["podCIDR"] == "10.0.0.0/24"


def test_cordon_of_somebody_else_in_between_is_not_taken_for_the_agents(api: KubernetesApi) -> None:
    api.before = once("nodes patch", lambda: api.change_node(unschedulable=True))
    assert hook("prepare") == 0 and api.annotations() == {}
    assert hook("restore") == 0 and api.is_cordoned()


def test_node_that_somebody_else_cordoned_is_drained_and_stays_cordoned(api: KubernetesApi) -> None:
    api.change_node(unschedulable=True)
    api.add("web-1")
    assert hook("prepare") == 0 and api.on_node() == []
    assert [hook("restore"), hook("verify")] == [0, 0] and api.is_cordoned()


def test_operator_keeps_the_node_cordoned_by_removing_the_annotation(api: KubernetesApi) -> None:
    assert hook("prepare") == 0
    api.nodes[NODE]["metadata"]["annotations"].clear()
    assert hook("restore") == 0 and api.is_cordoned()


def test_node_that_an_operator_uncordoned_in_between_is_cordoned_by_the_next_preparation(api: KubernetesApi) -> None:
    assert hook("prepare") == 0
    api.change_node(unschedulable=None)
    assert hook("prepare") == 0 and api.is_cordoned()
    assert hook("restore") == 0 and not api.is_cordoned() and api.annotations() == {}


def test_second_event_goes_on_where_the_first_was_and_one_restore_puts_the_node_back(
    api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.minimum["db"] = 1
    api.add("db-0", app="db")
    api.add("web-1")
    assert hook("prepare") == 1 and api.on_node() == ["db-0"]
    monkeypatch.setenv("TOCSIN_EVENT_ID", "e2")
    api.minimum.clear()
    assert hook("prepare") == 0 and api.annotations() == {"tocsin/cordoned-for": "e2"}
    assert len(api.evictions("web-1")) == 1
    assert hook("restore") == 0 and hook("restore") == 0 and not api.is_cordoned() and api.annotations() == {}


# -- the API server


def test_token_that_is_replaced_while_the_hook_runs_is_read_again(api: KubernetesApi) -> None:
    api.add("web-1")
    api.refusals["web-1"] = [Refusal(429, BUDGET)]
    api.before = once("pods list", api.renew_token, number=2)
    assert hook("prepare") == 0 and api.on_node() == []


def test_token_that_is_known_only_seconds_later_is_tried_again(api: KubernetesApi, clock: Clock) -> None:
    (api.account / "token").write_text("token-to-come")
    clock.woken = lambda passed: setattr(api, "token", "token-to-come") if passed >= 5 else None
    assert hook("prepare") == 0 and clock.passed >= 5


@pytest.mark.parametrize("name", ["prepare", "restore", "verify", "emergency"])
def test_server_that_is_away_for_ten_seconds_is_waited_for(api: KubernetesApi, clock: Clock, name: str) -> None:
    api.add("web-1")
    api.is_away = True

    clock.woken = lambda passed: setattr(api, "is_away", passed < 10)
    assert hook(name) == 0 and clock.passed >= 10
    assert ("web-1" in api.on_node()) == (name in ("restore", "verify"))


def test_node_of_an_event_that_was_called_off_just_before_its_time_has_the_whole_time_to_come_back(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hook("prepare") == 0
    impact_in(10, clock, monkeypatch)
    api.is_away = True

    clock.woken = lambda passed: setattr(api, "is_away", passed < 25)
    assert hook("restore") == 0 and not api.is_cordoned()


def test_server_that_goes_away_between_evictions_is_waited_for(api: KubernetesApi, clock: Clock) -> None:
    api.add("web-1", lingers=4)
    api.add("web-2", lingers=8)
    api.minimum[""] = 1

    clock.woken = lambda passed: setattr(api, "is_away", passed < 12)
    assert hook("prepare") == 0 and api.on_node() == [] and clock.passed >= 12


def test_server_that_stays_away_fails_the_hook_within_its_time(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOCSIN_DEADLINE_SECONDS", "20")
    api.is_away = True
    assert [hook(name) for name in ("prepare", "restore")] == [1, 1]
    assert clock.passed <= 40 and f"did not answer GET /api/v1/nodes/{NODE} in time" in capfd.readouterr().err


def test_server_that_is_overloaded_is_asked_again_after_the_pause_that_it_wants(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = api.answer
    answers = [(429, {"message": "too many requests"}, 7), (503, {}, 0)]
    monkeypatch.setattr(api, "answer", lambda *call: answers.pop(0) if answers else usual(*call))
    assert hook("prepare") == 0 and clock.passed >= 8


def test_server_that_asks_for_a_pause_longer_than_the_notice_is_asked_again_before_the_end(
    api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    impact_in(30, clock, monkeypatch, "Preempt")
    usual = api.answer
    answers: list[tuple[int, dict[str, Any], int]] = [(429, {}, 600)]
    monkeypatch.setattr(api, "answer", lambda *call: answers.pop(0) if answers else usual(*call))
    assert hook("prepare") == 0 and clock.passed < 20


def test_answer_that_is_not_of_an_api_server_is_not_taken_for_an_empty_node(api: KubernetesApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.add("web-1")
    usual = api.answer
    monkeypatch.setattr(api, "answer", lambda method, path, *rest: (200, {}, 0) if "/pods?" in path else usual(method, path, *rest))
    assert hook("prepare") == 1


@pytest.mark.parametrize("missing", ["nodes get", "nodes patch", "pods list"])
def test_right_that_is_missing_fails_the_hook_at_once_and_is_named(
    api: KubernetesApi, clock: Clock, capfd: pytest.CaptureFixture[str], missing: str
) -> None:
    resource, verb = missing.split()
    api.rights.remove(("", resource, verb))
    assert hook("prepare") == 1 and clock.passed == 0
    assert f"403 cannot {verb} {resource}" in capfd.readouterr().err


def test_server_with_a_certificate_of_somebody_else_gets_no_token(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "impostor"
    folder.mkdir()
    impostor = KubernetesApi(folder)
    impostor.begin()
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(impostor.port))
    try:
        assert hook("prepare") == 1
    finally:
        impostor.end()
    assert "certificate verify failed" in capfd.readouterr().err and impostor.calls == []


@pytest.mark.parametrize(("name", "said"), [("NODE_NAME", "spec.nodeName"), ("KUBERNETES_SERVICE_HOST", "run this in a pod")])
def test_variable_that_is_missing_is_named(
    api: KubernetesApi, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    monkeypatch.delenv(name)
    assert hook("prepare") == 1 and said in capfd.readouterr().err


def test_pod_without_an_account_says_so(api: KubernetesApi, capfd: pytest.CaptureFixture[str]) -> None:
    (api.account / "ca.crt").unlink()
    assert hook("prepare") == 1 and "automountServiceAccountToken" in capfd.readouterr().err


# -- the other hooks


@pytest.mark.parametrize("kind", ["Reboot", "Freeze"])
def test_emergency_cordons_and_waits_for_nobody(api: KubernetesApi, clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("TOCSIN_TYPE", kind)
    api.minimum["db"] = 1
    api.add("db-0", app="db")
    api.add("web-1", lingers=20)
    assert hook("emergency") == 0 and api.is_cordoned() and clock.passed == 0
    assert {body["metadata"]["name"] for body in api.evictions()} == (set() if kind == "Freeze" else {"db-0", "web-1"})
    assert hook("restore") == 0 and not api.is_cordoned()


def test_verify_waits_until_the_node_is_ready(api: KubernetesApi, clock: Clock) -> None:
    [ready] = api.nodes[NODE]["status"]["conditions"]
    ready["status"] = "Unknown"
    clock.woken = lambda passed: ready.update(status="True") if passed >= 20 else None
    assert hook("verify") == 0 and clock.passed >= 20


def test_verify_fails_for_a_node_that_does_not_become_ready_or_is_still_cordoned_by_an_agent(
    api: KubernetesApi, capfd: pytest.CaptureFixture[str]
) -> None:
    [ready] = api.nodes[NODE]["status"]["conditions"]
    ready["status"] = "False"
    assert hook("verify") == 1 and "its condition Ready is False" in capfd.readouterr().err
    ready["status"] = "True"
    assert hook("prepare") == 0
    assert hook("verify") == 1 and "still cordoned" in capfd.readouterr().err


def test_agent_whose_folder_was_lost_uncordons_what_a_former_one_cordoned(api: KubernetesApi) -> None:
    assert hook("prepare") == 0
    assert hook("start") == 0 and not api.is_cordoned()
    api.change_node(unschedulable=True)
    assert hook("start") == 0 and api.is_cordoned()


def test_agent_that_remembers_is_left_to_put_the_node_back_itself(api: KubernetesApi) -> None:
    assert hook("prepare") == 0
    Path(os.environ["TOCSIN_STATE"], "state.json").write_text("{}")
    assert hook("start") == 0 and api.is_cordoned()


@pytest.mark.parametrize("arguments", [[], ["drain"], ["prepare", "now"]])
def test_hook_that_does_not_exist_is_refused(arguments: list[str]) -> None:
    assert drain_node.main(arguments) == 2


# -- rights, and real processes


def test_hooks_use_each_right_of_the_role_and_no_other(api: KubernetesApi) -> None:
    api.minimum["web"] = 1
    for number in range(3):
        api.add(f"web-{number}", app="web", grace=600)
    assert [hook(name) for name in ("start", "prepare", "restore", "verify", "emergency", "restore")] == [0] * 6
    assert api.verbs() == rights_of_the_role()
    assert {call.path for call in api.calls if call.right[1] == "nodes"} == {f"/api/v1/nodes/{NODE}"}


@pytest.fixture
def real_api(tmp_path: Path) -> Iterator[KubernetesApi]:
    found = KubernetesApi(tmp_path)
    found.begin()
    yield found
    found.end()


def test_hook_that_was_killed_at_any_call_goes_on_when_it_is_run_again(real_api: KubernetesApi) -> None:
    api = real_api
    environment = {**os.environ, **api.environment(), "TOCSIN_EVENT_ID": EVENT, "TOCSIN_TYPE": "Reboot"}
    for number in range(3):
        api.add(f"web-{number}", app="web", lingers=0.3)
    api.minimum["web"] = 2
    for kill_at in ("nodes get", "nodes patch", "pods list", "pods/eviction create"):
        reached, held = threading.Event(), threading.Event()

        def hold(reached: threading.Event = reached, held: threading.Event = held) -> None:
            reached.set()
            assert held.wait(DEADLINE)

        api.before = once(kill_at, hold)
        command, output = [sys.executable, PROGRAM, "prepare"], subprocess.PIPE
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True)
        assert reached.wait(DEADLINE), kill_at
        process.send_signal(signal.SIGKILL)
        all_output(process, "the killed hook")
        api.before = lambda call: None
        held.set()
    done = run([sys.executable, str(PROGRAM), "prepare"], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert api.on_node() == [] and api.lowest["web"] == 2 and api.is_cordoned()
    done = run([sys.executable, str(PROGRAM), "restore"], env=environment)
    assert done.returncode == 0 and not api.is_cordoned() and api.annotations() == {}
