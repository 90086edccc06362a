"""Taking events in: one by one, in batches, under names that clients choose, and many at once."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from .conftest import Answer, Tenant, now_ms, text_of

SERVER_ID = re.compile(r"[0-9a-v]{16}\.[0-9]{3}")


async def test_server_made_ids_are_unique_and_resolve(tenant: Tenant) -> None:
    ids = await asyncio.gather(*(tenant.api.create(delay="PT1H", payload=number) for number in range(50)))
    assert len(set(ids)) == 50 and all(SERVER_ID.fullmatch(event_id) for event_id in ids)
    for number, event_id in enumerate(ids):
        assert (await tenant.api.event(event_id))["payload"] == number


async def test_same_id_and_content_answers_200_with_the_event_as_it_stands(tenant: Tenant) -> None:
    body = {"id": "order-17:time-out", "delay": "PT0S", "payload": {"b": 1, "a": [1, 2]}}
    first = await tenant.api.post("events", body)
    assert first.status == 201
    done = await tenant.api.ended("order-17:time-out", "delivered")
    again = await tenant.api.post("events", b'{"payload": {"a": [1,2], "b": 1}, "delay": "PT0S", "id": "order-17:time-out"}')
    assert again.status == 200 and again.json() == done
    assert again.headers["location"] == first.headers["location"]
    assert len(tenant.hits) == 1


@pytest.mark.parametrize("change", [{"payload": 2}, {"delay": "PT2H"}, {"labels": {"a": "b"}}, {"expires": "PT1S"}])
async def test_same_id_with_other_content_is_a_conflict_and_changes_nothing(tenant: Tenant, change: dict[str, Any]) -> None:
    body = {"id": "taken", "delay": "PT1H", "payload": 1}
    assert (await tenant.api.post("events", body)).status == 201
    before = await tenant.api.event("taken")
    answer = await tenant.api.post("events", {**body, **change})
    assert (answer.status, answer.code) == (409, "id-conflict")
    assert await tenant.api.event("taken") == before


async def test_one_id_posted_by_many_at_once_becomes_one_event(tenant: Tenant) -> None:
    def body(number: int) -> dict[str, Any]:
        return {"id": f"name-{number}", "delay": "PT1S", "payload": number}

    answers = await asyncio.gather(*(tenant.api.post("events", body(number % 10)) for number in range(80)))
    assert sorted({answer.status for answer in answers}) == [200, 201]
    assert sum(answer.status == 201 for answer in answers) == 10
    stats = await tenant.api.drained()
    assert stats["delivered"] == 10
    assert sorted(hit.json() for hit in tenant.hits) == list(range(10))


async def test_many_concurrent_posts_are_all_stored_and_delivered_once(tenant: Tenant) -> None:
    room = asyncio.Semaphore(64)

    async def post(number: int) -> str:
        async with room:
            return await tenant.api.create(delay="PT2S", payload=number)

    ids = await asyncio.gather(*(post(number) for number in range(600)))
    stats = await tenant.api.drained()
    assert (stats["delivered"], stats["dead"]) == (600, 0)
    by_id = tenant.by_id()
    assert set(by_id) == set(ids) and all(len(hits) == 1 for hits in by_id.values())
    assert [by_id[event_id][0].json() for event_id in ids] == list(range(600))


async def test_json_batch_takes_the_good_and_shows_the_bad(tenant: Tenant) -> None:
    batch = [
        {"delay": "PT1H", "payload": 0},
        {"delay": "PT1H"},
        {"id": "mine", "delay": "PT1H", "payload": 2},
        {"id": "mine", "delay": "PT1H", "payload": "other"},
        {"delay": "PT1H", "payload": 4, "channel": "nowhere"},
        {"delay": "PT1H", "payload": 5, "colour": "blue"},
        "not an event",
        {"delay": "PT1H", "payload": "x" * 300_000},
        {"due": text_of(now_ms()), "delay": "PT1H", "payload": 8},
        {"delay": "PT1H", "payload": 9},
    ]
    answer = await tenant.api.post("events/batch", batch)
    result = answer.json()
    assert answer.status == 200 and (result["accepted"], result["rejected"]) == (3, 7)
    assert [line["index"] for line in result["results"]] == list(range(10))
    assert [line["status"] for line in result["results"]] == [201, 422, 201, 409, 422, 422, 422, 413, 422, 201]
    problems = [line["problem"] for line in result["results"] if "problem" in line]
    assert all(problem["status"] in (409, 413, 422) and problem["detail"] for problem in problems)
    assert result["results"][2]["id"] == "mine" and (await tenant.api.event("mine"))["payload"] == 2
    assert [event["payload"] for event in sorted(await tenant.api.all("events"), key=lambda event: event["payload"])] == [0, 2, 9]


async def test_ndjson_batch_takes_the_good_lines_around_the_bad_ones(tenant: Tenant) -> None:
    lines = [
        json.dumps({"delay": "PT1H", "payload": {"text": 'a "quoted" line\nbreak'}}),
        '{"delay": "PT1H", "payload": ',
        "",
        json.dumps({"delay": "soon", "payload": 1}),
        "   ",
        '{"delay": "PT1H",   "payload": [1,  2.50,\t"x"]}\r',
    ]
    answer = await tenant.api.post("events/batch", "\n".join(lines).encode(), content_type="application/x-ndjson")
    result = answer.json()
    assert answer.status == 200 and (result["accepted"], result["rejected"]) == (2, 2)
    assert [line["status"] for line in result["results"]] == [201, 422, 422, 201]
    assert (await tenant.api.event(result["results"][0]["id"]))["payload"] == {"text": 'a "quoted" line\nbreak'}
    raw: Answer = await tenant.api.get(f"events/{result['results'][3]['id']}")
    assert b'[1,  2.50,\t"x"]' in raw.body, "the payload comes back as it was sent"


async def test_batch_with_client_ids_can_be_sent_again(tenant: Tenant) -> None:
    batch = [{"id": f"b-{number}", "due": text_of(now_ms() + 3_600_000), "payload": number} for number in range(250)]
    assert await tenant.api.batch(batch) == [event["id"] for event in batch]
    answer = await tenant.api.post("events/batch", [*batch, {"id": "b-new", "delay": "PT1H", "payload": 0}])
    assert [line["status"] for line in answer.json()["results"]] == [200] * 250 + [201]
    assert (await tenant.api.stats())["open"] == 251


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"[]", {}, 422),
        (b"{}", {}, 422),
        (b"[1,", {}, 422),
        (b"", {}, 422),
        (b"[]", {"content_type": "text/plain"}, 415),
        (b"[" + b",".join([b'{"delay":"PT1H","payload":1}'] * 10_001) + b"]", {}, 413),
    ],
)
async def test_batch_that_is_wrong_as_a_whole_is_refused_as_a_whole(
    tenant: Tenant, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = await tenant.api.post("events/batch", body, **headers)
    assert answer.status == status and answer.code
    assert (await tenant.api.stats())["open"] == 0


async def test_large_payloads_arrive_whole(tenant: Tenant) -> None:
    payload = {"text": 'ü"\\' * 20_000}
    event_id = await tenant.api.create(delay="PT0S", payload=payload)
    await tenant.api.ended(event_id, "delivered")
    assert tenant.hits[0].json() == payload and (await tenant.api.event(event_id))["payload"] == payload
