"""Answers become dataclasses: the types of their fields, what is ignored, and what does not fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypedDict

import pytest

from shared.client.reading import Misfit, answer, read_json, reader_of


@answer
class Part:
    at: datetime
    took: int = 0


@answer
class Whole:
    id: str
    ratio: float = 0.0
    open: bool = False
    day: date | None = None
    within: timedelta | None = None
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, Part] = field(default_factory=dict)
    extra: Any = None
    created: datetime


@answer
class Page[T]:
    items: tuple[T, ...]
    first: T | None = None
    next: str | None = None


CREATED = "2026-11-21T10:21:55.250Z"
AT = datetime(2026, 11, 21, 10, 21, 55, 250000, UTC)


def whole(**members: Any) -> Whole:
    return reader_of(Whole)({"id": "a", "created": CREATED, **members})


def test_each_type_is_read_and_unknown_fields_are_ignored() -> None:
    part = {"at": "2026-11-21T12:21:55.25+02:00", "took": 7, "newer": 1}
    found = whole(
        ratio=1,
        open=True,
        day="2026-12-24",
        within="P1DT1.5S",
        part=part,
        parts=[part],
        labels={"a": "b"},
        counts={"c": part},
        extra=[{"x": None}],
        newer={},
    )
    read = Part(at=AT, took=7)
    assert found == Whole(
        id="a",
        ratio=1.0,
        open=True,
        day=date(2026, 12, 24),
        within=timedelta(days=1, seconds=1.5),
        part=read,
        parts=(read,),
        labels={"a": "b"},
        counts={"c": read},
        extra=[{"x": None}],
        created=AT,
    )
    assert type(found.ratio) is float


def test_members_that_are_absent_or_null_have_their_default() -> None:
    assert whole(day=None, part=None, extra=None) == Whole(id="a", created=AT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 1},
        {"id": None},
        {"ratio": "1"},
        {"open": 1},
        {"day": "24.12."},
        {"day": 3},
        {"within": 30},
        {"within": "30 s"},
        {"part": {"at": CREATED, "took": True}},
        {"part": {"at": CREATED, "took": 1.5}},
        {"part": {"took": 1}},
        {"part": []},
        {"parts": {}},
        {"parts": [1]},
        {"parts": "ab"},
        {"labels": {"a": 1}},
        {"labels": [1]},
        {"counts": {"a": 1}},
        {"created": "2026-11-21T10:21:55"},
        {"created": 1_764_000_000},
        {"ratio": 10**400},
    ],
)
def test_a_value_of_another_type_names_its_field_and_not_itself(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misfit) as raised:
        whole(**wrong)
    assert str(raised.value) == next(iter(wrong))


def test_all_faulty_and_missing_fields_are_named() -> None:
    with pytest.raises(Misfit) as raised:
        reader_of(Whole)({"ratio": "x", "open": 0})
    assert raised.value.names == ["created", "id", "open", "ratio"]


@pytest.mark.parametrize("document", [None, [], "a", 1])
def test_a_document_that_is_no_object_does_not_fit(document: Any) -> None:
    with pytest.raises(TypeError):
        reader_of(Whole)(document)


def test_a_page_reads_the_items_that_it_is_made_for() -> None:
    item = {"at": CREATED}
    assert reader_of(Page[Part])({"items": [item], "first": item}) == Page(items=(Part(at=AT),), first=Part(at=AT))
    assert reader_of(Page[str])({"items": ["a"], "next": "b"}) == Page(items=("a",), next="b")


def test_an_answer_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        whole().id = "b"  # type: ignore[misc]


def test_a_type_that_answers_do_not_have_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="bytes"):
        reader_of(bytes)({})


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b"\xff\xfe", b'"\\ud800"', b"[" * 100_000, b'{"a":' * 100_000])
def test_unusable_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_json(text)


def test_escapes_and_large_numbers_are_read() -> None:
    document = {"a": "\u00fc \U0001f514", "n": 2**70}
    assert read_json(json.dumps(document).encode()) == document


class Definition(TypedDict, total=False):
    url: str


@answer
class Described:
    definition: Definition


def test_a_typed_dictionary_is_taken_as_it_is() -> None:
    definition: Any = {"url": "https://shop.example", "newer": 1}
    assert reader_of(Described)({"definition": definition}).definition == definition
