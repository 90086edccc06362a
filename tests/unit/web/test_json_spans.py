"""Places of values in JSON: equal to what a parser finds, in bounded steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from shared.core.errors import Problem
from shared.web import bodies, json_spans, parsing
from shared.web.json_spans import Malformed, Span, array_elements, lines, member_span
from shared.web.parsing import parse_in_steps
from tests.texts import assert_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=15,
)
"""Small values: all kinds, empty ones and nesting appear in few elements."""


def found(raw: bytes, levels: int = 64) -> list[bytes]:
    return [raw[span.start : span.end] for span in array_elements(raw, levels) if span is not None]


@given(st.lists(VALUES, max_size=6), st.sampled_from([None, 2]), st.booleans())
def test_elements_are_those_of_a_parser(values: list[Any], indent: int | None, ascii_only: bool) -> None:
    raw = (" \n" + json.dumps(values, indent=indent, ensure_ascii=ascii_only) + "\t").encode("utf-8", "surrogatepass")
    assert [json.loads(element.decode("utf-8", "surrogatepass")) for element in found(raw)] == values


@given(st.lists(VALUES, max_size=6), st.integers(1, 40), st.integers(1, 40), st.integers(1, 6))
def test_elements_are_the_same_however_small_the_steps(values: list[Any], step: int, piece: int, tokens: int) -> None:
    raw = json.dumps(values, indent=1).encode()
    expected = found(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_spans, "STEP", step)
        patch.setattr(json_spans, "PIECE", 4 * piece)
        patch.setattr(json_spans, "_SHORTEST_PIECE", piece)
        patch.setattr(json_spans, "TOKENS", tokens)
        assert found(raw) == expected
        text = b"\n\n".join(expected).replace(b"\n ", b" ")
        assert [text[span.start : span.end] for span in lines(text) if span] == [line for line in text.split(b"\n") if line.strip()]


@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=6))
def test_a_member_is_the_one_of_a_parser(document: dict[str, Any]) -> None:
    raw = json.dumps(document).encode()
    for name, value in document.items():
        span = member_span(raw, name, 64)
        assert span is not None and json.loads(raw[span.start : span.end]) == value


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[", b"[1", b"[1,", b"[1,]", b"[,1]", b"[1 2]", b"[1]x", b'["a', b'["\\', b"[[1]", b"[}", b"[:1]", b"[1][]"]
)
def test_what_is_no_array_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        found(raw)


@pytest.mark.parametrize("levels", [1, 2, 3, 64])
@pytest.mark.parametrize("leaf", [b"", b"1", b'"]"'])
def test_depth_is_known_without_parsing(levels: int, leaf: bytes) -> None:
    for depth in range(1, 70):
        raw = b"[" + b"[" * depth + leaf + b"]" * depth + b',{"a":1}]'
        spans = [span for span in array_elements(raw, levels) if span]
        assert [span.deep for span in spans] == [depth > levels, False]


MIB = 1024 * 1024
HOSTILE = {
    "lists in a list": lambda: b"[[" + b"[]," * (5 * MIB) + b"[]]]",
    "nested lists": lambda: b"[[" + b"[[[]]]," * (2 * MIB) + b"[]]]",
    "objects": lambda: b"[[" + b"{}," * (5 * MIB) + b"{}]]",
    "open brackets": lambda: b"[" * (16 * MIB),
    "white space": lambda: b"[" + b" " * (16 * MIB) + b"]",
    "one string": lambda: b'["' + b"x" * (16 * MIB) + b'"]',
    "escapes": lambda: b'["' + b'\\"' * (8 * MIB) + b'"]',
    "strings": lambda: b"[[" + b'"",' * (5 * MIB) + b'""]]',
    "long strings": lambda: b"[[" + (b'"' + b"x" * 20_000 + b'",') * 800 + b"0]]",
    "a number": lambda: b"[" + b"9" * (16 * MIB) + b"]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_read_in_many_steps(name: str) -> None:
    raw = HOSTILE[name]()
    pauses = 0
    try:
        for span in array_elements(raw, 64):
            pauses += span is None
    except Malformed:
        assert name == "open brackets"
    assert pauses >= len(raw) // json_spans.STEP - 2


@pytest.mark.parametrize(
    "raw", [b"[[" + b"[[]]," * 400_000 + b"0]]", b"[[" + b'{"a":[0]},' * 200_000 + b"0]]", b"[" * 70 + b"[[],0]," * 300_000]
)
def test_brackets_are_counted_in_whole_steps(raw: bytes) -> None:
    pauses = 0
    try:
        for span in array_elements(raw, 64):
            pauses += span is None
    except Malformed:
        assert raw.startswith(b"[[[")
    assert pauses <= len(raw) // json_spans.STEP + 1, "a step ends after its bytes, however many brackets they have"


def test_blank_lines_are_skipped_in_steps() -> None:
    raw = b" \n" * (8 * MIB) + b"x"
    found = list(lines(raw))
    assert found[-1] == Span(len(raw) - 1, len(raw)) and len(found) >= len(raw) // json_spans.STEP


async def test_the_number_of_elements_is_bounded_before_any_is_parsed() -> None:
    assert len(await bodies.element_spans(b"[1,2,3]", 3, by_line=False)) == 3
    for raw, by_line in ((b"[1,2,3,4" + b"[" * 1000, False), (b"1\n2\n3\n4\n", True)):
        with pytest.raises(Problem) as refused:
            await bodies.element_spans(raw, 3, by_line=by_line)
        assert refused.value.status == 413


def test_bodies_in_work_are_bounded() -> None:
    budget = bodies.BodyBudget(100)
    budget.take(60)
    budget.take(40)
    with pytest.raises(Problem) as refused:
        budget.take(1)
    assert refused.value.status == 503 and int(refused.value.headers["retry-after"]) > 0
    budget.release(40)
    budget.take(40)
    budget.release(60)
    budget.release(40)
    budget.take(1000)  # An only body always has room.


def single(outside: bytes, payload: bytes) -> bytes:
    return b'{"delay":"PT1H",' + outside + b'"payload":' + payload + b"}"


@pytest.mark.parametrize(
    "raw",
    [
        single(b"", b"[" + b"[[]]," * 100_000 + b"0]"),
        single(b"", b"[" + b'{"a":{"b":{}}},' * 30_000 + b"0]"),
        single(b"", b'"' + b'\\"' * 250_000 + b'"'),
        single(b" " * 500_000, b"1"),
    ],
    ids=["lists", "objects", "escapes", "white space"],
)
def test_one_large_event_is_read_in_many_steps(raw: bytes) -> None:
    steps, count = parse_in_steps(TypeAdapter(Any), raw, "payload"), 0
    for _ in steps:
        count += 1
    assert count >= len(raw) // json_spans.STEP


@pytest.mark.parametrize(
    ("outside", "key"),
    [
        (b"".join(b'"a%d":0,' % number for number in range(50_000)), "problem.members"),
        (b"".join(b'"\\u0061%d":0,' % number for number in range(30_000)), "problem.members"),
        (b'"z":[' + b"[]," * 150_000 + b"[]],", "problem.bytes-beside-payload"),
        (b'"z":["[",' + b"{}," * 1_000 + b'"[["],' + b" " * 10_000, "problem.arrays-and-objects"),
    ],
    ids=["members", "names with escapes", "lists", "empty objects"],
)
def test_what_is_larger_than_any_event_is_not_built(monkeypatch: pytest.MonkeyPatch, outside: bytes, key: str) -> None:
    monkeypatch.setattr(parsing, "_load", None)
    with pytest.raises(Problem) as refused:
        parsing.parse_with(TypeAdapter(Any), single(outside, b"1"), "payload")
    assert refused.value.status == 422
    assert_text(key, refused.value.errors[0]["detail"])


def test_beside_the_payload_an_event_may_have_a_thousand_containers_and_brackets_in_texts() -> None:
    raw = single(b'"z":["' + b"[" * 10_000 + b'",' + b"{}," * 998 + b"0],", b"[" + b"[]," * 10_000 + b"0]")
    parsed, _ = parsing.parse_with(TypeAdapter(dict[str, Any]), raw, "payload")
    assert parsed["payload"] is None and len(parsed["z"]) == 1000
    with pytest.raises(Problem) as malformed:
        parsing.parse_with(TypeAdapter(Any), raw.replace(b"{},", b"{},{},{x},", 1000), "payload")
    assert malformed.value.code == "malformed-json"


def test_a_large_array_is_refused_in_steps_and_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    load = parsing._load
    monkeypatch.setattr(parsing, "_load", lambda raw, any_number: loaded.append(len(raw)) or load(raw, any_number))
    steps, count = parse_in_steps(TypeAdapter(dict[str, Any]), b" [" + b"[[]]," * 100_000 + b"0]", "payload"), 0
    with pytest.raises(Problem) as refused:
        for _ in steps:
            count += 1
    assert refused.value.errors[0]["detail"] == "must be an object" and loaded == [2]
    assert count >= 500_000 // json_spans.STEP


@given(
    VALUES,
    st.booleans(),
    st.sampled_from([b"", b" ", b",", b"]", b" 1", b"NaN", b"1e400", b'"\\ud800"', b'"\xff"', b"\x01"]),
    st.floats(0, 1),
)
def test_json_is_told_from_other_text_as_by_the_parser(value: Any, ascii_only: bool, other: bytes, where: float) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    at = round(len(raw) * where)
    for text in (raw, raw[:at], raw[:at] + other + raw[at:]):
        try:
            parsing._load(text, any_number=True)
            expected = True
        except Problem:
            expected = False
        assert parsing._is_json(text) is expected


async def test_a_body_of_short_elements_is_read_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = 0

    async def take_turn(reader: bodies.Reader) -> None:
        nonlocal pauses
        pauses += 1

    monkeypatch.setattr(bodies, "take_turn", take_turn)
    element = b'{"delay":"PT1H","payload":[{},{},{}]}'
    for raw, by_line in ((b"[" + b",".join([element] * 20_000) + b"]", False), (b"\n".join([element] * 20_000), True)):
        pauses = 0
        assert len(await bodies.element_spans(raw, 20_000, by_line=by_line)) == 20_000
        assert pauses >= 20_000 * (len(element) + bodies.FINDING_COST) // bodies.PACE - 1
