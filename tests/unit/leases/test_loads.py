"""Published loads: the stored form is compact and stays what it is, smoothing follows time alone, and plans know what to make of gaps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.leases.loads import (
    HOLD,
    KEPT,
    MOST,
    SMOOTHING,
    WARM_UP,
    fleet_loads,
    join_loads,
    load_at,
    observe,
    reported_loads,
    server_loads,
    smoothed,
    split_loads,
)
from shared.leases.node.published_loads import PublishedLoads
from shared.leases.rows import MAX_PARTITIONS, Fleet, HttpServerState, MoveLimits, Partition, Server, join_holds
from shared.storage.limits import check_value

NOW = 1_800_000_000_000
LONG_AGO = NOW - 3_600_000


@given(st.dictionaries(st.integers(0, MAX_PARTITIONS - 1), st.floats(0, MOST), max_size=40), st.integers(1, 2**31))
def test_loads_come_back_almost_as_they_went(loads: dict[int, float], generation: int) -> None:
    text = join_loads(generation, loads)
    of, found = split_loads(text)
    assert found.keys() == loads.keys() and (of == generation or not loads)
    for number, load in loads.items():
        assert math.isclose(found[number], load, rel_tol=2e-4, abs_tol=1e-9)
    assert join_loads(generation, found) == text, "what is read and written again stays"


def test_the_loads_of_all_partitions_fit_a_property() -> None:
    text = join_loads(2**31, dict.fromkeys(range(MAX_PARTITIONS), 1.5))
    assert len(text) == 32_512
    check_value("loads", text)


@pytest.mark.parametrize("text", ["1:20", "1:20:AAAA", "1:60:AAA", "x:20:AAA", "1:zz:AAA", "1:20:A+A", "::", "1::"])
def test_loads_that_cannot_be_read_are_none(text: str) -> None:
    assert split_loads(text)[1] == {}


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 600), st.floats(0, 600))
def test_smoothing_depends_on_time_and_not_on_how_often_it_is_asked(value: float, number: float, one: float, two: float) -> None:
    at_once = smoothed(value, number, one + two)
    assert math.isclose(at_once, smoothed(smoothed(value, number, one), number, two), rel_tol=1e-9, abs_tol=1e-6)
    assert min(value, number) - 1e-6 <= at_once <= max(value, number) + 1e-6


def test_a_report_holds_until_the_next_one() -> None:
    load = observe(None, 10.0, 100.0)
    assert load_at(load, 500.0) == 10.0
    # In the first minute all numbers weigh the same.
    assert load_at(observe(observe(None, 10.0, 0.0), 30.0, 5.0), 20.0) == 25.0
    load = observe(load, 20.0, 500.0)
    assert load_at(load, 500.0) == 10.0
    assert math.isclose(load_at(load, 500.0 + SMOOTHING), 20 - 10 / math.e)
    # A report that is replaced at once counts for nothing.
    assert math.isclose(load_at(observe(observe(load, 1e6, 600.0), 20.0, 600.0), 600.0), load_at(load, 600.0))


# -- what a server's row says


def test_a_row_keeps_the_loads_of_partitions_that_were_given_up_for_some_minutes() -> None:
    now = [0.0]
    loads = PublishedLoads(lambda: now[0])
    assert loads.text([1, 2], 1) == ""
    loads.report(1, 5.0)
    loads.report(2, 7.0)
    loads.report(3, 9.0)
    now[0] = WARM_UP - 1
    assert loads.text([1, 2], 1) == "", "a load of which little is known is not published, nor kept"
    loads.report(1, 5.0)
    now[0] = 2 * WARM_UP
    assert split_loads(loads.text([1, 2], 1))[1].keys() == {1, 2}
    assert split_loads(loads.text([2], 1)) == split_loads(join_loads(1, {1: 5.0, 2: 7.0}))
    now[0] = 2 * WARM_UP + KEPT
    assert split_loads(loads.text([2], 1))[1].keys() == {2}, "a report on an owned partition holds for ever"
    loads.clear()
    assert loads.text([2], 2) == ""


def test_the_loads_of_the_former_incarnation_are_the_beginning_of_the_own_ones() -> None:
    now = [0.0]
    loads = PublishedLoads(lambda: now[0])
    loads.inherit(join_loads(3, {1: 5.0, 2: 7.0}), 3)
    loads.report(2, 1.0)
    assert split_loads(loads.text([1, 2], 3)) == split_loads(join_loads(3, {1: 5.0, 2: 7.0}))
    now[0] = KEPT
    assert split_loads(loads.text([1, 2], 3))[1].keys() == {2}
    assert math.isclose(split_loads(loads.text([1, 2], 3))[1][2], 1.0, rel_tol=1e-3)
    loads.inherit(join_loads(2, {9: 5.0}), 3)
    assert 9 not in split_loads(loads.text([], 3))[1], "another generation's numbers stand for other keys"


def test_the_app_smooths_what_servers_report_over_http_by_their_rows() -> None:
    row = Server("a", "live", "i", 1, scans=False, http=HttpServerState(((1, 7), (2, 7)), "5:15", "3:8", released=NOW))
    first = reported_loads(row, {1: 10.0, 2: 10.0, 3: 99.0}, 5.0, NOW)
    assert split_loads(first) == split_loads(join_loads(3, {1: 10.0, 2: 10.0})), "the first report counts in full; 3 is another server's"
    row = replace(row, loads=first)
    second = split_loads(reported_loads(row, {1: 20.0}, SMOOTHING, NOW))[1]
    assert math.isclose(second[1], 20 - 10 / math.e, rel_tol=1e-3) and math.isclose(second[2], 10, rel_tol=1e-3)
    # The load of a partition that it has released stays until its next owner's figures are smooth.
    row = replace(row, http=replace(row.http, held=((1, 7),)))
    assert split_loads(reported_loads(row, {}, 5.0, NOW + 1000))[1].keys() == {1, 2}
    assert split_loads(reported_loads(row, {}, 5.0, NOW + round(KEPT * 1000)))[1].keys() == {1}


# -- what a plan knows


def server(name: str, held: dict[int, float] | None = None, **more: object) -> Server:
    row = Server(name, "live", f"i-{name}", 1, holds=join_holds(held or ()), loads=join_loads(1, held or {}))
    return replace(row, **more)


def owned(number: int, owner: str, since: int = LONG_AGO) -> Partition:
    return Partition(number, owner, f"i-{owner}", 1, since)


FLEET = Fleet(4, limits=MoveLimits(moves_per_minute=5))
PARTITIONS = {0: owned(0, "a"), 1: owned(1, "a"), 2: owned(2, "b"), 3: owned(3, "b")}


def servers(*rows: Server) -> dict[str, Server]:
    return {row.name: row for row in rows}


def test_shares_stay_equal_while_nobody_publishes_and_during_a_resize_and_beside_former_releases() -> None:
    both = servers(server("a", {0: 3.0, 1: 1.0}), server("b"))
    found = fleet_loads(FLEET, PARTITIONS, both, NOW)
    assert found is not None and found.budget == 5 and not found.resting
    assert fleet_loads(FLEET, PARTITIONS, servers(server("a"), server("b")), NOW) is None
    assert fleet_loads(FLEET, PARTITIONS, servers(server("a", {0: 0.0}), server("b")), NOW) is None
    assert fleet_loads(replace(FLEET, former=2), PARTITIONS, both, NOW) is None
    assert fleet_loads(replace(FLEET, generation=2), PARTITIONS, both, NOW) is None
    for row in (server("c", loads=None), server("c", loads=None, scans=False), server("c", loads=None, state="dead")):
        equal = row.scans and row.state == "live"
        assert (fleet_loads(FLEET, PARTITIONS, both | {"c": row}, NOW) is None) == equal
        assert (server_loads(FLEET, [*both.values(), row]) is None) == equal


def test_unpublished_partitions_count_as_the_mean_of_the_others() -> None:
    found = fleet_loads(FLEET, PARTITIONS, servers(server("a", {0: 3.0, 1: 1.0}), server("b")), NOW)
    assert found is not None
    assert [round(found.weights[number], 2) for number in range(4)] == [3, 1, 2, 2]
    by_server = server_loads(FLEET, [server("a", {0: 3.0, 1: 1.0}), server("b", holds=join_holds([2, 3]))])
    assert by_server is not None
    assert {name: round(sum(held.values()), 2) for name, held in by_server.items()} == {"a": 4, "b": 4}


@pytest.mark.parametrize("state", ["live", "dead"])
def test_a_partition_that_has_just_moved_keeps_the_load_that_its_former_owner_published(state: str) -> None:
    rows = servers(server("a", {0: 30.0, 1: 1.0, 2: 9.0}, state=state), server("b", {2: 500.0, 3: 1.0}))
    for age, expected in ((10, 9), (SMOOTHING + 1, 500)):
        found = fleet_loads(FLEET, PARTITIONS | {2: owned(2, "b", NOW - round(age * 1000))}, rows, NOW)
        assert found is not None and round(found.weights[2]) == expected
    # Its new owner has not reported anything.
    found = fleet_loads(FLEET, PARTITIONS, servers(rows["a"], server("b", {3: 1.0})), NOW)
    assert found is not None and round(found.weights[2]) == 9


def test_moves_of_the_last_minute_are_subtracted_from_the_budget_whoever_planned_them() -> None:
    rows = servers(server("a", {0: 3.0, 1: 1.0}), server("b"))
    recent = PARTITIONS | {0: owned(0, "a", NOW - 59_000), 1: owned(1, "a", NOW - 61_000), 2: owned(2, "b", NOW + 1_000)}
    found = fleet_loads(FLEET, recent, rows, NOW)
    assert found is not None and found.budget == 3 and found.resting == {0, 1, 2}
    later = fleet_loads(FLEET, recent, rows, NOW + round(HOLD * 1000))
    assert later is not None and later.budget == 5 and later.resting == {2}


def test_orders_to_take_partitions_of_living_owners_are_known() -> None:
    rows = servers(server("a", {0: 3.0}), server("b", take=(0, 2, 3)), server("c", state="dead"))
    found = fleet_loads(FLEET, PARTITIONS | {3: owned(3, "c")}, rows, NOW)
    assert found is not None and found.coming == {0: "b"}
