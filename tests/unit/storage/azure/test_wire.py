"""Bytes of the Table service: what is written can be read, and says what it means."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.storage import limits
from shared.storage.azure import wire
from shared.storage.ports import ANY, Delete, Insert, Merge, Replace, Upsert, Where

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True).filter(lambda n: n not in ("PartitionKey", "RowKey", "Timestamp"))
VALUES = st.one_of(TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\#?"), max_size=60)


def as_answered(raw: bytes) -> dict[str, Any]:
    """Return the service's answer for a stored entity: doubles without a decimal point, with their type."""
    return {**orjson.loads(raw), "odata.etag": "e", "Timestamp": "2026-11-21T10:21:55.25Z"}


@given(pk=KEYS, rk=KEYS, props=st.dictionaries(NAMES, VALUES, max_size=20))
def test_properties_survive_the_wire(pk: str, rk: str, props: dict[str, Any]) -> None:
    row = wire.decode_row(pk, as_answered(wire.encode_row(pk, rk, props)), 7)
    assert (row.pk, row.rk, row.props, row.etag, row.read_at) == (pk, rk, props, "e", 7)
    assert {name: type(value) for name, value in row.props.items()} == {name: type(value) for name, value in props.items()}


@given(props=st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_row_is_one_line_of_json(props: dict[str, Any]) -> None:
    raw = wire.encode_row("p", "r", props)
    assert len(raw.decode().splitlines()) == 1 or not re.search("[\n\r\u2028\u2029]", raw.decode())


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (5, {"v": "5", "v@odata.type": "Edm.Int64"}),
        (2**40, {"v": "1099511627776", "v@odata.type": "Edm.Int64"}),
        (5.0, {"v": 5.0, "v@odata.type": "Edm.Double"}),
        (1.5, {"v": 1.5}),
        (True, {"v": True}),
        ("5", {"v": "5"}),
    ],
)
def test_numbers_carry_their_types(value: Any, sent: dict[str, Any]) -> None:
    assert orjson.loads(wire.encode_row("p", "r", {"v": value})) == {"PartitionKey": "p", "RowKey": "r", **sent}


def test_other_annotations_and_nulls_are_dropped() -> None:
    item = {"v": 1, "odata.type": "x", "w": None, "w@odata.type": "Edm.String", "d": 5, "d@odata.type": "Edm.Double"}
    item |= {"Timestamp@odata.type": "Edm.DateTime"}
    item |= {"PartitionKey": "p", "RowKey": "r", "odata.etag": "e", "Timestamp": "2026-11-21T10:21:55Z"}
    row = wire.decode_row("p", item, 0)
    assert row.props == {"v": 1, "d": 5.0}
    assert type(row.props["d"]) is float
    assert row.timestamp == 1_795_256_515_000


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("2026-11-21T10:21:55.2509999Z", 250),
        ("2026-11-21T10:21:55.25Z", 250),
        ("2026-11-21T10:21:55.2Z", 200),
        ("2026-11-21T10:21:55.0000001Z", 0),
        ("2026-11-21T10:21:55Z", 0),
    ],
)
def test_timestamps_are_cut_to_the_millisecond(text: str, millis: int) -> None:
    assert wire.parse_timestamp(text) == 1_795_256_515_000 + millis


@given(pk=KEYS, rk=KEYS)
def test_an_entitys_path_is_plain_ascii_and_reads_back(pk: str, rk: str) -> None:
    path = wire.entity_path("Table", pk, rk)
    assert re.fullmatch(r"[!-~]+", path)
    double = [key.replace("'", "''") for key in (pk, rk)]
    assert unquote(path) == f"Table(PartitionKey='{double[0]}',RowKey='{double[1]}')"


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (Where("v", "eq", "it's"), "v eq 'it''s'"),
        (Where("v", "lt", 5), "v lt 5L"),
        (Where("v", "ge", -(2**63)), "v ge -9223372036854775808L"),
        (Where("v", "ne", True), "v ne true"),
        (Where("v", "gt", 5.0), "v gt 5.0"),
        (Where("v", "gt", 1e22), "v gt 10000000000000000000000.0"),
        (Where("v", "le", 1.5e-7), "v le 0.00000015"),
    ],
)
def test_conditions_are_typed_literals(where: Where, text: str) -> None:
    assert wire.filter_text("p'", "", None, [where]) == f"PartitionKey eq 'p''' and {text}"


def test_a_range_is_a_condition_on_the_row_key() -> None:
    assert wire.filter_text("p", "a", "b", []) == "PartitionKey eq 'p' and RowKey ge 'a' and RowKey lt 'b'"
    assert wire.filter_text("p", "", "", []) == "PartitionKey eq 'p' and RowKey lt ''"


def test_a_batch_lists_its_operations_in_order() -> None:
    ops = [Insert("i", {"a": 1}), Merge("m", {}, 'W/"1"'), Replace("x", {}, ANY), Upsert("u", {}), Delete("d d", 'W/"2"')]
    text = wire.batch_body("https://a.example", "Table", "p", ops).decode()
    found = re.findall(r"^(POST|PATCH|PUT|DELETE) https://a\.example/(\S+) HTTP/1\.1\r$", text, re.M)
    assert found == [
        ("POST", "Table"),
        ("PATCH", "Table(PartitionKey='p',RowKey='m')"),
        ("PUT", "Table(PartitionKey='p',RowKey='x')"),
        ("PUT", "Table(PartitionKey='p',RowKey='u')"),
        ("DELETE", "Table(PartitionKey='p',RowKey='d%20d')"),
    ]
    assert re.findall(r"^If-Match: (.*)\r$", text, re.M) == ['W/"1"', "*", 'W/"2"']
    # Return no content, so that an answer repeats no stored values.
    assert text.count("Prefer: return-no-content") == 4


@given(st.dictionaries(NAMES, VALUES, max_size=8), KEYS, KEYS)
def test_no_encoded_transaction_is_larger_than_its_bound(props: dict[str, Any], pk: str, rk: str) -> None:
    ops = [Insert(rk, props), Merge(rk + "1", props, ANY), Delete(rk + "2", ANY)]
    body = wire.batch_body("https://" + "a" * 60, "Table", pk, ops)
    assert len(body) <= limits.check_ops(pk, ops).bound


@given(st.dictionaries(NAMES, VALUES, max_size=8), KEYS, KEYS)
def test_an_entitys_size_is_the_documented_sum(props: dict[str, Any], pk: str, rk: str) -> None:
    def utf16(text: str) -> int:
        return len(text.encode("utf-16-le"))

    expected = 4 + utf16(pk) + utf16(rk)
    for name, value in props.items():
        own = 1 if isinstance(value, bool) else utf16(value) + 4 if isinstance(value, str) else 8
        expected += 8 + utf16(name) + own
    assert limits.entity_size(pk, rk, props) == expected
