"""Rows come back as they went, keys are legal and sort, names are checked, intents expire."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from shared.leases.profiles import PROFILES
from shared.leases.rows import (
    INTENTS,
    MAX_ORDERS,
    PARTITIONS,
    SERVERS,
    Fleet,
    Intent,
    MoveLimits,
    Partition,
    Server,
    active_intents,
    fleet_key,
    join_expected,
    join_numbers,
    parse_fleet,
    parse_intent,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
    split_expected,
    split_numbers,
)
from shared.storage.limits import check_key, check_value
from shared.storage.ports import Props, Row
from shared.web.fields.types import NAME, NodeName


def row(rk: str, props: Props) -> Row:
    check_key("RowKey", rk)
    for name, value in props.items():
        check_value(name, value)
    return Row("t:f", rk, props, "e", 0, 0)


@pytest.mark.parametrize("limits", [MoveLimits(), MoveLimits(max_per_server=3)])
def test_a_fleet_comes_back_as_it_went(limits: MoveLimits) -> None:
    fleet = Fleet(1024, PROFILES["fast"], limits, 3, 2, 17)
    assert parse_fleet(fleet.props()) == fleet


def test_a_server_may_have_its_part_of_what_the_minimum_of_servers_needs() -> None:
    assert Fleet(1024, minimum=3).most == 342
    assert Fleet(1024, limits=MoveLimits(max_per_server=7)).most == 7


@given(st.integers(0, 99_999), st.integers(0, 2**63 - 1))
def test_a_partition_comes_back_as_it_went(number: int, epoch: int) -> None:
    partition = Partition(number, "s7", "i", epoch, 1_800_000_000_000)
    assert parse_partition(row(partition_key(number), partition.props())) == partition


@given(st.lists(st.integers(0, 99_999), max_size=20))
def test_a_server_comes_back_as_it_went(orders: list[int]) -> None:
    server = Server("s7", "draining", "i", 12, "fd1", 16, 0.5, tuple(orders), tuple(reversed(orders)))
    assert parse_server(row(server_key("s7"), server.props())) == server


def test_the_longest_orders_fit_a_property() -> None:
    text = join_numbers(range(9_000, 9_000 + MAX_ORDERS))
    check_value("take", text)
    assert len(split_numbers(text)) == MAX_ORDERS


def test_what_is_expected_of_servers_comes_back() -> None:
    expected = (("s.7", (5, 9)), ("s-8_x", (12,)))
    assert join_expected(expected) == "s.7:5,9 s-8_x:12"
    assert split_expected(join_expected(expected)) == expected and split_expected("") == ()


def test_keys_sort_partitions_before_servers() -> None:
    keys = [partition_key(9), partition_key(10), partition_key(9_999), server_key("A"), server_key("z")]
    assert keys == sorted(keys)
    assert PARTITIONS[0] <= keys[2] < PARTITIONS[1] <= SERVERS[0] <= keys[3] < keys[4] < SERVERS[1]
    assert "fleet" < INTENTS[0] < INTENTS[1] <= PARTITIONS[0]


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "-a", "a-", "é", "a" * 65, "a\n", "a.b", "A", "a_b", "a" * 64, "a" * 41, "a" * 40])
def test_tenants_fleets_and_servers_may_be_called_what_they_may_be_called_over_http(name: str) -> None:
    def taken(make: Callable[[], object]) -> bool:
        try:
            make()
        except ValueError:
            return False
        return True

    assert taken(lambda: fleet_key("t", name)) == taken(lambda: fleet_key(name, "f")) == (NAME.fullmatch(name) is not None)
    with pytest.raises(ValueError, match="a server's name must be 1 to 64 of"):
        server_key("-")
    assert taken(lambda: server_key(name)) == taken(lambda: TypeAdapter(NodeName).validate_python(name))


def test_intents_come_back_and_expire() -> None:
    wanted = [
        Intent("offline", 4, note="bad data", author="key tsn_1", expires=2_000),
        Intent("prohibit", 5, "s1"),
        Intent("prohibit", server="s2"),
        Intent("drain", server="s3", expires=1_000),
        Intent("pin", 6, "s1"),
        Intent("bump", 7, epoch=3),
    ]
    stored = [parse_intent(row(intent.key, intent.props()).props) for intent in wanted]
    assert stored == wanted
    assert len({intent.key for intent in wanted}) == len(wanted)
    assert [intent.text for intent in wanted[:3]] == ["offline of partition 4", "prohibit of partition 5 for s1", "prohibit of s2"]
    found = active_intents(stored, 1_000)
    assert (found.offline, found.prohibited, found.drained) == ({4}, {(5, "s1")}, {"s2"})
    assert (found.pins, found.bumps) == (((6, "s1"),), ((7, 3),))
    assert active_intents(stored, 2_000).offline == frozenset()
