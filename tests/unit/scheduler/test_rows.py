"""Event rows: in and out without a change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from shared.core.clock import to_text
from shared.core.durations import format_duration
from shared.scheduler import rows
from shared.scheduler.keys import shard_key
from shared.scheduler.model import EventIn
from shared.scheduler.properties import attempts
from shared.scheduler.shard.retries import PAUSE_JITTER, RetryPolicy, policy_of
from shared.storage import limits
from shared.storage.azure import wire
from shared.storage.ports import Insert, Row
from shared.tenants.model import DAY, DEFAULT_PAUSES, Retry

NOW = 1_800_000_000_000
EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)
SHARD = shard_key("demo", "0123456789abcdef")
BELL = "\U0001f514"

texts = st.text(st.characters(codec="utf-8"), max_size=50)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def shown(props: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(orjson.dumps(rows.representation(Row(SHARD, "e000", props, "tag", 0, 0))))
    return found


@given(values)
def test_payload_comes_back_as_it_was_sent(value: Any) -> None:
    for body in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False, indent=1).encode()):
        props = rows.body_props(body)
        assert rows.body_of(props) == body
        limits.check_entity(SHARD, "e000", props)


@given(st.integers(-3, 3), st.integers(1, 4), st.sampled_from(["x", "\u00e4", "\u2028", BELL, "\n", '\\"']))
@example(0, 1, BELL)
def test_chunks_are_cut_between_characters_and_fit_the_store(off: int, chunks: int, filler: str) -> None:
    text = '"' + "x" * (rows.CHUNK * chunks - 2 + off) + filler * 5 + '"'
    props = rows.body_props(text.encode())
    assert rows.body_of(props) == text.encode()
    assert all(len(str(part).encode("utf-16-le")) // 2 <= limits.MAX_STRING_UNITS for part in props.values())


def test_largest_payload_of_any_kind_fits_a_row() -> None:
    for filler in ("x", "\u00e4", BELL, "\u2028"):
        count = (256 * 1024 - 2) // len(filler.encode())
        body = ('"' + filler * count + '"').encode()
        event = EVENT.validate_python({"delay": "PT1S", "payload": None, "labels": {f"{n:064}": BELL * 256 for n in range(32)}})
        props = rows.new_event(event, body, NOW).props | {"id": "a" * 200}
        limits.check_entity(SHARD, "e000", props)


@given(st.text(st.sampled_from('x"\\\n\r\t\u00e4\u2028\u2029' + BELL), max_size=300))
def test_size_is_no_less_than_what_is_written(text: str) -> None:
    body = text.encode()
    props = rows.body_props(body)
    written = wire.batch_body("https://account.table.core.windows.net", "TocsinEvents", SHARD, [Insert("e000", {**props, "size": 1})])
    bare = wire.batch_body("https://account.table.core.windows.net", "TocsinEvents", SHARD, [Insert("e000", {"body": "", "size": 1})])
    assert rows.encoded_size(body) >= len(written) - len(bare)


def test_shrunken_payload_leaves_nothing_of_the_longer_one() -> None:
    longer = rows.body_props(b'"' + b"x" * 50_000 + b'"')
    merged = {**longer, "chunks": 1, **rows.body_props(b"1")}
    assert rows.body_of(merged) == b"1"


@given(
    due=st.integers(-62_135_596_800_000, 253_402_300_799_999),
    expires=st.none() | st.integers(0, 10**9),
    labels=st.none() | st.dictionaries(st.from_regex(r"[a-z.]{1,8}", fullmatch=True), texts.filter(str.isprintable), max_size=3),
    attempts=st.none() | st.integers(1, 100),
)
def test_event_is_shown_as_it_was_asked_for(due: int, expires: int | None, labels: Any, attempts: int | None) -> None:
    asked: dict[str, Any] = {"id": "x", "due": to_text(due), "payload": None}
    if expires is not None:
        asked["expires"] = format_duration(expires)
    if labels is not None:
        asked["labels"] = labels
    if attempts is not None:
        asked["retry"] = {"attempts": attempts, "first": "PT7S"}
    ready = rows.new_event(EVENT.validate_python(asked), b"null", NOW)
    found = shown(ready.props)
    assert (found["due"], found["payload"], found["state"], found["tenant"]) == (asked["due"], None, "scheduled", "demo")
    for name in ("expires", "labels", "retry"):
        assert found.get(name) == (asked.get(name) or None)
    assert ready.due == due and ready.id == "x" and ready.hash


def test_move_under_way_shows_the_new_time_and_is_scheduled() -> None:
    props = rows.new_event(EVENT.validate_python({"due": "2030-01-01T00:00:00Z", "payload": 1, "id": "x"}), b"1", NOW).props
    found = shown(props | {"state": "moving", "target_due": NOW})
    assert (found["state"], found["due"]) == ("scheduled", "2027-01-15T08:00:00.000Z")


def test_expires_that_was_taken_away_is_not_shown() -> None:
    props = rows.new_event(EVENT.validate_python({"delay": "PT1S", "expires": "PT1S", "payload": 1, "id": "x"}), b"1", NOW).props
    assert "expires" in shown(props) and "expires" not in shown(props | {"expires": -1})


def test_history_keeps_the_last_20_attempts_and_500_characters_of_an_error() -> None:
    props: dict[str, Any] = {}
    for number in range(30):
        props["history"] = attempts.with_attempt(props, NOW + number, "retry", 503, BELL * 600, 5)
    found = attempts.history_of(props)
    assert len(found) == 20 and found[0][0] == NOW + 10 and all(entry[3] == BELL * 500 for entry in found)
    limits.check_entity(SHARD, "e000", props)


SAME = [("1", "1.0"), ("100", "1e2"), ("0", "-0.0"), ('{"a":1,"b":2}', ' {"b" : 2,\n"a":1 }'), ('"\\u00e4"', '"\u00e4"'), ("0.1", "1e-1")]
OTHER = [
    ("1", '"1"'),
    ("1", "true"),
    ("0", "false"),
    ("null", "{}"),
    ("[1,2]", "[2,1]"),
    ("10000000000000000000001", "10000000000000000000002"),
    ("9007199254740993", "9007199254740992"),
    ("0.1", "0.1000000000000000055511151231257827"),
    ("1e-400", "0"),
    ("123456789012345678", '"123456789012345678"'),
    ('"a"', '"A"'),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_same_value_in_another_spelling_is_the_same(one: str, other: str) -> None:
    assert rows.canonical_json(one.encode()) == rows.canonical_json(other.encode())


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_other_value_is_another(one: str, other: str) -> None:
    assert rows.canonical_json(one.encode()) != rows.canonical_json(other.encode())


@given(values)
def test_layout_does_not_count(value: Any) -> None:
    plain = json.dumps(value).encode()
    assert rows.canonical_json(plain) == rows.canonical_json(json.dumps(value, ensure_ascii=False, indent=3, sort_keys=True).encode())


@given(st.integers(), st.integers())
def test_two_numbers_are_never_taken_for_one(one: int, other: int) -> None:
    assert (rows.canonical_json(str(one).encode()) == rows.canonical_json(str(other).encode())) == (one == other)


def test_content_counts_as_sent_delay_as_delay_and_id_not_at_all() -> None:
    def hashed(**event: Any) -> str:
        return rows.content_hash(EVENT.validate_python({"payload": 1, **event}), b"1")

    assert hashed(delay="PT60S") == hashed(delay="PT60S", id="x") != hashed(delay="PT61S")
    assert hashed(delay="PT60S") != hashed(delay="PT60S", channel="default")
    assert hashed(due="2030-01-01T00:00:00Z") != hashed(delay="PT60S")


def test_event_changes_its_tenants_retry_policy_in_part() -> None:
    tenant = Retry()
    default = RetryPolicy(10, 5_000, DAY, 4 * DAY, DEFAULT_PAUSES)
    assert policy_of(tenant, None) == policy_of(tenant, "{}") == default
    assert sum(DEFAULT_PAUSES) * (1 + PAUSE_JITTER) < 4 * DAY, "every attempt comes before the end"
    assert policy_of(tenant, '{"within":60000}') == replace(default, within=60_000)
    assert policy_of(tenant, '{"attempts":2,"max":9}') == RetryPolicy(2, 5_000, 9, 4 * DAY)
    assert policy_of(tenant, '{"first":7,"within":60000}') == RetryPolicy(8, 7, 3_600_000, 60_000)
    assert policy_of(tenant, None, "[1,2]") == RetryPolicy(3, 1, 2, 4 * DAY, (1, 2))
    listed = Retry.model_validate({"schedule": ["PT1S", "PT2S"], "within": "PT1M"})
    assert policy_of(listed, None) == RetryPolicy(3, 1_000, 2_000, 60_000, (1_000, 2_000))
    assert policy_of(listed, '{"attempts":2}') == RetryPolicy(2, 5_000, 3_600_000, 60_000)
    assert policy_of(listed, '{"within":9}', "[5]") == RetryPolicy(2, 5, 5, 9, (5,))
    figures = Retry.model_validate({"attempts": 3, "first": "PT1S"})
    assert policy_of(figures, None) == RetryPolicy(3, 1_000, 3_600_000, 4 * DAY)
    assert policy_of(figures, '{"max":9}') == RetryPolicy(3, 1_000, 9, 4 * DAY)
    assert policy_of(figures, None, "[5]") == RetryPolicy(2, 5, 5, 4 * DAY, (5,))
