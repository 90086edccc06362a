"""Files of events, read: NDJSON and CSV, lines that are none, places to go on from."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.cli.importing import reading
from shared.cli.importing.reading import BadHeader, FileFormat, FilePart, RejectedLine, read_parts
from shared.client.batches import EncodedEvent
from tests.texts import assert_text

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
PLAIN = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
CELLS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
JUNK = st.binary(max_size=30).filter(lambda text: b"\n" not in text)


def found(
    data: bytes, form: FileFormat, *, ids: bool = True, most: int = 3, room: int = 10_000, offset: int = 0, number: int = 0
) -> Iterator[FilePart]:
    file = io.BytesIO(data)
    file.seek(offset)
    return read_parts(file, form, ids=ids, most=most, room=room, offset=offset, number=number)


def flat(all_parts: Iterator[FilePart]) -> tuple[list[EncodedEvent], list[RejectedLine]]:
    listed = list(all_parts)
    return [line for part in listed for line in part.events], [bad for part in listed for bad in part.rejected]


@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=2), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
def test_every_object_of_ndjson_becomes_an_event_with_an_id(documents: list[dict[str, Any]], end: bytes, ended: bool) -> None:
    data = end.join(json.dumps(each).encode() for each in documents) + (end if ended else b"")
    events, bad = flat(found(data, "ndjson"))
    assert not bad and [line.at for line in events] == [1 + each * end.count(b"\n") for each in range(len(documents))]
    read = [json.loads(line.text) for line in events]
    given_ids = [each.pop("id") if "id" not in before else None for each, before in zip(read, documents, strict=True)]
    assert read == documents
    made = [each for each in given_ids if each is not None]
    assert len(set(made)) == len(made) and all(b"\n" not in line.text and b"\r" not in line.text for line in events)
    without = flat(found(data, "ndjson", ids=False))[0]
    assert [json.loads(line.text) for line in without] == documents
    assert [line.repeatable for line in without] == ["id" in each for each in documents]


@given(st.lists(JUNK | st.just(b'{"due": "x"}') | st.just(b"")), st.integers(1, 4), st.integers(1, 60))
def test_every_line_is_an_event_or_reported_as_bad_with_its_number(lines: list[bytes], most: int, room: int) -> None:
    data = b"\n".join(lines)
    events, bad = flat(found(data, "ndjson", most=most, room=room))
    numbers = sorted([line.at for line in events] + [each.number for each in bad])
    first = lines[0].removeprefix(b"\xef\xbb\xbf") if lines else b""
    assert numbers == [number for number, line in enumerate([first, *lines[1:]], 1) if line.strip()]


@given(st.lists(JUNK | st.just(b'{"due": "x"}'), max_size=20), st.integers(1, 4), st.data())
def test_ndjson_goes_on_from_the_end_of_any_part_as_if_it_had_not_stopped(lines: list[bytes], most: int, data: st.DataObject) -> None:
    text = b"\n".join(lines)
    whole = list(found(text, "ndjson", most=most))
    if whole:
        stop = data.draw(st.integers(0, len(whole) - 1))
        rest = list(found(text, "ndjson", most=most, offset=whole[stop].offset, number=whole[stop].number))
        assert flat(iter(rest)) == flat(iter(whole[stop + 1 :]))


@given(st.lists(st.tuples(CELLS, CELLS, VALUES), max_size=12), st.integers(1, 4), st.data())
def test_csv_gives_back_what_was_written_and_goes_on_from_any_part(
    rows: list[tuple[str, str, Any]], most: int, data: st.DataObject
) -> None:
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(["due", "labels.team", "id", "payload"])
    for number, (due, team, payload) in enumerate(rows):
        writer.writerow([due, team, f"e{number}", json.dumps(payload, indent=1)])
    text = written.getvalue().encode()
    whole = list(found(text, "csv", most=most))
    events, bad = flat(iter(whole))
    assert not bad
    assert not any(b"\n" in line.text or b"\r" in line.text for line in events)
    read = [json.loads(line.text) for line in events]
    expected = [
        {"id": f"e{number}", "payload": payload, **({"due": due} if due else {}), **({"labels": {"team": team}} if team else {})}
        for number, (due, team, payload) in enumerate(rows)
    ]
    assert read == expected
    stop = data.draw(st.integers(0, len(whole) - 1)) if whole else 0
    if whole:
        rest = list(found(text, "csv", most=most, offset=whole[stop].offset, number=whole[stop].number))
        assert flat(iter(rest)) == flat(iter(whole[stop + 1 :]))


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_csv_breaks_the_reader(lines: list[bytes]) -> None:
    events, bad = flat(found(b"due,payload\n" + b"\n".join(lines), "csv"))
    assert all(isinstance(json.loads(line.text), dict) for line in events) and all(each.number > 1 and each.why for each in bad)


def test_same_line_twice_makes_two_events_and_the_same_file_the_same_ids() -> None:
    data = b'{"due": "x", "payload": 1}\n' * 2
    first, again = (flat(found(data, "ndjson"))[0] for _ in range(2))
    assert first == again and first[0].text != first[1].text


def test_fast_events_get_no_id() -> None:
    [event], _ = flat(found(b'{"durability": "fast"}', "ndjson"))
    assert event == EncodedEvent(1, b'{"durability": "fast"}', False)


def test_numbers_pass_with_all_their_digits() -> None:
    text = b'{"id":"a","payload":{"n":123456789012345678901234567890.10}}'
    assert flat(found(text, "ndjson"))[0][0].text == text
    event = flat(found(b'due,payload\nx,"[1.10,12345678901234567890]"\n', "csv"))[0][0]
    assert b"[1.10,12345678901234567890]" in event.text


def test_line_that_is_too_long_is_bad_and_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE", 50)
    data = b'{"a": "%b"}\n{"b": 1}\n' % (b"x" * 1000)
    events, [bad] = flat(found(data, "ndjson"))
    assert bad.number == 1 and "longer than 50 bytes" in bad.why and len(bad.text) <= 51 and [line.at for line in events] == [2]
    events, [bad] = flat(found(b"due,payload\n%b\nx,1\n" % (b"x" * 1000), "csv"))
    assert bad.number == 2 and [line.at for line in events] == [3]


def test_parts_end_where_bytes_or_lines_are_enough() -> None:
    data = b'{"id": "a"}\n' * 10
    assert [len(part.events) for part in found(data, "ndjson", most=4)] == [4, 4, 2]
    assert [len(part.events) for part in found(data, "ndjson", most=100, room=20)] == [2] * 5
    assert [part.offset for part in found(data, "ndjson", most=4)] == [48, 96, 120]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("due", "neither payload"),
        ("payload", "neither due nor delay"),
        ("due,payload,what", "'what'"),
        ("due,payload,", "''"),
        ("due,payload,payload.x", "both payload"),
        ("due,payload,due", "twice"),
        ('due,"payload', "not CSV"),
        ("", "neither due"),
    ],
)
def test_header_that_names_no_event_is_refused(header: str, why: str) -> None:
    with pytest.raises(BadHeader, match=why):
        list(found(header.encode(), "csv"))


def test_csv_columns_with_dots_make_objects_and_bad_cells_are_reported() -> None:
    data = b"delay,payload.a,payload.b,labels.x,retry.attempts\nPT1S,1,,y,3\nPT1S,,,,\nPT1S,1\nPT1S,1,2,3,x\n"
    events, bad = flat(found(data, "csv", ids=False))
    assert [json.loads(line.text) for line in events] == [
        {"delay": "PT1S", "payload": {"a": "1"}, "labels": {"x": "y"}, "retry": {"attempts": 3}},
        {"delay": "PT1S", "payload": {}},
    ]
    assert [each.number for each in bad] == [4, 5]
    assert_text("import.faulty-cells", [each.why for each in bad], cells=2, columns=5, column="retry.attempts", cell="x")
    [several, one], _ = flat(found(b"delay,channel,channels,payload\nPT1S,,billing  stock,1\nPT1S,billing,,1\n", "csv", ids=False))
    assert json.loads(several.text)["channels"] == ["billing", "stock"] and json.loads(one.text)["channel"] == "billing"
    assert "channel" not in json.loads(several.text) and "channels" not in json.loads(one.text)
    data = b"due,target.method,timeout\nx,GET,PT5S\nx,DELETE,\nx,PUT,\n"
    events, bad = flat(found(data, "csv", ids=False))
    assert [json.loads(line.text) for line in events] == [
        {"due": "x", "target": {"method": "GET"}, "timeout": "PT5S"},
        {"due": "x", "target": {"method": "DELETE"}},
    ]
    assert [each.why for each in bad] == ["no payload"]
    _, bad = flat(found(b"due,payload\nx,{\nx,\n", "csv"))
    assert [each.why.partition(":")[0] for each in bad] == ["the payload is not JSON", "no payload"]
