"""A VM that is lost in its maintenance: its event ends by the reports of others, and a person forgets the node."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

import pytest

from shared.core.errors import Problem
from shared.leases.rows import INTENTS
from shared.maintenance import rules
from shared.maintenance.rows import node_key
from shared.maintenance.rule_settings import MaintenanceSettings
from shared.storage.names import FLEETS, MAINTENANCE
from shared.storage.ports import RowQuery
from tests.unit.maintenance.joint_fleet import HOOKS, Fleet
from tests.unit.maintenance.service.test_sweep import KEY, SweptFleet

PREPARE: Final = MaintenanceSettings(guard="prepare", lead=60_000, catch_up=0, hand_off=20_000)


def second(fleet: Fleet, *living: str) -> None:
    """Let a second pass for the fleet; only the agents of `living` are there."""
    fleet.pass_time(1)
    for name in living:
        node = fleet.nodes[name]
        node.look()
        node.hook(True)
        node.report(lost=False)
    fleet.view = rules.sweep(fleet.view, fleet.settings, fleet.wall)


def lost_in_its_impact() -> tuple[Fleet, str]:
    """Return a fleet whose node `a` is lost once its event has started."""
    fleet = Fleet(PREPARE, random.Random(0), hooks=HOOKS)
    event_id = fleet.announce(["a"], notice=70)
    while fleet.listed[event_id]["EventStatus"] != "Started":
        second(fleet, *fleet.nodes)
        if fleet.posts:
            fleet.listed[event_id].update(EventStatus="Started", NotBefore="")
    second(fleet, *fleet.nodes)
    assert fleet.view.events[event_id].status == "started"
    return fleet, event_id


def test_an_event_ends_once_an_agent_that_listed_it_reports_twice_that_it_is_gone() -> None:
    fleet, event_id = lost_in_its_impact()
    for _ in range(40):
        second(fleet, "b", "c")
    assert fleet.view.events[event_id].status == "started", "others still list it"
    del fleet.listed[event_id]
    gone = fleet.wall
    while fleet.view.events[event_id].open:
        second(fleet, "b", "c")
        assert fleet.wall <= gone + 70_000
    assert fleet.wall >= gone + 60_000
    assert fleet.view.events[event_id].status == "completed"


def test_an_event_that_a_living_node_lists_stays_open_whatever_others_report() -> None:
    fleet, event_id = lost_in_its_impact()
    del fleet.listed[event_id]
    for _ in range(120):
        second(fleet, "b")
        # Its metadata service answers with an old document.
        fleet.nodes["c"].report(lost=False)
    assert fleet.view.events[event_id].status == "started"


def test_a_forgotten_node_counts_as_down_no_more_and_others_go_on() -> None:
    fleet, event_id = lost_in_its_impact()
    del fleet.listed[event_id]
    later = fleet.announce(["b"], notice=300)
    for _ in range(300 - 45):
        second(fleet, "b", "c")
    refused = rules.reservations.refusal(fleet.view.events[later], fleet.view, PREPARE, fleet.wall)
    assert refused is not None and refused.startswith("a of fault domain a")
    assert rules.may_forget(fleet.view.nodes["a"], fleet.view, fleet.wall)
    assert not rules.may_forget(fleet.view.nodes["b"], fleet.view, fleet.wall)
    fleet.view = replace(fleet.view, nodes={name: node for name, node in fleet.view.nodes.items() if name != "a"})
    second(fleet, "b", "c")
    assert rules.reservations.refusal(fleet.view.events[later], fleet.view, PREPARE, fleet.wall) is None


async def test_only_a_node_with_a_silent_agent_is_forgotten() -> None:
    fleet = await SweptFleet().open()
    await fleet.clock.advance(31_000)
    fleet.seq += 1
    for number in range(1, 6):
        await fleet.service.report("t", "db", fleet.body(number, "WAITING"))
    with pytest.raises(Problem) as refused:
        await fleet.service.forget("t", "db", "n1")
    assert (refused.value.status, refused.value.code) == (409, "agent-live")
    await fleet.service.forget("t", "db", "n0")
    assert await fleet.tables.get(MAINTENANCE, KEY, node_key("n0")) is None
    assert await fleet.tables.get(MAINTENANCE, KEY, node_key("n1")) is not None
    with pytest.raises(Problem) as unknown:
        await fleet.service.forget("t", "db", "n0")
    assert unknown.value.status == 404
    await fleet.service.report("t", "db", fleet.body(0, "WAITING"))
    assert "n0" in (await fleet.store.read(KEY, whole=True)).view.nodes, "a node that reports again is back"


async def test_partitions_may_return_to_a_forgotten_node() -> None:
    fleet = await SweptFleet().open()
    fleet.seq += 1
    for number in range(2):
        await fleet.service.report("t", "db", fleet.body(number, "PREPARING"))
    assert await drained(fleet) == {"n0", "n1"}
    await fleet.clock.advance(31_000)
    await fleet.service.forget("t", "db", "n0")
    assert await drained(fleet) == {"n1"}


async def drained(fleet: SweptFleet) -> set[str]:
    rows = await fleet.tables.query(RowQuery(FLEETS, KEY, first=INTENTS[0], end=INTENTS[1]))
    return {str(row.props["server"]) for row in rows.rows}
