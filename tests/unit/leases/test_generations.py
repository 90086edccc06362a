"""Partitions of two counts that share keys, and the next steps of a resize."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.leases import generations, rules
from shared.leases.generations import ResizeProgress
from shared.leases.rows import Fleet, Partition, Server
from shared.leases.rules import Holding, ServerSession

COUNTS = st.integers(1, 24)
OWNER = Server("a", "live", "a1", 1)
DEAD = replace(OWNER, state="dead")


def resizing(former: int, partitions: int, generation: int = 2) -> Fleet:
    return Fleet(partitions, generation=generation, former=former)


@given(COUNTS, COUNTS)
def test_two_partitions_share_keys_exactly_when_they_are_equal_modulo_the_divisor(former: int, partitions: int) -> None:
    shared = {(key % partitions, key % former) for key in range(lcm(former, partitions))}
    found = {(number, other) for number in range(partitions) for other in generations.overlapping_partitions(number, partitions, former)}
    assert found == shared


@given(COUNTS, COUNTS, st.data())
def test_a_row_opens_only_when_all_it_shares_keys_with_are_closed_and_above_all_their_epochs(
    former: int, partitions: int, data: st.DataObject
) -> None:
    fleet = resizing(former, partitions)
    closed = data.draw(st.lists(st.booleans(), min_size=former, max_size=former))
    epochs = data.draw(st.lists(st.integers(0, 9), min_size=max(former, partitions), max_size=max(former, partitions)))
    rows = {
        number: Partition(number, epoch=epochs[number], generation=2, closed=True)
        if number >= former or closed[number]
        else Partition(number, "a", "a1", epochs[number])
        for number in range(max(former, partitions))
    }
    found = {row.number: row for row in generations.opened_rows(rows, fleet)}
    for number in range(partitions):
        shares = {key % former for key in range(lcm(former, partitions)) if key % partitions == number}
        assert (number in found) == all(closed[other] for other in shares)
        if number in found:
            row = found[number]
            assert (row.generation, row.closed, row.owner) == (2, False, "")
            assert row.epoch == max(epochs[number], *(epochs[other] for other in shares))
    assert all(number < partitions for number in found)


def test_a_row_that_is_missing_keeps_all_it_shares_keys_with_closed() -> None:
    rows = {number: Partition(number, generation=2, closed=True) for number in (0, 2, 3)}
    assert [row.number for row in generations.opened_rows(rows, resizing(2, 4))] == [0, 2]


@pytest.mark.parametrize(
    ("row", "server", "closes"),
    [
        (Partition(0, epoch=4), None, True),
        (Partition(0, "a", "a1", 4), OWNER, False),
        (Partition(0, "a", "a1", 4), DEAD, True),
        (Partition(0, "a", "a0", 4), OWNER, True),
        (Partition(0, "a", "a1", 4), None, True),
        (Partition(0, epoch=4, generation=2), None, False),
        (Partition(0, epoch=4, generation=1, closed=True), None, False),
        (Partition(0, epoch=4, generation=3), None, False),
    ],
)
def test_only_what_nobody_acts_on_is_closed_and_keeps_its_epoch(row: Partition, server: Server | None, closes: bool) -> None:
    found = generations.closed_row(row, server, 2)
    assert (found is not None) == closes
    assert found is None or found == Partition(0, epoch=4, generation=2, closed=True)


def test_a_row_beyond_the_count_that_was_left_closed_opens_under_a_later_generation_and_counts_on() -> None:
    rows = {0: Partition(0, epoch=9, generation=3, closed=True), 1: Partition(1, epoch=5, generation=2, closed=True)}
    assert generations.opened_rows(rows, resizing(1, 2, 3)) == [Partition(0, epoch=9, generation=3), Partition(1, epoch=9, generation=3)]


def test_progress_counts_what_is_closed_and_what_is_open_again() -> None:
    rows = [
        Partition(0, generation=2, closed=True),
        Partition(1, "a", "a1"),
        Partition(2, generation=2),
        Partition(3, generation=2, closed=True),
        Partition(7, generation=2),
    ]
    fleet = resizing(3, 4)
    assert generations.resize_progress(rows, fleet) == ResizeProgress(2, 3, 4, 2, 1)
    assert generations.resize_progress(rows, replace(fleet, former=0)) is None
    assert not ResizeProgress(2, 3, 4, 3, 3).done and ResizeProgress(2, 3, 4, 3, 4).done


def test_a_server_claims_only_under_the_generation_it_works_by_and_nothing_that_is_closed() -> None:
    session = ServerSession("k", "b", "b1", generation=2)
    assert rules.is_claimable(Partition(0, generation=2), None, session)
    assert not rules.is_claimable(Partition(0, generation=1), None, session)
    assert not rules.is_claimable(Partition(0, generation=3), None, session)
    assert not rules.is_claimable(Partition(0, generation=2, closed=True), None, session)


def test_what_is_released_under_a_newer_generation_is_closed_for_the_former_at_once() -> None:
    session = ServerSession("k", "b", "b1", generation=2, leaving={0: Holding(7, "e", 1), 1: Holding(3, "e", 2)})
    assert rules.released_row(session, 0, 5) == Partition(0, epoch=7, since=5, generation=2, closed=True)
    assert rules.released_row(session, 1, 5) == Partition(1, epoch=3, since=5, generation=2)


def test_what_is_held_under_another_generation_is_outdated() -> None:
    session = ServerSession("k", "b", "b1", generation=2, held={4: Holding(7, "e", 1), 0: Holding(3, "e", 2), 1: Holding(3, "e", 1)})
    assert rules.outdated_holdings(session) == [1, 4]


def test_the_planner_starts_from_orders_then_from_who_has_what_a_partition_shares_keys_with() -> None:
    rows = {
        0: Partition(0, "a", "a1", since=7, generation=2),
        1: Partition(1, "b", "b1", since=7),
        2: Partition(2, generation=2),
        3: Partition(3, since=7, generation=2, closed=True),
        4: Partition(4, since=7, generation=2),
    }
    servers = {
        "a": replace(OWNER, take=(1, 2)),
        "c": Server("c", "live", "c1", 1, take=(2, 4), generation=2),
        "d": Server("d", "dead", "d1", 1, take=(3,), generation=2),
    }
    assert generations.planned_owners(rows, servers, resizing(2, 4)) == {1: "b", 2: "c", 3: "b"}
    assert generations.planned_owners(rows, servers, replace(resizing(2, 5), former=0)) == {2: "c"}
    assert generations.planned_owners(rows, servers, Fleet(5)) == {}


@pytest.mark.parametrize(("partitions", "seconds"), [(8, 0.25), (2000, 2.0), (10_000, 10.0)])
def test_the_more_rows_the_less_often_they_are_read(partitions: int, seconds: float) -> None:
    assert generations.poll_interval(Fleet(partitions), 0.25) == seconds
