"""One call and its retries: repeated requests, requests that are never repeated, and the final result."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

import shared as tocsin
from shared.client import calls
from shared.client.exchange import ApiCall, ApiReply, ConnectionFailure, RetrySettings, exchange
from shared.client.resources import calls as resource_calls

from .call_runner import run_call

LOST = ConnectionFailure(True, "no answer in time")
UNSENT = ConnectionFailure(False, "no connection")
EVENT = {"id": "e1", "tenant": "demo", "state": "scheduled", "due": "2030-01-01T00:00:00.000Z", "created": "2029-01-01T00:00:00.000Z"}
SCHEDULED = ApiReply(201, {"etag": '"v1"'}, orjson.dumps(EVENT))
PATIENCE = RetrySettings(retries=3)


def problem(status: int, code: str, **headers: str) -> ApiReply:
    body = {"type": f"https://tocsin.dev/problems/{code}", "title": code, "status": status, "detail": "why"}
    return ApiReply(status, {name.replace("_", "-"): value for name, value in headers.items()}, orjson.dumps(body))


class Exchanged:
    """A call that was run on scripted answers: its result or error, the requests sent and the pauses."""

    def __init__(self, call: ApiCall[Any], *answers: ApiReply | ConnectionFailure, retry_settings: RetrySettings = PATIENCE) -> None:
        self.sent: list[str] = []
        self.slept: list[float] = []
        self.result: Any = None
        self.error: tocsin.TocsinError | None = None
        left = iter(answers)

        def reply(call: ApiCall[Any]) -> ApiReply | ConnectionFailure:
            self.sent.append(f"{call.method} {call.path}")
            return next(left)

        try:
            self.result = run_call(exchange(call, retry_settings, lambda: 1.0), reply, self.slept)
        except tocsin.TocsinError as error:
            self.error = error
        assert next(left, None) is None, "an answer was not asked for"


def schedule(**options: Any) -> ApiCall[Any]:
    return calls.schedule({"n": 1}, due=datetime(2030, 1, 1, tzinfo=UTC), **options)


def test_answer_is_read_with_its_etag() -> None:
    exchanged = Exchanged(schedule(), SCHEDULED)
    assert (exchanged.result.id, exchanged.result.etag, exchanged.result.final) == ("e1", '"v1"', False)
    assert exchanged.result.due == datetime(2030, 1, 1, tzinfo=UTC) and exchanged.slept == []


def test_lost_answer_of_a_schedule_is_asked_for_again_since_its_id_makes_that_safe() -> None:
    assert Exchanged(schedule(), LOST, SCHEDULED).result.id == "e1"
    assert Exchanged(schedule(id="mine"), LOST, LOST, SCHEDULED).slept == [0.2, 0.4]


def test_lost_answer_of_a_fast_event_is_reported_at_once() -> None:
    exchanged = Exchanged(schedule(durability="fast"), LOST)
    assert isinstance(exchanged.error, tocsin.Unreachable) and exchanged.error.sent


def test_fast_event_is_sent_again_where_nothing_can_have_been_taken() -> None:
    assert Exchanged(schedule(durability="fast"), UNSENT, problem(429, "too-many-requests", retry_after="2"), SCHEDULED).slept == [0.2, 2.4]


@pytest.mark.parametrize("status", [502, 503, 504])
def test_gateway_errors_are_tried_again_only_where_twice_is_once(status: int) -> None:
    assert Exchanged(schedule(), problem(status, "storage-unavailable", retry_after="1"), SCHEDULED).slept == [1.2]
    exchanged = Exchanged(schedule(durability="fast"), problem(status, "storage-unavailable", retry_after="1"))
    assert isinstance(exchanged.error, tocsin.ServerFailed) and exchanged.error.uncertain


@pytest.mark.parametrize(("status", "kind"), [(401, "Unauthenticated"), (403, "Forbidden"), (404, "NotFound"), (409, "Conflict")])
def test_refusals_are_reported_at_once(status: int, kind: str) -> None:
    exchanged = Exchanged(schedule(), problem(status, "a-code"))
    assert type(exchanged.error).__name__ == kind and isinstance(exchanged.error, tocsin.Refused)
    assert (exchanged.error.status, exchanged.error.code, exchanged.error.detail, exchanged.error.uncertain) == (
        status,
        "a-code",
        "why",
        False,
    )
    assert exchanged.error.type == "https://tocsin.dev/problems/a-code"


@pytest.mark.parametrize(
    ("status", "kind"), [(411, "Invalid"), (412, "Changed"), (413, "Invalid"), (415, "Invalid"), (418, "Refused"), (500, "ServerFailed")]
)
def test_every_status_has_its_class(status: int, kind: str) -> None:
    assert type(Exchanged(schedule(), problem(status, "a-code")).error).__name__ == kind


def test_invalid_content_says_where() -> None:
    body = {"type": "x/invalid-content", "status": 422, "detail": "two", "errors": [{"pointer": "/due", "detail": "no offset"}, "odd"]}
    exchanged = Exchanged(schedule(), ApiReply(422, {}, orjson.dumps(body)))
    assert isinstance(exchanged.error, tocsin.Invalid) and exchanged.error.errors == (tocsin.Fault("/due", "no offset"),)


def test_conflict_that_asks_for_a_moment_is_given_it() -> None:
    assert Exchanged(calls.fire("q1"), problem(409, "still-queued", retry_after="1"), SCHEDULED).slept == [1.2]
    assert Exchanged(calls.fire("q1"), problem(409, "still-queued")).slept == []


def test_retries_end_and_the_last_answer_is_reported() -> None:
    exchanged = Exchanged(schedule(), *[problem(503, "storage-unavailable")] * 4)
    assert isinstance(exchanged.error, tocsin.ServerFailed) and exchanged.slept == [0.2, 0.4, 0.8]
    assert isinstance(Exchanged(schedule(), *[UNSENT] * 4).error, tocsin.Unreachable)


def test_longer_waits_than_the_client_has_patience_for_are_reported_at_once() -> None:
    exchanged = Exchanged(schedule(), problem(429, "too-many-requests", retry_after="31"))
    assert isinstance(exchanged.error, tocsin.TooMany) and exchanged.error.retry_after == 31.0


def test_nothing_is_sent_twice_by_a_client_without_retries() -> None:
    assert isinstance(Exchanged(schedule(), UNSENT, retry_settings=RetrySettings(0)).error, tocsin.Unreachable)


def test_unreachable_says_whether_an_earlier_try_may_have_been_taken() -> None:
    for answers, sent in (([LOST, UNSENT, UNSENT, UNSENT], True), ([UNSENT] * 4, False)):
        error = Exchanged(schedule(), *answers).error
        assert isinstance(error, tocsin.Unreachable) and error.sent is sent


def test_refusal_after_a_lost_answer_is_uncertain() -> None:
    error = Exchanged(schedule(), LOST, problem(403, "missing-scope")).error
    assert isinstance(error, tocsin.Forbidden) and error.uncertain


def in_state(state: str) -> ApiReply:
    return ApiReply(200, {}, orjson.dumps(EVENT | {"state": state}))


def test_second_cancel_after_a_lost_answer_finds_that_the_first_one_worked() -> None:
    exchanged = Exchanged(calls.cancel("e1"), LOST, problem(409, "already-final"), in_state("cancelled"))
    assert exchanged.error is None and exchanged.sent == ["DELETE events/e1", "DELETE events/e1", "GET events/e1"]


def test_second_cancel_after_a_lost_answer_does_not_hide_that_the_event_was_delivered() -> None:
    exchanged = Exchanged(calls.cancel("e1"), LOST, problem(409, "already-final"), in_state("delivered"))
    assert isinstance(exchanged.error, tocsin.Conflict) and exchanged.error.code == "already-final"


def test_cancel_of_a_cancelled_event_is_refused_when_no_answer_was_lost() -> None:
    assert Exchanged(calls.cancel("e1"), problem(409, "already-final")).sent == ["DELETE events/e1"]


def test_fire_and_redrive_find_out_after_a_lost_answer() -> None:
    assert Exchanged(calls.fire("e1"), LOST, problem(409, "already-firing"), in_state("firing")).result.state == "firing"
    assert Exchanged(calls.redrive("e1"), LOST, problem(409, "not-dead"), in_state("scheduled")).result.state == "scheduled"
    assert Exchanged(calls.fire("e1"), LOST, problem(409, "already-final"), in_state("cancelled")).error is not None


def test_change_with_a_version_is_not_repeated_since_a_second_try_proves_nothing() -> None:
    assert Exchanged(calls.change("e1", {"payload": 2}), LOST, SCHEDULED).error is None
    assert isinstance(Exchanged(calls.change("e1", {"payload": 2}, if_match='"v1"'), LOST).error, tocsin.Unreachable)


def test_trigger_and_rotate_have_an_id_of_their_own_with_which_a_second_try_finds_the_first() -> None:
    for make in (lambda: calls.trigger("daily"), lambda: resource_calls.rotate_secret("shop", "hook")):
        ids = [orjson.loads(make().body)["id"] for _ in range(2)]
        assert ids[0] != ids[1] and all(re.fullmatch("[0-9a-f]{16,32}", each) for each in ids)
    assert Exchanged(calls.trigger("daily"), LOST, SCHEDULED).error is None


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b"null", b'{"id": 7}', b"\xff"])
def test_answer_that_is_none_of_this_api_is_reported_without_its_content(body: bytes) -> None:
    exchanged = Exchanged(schedule(), ApiReply(200, {}, body))
    assert isinstance(exchanged.error, tocsin.Unreadable) and "html" not in str(exchanged.error)


def test_errors_of_something_else_at_that_address_are_reported_as_such() -> None:
    missing = Exchanged(schedule(), ApiReply(404, {}, b"")).error
    proxy = Exchanged(schedule(), *[ApiReply(502, {}, b"<html>secret</html>")] * 4).error
    assert isinstance(missing, tocsin.NotFound) and missing.code == "" and "URL" in missing.detail
    assert isinstance(proxy, tocsin.ServerFailed) and "secret" not in str(proxy)


def test_fields_and_states_of_a_newer_service_are_taken() -> None:
    newer = EVENT | {"state": "dreaming", "mood": "good", "attempts": [{"at": EVENT["due"], "outcome": "odd", "took_ms": 1, "x": 1}]}
    event = Exchanged(calls.get("e1"), ApiReply(200, {}, orjson.dumps(newer))).result
    assert event.state == "dreaming" and event.attempts[0].outcome == "odd" and not event.final


@pytest.mark.parametrize("state", ["dead", "cancelled", "lapsed"])
def test_answer_with_an_event_that_has_ended_is_returned_with_a_warning(state: str, caplog: pytest.LogCaptureFixture) -> None:
    ended = ApiReply(200, {"tocsin-conflict": state}, orjson.dumps(EVENT | {"state": state}))
    with caplog.at_level("WARNING"):
        assert Exchanged(schedule(), ended).result.state == state
    [warning] = caplog.messages
    assert f"event e1 exists and is {state}: nothing was scheduled" in warning and "on_conflict" in warning
    fanout = {"id": "e1", "tenant": "demo", "channels": ["a", "b"], "events": [EVENT, EVENT | {"id": "e2", "state": state}]}
    caplog.clear()
    with caplog.at_level("WARNING"):
        result = Exchanged(calls.fan_out(1, ["a", "b"], delay=timedelta(0), id="e1"), ApiReply(200, {}, orjson.dumps(fanout))).result
    assert result.id == "e1" and [f"event e2 exists and is {state}" in each for each in caplog.messages] == [True]


@pytest.mark.parametrize(("status", "state"), [(201, "scheduled"), (200, "scheduled"), (200, "delivered"), (201, "dead")])
def test_answer_with_an_event_that_is_open_delivered_or_new_causes_no_warning(
    status: int, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        Exchanged(schedule(), ApiReply(status, {}, orjson.dumps(EVENT | {"state": state})))
    assert caplog.messages == []
