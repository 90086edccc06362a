"""The parts of a document that the agent accepts; unacceptable ones change nothing."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.clock import to_text
from shared.maintenance.agent.effects import Approve
from shared.maintenance.agent.imds.document import MAX_PROBLEMS, read
from shared.maintenance.agent.model import EventPhase, EventsDocument, ScheduledEvent, UnreadableDocument
from shared.maintenance.agent.observations import DocumentRead, PollFailed
from shared.maintenance.not_before import read_time
from tests.unit.maintenance.agent.agent_node import START, VM, Node, event


def document(*events: Any, incarnation: Any = 1, **more: Any) -> bytes:
    return json.dumps({"DocumentIncarnation": incarnation, "Events": events} | more).encode()


def believed(body: bytes) -> EventsDocument:
    found = read(body)
    assert isinstance(found, EventsDocument), found
    return found


def only(raw: Any) -> ScheduledEvent:
    (found,) = believed(document(raw)).events
    return found


NONSENSE: dict[str, bytes] = {
    "empty": b"",
    "white space": b" \n",
    "null": b"null",
    "truncated": document(event())[:-9],
    "not JSON": b"<html>Service Unavailable</html>",
    "a list": b"[]",
    "a number": b"7",
    "a string": b'"Events"',
    "an empty object": b"{}",
    "no events": b'{"DocumentIncarnation": 3}',
    "null events": b'{"DocumentIncarnation": 3, "Events": null}',
    "events in an object": b'{"DocumentIncarnation": 3, "Events": {}}',
    "an error": b'{"error": "Bad request", "newest-versions": ["2020-07-01"]}',
    "NaN": b'{"DocumentIncarnation": NaN, "Events": []}',
    "not UTF-8": b'{"DocumentIncarnation": 1, "Events": [], "x": "\xff"}',
    "deep": b"[" * 100_000,
    "a number of too many digits": b'{"DocumentIncarnation": ' + b"9" * 10_000 + b', "Events": []}',
    "events twice": b'{"DocumentIncarnation": 1, "Events": [{"EventId": "E1", "Resources": ["vm-1"]}], "Events": []}',
    "a status twice": b'{"Events": [{"EventId": "E1", "EventStatus": "Scheduled", "EventStatus": "Started", "Resources": []}]}',
    "zeros": b"\0" * 100,
}


@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE)
def test_body_that_is_no_document_says_nothing_and_moves_nothing(body: bytes) -> None:
    found = read(body)
    assert isinstance(found, UnreadableDocument) and found.reason
    node = Node().to_prepared()
    before = node.state.events
    node.clear()
    node.observe(PollFailed(found.reason))
    assert node.state.events == before
    node.wait(600)
    assert (node.runs(), node.posts(), node.phase()) == ([], [], EventPhase.PREPARED)


@given(st.binary(max_size=200) | st.text(alphabet='{}[]":,0123456789Events', max_size=60).map(str.encode))
def test_reading_never_fails(body: bytes) -> None:
    assert isinstance(read(body), EventsDocument | UnreadableDocument)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.lists(st.dictionaries(st.sampled_from(sorted(event())), _JSON, max_size=9) | _JSON, max_size=4), _JSON)
def test_any_events_are_read_and_stepped_over_without_failing(items: list[Any], incarnation: Any) -> None:
    found = read(document(*items, incarnation=incarnation).replace(b"NaN", b"0").replace(b"Infinity", b"0"))
    assert isinstance(found, EventsDocument)
    node = Node()
    node.observe(DocumentRead(found))
    node.wait(2)
    node.see()


def test_whole_event_is_read() -> None:
    raw = event("F020BA2E-3BC0-4C40-A10B-86575A9EABD5", Description="Host", unknown={"x": 1})
    assert only(raw) == ScheduledEvent(
        event_id="f020ba2e-3bc0-4c40-a10b-86575a9eabd5",
        raw_id="F020BA2E-3BC0-4C40-A10B-86575A9EABD5",
        type="Freeze",
        status="Scheduled",
        not_before=START + 900_000,
        source="Platform",
        duration=9,
        resources=(VM,),
        description="Host",
    )


def test_approval_goes_out_under_the_id_as_it_came() -> None:
    node = Node()
    node.see(event("ABC-Def", EventSource="User"))
    assert [(each.event_id, each.raw_id) for each in node.did if isinstance(each, Approve)] == [("abc-def", "ABC-Def")]


OLD = {
    "2017-08-01": ("Description", "EventSource", "DurationInSeconds"),
    "2019-04-01": ("EventSource", "DurationInSeconds"),
    "2019-08-01": ("DurationInSeconds",),
}


@pytest.mark.parametrize("fields", OLD.values(), ids=OLD)
def test_fields_that_an_older_version_lacks_are_taken_for_the_worse(fields: tuple[str, ...]) -> None:
    found = only({key: value for key, value in event().items() if key not in fields})
    assert (found.source, found.duration, found.type) == ("Platform", -1, "Freeze")
    node = Node()
    node.see({key: value for key, value in event(in_s=20, EventSource="User", DurationInSeconds=0).items() if key not in fields})
    prepared = "EventSource" in fields
    assert node.runs() == (["prepare"] if prepared else []) and node.posts() == ([] if prepared else ["e1"])


@pytest.mark.parametrize(
    ("raw", "incarnation"), [(5, 5), ("5", 5), (0, 0), (-1, -1), (None, None), ("five", None), (5.0, None), (True, None), ([5], None)]
)
def test_incarnation_may_be_a_number_or_one_in_a_string(raw: Any, incarnation: int | None) -> None:
    assert believed(document(incarnation=raw)).incarnation == incarnation


def test_documents_without_a_comparable_incarnation_are_each_new() -> None:
    node = Node()
    node.observe(DocumentRead(believed(document(event(), incarnation=None))))
    node.observe(DocumentRead(believed(document(incarnation=None))))
    assert node.phase() is EventPhase.DONE


TIMES = {
    "Mon, 19 Sep 2022 18:29:47 GMT": 1_663_612_187_000,
    "Fri, 19 Sep 2022 18:29:47 GMT": 1_663_612_187_000,  # a Monday in truth
    "19 Sep 2022 18:29:47 GMT": 1_663_612_187_000,
    "Monday, 19-Sep-2022 18:29:47 UTC": 1_663_612_187_000,
    "Monday, 19-Sep-22 18:29:47 GMT": 1_663_612_187_000,  # RFC 850
    "Mon, 19-Sep-22 18:29:47 GMT": 1_663_612_187_000,
    "Mon, 19 Sep 22 18:29:47 GMT": 1_663_612_187_000,  # RFC 822
    "19 Sep 22 18:29:47 UT": 1_663_612_187_000,
    "Mon, 19 Sep 22 14:29:47 EDT": 1_663_612_187_000,
    "Mon, 19 Sep 22 10:29:47 PST": 1_663_612_187_000,
    "Mon, 19 Sep 2022 20:29:47 +0200": 1_663_612_187_000,
    "Mon, 19 Sep 2022 09:59:47 -0830": 1_663_612_187_000,
    "Mon, 19 Sep 22 18:29 GMT": 1_663_612_140_000,
    "Sunday, 06-Nov-94 08:49:37 GMT": 784_111_777_000,
    "2022-09-19T18:29:47Z": 1_663_612_187_000,
    "2022-09-19T20:29:47+02:00": 1_663_612_187_000,
    "2022-09-19T18:29:47": 1_663_612_187_000,
    "2022-09-19T18:29:47.5Z": 1_663_612_187_500,
    " 2022-09-19 18:29:47Z ": 1_663_612_187_000,
    "9999-12-31T23:59:59.9999999Z": 253_402_300_799_999,
}


@pytest.mark.parametrize(("text", "wall"), TIMES.items())
def test_times_are_read_in_the_forms_of_four_standards(text: str, wall: int) -> None:
    assert read_time(text) == wall


@pytest.mark.parametrize(
    "raw",
    [
        *("", " ", "soon", "Mon, 31 Sep 2022 18:29:47 GMT", "19 Foo 2022 18:29:47 GMT", "25:61", 1_663_612_187, None, {}, "9" * 500),
        *("19 Sep 022 18:29:47 GMT", "Monday, 19-Sep-22 18:29:61 GMT", "19 Sep 22 18:29:47 CEST", "19 Sep 22 18:29:47 XYZ"),
        *("19 Sep 22 18:29:47 +2500", "19 Sep \uff12\uff12 18:29:47 GMT", "31-Feb-26 18:29:47 GMT", "01-Jan-69 00:00:00 GMT"),
        *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    ],
)
def test_time_that_cannot_be_read_is_none(raw: Any) -> None:
    assert read_time(raw) is None


@given(st.text(max_size=40))
def test_reading_a_time_never_fails(text: str) -> None:
    found = read_time(text)
    assert found is None or to_text(found)


@given(st.datetimes(), st.integers(-1439, 1439))
def test_time_that_was_read_can_be_written(moment: datetime, minutes: int) -> None:
    found = read_time(moment.replace(tzinfo=timezone(timedelta(minutes=minutes))).isoformat())
    assert found is None or to_text(found)


DURATIONS: list[tuple[Any, int]] = [(0, 0), (9, 9), (-1, -1), (-7, -1), ("9", 9), ("", -1), (None, -1), (True, -1), (0.2, 1), (10**12, -1)]


@pytest.mark.parametrize(("raw", "duration"), DURATIONS)
def test_duration_that_is_missing_is_unknown(raw: Any, duration: int) -> None:
    assert only(event(DurationInSeconds=raw)).duration == duration


@pytest.mark.parametrize("status", ["Paused", "Completed", "", None, 3])
def test_unknown_status_prepares_in_time_and_approves_nothing(status: Any) -> None:
    node = Node()
    node.see(event(EventStatus=status))
    node.wait(871)
    assert node.runs() == ["prepare"]
    node.hook()
    assert (node.phase(), node.posts()) == (EventPhase.PREPARED, [])
    node.see(event(EventStatus=status, EventSource="User"))
    assert node.posts() == []
    node.see(event())
    assert node.posts() == ["e1"]


def test_status_that_becomes_unknown_is_reported_once() -> None:
    node = Node()
    node.see(event())
    node.see(event(EventStatus="Paused"))
    node.see(event(EventStatus="Broken"))
    assert (node.phase(), node.warned()) == (EventPhase.WAITING, ["agent_event_status_unknown"])


def test_event_that_began_is_begun_whatever_a_later_document_says() -> None:
    node = Node().to_prepared(names=(VM, "vm-2"))
    node.see(event(status="Started"))
    node.see(event())
    node.wait(60)
    assert (node.phase(), node.posts(), node.warned()) == (EventPhase.STARTED, [], ["agent_event_went_back"])
    assert node.record().event.status == "Started"


@pytest.mark.parametrize("kind", ["", None, 7, "Levitate", "freeze"])
def test_unknown_type_is_an_impact(kind: Any) -> None:
    node = Node()
    node.see(event(EventType=kind, DurationInSeconds=0))
    assert node.posts() == (["e1"] if kind == "freeze" else [])
    assert node.phase() is EventPhase.WAITING


def test_event_without_resources_is_on_no_node() -> None:
    node = Node()
    node.see(event(names=()))
    assert node.phase() is EventPhase.FOREIGN
    assert any("nobody" in getattr(each, "text", "") for each in node.did)


UNREADABLE = {
    "no object": 7,
    "no id": {key: value for key, value in event().items() if key != "EventId"},
    "empty id": event(""),
    "id of another kind": event(EventId=17),
    "id too long": event("x" * 129),
    "id with a line break": event("a\nb"),
    "no resources": event(Resources=None),
    "resources in a string": event(Resources=VM),
    "resources of another kind": event(Resources=[VM, 7]),
}


@pytest.mark.parametrize("item", UNREADABLE.values(), ids=UNREADABLE)
def test_document_with_an_unreadable_event_shows_the_others_and_nothing_is_gone(item: Any) -> None:
    node = Node().to_prepared()
    node.post()
    node.clear()
    node.see(item, event("E2", in_s=890))
    assert believed(document(item)).problems
    assert (node.phase("e1"), node.phase("e2"), node.runs()) == (EventPhase.APPROVED, EventPhase.PREPARING, ["prepare"])
    assert node.warned() == ["agent_document_partly_unreadable"]
    node.see(item, event("E2", in_s=890))
    node.hook()
    assert (node.posts(), len(node.warned())) == ([], 1), "nothing is approved on a part of a document, and it is told once"
    node.see()
    assert node.runs() == ["prepare", "restore"]


def test_what_people_read_holds_no_characters_that_cannot_be_written() -> None:
    found = only(event(EventType="a\ud800b", Description="x\n\x1b[31m", names=("vm-2\0",)))
    assert (found.type, found.description, found.resources) == ("a?b", "x??[31m", ("vm-2?",))


def test_problems_reported_are_bounded() -> None:
    assert len(believed(document(*range(5000))).problems) == MAX_PROBLEMS


def test_event_listed_twice_is_one_and_taken_for_the_worse() -> None:
    one = event("E1", in_s=900, DurationInSeconds=0)
    for other, posts, phase in (
        (event("e1", in_s=900, DurationInSeconds=0), ["e1"], EventPhase.WAITING),
        (event("e1", in_s=900, DurationInSeconds=9), [], EventPhase.WAITING),
        (event("e1", in_s=10, DurationInSeconds=9), [], EventPhase.PREPARING),
        (event("e1", in_s=None, DurationInSeconds=9), [], EventPhase.PREPARING),
        (event("e1", in_s=900, DurationInSeconds=0, EventType="Reboot"), [], EventPhase.WAITING),
        (event("e1", status="Started", DurationInSeconds=0), [], EventPhase.STARTED),
        (event("e1", in_s=900, DurationInSeconds=0, EventStatus="Paused"), [], EventPhase.WAITING),
        (event("e1", in_s=900, DurationInSeconds=0, names=("vm-2",)), ["e1"], EventPhase.WAITING),
    ):
        for pair in ((one, other), (other, one)):
            node = Node()
            node.see(*pair)
            assert (node.posts(), node.phase(), len(node.state.events)) == (posts, phase, 1), other
    merged = believed(document(event(EventSource="User"), event("e1", names=("vm-2",)))).events[0]
    assert (merged.source, merged.resources) == ("Platform", (VM, "vm-2"))


def test_ten_thousand_events_are_taken_in_and_let_go() -> None:
    node = Node()
    others = [event(f"{number:08d}", names=(f"vm-{number}",)) for number in range(2, 10_000)]
    node.see(*others, event("mine", in_s=20))
    assert len(node.state.events) == 9_999 and node.runs() == ["prepare"]
    node.wait(3)
    node.hook()
    assert node.posts() == ["mine"]
    node.see()
    assert list(node.state.events) == ["mine"]
