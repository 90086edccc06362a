"""Ids of queued events, and signed messages: nobody but the service can make them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from shared.core.errors import Problem
from shared.core.ids import SeededIds
from shared.scheduler import rows
from shared.scheduler.ingest.messages import (
    MAX_PRODUCER_MESSAGE,
    MESSAGE_ROOM,
    QueuedEvent,
    as_stored_now,
    encode_event,
    group_encoded,
    parse_producer_message,
    parse_signed_message,
    sign_message,
    signing_key,
)
from shared.scheduler.model import EventId, EventIn
from shared.scheduler.shard.queued_ids import SHAPE, QueuedIds
from shared.scheduler.timings import KEEP_FINISHED, LONGEST_QUEUE_WAIT
from shared.storage.ports import MAX_MESSAGE_BYTES
from shared.web.parsing import member

from ..harness import START

IDS = QueuedIds("master")
KEY = signing_key("master")
CHANCE = "0123456789abcdef"
EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)
MOMENTS = st.integers(min_value=-62_135_596_800_000, max_value=253_402_300_799_999)


@given(MOMENTS, MOMENTS, st.integers(), st.sampled_from(["a", "demo", "x" * 40]))
def test_an_id_shows_its_tenant_when_its_event_was_made_and_is_due(created: int, due: int, seed: int, tenant: str) -> None:
    event_id = IDS.make(tenant, created, due, SeededIds(seed).name())
    found = IDS.read(tenant, event_id)
    assert found is not None and (found.id, found.tenant, found.created, found.due) == (event_id, tenant, created, due)
    TypeAdapter(EventId).validate_python(event_id)


@given(st.integers(min_value=0, max_value=54), st.sampled_from("0123456789abcdefghijklmnopqrstuv~q"))
def test_an_id_with_any_letter_changed_is_unknown(at: int, letter: str) -> None:
    event_id = IDS.make("demo", START, START, CHANCE)
    changed = event_id[:at] + letter + event_id[at + 1 :]
    assert (IDS.read("demo", changed) is not None) == (changed == event_id)


def test_an_id_of_another_tenant_or_another_service_is_unknown() -> None:
    event_id = IDS.make("demo", START, START, CHANCE)
    assert IDS.read("acme", event_id) is None
    assert QueuedIds("other").read("demo", event_id) is None
    assert IDS.read("demo", event_id + "\n") is None


def test_no_client_can_choose_such_an_id_whether_its_check_is_right_or_not() -> None:
    event_id = IDS.make("demo", START, START, CHANCE)
    for wanted in (event_id, event_id[:-1] + "0"):
        with pytest.raises(ValidationError, match="given by the service"):
            EVENT.validate_python({"id": wanted, "delay": "PT1S", "payload": 1})
    assert EVENT.validate_python({"id": event_id[1:], "delay": "PT1S", "payload": 1}).id == event_id[1:]


def test_an_id_follows_from_its_source_and_sources_do_not_meet() -> None:
    one = IDS.derive("demo", START, START, "kafka:a/1/2")
    assert one == IDS.derive("demo", START, START, "kafka:a/1/2")
    others = {IDS.derive("demo", START, START, source) for source in ("kafka:a/1/3", "kafka:a/12", "queue:a/1/2")}
    assert len(others | {one}) == 4 and SHAPE.fullmatch(one)


def test_nothing_is_called_queued_that_retention_may_have_removed() -> None:
    found = IDS.read("demo", IDS.make("demo", START, START, CHANCE))
    assert found is not None
    assert found.may_wait(START + LONGEST_QUEUE_WAIT - 1) and not found.may_wait(START + LONGEST_QUEUE_WAIT)
    assert LONGEST_QUEUE_WAIT < KEEP_FINISHED


def ready(**event: Any) -> rows.EventToStore:
    raw = json.dumps({"delay": "PT1S", "payload": 1} | event).encode()
    body = member(raw, "payload")
    assert body is not None
    made = rows.new_event(EVENT.validate_json(raw, strict=True), body, START, "fast")
    made.id = IDS.make("demo", START, made.due, CHANCE)
    return made


PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('abkey"\\é ', max_size=5), inner, max_size=3),
    max_leaves=10,
)


LABELS = st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text('ab"\\é', max_size=5), max_size=3)


@given(PAYLOADS, LABELS, st.integers(0, 9))
def test_an_event_comes_out_of_its_signed_message_as_it_went_in(payload: Any, labels: dict[str, str], term: int) -> None:
    made = ready(payload=payload, labels=labels, retry={"attempts": 3, "first": "PT2S"}, expires="PT1M")
    made.term = term
    opened = parse_signed_message(KEY, sign_message(KEY, [encode_event("demo", made), encode_event("acme", made)]))
    assert opened is not None and (opened.admitted, opened.tries) == (True, 0)
    made.props["id"] = str(made.id)
    assert opened.entries == [QueuedEvent("demo", made), QueuedEvent("acme", made)]


def test_a_payload_of_many_chunks_comes_out_whole() -> None:
    made = ready(payload="é" * 18_000)
    [entry] = parse_signed_message(KEY, sign_message(KEY, [encode_event("demo", made)])).entries  # type: ignore[union-attr]
    assert rows.body_of(entry.event.props) == rows.body_of(made.props) and entry.event.props["chunks"] == made.props["chunks"]


def test_signed_messages_are_as_few_as_possible_and_fit_the_queue() -> None:
    entries = [encode_event("demo", ready(payload="x" * length)) for length in (10, 40_000, 8_000, 9_000, 30_000, 10, 10)]
    groups = list(group_encoded(entries))
    assert [entry for group in groups for entry in group] == entries
    assert len(groups) == 2
    assert all(len(sign_message(KEY, group, admitted=False, tries=999).encode()) <= MAX_MESSAGE_BYTES for group in groups)


def test_the_largest_event_a_producer_may_send_fits_a_signed_message() -> None:
    shell = {"tenant": "t" * 40, "key": "k", "event": {"id": "i" * 200, "delay": "PT1S", "payload": "", "labels": {"a": '"' * 256}}}
    left = MAX_PRODUCER_MESSAGE - len(json.dumps(shell, separators=(",", ":")))
    shell["event"] |= {"payload": "x" * left}  # type: ignore[operator]
    text = json.dumps(shell, separators=(",", ":"))
    assert len(text) == MAX_PRODUCER_MESSAGE
    letter, [raw] = parse_producer_message(text)
    made = rows.new_event(EVENT.validate_json(raw, strict=True), member(raw, "payload") or b"", START)
    assert len(encode_event(letter.tenant, made)) <= MESSAGE_ROOM


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("demo", "acme"),
        lambda text: text[:-1],
        lambda text: text + " ",
        lambda text: text.replace("tocsin1.", "tocsin1.0", 1),
        lambda text: "tocsin1." + text.partition(".")[2].partition(".")[2],
        lambda text: "tocsin1.",
        lambda text: text[:20] + "é" + text[21:],
        lambda text: text + "\udcff",
    ],
)
def test_a_signed_message_that_was_changed_is_refused(change: Any) -> None:
    text = sign_message(KEY, [encode_event("demo", ready())])
    with pytest.raises(Problem) as refused:
        parse_signed_message(KEY, change(text))
    assert (refused.value.status, refused.value.code) == (403, "forged")


def test_a_signed_message_of_another_service_is_refused() -> None:
    with pytest.raises(Problem):
        parse_signed_message(KEY, sign_message(signing_key("other"), [encode_event("demo", ready())]))


def test_a_text_without_the_mark_is_no_signed_message() -> None:
    assert parse_signed_message(KEY, "") is None and parse_signed_message(KEY, "{}") is None


def test_an_event_stored_late_keeps_the_time_it_was_taken_in() -> None:
    event = as_stored_now(ready(), START + 5_000)
    assert (event.props["created"], event.props["asked"], event.props["state"]) == (START + 5_000, START, "scheduled")
    again = as_stored_now(event, START + 9_000)
    assert (again.props["created"], again.props["asked"]) == (START + 9_000, START)
    assert "asked" not in as_stored_now(ready(), START).props


def test_an_event_that_may_have_been_cancelled_and_forgotten_is_stored_as_dead() -> None:
    assert as_stored_now(ready(), START + LONGEST_QUEUE_WAIT - 1).props["state"] == "scheduled"
    assert as_stored_now(ready(), START + LONGEST_QUEUE_WAIT).props["state"] == "dead"
