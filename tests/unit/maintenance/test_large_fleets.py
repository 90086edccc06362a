"""Fleets of many nodes: how often their agents report, and what a report reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.maintenance import rules
from shared.maintenance.rows import EventRow, FleetEvents, MonitorsRow, NodeEntry, NodeRow
from shared.maintenance.rule_settings import MaintenanceSettings

NOW = 1_800_000_000_000
FAR = NOW + 900_000
EVENT = EventRow("e1", "set", "Freeze", "scheduled", NOW - 60_000, FAR, resources=("vm_n1",), listed=True)
SETTINGS = MaintenanceSettings(lead=30_000, hand_off=30_000, guard="prepare")


def node(number: int, phase: str = "FOREIGN", not_before: int = FAR) -> NodeRow:
    entry = NodeEntry("e1", "Freeze", "Scheduled", phase, not_before, resources=("vm_n1",))  # type: ignore[arg-type]
    return NodeRow(f"n{number}", f"vm_n{number}", "set", 7, NOW - 5_000, domain=str(number % 3), entries=(entry,))


def fleet(count: int, event: EventRow = EVENT) -> FleetEvents:
    nodes = {f"n{number}": node(number, "WAITING" if number == 1 else "FOREIGN", event.not_before or FAR) for number in range(count)}
    return FleetEvents(nodes, {"e1": event}, MonitorsRow("n2", "n3"))


def interval(view: FleetEvents, name: str) -> int:
    found = rules.receive(view, replace(view.nodes[name], seq=8), SETTINGS, {}, True, NOW)
    assert isinstance(found, rules.AcceptedAgentReport)
    return found.answer.next_report


@pytest.mark.parametrize(("count", "expected"), [(4, 5_000), (32, 5_000), (64, 10_000), (150, 20_000), (1000, 20_000)])
def test_agents_of_a_large_fleet_share_a_rate_while_their_nodes_only_wait(count: int, expected: int) -> None:
    assert interval(fleet(count), "n1") == interval(fleet(count), "n0") == expected


def test_monitors_report_every_five_seconds_in_a_fleet_of_any_size() -> None:
    assert interval(fleet(150), "n2") == interval(fleet(150), "n3") == 5_000


@pytest.mark.parametrize(("left", "expected"), [(91_000, 20_000), (90_000, 5_000), (0, 5_000)])
def test_a_node_reports_often_from_half_a_minute_before_its_partitions_leave(left: int, expected: int) -> None:
    view = fleet(150, replace(EVENT, not_before=NOW + left))
    assert interval(view, "n1") == expected


def test_a_report_that_repeats_the_last_one_of_a_node_that_asks_for_nothing_needs_its_own_row_only() -> None:
    view = fleet(150)
    assert not rules.needs_all_nodes(view, replace(view.nodes["n0"], seq=8), SETTINGS, NOW)
    asking = replace(view.nodes["n1"], seq=8)
    assert rules.asks_for_something(asking) and rules.needs_all_nodes(view, asking, SETTINGS, NOW)


def test_a_report_of_anything_new_needs_all_nodes() -> None:
    view = fleet(150)
    before = replace(view.nodes["n0"], seq=8)
    for changed in (
        replace(before, entries=()),
        replace(before, disabled=True),
        replace(before, entries=(replace(before.entries[0], not_before=FAR + 1),)),
        replace(before, node="new"),
    ):
        assert rules.needs_all_nodes(view, changed, SETTINGS, NOW)
    for event in (replace(EVENT, status="completed", ended=NOW), replace(EVENT, source="User"), rules.approve(EVENT, "ops", "", NOW)):
        assert event is not None and rules.needs_all_nodes(fleet(150, event), before, SETTINGS, NOW)


def test_a_quiet_report_is_answered_as_with_all_nodes() -> None:
    view = fleet(150)
    report = replace(view.nodes["n0"], seq=8)
    own = replace(view, nodes={"n0": view.nodes["n0"]})
    whole = rules.receive(view, report, SETTINGS, {}, True, NOW)
    narrow = rules.receive(own, report, SETTINGS, {}, False, NOW, size=150)
    assert isinstance(whole, rules.AcceptedAgentReport) and isinstance(narrow, rules.AcceptedAgentReport)
    assert narrow.answer == replace(whole.answer, monitors=narrow.answer.monitors)
    assert narrow.node == whole.node and narrow.events == view.events


def test_the_index_of_nodes_finds_names_and_scopes_in_any_case() -> None:
    a, b = replace(node(1), node="a", vm="VM_n1", scope="SET"), replace(node(1), node="b", scope="other")
    view = FleetEvents({"a": a, "b": b}, {"e1": EVENT})
    assert [each.node for each in view.named(EVENT)] == ["a"]
    assert [each.node for each in view.of_scope("Set")] == ["a"]
    assert [each.node for each, _ in view.reports("e1")] == ["a", "b"]
    assert (view.first_seen("sEt"), view.first_seen("other")) == (EVENT.seen, None)
