"""The liveness check: it finds a fair way to wait for ever, and is not misled by an unfair one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.model.checking.checker import Report, Violation
from tests.model.checking.fair import Fairness, Promise, broken, components, leads_to, walk

STEPS = {
    # A lamp that flickers for ever. It may be switched off at any time.
    "lamp": {"on": [("flicker", "off")], "off": [("flicker", "on"), ("put out", "out")], "out": []},
    # As the lamp, but it can be put out whether it is on or off.
    "steady": {"on": [("flicker", "off"), ("put out", "out")], "off": [("flicker", "on"), ("put out", "out")], "out": []},
    # It gets stuck.
    "stuck": {"on": [("flicker", "off"), ("break", "broken")], "off": [("put out", "out")], "broken": [], "out": []},
}


class Lamp:
    def __init__(self, kind: str) -> None:
        self.steps = STEPS[kind]

    def initial(self) -> str:
        return "on"

    def successors(self, state: str) -> Iterator[tuple[str, Callable[[], str]]]:
        for label, to in self.steps[state]:
            yield label, lambda to=to: to

    def key(self, state: str) -> str:
        return state

    def check(self, state: str) -> None:
        if state == "burning":
            raise Violation("burning")


OUT = Promise[str]("out", lambda state: state != "out", lambda before, after: after == "out")


def fair(label: str) -> str | None:
    return label if label != "break" else None


def test_what_is_possible_only_now_and_then_may_be_left_out_for_ever() -> None:
    report = leads_to(Lamp("lamp"), [OUT], fair)
    assert report.violation == "out: never, in a fair run"
    assert report.trace == ["(from here round and round)", "flicker", "flicker"]


def test_what_is_always_possible_is_done_in_the_end() -> None:
    assert leads_to(Lamp("steady"), [OUT], fair).violation is None


def test_nobody_has_to_be_fair_to_what_is_not_fair() -> None:
    assert leads_to(Lamp("steady"), [OUT], lambda label: "flicker" if label == "flicker" else None).violation is not None


def test_a_state_in_which_nothing_goes_on_is_a_fair_end() -> None:
    report = leads_to(Lamp("stuck"), [OUT], fair)
    assert report.violation is not None and report.trace[:1] == ["break"]


def test_each_promise_is_looked_at_by_itself() -> None:
    dark = Promise[str]("dark", lambda state: state == "on", lambda before, after: after == "off")
    assert leads_to(Lamp("lamp"), [dark], fair).violation is None
    assert leads_to(Lamp("lamp"), [dark, OUT], fair).violation == "out: never, in a fair run"


def test_safety_is_checked_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, "fire", {"on": [("burn", "burning")], "burning": []})
    report = leads_to(Lamp("fire"), [OUT], fair)
    assert (report.violation, report.trace) == ("burning", ["burn"])


def test_components_of_a_graph() -> None:
    follow = {0: [1], 1: [2], 2: [0, 3], 3: [4], 4: [3, 5], 5: []}
    assert sorted(sorted(found) for found in components(6, lambda at: follow[at])) == [[0, 1, 2], [3, 4], [5]]


def test_a_strongly_fair_action_is_done_although_it_is_possible_only_now_and_then() -> None:
    graph = walk(Lamp("lamp"), [OUT], fair, 100, Report())
    assert broken(graph, [OUT], 0) is not None
    assert broken(graph, [OUT], 0, Fairness(strong=lambda action: action == "put out")) is None


def test_a_fair_part_of_an_unfair_set_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Strong fairness forbids to return to the landing for ever, and not to stay in the hall.
    hall = {"on": [("go", "hall"), ("put out", "out")], "hall": [("stay", "yard"), ("return", "on")], "yard": [("stay", "hall")], "out": []}
    monkeypatch.setitem(STEPS, "hall", hall)
    graph = walk(Lamp("hall"), [OUT], lambda label: label if label == "put out" else None, 100, Report())
    trace = broken(graph, [OUT], 0, Fairness(strong=lambda action: True))
    assert trace is not None and "go" in trace and set(trace[trace.index("(from here round and round)") + 1 :]) == {"stay"}


def test_what_happens_a_finite_number_of_times_is_in_no_endless_part() -> None:
    graph = walk(Lamp("lamp"), [OUT], fair, 100, Report())
    assert broken(graph, [OUT], 0, Fairness(finite=lambda label: label == "flicker")) is None


def test_an_action_that_owes_nothing_may_be_left_out_for_ever() -> None:
    graph = walk(Lamp("steady"), [OUT], fair, 100, Report())
    assert broken(graph, [OUT], 0, Fairness(unfair=lambda action: action == "put out")) is not None
