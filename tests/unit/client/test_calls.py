"""The request of each operation, and the values refused before anything is sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from shared.client import calls
from shared.client.batches import encode_events

DUE = datetime(2030, 1, 1, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=2)))


def body_of(call: Any) -> Any:
    return json.loads(call.body)


def test_times_and_durations_go_out_as_the_api_has_them() -> None:
    call = calls.schedule(
        {"n": 1},
        id="order-17",
        due=DUE,
        channel="orders",
        expires=timedelta(minutes=10),
        flex=timedelta(hours=1, microseconds=1),
        durability="mirrored",
        retry={"attempts": 3, "first": timedelta(seconds=2), "within": timedelta(days=1)},
        labels={"team": "orders"},
    )
    assert (call.method, call.path, call.media) == ("POST", "events", "application/json")
    assert body_of(call) == {
        "id": "order-17",
        "due": "2030-01-01T10:00:00.001Z",  # rounded up: never early
        "channel": "orders",
        "expires": "PT10M",
        "flex": "PT1H0.001S",
        "durability": "mirrored",
        "retry": {"attempts": 3, "first": "PT2S", "within": "P1D"},
        "labels": {"team": "orders"},
        "payload": {"n": 1},
    }


def test_event_without_an_id_gets_one_that_is_its_own() -> None:
    one, other = (body_of(calls.schedule(1, delay=timedelta(0)))["id"] for _ in range(2))
    assert one != other and one.startswith("~") and len(one) == 33


def test_fast_event_gets_its_id_from_the_service() -> None:
    assert body_of(calls.schedule(1, delay=timedelta(0), durability="fast")) == {"delay": "PT0S", "durability": "fast", "payload": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"due": datetime(2030, 1, 1)}, "due: .* has no time zone"),
        ({"delay": timedelta(seconds=-1)}, "delay: .* is negative"),
        ({}, "exactly one of due and delay"),
        ({"due": DUE, "delay": timedelta(1)}, "exactly one of due and delay"),
        ({"due": DUE, "retry": {"first": timedelta(-1)}}, "retry.first: .* is negative"),
    ],
)
def test_times_that_mean_nothing_are_refused_before_anything_is_sent(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calls.schedule(1, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": 5}, r"delay: 5 is not a timedelta; write timedelta\(seconds=5\)$"),
        ({"delay": 0.5}, r"write timedelta\(seconds=0.5\)$"),
        ({"delay": True}, r"delay: True is not a timedelta$"),
        ({"delay": DUE}, r"delay: .* is not a timedelta$"),
        ({"due": timedelta(1)}, "due: .* is not a datetime"),
        ({"due": DUE.date()}, "due: .* is not a datetime"),
        ({"due": 1893456000}, "due: 1893456000 is not a datetime with a time zone"),
        ({"due": DUE, "expires": 60}, "expires: 60 is not"),
        ({"due": DUE, "flex": [1]}, r"flex: \[1\] is not"),
        ({"due": DUE, "retry": {"within": 3600}}, "retry.within: 3600 is not"),
    ],
)
def test_numbers_and_the_like_are_no_times_and_the_error_says_what_to_write(options: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        calls.schedule(1, **options)
    with pytest.raises(TypeError, match=message.removesuffix("$")) as refused:
        list(encode_events([{"payload": 0, "delay": timedelta(1)}, {"payload": 1, **options}], make_ids=False))
    assert refused.value.__notes__ == ["event 1 of the batch"]


@pytest.mark.parametrize("options", [{"every": 60}, {"start": 1}, {"jitter": 2.5}, {"catch_up": {"policy": "all", "within": 60}}])
def test_times_of_schedules_changes_and_lists_are_checked_too(options: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a (timedelta|datetime)"):
        calls.put_schedule("daily", 1, None, options)
    with pytest.raises(TypeError, match="delay: 5 is not"):
        calls.change("e", {"delay": 5})
    with pytest.raises(TypeError, match="from: 5 is not"):
        calls.events(since=5, cursor=None)  # type: ignore[arg-type]


def test_text_in_place_of_a_time_goes_as_it_is_and_labels_are_no_times() -> None:
    body = body_of(calls.schedule(1, delay="PT5S", labels={"first": "x", "due": "y"}))  # type: ignore[typeddict-item]
    assert (body["delay"], body["labels"]) == ("PT5S", {"first": "x", "due": "y"})


def test_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="no such option: chanel"):
        calls.schedule(1, due=DUE, chanel="x")  # type: ignore[call-arg]


@pytest.mark.parametrize("payload", [float("nan"), {"a": [float("inf")]}, "\ud800"])
def test_payload_that_is_no_json_is_a_value_error(payload: Any) -> None:
    with pytest.raises(ValueError):
        calls.schedule(payload, due=DUE)


@pytest.mark.parametrize("payload", [{1, 2}, datetime(2030, 1, 1, tzinfo=UTC), b"x"])
def test_payload_of_a_type_that_json_lacks_is_a_type_error(payload: Any) -> None:
    with pytest.raises(TypeError):
        calls.schedule(payload, due=DUE)


def test_bytes_go_out_as_base64_with_their_type_and_a_request_without_a_body_has_no_payload() -> None:
    xml = {"payload": "PGEvPg==", "content_type": "text/xml"}
    for call in (
        calls.schedule(b"<a/>", due=DUE, content_type="text/xml"),
        calls.change("e", {"payload": b"<a/>", "content_type": "text/xml"}),
        calls.put_schedule("s", b"<a/>", None, {"every": timedelta(minutes=1), "content_type": "text/xml"}),
    ):
        assert {name: body_of(call)[name] for name in xml} == xml
    with pytest.raises(TypeError, match="needs content_type"):
        calls.schedule(b"<a/>", due=DUE)
    for method, payload, sent in (
        ("GET", None, False),
        ("DELETE", None, False),
        ("DELETE", 0, True),
        ("PUT", None, True),
        ("GET", 0, True),
    ):
        call = calls.schedule(payload, due=DUE, target={"method": method})  # type: ignore[typeddict-item]
        assert ("payload" in body_of(call)) == sent


def test_own_terms_of_events_and_schedules_go_out_as_the_api_has_them() -> None:
    terms: Any = {"timeout": timedelta(seconds=45), "retry": {"schedule": [timedelta(minutes=1)]}}
    wanted = {"timeout": "PT45S", "retry": {"schedule": ["PT1M"]}}
    for call in (
        calls.schedule(1, due=DUE, **terms),
        calls.change("e", terms),
        calls.put_schedule("s", 1, None, {"every": timedelta(minutes=1), **terms}),
    ):
        assert {name: body_of(call)[name] for name in wanted} == wanted
    assert body_of(calls.schedule(1, due=DUE, expires=None))["expires"] is None
    assert body_of(calls.change("e", {"timeout": None, "retry": None})) == {"timeout": None, "retry": None}


def test_numbers_keep_all_their_digits() -> None:
    assert calls.encode([2**200, 0.1, "Grüße"]) == f'[{2**200},0.1,"Grüße"]'.encode()


@pytest.mark.parametrize("id", ["", ".", "..", "a/b", "a b", "ü", "a" * 201, "a?b", "a\n"])
def test_what_is_no_id_is_refused_before_it_becomes_another_path(id: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        calls.get(id)


def test_ids_go_into_the_path_as_they_are_found_there() -> None:
    assert calls.get("order-17:time-out@x~y_z").path == "events/order-17:time-out@x~y_z"
    assert calls.fire("ov2l3h28mdjiiknf.000").path == "events/ov2l3h28mdjiiknf.000/fire"


def test_lists_ask_for_large_pages_and_only_for_filters_given() -> None:
    assert calls.events(cursor=None).query == {"limit": "1000"}
    call = calls.events(since=DUE, state="dead", cursor="c")
    assert call.query == {"limit": "1000", "cursor": "c", "from": "2030-01-01T10:00:00.001Z", "state": "dead"}


def test_changes_keep_null_for_what_is_taken_away() -> None:
    call = calls.change("e", {"payload": None, "expires": None, "delay": timedelta(hours=1)}, if_match='"v"')
    assert body_of(call) == {"payload": None, "expires": None, "delay": "PT1H"} and call.headers == {"if-match": '"v"'}
    with pytest.raises(ValueError, match="at least one field"):
        calls.change("e", {})


def test_schedules_go_out_with_their_catch_up() -> None:
    catch_up = {"policy": "all", "within": timedelta(hours=1)}
    call = calls.put_schedule("daily", {"n": 1}, None, {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "catch_up": catch_up})
    assert (call.method, call.path) == ("PUT", "schedules/daily")
    assert body_of(call) == {
        "cron": "0 9 * * *",
        "timezone": "Europe/Berlin",
        "catch_up": {"policy": "all", "within": "PT1H"},
        "payload": {"n": 1},
    }
    with pytest.raises(TypeError, match="no such option: corn"):
        calls.put_schedule("daily", 1, None, {"corn": "* * * * *"})  # type: ignore[typeddict-unknown-key]


def test_any_operation_keeps_its_query_apart_from_its_path() -> None:
    call = calls.raw("GET", "tenants?limit=2&cursor=a%2Bb")
    assert (call.path, call.query, call.body) == ("tenants", {"limit": "2", "cursor": "a+b"}, b"")
