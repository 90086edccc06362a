"""Queries: ranges, conditions, selection, paging."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import Rejected
from shared.storage.memory import MemoryTables
from shared.storage.ports import ANY, Delete, Insert, RowQuery, Where

from .conftest import Store


async def fill(store: Store, rows: dict[str, dict[str, Any]], pk: str = "p") -> None:
    ops = [Insert(rk, props) for rk, props in rows.items()]
    for at in range(0, len(ops), 100):
        await store.tables.write(store.table, pk, ops[at : at + 100])


async def keys(store: Store, **asked: Any) -> list[str]:
    return [row.rk for row in (await store.tables.query(RowQuery(store.table, "p", **asked))).rows]


async def pages(store: Store, **asked: Any) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = await store.tables.query(RowQuery(store.table, "p", cursor=cursor, **asked))
        found.append([row.rk for row in page.rows])
        cursor = page.next
        if cursor is None:
            return found


def flat(found: list[list[str]]) -> list[str]:
    return [rk for page in found for rk in page]


async def test_an_empty_partition_is_an_empty_page(store: Store) -> None:
    page = await store.tables.query(RowQuery(store.table, "p"))
    assert (page.rows, page.next) == ([], None)


async def test_rows_come_in_the_order_of_their_keys_by_utf16_unit(store: Store) -> None:
    ordered = ["!", "00", "0A", "1", "A", "Z", "a", "aa", "ab", "z", "é", "ы", "😀", "😁", "\ue000", "\uffee"]
    await fill(store, {rk: {} for rk in reversed(ordered)})
    assert await keys(store) == ordered
    assert await keys(store, first="😀", end="\uffee") == ["😀", "😁", "\ue000"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "01 02 03 04 05"),
        ({"first": "02"}, "02 03 04 05"),
        ({"first": "021"}, "03 04 05"),
        ({"end": "04"}, "01 02 03"),
        ({"first": "02", "end": "04"}, "02 03"),
        ({"first": "04", "end": "02"}, ""),
        ({"first": "03", "end": "03"}, ""),
        ({"end": ""}, ""),
        ({"first": "06"}, ""),
        ({"first": "0", "end": "0\uffff"}, "01 02 03 04 05"),
        ({"first": "0'", "end": "0''"}, ""),
        ({"limit": 2}, "01 02"),
        ({"first": "03", "limit": 1}, "03"),
    ],
)
async def test_a_range_takes_its_first_and_leaves_its_end(store: Store, asked: dict[str, Any], expected: str) -> None:
    await fill(store, {f"0{i}": {} for i in range(1, 6)})
    assert await keys(store, **asked) == expected.split()


ROWS: dict[str, dict[str, Any]] = {
    "0": {"i": 0, "f": 0.0, "s": "", "b": True},
    "1": {"i": 5, "f": 1.0, "s": "a'b", "b": False},
    "2": {"i": -5, "f": -1.5, "s": "é", "b": True},
    "3": {"i": 2**40, "f": 2.5, "s": "😀", "b": False},
    "4": {"i": -(2**40), "f": 1e22, "s": "\ue000", "b": True},
    "5": {"other": 1},
}
CONDITIONS = [
    (prop, op, value)
    for prop, values in {
        "i": [0, 5, -5, 2**31, 2**40, -(2**40), 2**63 - 1],
        "f": [0.0, 1.0, -1.5, 2.5, 1e22],
        "s": ["", "a'b", "é", "😀", "\ue000", "zz"],
    }.items()
    for value in values
    for op in ("eq", "ne", "lt", "le", "gt", "ge")
]


def units(value: Any) -> Any:
    return value.encode("utf-16-be") if isinstance(value, str) else value


@pytest.mark.parametrize(("prop", "op", "value"), [*CONDITIONS, ("b", "eq", True), ("b", "eq", False), ("b", "ne", True)])
async def test_a_condition_selects_what_python_would(store: Store, prop: str, op: Any, value: Any) -> None:
    await fill(store, ROWS)
    verb = {"eq": "__eq__", "ne": "__ne__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}[op]
    expected = [rk for rk, props in ROWS.items() if prop in props and getattr(units(props[prop]), verb)(units(value))]
    assert await keys(store, where=[Where(prop, op, value)]) == expected


async def test_conditions_all_have_to_hold_and_join_the_range(store: Store) -> None:
    await fill(store, ROWS)
    both = [Where("i", "ge", 0), Where("b", "eq", False)]
    assert await keys(store, where=both) == ["1", "3"]
    assert await keys(store, where=both, first="2") == ["3"]
    assert await keys(store, where=[Where("nothing", "ne", 1)]) == []


async def test_select_gives_only_what_is_asked_for_and_there(store: Store) -> None:
    await fill(store, ROWS)
    rows = (await store.tables.query(RowQuery(store.table, "p", select=["i", "other"]))).rows
    assert [row.props for row in rows] == [{"i": props["i"]} if "i" in props else {"other": 1} for props in ROWS.values()]
    whole = (await store.tables.query(RowQuery(store.table, "p"))).rows
    assert [(row.pk, row.rk, row.etag, row.timestamp) for row in rows] == [(row.pk, row.rk, row.etag, row.timestamp) for row in whole]
    assert [row.props for row in (await store.tables.query(RowQuery(store.table, "p", select=[]))).rows] == [{}] * 6


async def test_a_condition_may_look_at_what_is_not_selected(store: Store) -> None:
    await fill(store, ROWS)
    page = await store.tables.query(RowQuery(store.table, "p", where=[Where("i", "eq", 5)], select=["s"]))
    assert [row.props for row in page.rows] == [{"s": "a'b"}]


async def test_pages_hold_every_row_once(store: Store) -> None:
    await fill(store, {f"{i:04}": {"i": i, "odd": i % 2 == 1} for i in range(1205)})
    assert [len(page) for page in await pages(store)] == [1000, 205]
    assert flat(await pages(store)) == [f"{i:04}" for i in range(1205)]
    assert flat(await pages(store, limit=400, first="0100", end="1000")) == [f"{i:04}" for i in range(100, 1000)]
    odd = await pages(store, where=[Where("odd", "eq", True)], limit=100)
    assert flat(odd) == [f"{i:04}" for i in range(1, 1205, 2)]


@pytest.mark.parametrize("key", ["it's", "a b", "é😀", "100%", "a+b&c=d;:@!$*(),"])
async def test_a_cursor_survives_any_key(store: Store, key: str) -> None:
    rows = [key + suffix for suffix in "0123"]
    await fill(store, {rk: {} for rk in rows})
    assert await pages(store, limit=1) == [[rk] for rk in rows]


async def test_rows_that_stay_are_seen_once_while_others_come_and_go_between_pages(store: Store) -> None:
    await fill(store, {f"{i:02}": {} for i in range(10)})
    one = await store.tables.query(RowQuery(store.table, "p", limit=5))
    gone = [row.rk for row in one.rows[:2]] + ["05", "08"]
    await store.tables.write(store.table, "p", [*(Delete(rk, ANY) for rk in gone), Insert("035", {}), Insert("085", {})])
    two = await store.tables.query(RowQuery(store.table, "p", limit=5, cursor=one.next))
    assert [row.rk for row in two.rows] == ["06", "07", "085", "09"]
    assert two.next is None


async def test_the_order_holds_when_rows_come_and_go_between_queries(store: Store) -> None:
    await fill(store, {"b": {}, "d": {}})
    assert await keys(store) == ["b", "d"]
    await store.tables.write(store.table, "p", [Insert("c", {}), Insert("a", {}), Insert("e", {}), Delete("d", ANY)])
    assert await keys(store) == ["a", "b", "c", "e"]
    await store.tables.write(store.table, "p", [Delete("a", ANY), Delete("e", ANY)])
    await store.tables.write(store.table, "p", [Insert("d", {})])
    assert await keys(store) == ["b", "c", "d"]


async def test_a_query_sees_the_write_before_it(store: Store) -> None:
    for i in range(20):
        await store.tables.write(store.table, "p", [Insert(f"{i:02}", {})])
        assert len(await keys(store)) == i + 1


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_length_out_of_range_is_rejected(store: Store, limit: int) -> None:
    with pytest.raises(Rejected, match=r"^InvalidInput"):
        await keys(store, limit=limit)


@pytest.mark.parametrize("cursor", ["", "nonsense", "[1]", "{}"])
async def test_a_foreign_cursor_is_rejected(store: Store, cursor: str) -> None:
    with pytest.raises(Rejected, match=r"^InvalidInput"):
        await keys(store, cursor=cursor)


@pytest.mark.parametrize("name", ["", "a b", "a' or 'b", "1a", "é", "a.b", "x" * 256])
async def test_a_bad_property_name_is_rejected_in_conditions_and_selections(store: Store, name: str) -> None:
    with pytest.raises(Rejected, match=r"^PropertyNameInvalid"):
        await keys(store, where=[Where(name, "eq", 1)])
    with pytest.raises(Rejected, match=r"^PropertyNameInvalid"):
        await keys(store, select=[name])


async def test_the_twins_pages_can_be_short_and_empty() -> None:
    tables = MemoryTables(SettableClock(), page_rows=2)
    await tables.ensure(["Table"])
    await tables.write("Table", "p", [Insert(f"{i}", {"v": i}) for i in range(7)])
    found, sizes, cursor = [], [], None
    while True:
        page = await tables.query(RowQuery("Table", "p", where=[Where("v", "ge", 3)], cursor=cursor))
        found += [row.rk for row in page.rows]
        sizes.append(len(page.rows))
        cursor = page.next
        if cursor is None:
            break
    assert found == ["3", "4", "5", "6"]
    assert sizes == [0, 1, 2, 1]
