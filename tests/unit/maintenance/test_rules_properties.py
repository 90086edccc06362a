"""Random fleets under random maintenance, with reports in any order: nodes that go down, approvals, and which events end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.maintenance import rules
from shared.maintenance.decisions import approvals, domain_guard
from shared.maintenance.rows import EventRow, FleetEvents, NodeEntry, NodePhaseName, NodeRow
from shared.maintenance.rule_settings import MaintenanceSettings

MINUTE = 60_000
SETTINGS = MaintenanceSettings(early=True, catch_up=0)


@dataclass
class Machine:
    """A node's agent, and Azure for its one event."""

    name: str
    domain: str
    not_before: int
    phase: NodePhaseName = "WAITING"
    started: bool = False
    gone: bool = False
    disabled: bool = False
    seq: int = 0

    @property
    def event_id(self) -> str:
        return f"e-{self.name}"

    def report(self) -> NodeRow:
        self.seq += 1
        status = "Started" if self.started else "Scheduled"
        entry = NodeEntry(
            self.event_id, "Freeze", status, self.phase, None if self.started else self.not_before, resources=(f"vm-{self.name}",)
        )  # type: ignore[arg-type]
        return NodeRow(
            self.name, f"vm-{self.name}", "set", self.seq, 0, "west", self.domain, disabled=self.disabled, entries=(entry,), caught_up=True
        )


class Fleet:
    """The app's side: a view, changed by the production rules alone."""

    def __init__(self, machines: list[Machine], settings: MaintenanceSettings = SETTINGS) -> None:
        self.machines, self.settings, self.now = machines, settings, 1_000_000
        self.view = FleetEvents({}, {})
        self.leases: dict[str, tuple[str, int]] = {}
        self.posted: list[str] = []

    def report(self, machine: Machine, *, answered: bool = True) -> None:
        accepted = rules.receive(self.view, machine.report(), self.settings, {}, True, self.now)
        assert isinstance(accepted, rules.AcceptedAgentReport)
        self.view = FleetEvents({**self.view.nodes, machine.name: accepted.node}, accepted.events, accepted.monitors)
        for leased in accepted.answer.approvals:
            other = self.leases.get(leased.id)
            assert other is None or other[0] == machine.name or self.now >= other[1], "two agents have one approval"
            self.leases[leased.id] = (machine.name, self.now + leased.lease)
        if answered:
            self.obey(machine, accepted.answer)

    def report_together(self, one: Machine, other: Machine) -> None:
        """Two instances decide on the same view. If both write a row, the second decides again, as after a conflict in the store."""
        before = self.view
        first, second = (rules.receive(before, each.report(), self.settings, {}, True, self.now) for each in (one, other))
        assert isinstance(first, rules.AcceptedAgentReport)
        assert isinstance(second, rules.AcceptedAgentReport)
        self._write(before, first)
        if _rows(before, first) & _rows(before, second):
            self.report(other)
        else:
            self._write(before, second)
            self.obey(other, second.answer)
        self.obey(one, first.answer)

    def _write(self, before: FleetEvents, accepted: rules.AcceptedAgentReport) -> None:
        monitors = accepted.monitors if accepted.monitors != before.monitors else self.view.monitors
        events = {key: event for key, event in accepted.events.items() if event != before.events.get(key)}
        self.view = FleetEvents({**self.view.nodes, accepted.node.node: accepted.node}, {**self.view.events, **events}, monitors)

    def obey(self, machine: Machine, answer: rules.AgentAnswer) -> None:
        mine = machine.event_id
        if machine.phase == "WAITING" and any(order.event_id == mine for order in answer.orders):
            machine.phase = "PREPARING"
        elif machine.phase == "PREPARED" and (mine not in answer.holds or any(leased.event_id == mine for leased in answer.approvals)):
            machine.phase = "APPROVED"
            self.posted.append(mine)
            made = rules.finish(self.view, f"{mine}.1", machine.name, "posted", 200, self.now)
            if isinstance(made, EventRow):
                self.view = replace(self.view, events={**self.view.events, mine: made})

    def step(self, machine: Machine) -> None:
        """Carry out the next step of the node or of Azure."""
        match machine.phase:
            case "WAITING":
                if self.now >= machine.not_before - 30_000:
                    machine.phase = "PREPARING"
            case "PREPARING":
                machine.phase, machine.disabled = "PREPARED", True
            case "APPROVED":
                machine.phase, machine.started = "STARTED", True
            case "STARTED":
                machine.phase, machine.gone = "RESTORING", True
            case "RESTORING":
                machine.phase, machine.disabled = "DONE", False
            case _:
                pass

    def down(self) -> set[str]:
        return {machine.domain for machine in self.machines if machine.disabled}


def _rows(before: FleetEvents, accepted: rules.AcceptedAgentReport) -> set[str]:
    found = {key for key, event in accepted.events.items() if event != before.events.get(key)}
    return found | ({"monitors"} if accepted.monitors != before.monitors else set())


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    count = draw(st.integers(2, 6))
    return Fleet(
        [
            Machine(f"n{number}", str(draw(st.integers(0, 2))), 1_000_000 + draw(st.integers(20, 30)) * MINUTE + number)
            for number in range(count)
        ]
    )


STEPS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["report", "report", "go", "lost", "both"]), st.integers(0, 8)), max_size=120)


@settings(max_examples=300, deadline=None)
@given(fleets(), STEPS)
def test_early_approvals_never_take_two_fault_domains_down_and_one_agent_has_each(fleet: Fleet, steps: list[tuple[int, str, int]]) -> None:
    for machine in fleet.machines:
        fleet.report(machine)
    for number, what, seconds in steps:
        # All of it well before anybody's NotBefore: what goes down was let down.
        fleet.now += seconds * 1000
        machine = fleet.machines[number % len(fleet.machines)]
        other = fleet.machines[(number + 1) % len(fleet.machines)]
        if what == "go":
            fleet.step(machine)
        elif what == "both":
            fleet.report_together(machine, other)
        else:
            fleet.report(machine, answered=what == "report")
        assert len(fleet.down()) <= 1
    assert len(fleet.posted) == len(set(fleet.posted)), "one event is approved once"


@settings(max_examples=150, deadline=None)
@given(fleets(), STEPS)
def test_agents_that_prepared_by_themselves_are_let_go_one_fault_domain_after_the_other(
    fleet: Fleet, steps: list[tuple[int, str, int]]
) -> None:
    fleet.settings = MaintenanceSettings(catch_up=0)
    for machine in fleet.machines:
        fleet.report(machine)
    for number, what, seconds in steps:
        fleet.now += seconds * 1000
        machine = fleet.machines[number % len(fleet.machines)]
        if what == "go" and machine.phase == "WAITING":
            machine.phase, machine.disabled = "PREPARED", True
        elif what == "go":
            fleet.step(machine)
        elif what == "both":
            fleet.report_together(machine, fleet.machines[(number + 1) % len(fleet.machines)])
        else:
            fleet.report(machine, answered=what == "report")
        assert len({each.domain for each in fleet.machines if each.phase in ("APPROVED", "STARTED", "RESTORING")}) <= 1


@settings(max_examples=60, deadline=None)
@given(fleets())
def test_with_agents_that_report_all_get_their_turn_before_their_time(fleet: Fleet) -> None:
    for _ in range(60):
        for machine in fleet.machines:
            fleet.report(machine)
            fleet.step(machine)
        fleet.now += 5000
    assert {machine.phase for machine in fleet.machines} == {"DONE"}
    assert fleet.now < min(machine.not_before for machine in fleet.machines) - 30_000
    statuses = {event.status for event in fleet.view.events.values()}
    assert statuses == {"completed"}


@settings(max_examples=200, deadline=None)
@given(fleets(), STEPS, st.randoms(use_true_random=False))
def test_an_event_ends_only_when_no_agent_lists_it(fleet: Fleet, steps: list[tuple[int, str, int]], chance: object) -> None:
    for number, what, seconds in steps:
        fleet.now += seconds * 10_000
        machine = fleet.machines[number % len(fleet.machines)]
        fleet.step(machine) if what == "go" else fleet.report(machine)
        fleet.view = rules.sweep(fleet.view, fleet.settings, fleet.now)
        for each in fleet.view.nodes.values():
            for entry in each.entries:
                if entry.listed:
                    assert fleet.view.events[entry.event_id].open


def test_decisions_of_one_moment_that_pass_each_other_take_two_domains_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property can fail: without a row that both write, both are let go."""
    plain = rules.receive

    def apart(view: FleetEvents, *arguments: object) -> object:
        accepted = plain(view, *arguments)  # type: ignore[arg-type]
        assert isinstance(accepted, rules.AcceptedAgentReport)
        return replace(accepted, monitors=replace(accepted.monitors, decisions=0))

    def let_go() -> set[str]:
        fleet = _two_apart(MaintenanceSettings(catch_up=0))
        for machine in fleet.machines:
            machine.phase, machine.disabled = "PREPARED", True
        fleet.report_together(*fleet.machines)
        return {machine.name for machine in fleet.machines if machine.phase == "APPROVED"}

    assert let_go() == {"a"}
    monkeypatch.setattr(rules, "receive", apart)
    assert let_go() == {"a", "b"}


def _two_apart(settings: MaintenanceSettings = SETTINGS) -> Fleet:
    fleet = Fleet([Machine("a", "0", 3_000_000), Machine("b", "1", 3_000_001)], settings)
    for machine in fleet.machines:
        fleet.report(machine)
    return fleet


def _prepared_as_allowed() -> Fleet:
    """Two machines of different domains that report in turn, and prepare when they are asked to."""
    fleet = _two_apart()
    for _ in range(4):
        for machine in fleet.machines:
            fleet.report(machine)
            if machine.phase in ("WAITING", "PREPARING"):
                fleet.step(machine)
    return fleet


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("block_reason", lambda event, view, settings, now, begin=False: None),
        ("down_reason", lambda node, view, settings, now, ahead_of=None, passed_over=(): None),
    ],
)
def test_without_the_guard_both_domains_go_down(monkeypatch: pytest.MonkeyPatch, name: str, planted: object) -> None:
    """The properties can fail: a guard that is blind lets both go."""
    monkeypatch.setattr(domain_guard, name, planted)
    monkeypatch.setattr(approvals, "block_reason", domain_guard.block_reason)
    fleet = _prepared_as_allowed()
    assert len(fleet.down()) == 2


def test_with_the_guard_only_the_first_goes_down() -> None:
    fleet = _prepared_as_allowed()
    assert fleet.down() == {"0"}
