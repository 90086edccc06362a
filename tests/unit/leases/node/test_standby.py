"""Standby assignments of the partitions of servers that seem to have ended: all planners choose the same, and a later plan overrules
them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import permutations

import pytest

from shared.leases.node.keeper_state import KeeperState
from shared.leases.node.standby import StandbyAssignments
from shared.leases.planner_input import PlannerInput
from shared.leases.rows import ActiveIntents, Expected, Fleet, Partition, Server

KEY = "demo:search"
SERVERS = {name: Server(name, "live", f"{name}1", 9) for name in "abc"}


def facts(owners: dict[int, str], servers: dict[str, Server] = SERVERS) -> PlannerInput:
    """owners: the server of each partition, '' for none."""
    partitions = {number: Partition(number, owner, f"{owner}1" if owner else "", 4) for number, owner in owners.items()}
    return PlannerInput(Fleet(len(owners)), ActiveIntents(), partitions, servers)


def servers_with_orders(name: str, take: Collection[int] = (), drop: Collection[int] = ()) -> dict[str, Server]:
    return SERVERS | {name: replace(SERVERS[name], take=tuple(take), drop=tuple(drop))}


def moments(ended: int, moving: int) -> list[PlannerInput]:
    """Partition `moving` on its way to b, while a, which has `ended`, is silent: ordered from c, or from b itself; released; taken."""
    b, c = (number for number in range(4) if number not in (ended, moving))
    rest = {ended: "a", b: "b", c: "c"}
    ordered, bumped = servers_with_orders("b", [moving]), servers_with_orders("b", [moving], [moving])
    moved = ordered | {"c": replace(SERVERS["c"], drop=(moving,))}
    return [
        facts(rest | {moving: "c"}, moved),
        facts(rest | {moving: "b"}, bumped),
        facts(rest | {moving: ""}, ordered),
        facts(rest | {moving: "b"}, ordered),
        facts(rest | {moving: "b"}),
    ]


@pytest.mark.parametrize(("ended", "moving"), list(permutations(range(4), 2)))
def test_every_planner_names_the_same_standby_at_each_moment_of_a_hand_over(ended: int, moving: int) -> None:
    assert [each.standby_assignments({"a"}) for each in moments(ended, moving)] == 5 * [{"c": (("a", (ended,)),)}]


def test_the_server_that_was_ordered_to_take_a_partition_is_its_standby() -> None:
    for name in "bc":
        assert facts({0: "a", 1: ""}, servers_with_orders(name, [0])).standby_assignments({"a"}) == {name: (("a", (0,)),)}


def test_orders_to_one_that_ends_count_for_nothing() -> None:
    owners = {0: "a", 1: "b", 2: "c"}
    assert facts(owners, servers_with_orders("a", [1, 2])).standby_assignments({"a"}) == facts(owners).standby_assignments({"a"})


class Looks:
    """The part of a scanner that expects `ended`, and its keeper_state."""

    def __init__(self, expected: Expected) -> None:
        self.keeper_state = KeeperState(lambda: 1.0)
        self.assignments = StandbyAssignments(KEY, "b", self.keeper_state, {}, lambda: 1.0, lambda: 1)
        self.keeper_state.set_expected(expected, 9.0)


@pytest.mark.parametrize("gone", [True, False])
def test_a_plan_that_knows_of_an_end_leaves_nothing_to_inherit(gone: bool) -> None:
    looks = Looks((("a", (0,)),))
    servers = {name: row for name, row in SERVERS.items() if name != "a"} if gone else SERVERS | {"a": replace(SERVERS["a"], state="dead")}
    looks.assignments.planned(facts({0: "a"}, servers))
    assert looks.keeper_state.expected_servers() == []
    looks.keeper_state.inherit_partitions("a", 9.0)
    assert looks.keeper_state.wanted_partitions() == []


def test_a_plan_of_before_the_end_leaves_what_is_expected() -> None:
    looks = Looks((("a", (0,)),))
    looks.assignments.planned(facts({0: "a"}))
    assert looks.keeper_state.expected_servers() == ["a"]
    looks.keeper_state.inherit_partitions("a", 9.0)
    assert looks.keeper_state.wanted_partitions() == [0]
