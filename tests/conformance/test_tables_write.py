"""Writes: verbs, refusals, atomicity, ETags."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from shared.core.errors import Rejected
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Replace, Row, RowQuery, Upsert, WriteRefused

from .conftest import Store

OTHER = "0000"
KEYS = [
    "plain", "it's", "''", "a b", "é😀", "%41", "100%", "a+b&c=d;:@!$*(),", "~.-_", '[x]{y}|^`<>"', "", "ключ", "a" * 512, "$batch",
    "PATCH GET",
]  # fmt: skip
VALUES: list[Any] = [
    "", "text", "it's", "''", '"', "\\", "\n", "\r\n--batch\r\n", "\t", "\x00\x1f", "é", "😀", "\u2028\u2029", "\ufffe", "x" * 32768,
    "😀" * 16384, "{}", "}{", "HTTP/1.1 409 Conflict\r\n", "null", "2026-11-21T10:21:55.250Z", "00000000-0000-0000-0000-000000000000",
    0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63), 1_800_000_000_250,
    0.0, 1.0, -1.0, 1.5, 0.1, 1e22, 1e300, 5e-324, -2.5, 1e15, 123456789012345680.0, True, False,
]  # fmt: skip


async def put(store: Store, rk: str = "r", pk: str = "p", **props: Any) -> str:
    """Insert a row; its ETag."""
    return applied(await store.tables.write(store.table, pk, [Insert(rk, props)]))[0]


async def read(store: Store, rk: str = "r", pk: str = "p") -> Row:
    row = await store.tables.get(store.table, pk, rk)
    assert row is not None
    return row


def applied(outcome: Applied | WriteRefused) -> list[str]:
    assert isinstance(outcome, Applied)
    return outcome.etags


async def all_rows(store: Store, pk: str = "p") -> dict[str, dict[str, Any]]:
    page = await store.tables.query(RowQuery(store.table, pk))
    return {row.rk: row.props for row in page.rows}


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:24])
async def test_a_value_comes_back_as_it_went_alone_and_in_a_batch(store: Store, value: Any) -> None:
    applied(await store.tables.write(store.table, "p", [Insert("one", {"v": value})]))
    ops: list[Op] = [Insert("two", {"v": value}), Upsert("three", {"a": 1, "v": value}), Replace("one", {"v": value}, ANY)]
    applied(await store.tables.write(store.table, "p", ops))
    page = await store.tables.query(RowQuery(store.table, "p"))
    got = [row.props["v"] for row in page.rows] + [(await read(store, "one")).props["v"]]
    assert got == [value] * 4
    assert {type(v) for v in got} == {type(value)}


async def test_a_row_keeps_every_property_and_its_keys(store: Store) -> None:
    props: dict[str, Any] = {f"p{i}": value for i, value in enumerate(VALUES) if len(str(value)) < 100}
    await put(store, "r", **props)
    row = await read(store)
    assert (row.pk, row.rk, row.props) == ("p", "r", props)


async def test_enums_come_back_as_what_they_are_on_the_wire(store: Store) -> None:
    colour, size = StrEnum("Colour", {"RED": "red"}), IntEnum("Size", {"BIG": 3})
    await put(store, c=colour.RED, s=size.BIG)  # type: ignore[attr-defined]
    props = (await read(store)).props
    assert props == {"c": "red", "s": 3}
    assert [type(value) for value in props.values()] == [str, int]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key)[:24])
async def test_any_allowed_key_works_with_every_verb(store: Store, key: str) -> None:
    tables, table, pk = store.tables, store.table, key
    applied(await tables.write(table, pk, [Insert(key, {"a": 1})]))
    applied(await tables.write(table, pk, [Merge(key, {"b": 2}, ANY)]))
    assert await tables.write(table, pk, [Insert(key, {})]) == WriteRefused(0, "exists")
    applied(await tables.write(table, pk, [Merge(key, {"c": 3}, ANY), Insert("zz", {"k": key})]))
    row = await read(store, key, pk)
    assert (row.pk, row.rk, row.props) == (pk, key, {"a": 1, "b": 2, "c": 3})
    page = await tables.query(RowQuery(table, pk, first=key, end=key + "\x01"))
    assert [(row.pk, row.rk) for row in page.rows] == [(pk, key)]
    applied(await tables.write(table, pk, [Replace(key, {"d": 4}, ANY)]))
    applied(await tables.write(table, pk, [Upsert(key, {"e": 5})]))
    assert (await read(store, key, pk)).props == {"e": 5}
    applied(await tables.write(table, pk, [Delete(key, ANY), Delete("zz", ANY)]))
    assert await tables.get(table, pk, key) is None


async def test_a_missing_row_is_none(store: Store) -> None:
    assert await store.tables.get(store.table, "p", "r") is None


async def test_merge_sets_what_is_given_and_keeps_the_rest(store: Store) -> None:
    etag = await put(store, a=1, b="x")
    applied(await store.tables.write(store.table, "p", [Merge("r", {"b": True, "c": 2.0}, etag)]))
    assert (await read(store)).props == {"a": 1, "b": True, "c": 2.0}


async def test_replace_leaves_exactly_what_is_given(store: Store) -> None:
    etag = await put(store, a=1, b="x")
    applied(await store.tables.write(store.table, "p", [Replace("r", {"b": "y"}, etag)]))
    assert (await read(store)).props == {"b": "y"}


async def test_upsert_creates_and_replaces(store: Store) -> None:
    applied(await store.tables.write(store.table, "p", [Upsert("r", {"a": 1})]))
    applied(await store.tables.write(store.table, "p", [Upsert("r", {"b": 1})]))
    assert (await read(store)).props == {"b": 1}


async def test_rows_without_properties_are_rows(store: Store) -> None:
    applied(await store.tables.write(store.table, "p", [Insert("a", {}), Upsert("b", {}), Insert("c", {})]))
    applied(await store.tables.write(store.table, "p", [Merge("a", {}, ANY), Replace("b", {}, ANY)]))
    assert await all_rows(store) == {"a": {}, "b": {}, "c": {}}


async def test_every_verb_in_one_transaction_with_etags_by_position(store: Store) -> None:
    etags = {rk: await put(store, rk, v=1) for rk in ("d", "m", "r")}
    ops: list[Op] = [
        Insert("i", {"v": 2}),
        Delete("d", etags["d"]),
        Merge("m", {"w": 2}, etags["m"]),
        Replace("r", {"w": 2}, ANY),
        Upsert("u", {"v": 2}),
    ]
    got = applied(await store.tables.write(store.table, "p", ops))
    assert got[1] == ""
    assert await all_rows(store) == {"i": {"v": 2}, "m": {"v": 1, "w": 2}, "r": {"w": 2}, "u": {"v": 2}}
    for op, etag in zip(ops, got, strict=True):
        if not isinstance(op, Delete):
            assert (await read(store, op.rk)).etag == etag


async def test_the_etag_of_a_write_is_the_one_read_and_changes_with_each_write(store: Store) -> None:
    seen = [await put(store, v=0)]
    for op in (Merge("r", {"v": 1}, seen[-1]), Merge("r", {}, ANY), Replace("r", {"v": 1}, ANY), Upsert("r", {"v": 1})):
        seen.append(applied(await store.tables.write(store.table, "p", [op]))[0])
        assert (await read(store)).etag == seen[-1]
        assert (await store.tables.query(RowQuery(store.table, "p"))).rows[0].etag == seen[-1]
    assert len(set(seen)) == 5


async def test_a_row_deleted_and_inserted_again_refuses_the_old_etag(store: Store) -> None:
    old = await put(store, v=1)
    applied(await store.tables.write(store.table, "p", [Delete("r", old)]))
    new = await put(store, v=1)
    assert new != old
    assert await store.tables.write(store.table, "p", [Merge("r", {"v": 2}, old)]) == WriteRefused(0, "changed")
    assert await store.tables.write(store.table, "p", [Delete("r", old)]) == WriteRefused(0, "changed")
    applied(await store.tables.write(store.table, "p", [Delete("r", new)]))


def refusals(stale: str) -> list[tuple[Op, str]]:
    return [
        (Insert("there", {"v": 9}), "exists"),
        (Merge("gone", {"v": 9}, ANY), "missing"),
        (Merge("gone", {"v": 9}, stale), "missing"),
        (Replace("gone", {"v": 9}, ANY), "missing"),
        (Replace("gone", {"v": 9}, stale), "missing"),
        (Delete("gone", ANY), "missing"),
        (Delete("gone", stale), "missing"),
        (Merge("there", {"v": 9}, stale), "changed"),
        (Replace("there", {"v": 9}, stale), "changed"),
        (Delete("there", stale), "changed"),
    ]


@pytest.mark.parametrize("case", range(10))
@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 1), (1, 0), (3, 2), (99, 0), (12, 87)])
async def test_a_refused_transaction_names_its_first_bad_operation_and_changes_nothing(
    store: Store, case: int, before: int, after: int
) -> None:
    stale = await put(store, "there", v=0)
    await store.tables.write(store.table, "p", [Merge("there", {"v": 1}, ANY), Insert(OTHER, {"v": 1})])
    op, reason = refusals(stale)[case]
    ops: list[Op] = [Insert(f"b{i:03}", {"v": i}) for i in range(before)]
    if before > 1:
        ops[0], ops[1] = Merge(OTHER, {"w": 1}, ANY), Upsert("new", {"v": 1})
    ops += [op, *(Insert(f"c{i:03}", {"v": i}) for i in range(after))]
    assert await store.tables.write(store.table, "p", ops) == WriteRefused(before, reason)
    assert await all_rows(store) == {OTHER: {"v": 1}, "there": {"v": 1}}


async def test_of_two_bad_operations_the_first_is_named(store: Store) -> None:
    stale = await put(store, "there", v=0)
    await store.tables.write(store.table, "p", [Merge("there", {"v": 1}, ANY)])
    ops: list[Op] = [Insert("a", {}), Delete("there", stale), Merge("gone", {}, ANY), Insert("b", {})]
    assert await store.tables.write(store.table, "p", ops) == WriteRefused(1, "changed")
    ops[1], ops[2] = ops[2], ops[1]
    assert await store.tables.write(store.table, "p", ops) == WriteRefused(1, "missing")


async def test_a_refused_transaction_leaves_etags_alone(store: Store) -> None:
    etag = await put(store, "keep", v=0)
    ops: list[Op] = [Merge("keep", {"v": 1}, etag), Delete("gone", ANY)]
    assert await store.tables.write(store.table, "p", ops) == WriteRefused(1, "missing")
    assert (await read(store, "keep")).etag == etag
    applied(await store.tables.write(store.table, "p", [Delete("keep", etag)]))


async def test_partitions_and_tables_do_not_see_each_other(store: Store) -> None:
    await store.tables.ensure([store.table + "b"])
    await put(store, pk="p", v=1)
    await put(store, pk="q", v=2)
    assert await all_rows(store, "q") == {"r": {"v": 2}}
    assert await store.tables.get(store.table + "b", "p", "r") is None
    applied(await store.tables.write(store.table, "q", [Delete("r", ANY)]))
    assert await all_rows(store) == {"r": {"v": 1}}


async def test_what_was_read_or_written_is_the_callers_own(store: Store) -> None:
    props: dict[str, Any] = {"v": 1}
    await store.tables.write(store.table, "p", [Insert("r", props)])
    props["v"] = 2
    row = await read(store)
    row.props["v"] = 3
    (await store.tables.query(RowQuery(store.table, "p"))).rows[0].props["v"] = 4
    assert (await read(store)).props == {"v": 1}


async def test_times_are_the_services_own(store: Store) -> None:
    await put(store, v=1)
    row = await read(store)
    page = await store.tables.query(RowQuery(store.table, "p"))
    assert row.read_at % 1000 == 0
    assert page.read_at % 1000 == 0
    assert row.timestamp < row.read_at + 1000
    assert page.rows[0].timestamp == row.timestamp
    assert page.rows[0].read_at == page.read_at
    assert row.timestamp > 1_700_000_000_000


async def test_a_hundred_rows_go_in_one_transaction(store: Store) -> None:
    ops: list[Op] = [Insert(f"{i:03}", {"v": i}) for i in range(100)]
    etags = applied(await store.tables.write(store.table, "p", ops))
    rows = (await store.tables.query(RowQuery(store.table, "p"))).rows
    assert [row.etag for row in rows] == etags


async def test_transactions_and_rows_are_counted(store: Store) -> None:
    before = Counter(store.tables.transactions)  # type: ignore[attr-defined]
    await store.tables.write(store.table, "p", [Insert("a", {}), Insert("b", {})])
    await store.tables.write(store.table, "p", [Insert("a", {})])
    await store.tables.get(store.table, "p", "a")
    await store.tables.get(store.table, "p", "none")
    await store.tables.query(RowQuery(store.table, "p"))
    counts = Counter(store.tables.transactions)  # type: ignore[attr-defined]
    assert counts - before == {"write": 2, "rows_written": 2, "get": 2, "query": 1, "rows_read": 3}


async def test_a_missing_table_is_rejected_by_every_verb(store: Store) -> None:
    tables = store.tables
    with pytest.raises(Rejected, match=r"^TableNotFound"):
        await tables.get("Nowhere", "p", "r")
    with pytest.raises(Rejected, match=r"^TableNotFound"):
        await tables.query(RowQuery("Nowhere", "p"))
    ops: list[Op] = [Insert("r", {}), Merge("r", {}, ANY), Replace("r", {}, ANY), Upsert("r", {}), Delete("r", ANY)]
    for op in ops:
        with pytest.raises(Rejected, match=r"^TableNotFound"):
            await tables.write("Nowhere", "p", [op])
        with pytest.raises(Rejected, match=r"^TableNotFound"):
            await tables.write("Nowhere", "p", [op, Insert("s", {})])


async def test_ensure_leaves_what_is_there(store: Store) -> None:
    await put(store, v=1)
    await store.tables.ensure([store.table, store.table + "new"])
    await store.tables.ensure([store.table + "new"])
    assert await all_rows(store) == {"r": {"v": 1}}


@pytest.mark.parametrize("name", ["ab", "1abc", "a-b", "a" * 64, "", "tab le", "Ta/ble", "Täble"])
async def test_a_bad_table_name_is_rejected(store: Store, name: str) -> None:
    with pytest.raises(Rejected, match=r"^InvalidResourceName"):
        await store.tables.ensure([name])
