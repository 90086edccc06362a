"""Bodies and queries: what is refused, with which status, pointing where; and that the rest arrives unharmed."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from shared.core.errors import Problem
from shared.delivery.channels.model import Channel
from shared.web import parsing
from tests.texts import assert_text

from .conftest import Search, ThingIn, World

THING = TypeAdapter(ThingIn)
CHANNEL: TypeAdapter[Any] = TypeAdapter(Channel)


def refused(adapter: TypeAdapter[Any], raw: bytes | str) -> Problem:
    with pytest.raises(Problem) as caught:
        parsing.parse_json(adapter, raw.encode() if isinstance(raw, str) else raw)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (b'{"name": "a", "name": "b", "payload": 1}', ["/name"]),
        (b'{"name": "a", "payload": 1, "payload" \n : 2}', ["/payload"]),
        (b'{"name": "a", "n\\u0061me": "b", "payload": 1}', ["/name"]),
        (b'{"name": "a", "payload": {"x": 1, "x": 1}}', []),
        (b'{"name": "a", "payload": "\\":\\":"}', []),
        (b'{"name": "a", "payload": {"b": {"x": 1, "x": 1}}, "name": "\\":"}', ["/name"]),
    ],
)
@pytest.mark.parametrize("padding", [0, parsing.LARGE])
def test_a_member_that_is_given_twice_is_refused_but_inside_of_payloads(raw: bytes, where: list[str], padding: int) -> None:
    sent = raw + b" " * padding
    try:
        _, kept = parsing.parse_with(THING, sent, "payload")
    except Problem as problem:
        assert (problem.status, pointers(problem)) == (422, where)
    else:
        assert where == [] and kept is not None and raw.endswith(kept + b"}")


@given(st.recursive(st.integers() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner)))
def test_no_text_without_doubled_members_is_refused_for_them(value: Any) -> None:
    raw = json.dumps(value).encode()
    parsing.refuse_twice(raw, json.loads(raw))


@given(st.dictionaries(st.text(max_size=2), st.integers(), min_size=1), st.integers(0, 3))
def test_a_doubled_member_is_found_at_any_depth(members: dict[str, int], depth: int) -> None:
    name = next(iter(members))
    inner = json.dumps(members)[:-1] + f", {json.dumps(name)}:0}}"
    raw = f"{'[' * depth}{inner}{']' * depth}".encode()
    with pytest.raises(Problem) as found:
        parsing.refuse_twice(raw, json.loads(raw))
    assert [each["detail"] for each in found.value.errors] == ["is given twice; give it once"]


def pointers(found: Problem) -> list[str]:
    return [error["pointer"] for error in found.errors]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"name": "a", "payload": NaN}',
        b'{"name": "a", "payload": -Infinity}',
        b'{"name": "a", "payload": 1e999}',
        b'{"name": "a", "ratio": 1e999}',
        b'{"name": "a", "payload": "\xff\xfe"}',
        b'{"name": "a", "\xc3\x28": 1}',
        b'{"name": "a", "payload": "\xed\xa0\x80"}',
        b'{"name": "a", "payload": "\\ud800"}',
        b'{"name": "a", "payload": "a\x00b"}',
        b'{"name": "a", "payload": "a\nb"}',
        b'\xef\xbb\xbf{"name": "a"}',
        b'{"name": "a"',
        b'{"name": "a",}',
        b'{"name": "a"} {}',
        b'{"name": 01}',
        b"{'name': 'a'}",
        b'{"name": "a" /* why */}',
        b"name=a",
        b"   ",
        b"[" * 100,
        '{"name": "a"}'.encode("utf-16"),
    ],
)
def test_what_is_not_json_is_422_for_the_whole_body(raw: bytes) -> None:
    found = refused(THING, raw)
    assert (found.status, found.code, found.errors[0]["pointer"]) == (422, "malformed-json", "")


def test_nothing_sent_is_repeated_when_json_is_malformed() -> None:
    assert "hunter2" not in refused(THING, '{"password": "hunter2" hunter2').detail


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"name": "a", "nope": 1}', ["/nope"]),
        ('{"nope": 1}', ["/name", "/nope"]),
        ('{"name": "a", "count": "1"}', ["/count"]),
        ('{"name": "a", "count": 1.0}', ["/count"]),
        ('{"name": "a", "count": true}', ["/count"]),
        ('{"name": "a", "count": 11}', ["/count"]),
        ('{"name": "a", "count": null}', ["/count"]),
        ('{"name": "a", "ratio": "0.5"}', ["/ratio"]),
        ('{"name": "A"}', ["/name"]),
        ('{"name": "a", "due": "tomorrow"}', ["/due"]),
        ('{"name": "a", "due": 1800000000}', ["/due"]),
        ('{"name": "a", "every": "P1Y"}', ["/every"]),
        ('{"name": "a", "labels": {"a/b~c": 1}}', ["/labels/a~1b~0c"]),
        ('{"name": "a", "labels": []}', ["/labels"]),
        ('{"name": "a", "parts": [{}, {"limits": {"concurrency": 0}}]}', ["/parts/1/limits/concurrency"]),
        ('{"name": "a", "parts": [{}, {}, {}, {}]}', ["/parts"]),
        ('{"name": "a", "parts": [{"retry": {"first": "PT0S"}}]}', ["/parts/0/retry/first"]),
        ("[]", [""]),
        ("null", [""]),
        ('"a"', [""]),
    ],
)
def test_wrong_content_is_422_with_a_pointer_to_each_fault(raw: str, expected: list[str]) -> None:
    found = refused(THING, raw)
    assert (found.status, found.code) == (422, "invalid-content")
    assert sorted(pointers(found)) == sorted(expected)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"type": "http", "url": 5, "headers": {"a": 2}, "x": 1}', ["/headers/a", "/url", "/x"]),
        ('{"type": "secret-text"}', ["/type"]),
        ("{}", ["/type"]),
        ('{"type": "http"}', ["/url"]),
        ('{"type": "queue", "queue": "no_underscores"}', ["/queue"]),
    ],
)
def test_the_branch_of_a_union_is_no_part_of_the_pointer(raw: str, expected: list[str]) -> None:
    found = refused(CHANNEL, raw)
    assert sorted(pointers(found)) == expected
    assert "secret-text" not in json.dumps(found.body())


def test_values_are_not_repeated_in_errors() -> None:
    found = refused(THING, '{"name": "hunter2 secret", "due": "hunter2", "count": "hunter2", "labels": {"a": ["hunter2"]}}')
    assert len(found.errors) == 4
    assert "hunter2" not in json.dumps(found.body("/x"))


def test_a_flood_of_faults_is_cut() -> None:
    found = refused(THING, orjson.dumps({"name": "a", "labels": {str(n): n for n in range(500)}}))
    assert len(found.errors) == parsing.MAX_ERRORS


def test_a_huge_member_name_is_cut() -> None:
    found = refused(THING, orjson.dumps({"name": "a", "n" * 10_000: 1}))
    assert len(found.errors[0]["pointer"]) == parsing.MAX_POINTER


def nested(levels: int) -> str:
    return '{"name": "a", "payload": ' + "[" * levels + "]" * levels + "}"


def test_nesting_up_to_the_limit_passes_and_one_more_is_422() -> None:
    parsing.parse_json(THING, nested(parsing.MAX_DEPTH - 1).encode())
    found = refused(THING, nested(parsing.MAX_DEPTH))
    assert (found.status, pointers(found)) == (422, ["/payload"])


@pytest.mark.parametrize("levels", [200, 300, 1100, 100_000])
def test_absurd_nesting_is_refused_without_harm(levels: int) -> None:
    found = refused(THING, nested(levels))
    assert found.status == 422


def test_many_brackets_without_depth_pass() -> None:
    body = orjson.dumps({"name": "a", "payload": [[[]]] * 1000 + ["[" * 1000]})
    assert parsing.parse_json(THING, body).payload[-1] == "[" * 1000


def test_depth_counts_in_arrays_at_the_top_too() -> None:
    found = refused(TypeAdapter(list[Any]), "[1, " + "[" * 70 + "]" * 70 + "]")
    assert pointers(found) == ["/1"]


def test_a_large_payload_that_is_given_twice_is_refused() -> None:
    with pytest.raises(Problem) as found:
        parsing.parse_with(THING, b'{"name":"a","payload":"%b","payload":"%b"}' % (b"x" * 50_000, b"y" * 50_000), "payload")
    assert pointers(found.value) == ["/payload"]


def test_whole_numbers_beyond_64_bits_are_kept() -> None:
    assert parsing.parse_json(THING, b'{"name": "a", "payload": 123456789012345678901234567890}').payload == 123456789012345678901234567890


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(_VALUES, st.sampled_from([None, 1]), st.booleans())
def test_any_payload_comes_in_as_it_was_written(value: Any, indent: int | None, ascii_only: bool) -> None:
    raw = json.dumps({"name": "a", "payload": value}, indent=indent, ensure_ascii=ascii_only)
    if "\\ud" in raw and ascii_only:
        raw = json.dumps({"name": "a", "payload": value}, indent=indent, ensure_ascii=False)
    assert parsing.parse_json(THING, raw.encode("utf-8")).payload == value


@given(st.dictionaries(st.text(), _VALUES, max_size=5), st.sampled_from([None, 2]))
def test_a_member_is_cut_out_exactly_as_sent(document: dict[str, Any], indent: int | None) -> None:
    raw = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    for name, value in document.items():
        cut = parsing.member(raw, name)
        assert cut is not None
        assert cut in raw
        assert json.loads(cut) == value
    assert parsing.member(raw, "no such name \x00") is None


_NAMES = st.sampled_from(['"payload"', '"p\\u0061yload"', '"a"', '"due"', '"d/e"', '"d\\/e"', '"say \\"payload\\""', '"a\\"due"', '""'])
_TEXTS = _NAMES | st.sampled_from(
    ["1e400", " [1.0 , 2] ", '{"payload":2}', '{"due":[{}, "due"]}', '"}"', '{"x":1,"x":[",\\n"]}', "{}", "null"]
)


@given(
    st.lists(st.tuples(_NAMES, _TEXTS), max_size=5, unique_by=lambda pair: json.loads(pair[0])),
    st.sampled_from(["", "\n ", "\t\r"]),
)
def test_a_member_of_a_parsed_document_is_cut_out_alike(pairs: list[tuple[str, str]], space: str) -> None:
    raw = (space + "{" + ",".join(f"{space}{name}{space}:{space}{value}{space}" for name, value in pairs) + "}" + space).encode()
    assert parsing.known_member(raw, "payload", json.loads(raw)) == parsing.member(raw, "payload")


_TOKENS = st.sampled_from(
    [b'"payload"', b'"name"', b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\\u0061", b" ", b"NaN", b"1e400", b"1", b"\xff"]
)


def _read(raw: bytes) -> tuple[Any, ...]:
    try:
        thing, kept = parsing.parse_with(THING, raw, "payload")
    except Problem as problem:
        return problem.status, problem.code, pointers(problem)
    return thing.name, kept


@given(st.lists(_TOKENS, max_size=10).map(b"".join), st.sampled_from([b'{"payload":%b,"name":"a"}', b'{"name":"a","payload":%b}']))
def test_a_small_document_is_read_or_refused_as_one_that_is_read_in_steps(middle: bytes, around: bytes) -> None:
    raw = around % middle
    found = _read(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "LARGE", -1)
        assert found == _read(raw)


def test_a_member_keeps_its_spelling() -> None:
    raw = b' { "a" : 1.0 , "p\\u0061yload":[1e2, 12345678901234567890123,\n"\\u00e9"] ,"z":{}} '
    assert parsing.member(raw, "payload") == b'[1e2, 12345678901234567890123,\n"\\u00e9"]'
    assert parsing.member(raw, "a") == b"1.0"
    assert parsing.member(raw, "z") == b"{}"
    assert parsing.member(b"{}", "a") is None
    assert parsing.member(b'{"a":1,"a":2}', "a") == b"2"
    assert parsing.member(b'{"a":' + b"9" * 5000 + b"}", "a") == b"9" * 5000


@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_stumble(raw: bytes) -> None:
    try:
        parsing.parse_json(THING, raw)
    except Problem as found:
        assert found.status == 422


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"content-type": "application/json"}, "application/json"),
        ({"content-type": "Application/JSON; charset=UTF-8"}, "application/json"),
        ({"content-type": 'application/json;charset="utf-8"; v=1'}, "application/json"),
        ({"content-type": "application/cloudevents+json"}, "application/cloudevents+json"),
        ({"content-type": "application/json", "content-encoding": "identity"}, "application/json"),
    ],
)
def test_json_by_any_of_its_names_is_taken(headers: dict[str, str], kind: str) -> None:
    assert parsing.media_type(headers, ("application/json",)) == kind


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": ""},
        {"content-type": "text/plain"},
        {"content-type": "text/json"},
        {"content-type": "application/jsonx"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_other_media_types_are_415(headers: dict[str, str]) -> None:
    with pytest.raises(Problem) as caught:
        parsing.media_type(headers, ("application/json",))
    assert (caught.value.status, caught.value.code) == (415, "unsupported-media-type")


@pytest.mark.parametrize(
    ("headers", "what_came"),
    [
        ({}, "no Content-Type"),
        ({"content-type": "Text/Plain; charset=utf-8"}, "the media type text/plain"),
        ({"content-type": "x" * 1000}, "the media type xxx"),
    ],
)
def test_415_says_what_came_and_what_is_taken(headers: dict[str, str], what_came: str) -> None:
    with pytest.raises(Problem) as caught:
        parsing.media_type(headers, ("application/json", "text/csv"))
    detail = caught.value.detail or ""
    assert detail.startswith(f"The body has {what_came}") and len(detail) < 500
    assert_text("problem.unsupported-media-type", detail.rpartition(". ")[2])


def test_a_suffix_does_not_stand_for_a_type_that_is_not_json() -> None:
    with pytest.raises(Problem):
        parsing.media_type({"content-type": "application/x+json"}, ("application/x-ndjson",))


def test_queries_are_read_from_the_url_as_it_came() -> None:
    assert parsing.read_query("http://x/api?a=1&b=%C3%A9+x", {"other": "y"}) == {"a": "1", "b": "\u00e9 x"}
    assert parsing.read_query("http://x/api?a=", {}) == {"a": ""}
    assert parsing.read_query("http://x/api", {"a": "1"}) == {"a": "1"}
    assert parsing.read_query("http://x/api?", {}) == {}


@pytest.mark.parametrize(("url", "where"), [("?a=1&a=2", "?a"), ("?a=%ff", "?"), ("?" + "&".join(f"a{n}=1" for n in range(50)), "?")])
def test_queries_that_cannot_be_read_are_422(url: str, where: str) -> None:
    with pytest.raises(Problem) as caught:
        parsing.read_query("http://x/api" + url, {})
    assert (caught.value.status, pointers(caught.value)) == (422, [where])


@pytest.mark.parametrize("value", ["", "0", "1001", "-1", "+5", " 5", "1_0", "5.0", "ten", "\u0665", "1e2", "true", "9" * 400])
def test_a_limit_that_is_no_plain_number_in_range_is_422(value: str) -> None:
    with pytest.raises(Problem) as caught:
        parsing.parse_query(TypeAdapter(Search), {"limit": value})
    assert (caught.value.status, pointers(caught.value)) == (422, ["?limit"])


async def test_query_parameters_arrive_typed(world: World) -> None:
    answer = await world.demo.get("/api/v1/things?limit=7&from=2026-11-21T10:00:00%2B01:00&deep=true")
    assert answer.json() == {"items": [], "limit": 7, "from": 1795251600000, "deep": True}


async def test_an_unescaped_plus_in_an_offset_is_forgiven(world: World) -> None:
    answer = await world.demo.get("/api/v1/things?from=2026-11-21T10:00:00+01:00")
    assert answer.json()["from"] == 1795251600000


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("nope=1", "?nope"),
        ("from_=2026-11-21T10:00:00Z", "?from_"),
        ("from=yesterday", "?from"),
        ("deep=1", "?deep"),
        ("deep=True", "?deep"),
        ("cursor=", "?cursor"),
        ("limit=1&limit=2", "?limit"),
    ],
)
async def test_wrong_query_parameters_are_422_at_their_name(world: World, query: str, where: str) -> None:
    answer = await world.demo.get(f"/api/v1/things?{query}")
    assert (answer.status, answer.code, answer.pointers) == (422, "invalid-content", [where])


async def test_a_required_parameter_is_asked_for(world: World) -> None:
    answer = await world.demo.get("/api/v1/at")
    assert (answer.status, answer.pointers) == (422, ["?at"])
    assert answer.json()["errors"][0]["detail"] == "is required"


async def test_a_route_without_parameters_refuses_any(world: World) -> None:
    answer = await world.demo.get("/api/v1/things/a?x=1")
    assert (answer.status, answer.pointers) == (422, ["?x"])


def test_a_branch_that_is_called_like_a_member_does_not_mislead() -> None:
    assert pointers(refused(CHANNEL, '{"type": "queue", "queue": "abc", "account": 1}')) == ["/account"]
    assert pointers(refused(CHANNEL, '{"type": "queue", "queue": 1}')) == ["/queue"]
    assert pointers(refused(CHANNEL, '{"type": "queue"}')) == ["/queue"]


def test_a_validator_of_a_whole_model_has_a_plain_message() -> None:
    found = refused(CHANNEL, '{"type": "queue", "queue": "tocsin-shards"}')
    assert [fault["pointer"] for fault in found.errors] == ["/queue"]
    assert_text("channel.reserved-queue", found.errors[0]["detail"])
