"""Limits of the service, and where Azurite lets pass what Azure refuses."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.errors import Rejected
from shared.storage import limits
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Replace, RowQuery, Upsert, Where, WriteRefused

from .conftest import Store


async def write(store: Store, *ops: Op, pk: str = "p") -> Applied | WriteRefused:
    return await store.tables.write(store.table, pk, ops)


def exactly(size: int, extra: int = 0) -> dict[str, Any]:
    """Properties of a row p/r that make an entity of `size` bytes."""
    props: dict[str, Any] = {f"s{i:02}": "x" * 32000 for i in range(16)}
    props["last"] = ""
    props["last"] = "y" * ((size - limits.entity_size("p", "r", props)) // 2 + extra)
    return props


@pytest.mark.parametrize("key", ["a/b", "a\\b", "a#b", "a?b", "a\nb", "\x00", "\x7f", "\x85", "k" * 513, "😀" * 257, "\ud800"])
async def test_a_bad_key_is_rejected_by_every_verb(store: Store, key: str) -> None:
    ops: list[Op] = [Insert(key, {}), Merge(key, {}, ANY), Replace(key, {}, ANY), Upsert(key, {}), Delete(key, ANY)]
    for op in ops:
        with pytest.raises(Rejected, match=r"^(OutOfRangeInput|KeyValueTooLarge): RowKey"):
            await write(store, op)
        with pytest.raises(Rejected, match=r"^(OutOfRangeInput|KeyValueTooLarge): PartitionKey"):
            await write(store, op._replace(rk="r"), pk=key)
    with pytest.raises(Rejected):
        await store.tables.get(store.table, "p", key)
    with pytest.raises(Rejected):
        await store.tables.get(store.table, key, "r")
    with pytest.raises(Rejected):
        await store.tables.query(RowQuery(store.table, key))


@pytest.mark.parametrize("count", [0, 101])
async def test_a_transaction_has_one_to_a_hundred_operations(store: Store, count: int) -> None:
    with pytest.raises(Rejected, match=r"^InvalidInput"):
        await write(store, *(Insert(f"{i}", {}) for i in range(count)))


async def test_row_keys_in_a_transaction_are_distinct(store: Store) -> None:
    ops: list[list[Op]] = [
        [Insert("a", {}), Insert("a", {})],
        [Insert("a", {}), Insert("b", {}), Delete("a", ANY)],
        [Upsert("a", {}), Merge("a", {}, ANY)],
    ]
    for each in ops:
        with pytest.raises(Rejected, match=r"^InvalidDuplicateRow"):
            await write(store, *each)
    assert await store.tables.get(store.table, "p", "a") is None


@pytest.mark.parametrize("text", ["x" * 32769, "é" * 32769, "😀" * 16385])
async def test_a_string_over_64_kib_is_rejected(store: Store, text: str) -> None:
    for op in (Insert("r", {"s": text}), Upsert("r", {"s": text}), Merge("r", {"s": text}, ANY), Replace("r", {"s": text}, ANY)):
        with pytest.raises(Rejected, match=r"^PropertyValueTooLarge"):
            await write(store, op)


async def test_an_entity_of_a_mebibyte_is_stored_and_one_larger_is_rejected(store: Store) -> None:
    props = exactly(1024 * 1024)
    assert limits.entity_size("p", "r", props) == 1024 * 1024
    assert isinstance(await write(store, Insert("r", props)), Applied)
    row = await store.tables.get(store.table, "p", "r")
    assert row is not None
    assert row.props == props
    with pytest.raises(Rejected, match=r"^EntityTooLarge"):
        await write(store, Upsert("r", exactly(1024 * 1024, 1)))


async def test_252_properties_are_stored_and_253_rejected(store: Store) -> None:
    assert isinstance(await write(store, Insert("r", {f"p{i}": i for i in range(252)})), Applied)
    with pytest.raises(Rejected, match=r"^TooManyProperties"):
        await write(store, Upsert("r", {f"p{i}": i for i in range(253)}))


async def test_a_payload_over_4_mib_is_rejected_and_one_below_is_stored(store: Store) -> None:
    row = {"a": "x" * 20000, "b": "y" * 21000}
    assert isinstance(await write(store, *(Insert(f"{i:03}", row) for i in range(100))), Applied)
    with pytest.raises(Rejected, match=r"^RequestBodyTooLarge"):
        await write(store, *(Upsert(f"{i:03}", {**row, "c": "z" * 1000}) for i in range(100)))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, float("nan"), float("inf"), "\ud800", None, b"x", [1], {"a": 1}], ids=repr)
async def test_a_value_that_cannot_be_stored_is_rejected(store: Store, value: Any) -> None:
    for op in (Insert("r", {"v": value}), Merge("r", {"a": 1, "v": value}, ANY)):
        with pytest.raises(Rejected, match=r"^InvalidInput"):
            await write(store, op, Insert("s", {}))
    with pytest.raises(Rejected, match=r"^InvalidInput"):
        await store.tables.query(RowQuery(store.table, "p", where=[Where("v", "eq", value)]))


@pytest.mark.parametrize("name", ["", "a b", "1a", "a-b", "a.b", "é", "x" * 256, "PartitionKey", "RowKey", "Timestamp", "odata.etag"])
async def test_a_bad_property_name_is_rejected(store: Store, name: str) -> None:
    with pytest.raises(Rejected, match=r"^PropertyNameInvalid"):
        await write(store, Insert("r", {name: 1}))


@pytest.mark.parametrize("etag", ["", "*\r\nPrefer: x", "*\n", "é", "\x7f"])
async def test_an_etag_that_is_no_header_is_rejected(store: Store, etag: str) -> None:
    # An empty one would make a merge an "insert or merge"; a line break would write headers of its own.
    for op in (Merge("r", {}, etag), Replace("r", {}, etag), Delete("r", etag)):
        with pytest.raises(Rejected, match=r"^InvalidInput"):
            await write(store, op)
        with pytest.raises(Rejected, match=r"^InvalidInput"):
            await write(store, op, Insert("s", {}))
    assert await store.tables.get(store.table, "p", "s") is None


# Where the stores differ. The adapter's own checks keep the differences from showing, except where only the store knows.


async def test_the_twin_rejects_a_merge_that_grows_a_row_over_its_limits(twin: Store) -> None:
    await write(twin, Insert("r", {f"p{i}": i for i in range(252)}))
    with pytest.raises(Rejected, match=r"^TooManyProperties"):
        await write(twin, Merge("r", {"one": 1}, ANY))
    await write(twin, Insert("s", exactly(1024 * 1024)))
    with pytest.raises(Rejected, match=r"^EntityTooLarge"):
        await write(twin, Merge("s", {"one": 1}, ANY))


@pytest.mark.azurite(reason="Azure refuses what Azurite lets pass")
async def test_azurite_lets_a_merge_grow_a_row_over_its_limits(service: Store) -> None:
    await write(service, Insert("r", {f"p{i}": i for i in range(252)}))
    assert isinstance(await write(service, Merge("r", {"one": 1}, ANY)), Applied)
    await write(service, Insert("s", exactly(1024 * 1024)))
    assert isinstance(await write(service, Merge("s", {"one": 1}, ANY)), Applied)


@pytest.mark.azurite(reason="Azure refuses what Azurite lets pass")
async def test_azurite_itself_takes_more_properties_and_larger_entities_than_azure(service: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "check_ops", lambda pk, ops: limits.Checked(True, 0))
    assert isinstance(await write(service, Insert("r", {f"p{i}": i for i in range(253)})), Applied)
    assert isinstance(await write(service, Insert("s", exactly(1024 * 1024, 1000))), Applied)


async def test_the_service_itself_refuses_long_strings_large_bodies_and_row_keys_named_twice(
    service: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "check_ops", lambda pk, ops: limits.Checked(True, 0))
    with pytest.raises(Rejected, match=r"^PropertyValueTooLarge \(400\)"):
        await write(service, Insert("r", {"s": "x" * 32769}))
    with pytest.raises(Rejected, match=r"^RequestBodyTooLarge \(413\)"):
        await write(service, *(Insert(f"{i}", {"s": "x" * 32000, "t": "y" * 20000}) for i in range(100)))
    with pytest.raises(Rejected, match=r"^InvalidDuplicateRow \(400\)"):
        await write(service, Insert("a", {}), Insert("a", {}))


async def test_the_twin_matches_no_row_across_types(twin: Store) -> None:
    await write(twin, Insert("r", {"i": 5, "s": "5"}))
    for where in (Where("i", "lt", 5.5), Where("i", "ne", "x"), Where("i", "eq", "5"), Where("s", "lt", 9)):
        assert (await twin.tables.query(RowQuery(twin.table, "p", where=[where]))).rows == []


@pytest.mark.azurite(reason="Azure compares by type")
async def test_azurite_compares_across_types_as_javascript_does(service: Store) -> None:
    await write(service, Insert("r", {"i": 5, "s": "5"}))
    for where in (Where("i", "lt", 5.5), Where("i", "ne", "x"), Where("i", "eq", "5"), Where("s", "lt", 9)):
        assert len((await service.tables.query(RowQuery(service.table, "p", where=[where]))).rows) == 1
