"""Many events: chunks, lines that are refused, answers that are lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest

import shared as tocsin
from shared.client import batches
from shared.client.exchange import ApiCall, ApiReply, ConnectionFailure, RetrySettings
from shared.testing import Tocsin

from .call_runner import run_call

HOUR = timedelta(hours=1)
SMALL_INSTANCE = 4_000_000
"""Bytes of a batch that an instance of 512 MB accepts."""
LOST = ConnectionFailure(True, "no answer")


def answer(lines: list[Any], status: Callable[[Any], int] = lambda event: 201) -> ApiReply:
    results = []
    for index, event in enumerate(lines):
        code = status(event)
        more = {"id": event.get("id", f"s{index}")} if code < 300 else {"problem": {"status": code, "detail": "no"}}
        results.append({"index": index, "status": code, **more})
    return ApiReply(200, {}, orjson.dumps({"accepted": 0, "rejected": 0, "results": results}))


class Service:
    """Answers each batch by the next of `responses`, and then by `answer`. Keeps the batches and the pauses."""

    def __init__(self, *responses: Callable[[list[Any]], ApiReply | ConnectionFailure]) -> None:
        self.batches: list[list[Any]] = []
        self.slept: list[float] = []
        self.asked = 0
        self._responses = list(responses)

    def send(self, events: Any, *, make_ids: bool = True, retries: int = 2) -> tocsin.Batch:
        steps = batches.send_events(events, make_ids=make_ids, retry_settings=RetrySettings(retries), chance=lambda: 1.0)
        return run_call(steps, self._reply, self.slept)

    def _reply(self, call: ApiCall[Any]) -> ApiReply | ConnectionFailure:
        if call.path == "limits":
            self.asked += 1
            sizes = {"batch_bytes": SMALL_INSTANCE, "batch_events": 10_000, "event_bytes": 524_288, "payload_bytes": 262_144}
            return ApiReply(200, {}, orjson.dumps(sizes))
        assert (call.path, call.media) == ("events/batch", "application/x-ndjson")
        lines = [json.loads(line) for line in call.body.split(b"\n")]
        self.batches.append(lines)
        respond = self._responses.pop(0) if self._responses else answer
        return respond(lines)


def events(count: int, **more: Any) -> Any:
    return ({"payload": number, "delay": HOUR, **more} for number in range(count))


def test_any_number_of_events_goes_in_chunks_and_keeps_its_order() -> None:
    service = Service()
    batch = service.send(events(25_001))
    assert [len(lines) for lines in service.batches] == [10_000, 10_000, 5_001]
    assert [line.index for line in batch.results] == list(range(25_001))
    assert batch.accepted == 25_001 and batch.rejected == ()
    assert [event["payload"] for lines in service.batches for event in lines] == list(range(25_001))


def sizes_of(service: Service) -> list[int]:
    return [sum(len(json.dumps(event, separators=(",", ":"))) + 1 for event in lines) for lines in service.batches]


def test_chunks_stay_under_what_the_app_takes_in_bytes_and_it_is_asked_once() -> None:
    service = Service()
    service.send([{"payload": "x" * 250_000, "delay": HOUR}] * 40)
    sizes = sizes_of(service)
    assert len(sizes) == 3 and all(size <= SMALL_INSTANCE for size in sizes) and sizes[0] > SMALL_INSTANCE - 251_000
    assert service.asked == 1


def test_a_chunk_that_every_app_takes_is_sent_without_a_further_call() -> None:
    service = Service()
    service.send([{"payload": "x" * 240_000, "delay": HOUR}] * 4)
    assert (len(service.batches), service.asked) == (1, 0)


def test_an_event_that_no_request_can_carry_is_refused_and_stops_no_other() -> None:
    service = Service()
    done = service.send([{"payload": "x" * size, "delay": HOUR} for size in (10, SMALL_INSTANCE, 20)])
    assert [(line.index, line.status) for line in done.results] == [(0, 201), (1, 413), (2, 201)]
    assert done.results[1].problem is not None and done.results[1].problem["type"].endswith("/content-too-large")
    assert [len(lines) for lines in service.batches] == [2]


def test_an_event_for_several_channels_counts_once_for_each_as_in_the_service() -> None:
    service = Service()
    names = [f"c{number}" for number in range(10)]
    service.send([{"payload": "x" * 100_000, "delay": HOUR, "channels": names}] * 8)
    assert [len(lines) for lines in service.batches] == [3, 3, 2]
    service = Service()
    service.send(events(1_500, channels=names))
    assert [len(lines) for lines in service.batches] == [1_000, 500]


def test_a_batch_whose_limit_cannot_be_read_is_stopped_and_nothing_of_it_is_in_doubt() -> None:
    steps = batches.send_events(
        [{"payload": "x" * 2_000_000, "delay": HOUR}], make_ids=False, retry_settings=RetrySettings(0), chance=lambda: 1.0
    )
    with pytest.raises(tocsin.BatchStopped) as stopped:
        run_call(steps, lambda call: LOST, [])
    assert (list(stopped.value.done), list(stopped.value.unknown)) == ([], [])


async def test_a_batch_is_split_by_the_limit_of_the_app_that_gets_it() -> None:
    async with Tocsin(body_limit=1_000_000) as kit:
        assert (await kit.client.call("GET", "limits"))["batch_bytes"] == 1_000_000
        with pytest.raises(tocsin.Refused, match="At most 1,000,000 are accepted") as refused:
            await kit.client.call("POST", "events/batch", [{"payload": "x" * 250_000, "delay": "PT1H"}] * 4)
        assert refused.value.status == 413
        done = await kit.client.batch([{"payload": "x" * 250_000, "delay": HOUR}] * 9)
        assert (done.accepted, done.rejected) == (9, ())


def test_nothing_is_sent_for_no_events() -> None:
    service = Service()
    assert service.send([]).results == () and service.batches == []


def test_ids_are_made_where_they_are_asked_for() -> None:
    service = Service()
    service.send([{"payload": 1, "delay": HOUR}, {"payload": 2, "delay": HOUR, "id": "mine"}], make_ids=True)
    service.send(events(1), make_ids=False)
    [[made, own], [bare]] = service.batches
    assert made["id"].startswith("~") and own["id"] == "mine" and "id" not in bare


def test_refused_lines_are_reported_and_do_not_stop_the_others() -> None:
    service = Service(lambda lines: answer(lines, lambda event: 422 if event["payload"] == 1 else 201))
    batch = service.send(events(3))
    assert [(line.index, line.status, line.ok) for line in batch.results] == [(0, 201, True), (1, 422, False), (2, 201, True)]
    [line] = batch.rejected
    assert line.problem is not None and line.problem["detail"] == "no" and len(service.batches) == 1


def test_lines_over_a_limit_are_sent_again_as_long_as_some_get_through() -> None:
    left = [3, 3, 3]

    def limited(lines: list[Any]) -> ApiReply:
        room = iter(range(left.pop()))
        return answer(lines, lambda event: 201 if next(room, None) is not None else 429)

    service = Service(limited, limited, limited)
    batch = service.send(events(8))
    assert [len(lines) for lines in service.batches] == [8, 5, 2]
    assert batch.accepted == 8 and [line.index for line in batch.results] == list(range(8))


def test_lines_over_a_limit_that_admits_none_are_reported() -> None:
    def half(lines: list[Any]) -> ApiReply:
        return answer(lines, lambda event: 201 if event["payload"] == 0 else 429)

    none = ApiReply(429, {"retry-after": "60"}, orjson.dumps({"type": "x/too-many-requests", "status": 429, "detail": "over"}))
    service = Service(half, lambda lines: none)
    batch = service.send(events(3))
    assert [line.status for line in batch.results] == [201, 429, 429]


def test_lines_whose_fate_storage_did_not_confirm_are_sent_again_only_with_an_id() -> None:
    def unsure(lines: list[Any]) -> ApiReply:
        return answer(lines, lambda event: 503)

    service = Service(unsure)
    assert service.send(events(2)).accepted == 2 and len(service.batches) == 2
    service = Service(unsure)
    assert service.send(events(2), make_ids=False).accepted == 0 and len(service.batches) == 1


def test_lines_that_are_not_stored_for_certain_are_sent_again_without_an_id_too() -> None:
    def unfinished(lines: list[Any]) -> ApiReply:
        problem = {"status": 503, "detail": "not stored", "outcome": "unchanged"}
        results = [
            {"index": 0, "status": 201, "id": "s0"},
            *({"index": at, "status": 503, "problem": problem} for at in range(1, len(lines))),
        ]
        return ApiReply(200, {"retry-after": "1"}, orjson.dumps({"accepted": 1, "rejected": len(lines) - 1, "results": results}))

    service = Service(unfinished, unfinished)
    assert service.send(events(5), make_ids=False).accepted == 5
    assert [[event["payload"] for event in lines] for lines in service.batches] == [[0, 1, 2, 3, 4], [1, 2, 3, 4], [2, 3, 4]]


def test_lost_answer_is_asked_for_again_with_the_same_ids() -> None:
    service = Service(lambda lines: LOST)
    assert service.send(events(2)).accepted == 2
    assert service.batches[0] == service.batches[1]


def test_lost_answer_without_ids_stops_the_batch_and_says_what_nobody_knows() -> None:
    service = Service(answer, lambda lines: LOST)
    with pytest.raises(tocsin.BatchStopped) as stopped:
        service.send(events(10_002), make_ids=False)
    assert len(stopped.value.done) == 10_000 and stopped.value.unknown == (10_000, 10_001)
    assert isinstance(stopped.value.__cause__, tocsin.Unreachable)


def test_refusal_of_a_whole_chunk_stops_the_batch_with_nothing_unknown() -> None:
    forbidden = ApiReply(403, {}, orjson.dumps({"type": "x/missing-scope", "status": 403, "detail": "no"}))
    with pytest.raises(tocsin.BatchStopped) as stopped:
        Service(lambda lines: forbidden).send(events(2))
    assert (stopped.value.done, stopped.value.unknown) == ((), ()) and isinstance(stopped.value.__cause__, tocsin.Forbidden)


def test_answer_that_shows_fewer_events_than_were_sent_is_not_believed() -> None:
    with pytest.raises(tocsin.BatchStopped) as stopped:
        Service(lambda lines: answer(lines[:1])).send(events(2))
    assert stopped.value.unknown == (0, 1) and isinstance(stopped.value.__cause__, tocsin.Unreadable)


@pytest.mark.parametrize("wrong", [{"delay": HOUR}, "text", {"payload": 1}, {"payload": {1}, "delay": HOUR}, {"payload": 1, "dealy": HOUR}])
def test_what_is_no_event_stops_the_batch_and_is_named(wrong: Any) -> None:
    service = Service()
    with pytest.raises(tocsin.BatchStopped) as stopped:
        service.send([*events(10_001), wrong])
    cause = stopped.value.__cause__
    assert isinstance(cause, TypeError | ValueError) and cause.__notes__ == ["event 10001 of the batch"]
    assert len(stopped.value.done) == 10_000 and stopped.value.unknown == ()


def test_events_that_cannot_be_had_stop_the_batch_with_what_is_done() -> None:
    def breaking() -> Any:
        yield from events(10_001)
        raise OSError("the file ends here")

    with pytest.raises(tocsin.BatchStopped, match="the file ends here") as stopped:
        Service().send(breaking())
    assert len(stopped.value.done) == 10_000 and isinstance(stopped.value.__cause__, OSError)
