"""Batches: each event on its own terms, the batch itself as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.scheduler.harness import Client, World
from tests.unit.web.hostile import HOSTILE, traced_memory

from ..conftest import hold_problem

BATCH = "/api/v1/events/batch"
EVENTS = "/api/v1/events"
GOOD: dict[str, Any] = {"delay": "PT1H", "payload": 1}
LINES = {"content-type": "application/x-ndjson"}


def statuses(answer: Any) -> list[int]:
    body = answer.json()
    assert answer.status == 200
    assert [line["index"] for line in body["results"]] == list(range(len(body["results"])))
    taken = [line for line in body["results"] if line["status"] in (200, 201)]
    assert (body["accepted"], body["rejected"]) == (len(taken), len(body["results"]) - len(taken))
    assert all(("id" in line) == (line in taken) and ("problem" in line) != (line in taken) for line in body["results"])
    return [line["status"] for line in body["results"]]


async def test_results_come_in_the_order_sent_whatever_becomes_of_each(world: World) -> None:
    await world.demo.create(id="known", payload=1)
    events = [
        GOOD | {"id": "new"},
        GOOD | {"id": "known"},
        GOOD | {"id": "known", "payload": 2},
        {"due": "2030-01-01T00:00:00", "payload": 1},
        {"due": "2000-01-01T00:00:00Z", "payload": 1},
        17,
        GOOD | {"channel": "nowhere"},
        GOOD | {"payload": "x" * (256 * 1024)},
        GOOD | {"delay": "PT0S"},
        {"due": "2036-12-31T23:59:59.999Z", "payload": 1},
        {"due": "9999-12-31T23:59:59.999Z", "payload": 1},
    ]
    answer = await world.demo.post(BATCH, events)
    assert statuses(answer) == [201, 200, 409, 422, 201, 422, 422, 413, 201, 201, 422]
    results = answer.json()["results"]
    assert (results[0]["id"], results[1]["id"]) == ("new", "known")
    assert results[2]["problem"]["type"].endswith("/id-conflict")
    assert [results[at]["problem"]["errors"][0]["pointer"] for at in (3, 5, 6, 7, 10)] == ["/due", "", "/channel", "/payload", "/due"]
    for line in results:
        if "id" in line:
            await world.demo.event(line["id"])
    assert len(world.events()) == 5


async def test_one_bad_line_changes_nothing_but_its_own_answer(world: World) -> None:
    raw = b"\n".join([b'{"delay":"PT1H","payload":1}', b'{"delay":', b'{"delay":"PT1H","payload":3}'])
    answer = await world.demo.post(BATCH, raw, LINES)
    assert statuses(answer) == [201, 422, 201]
    problem = answer.json()["results"][1]["problem"]
    assert problem["type"].endswith("/malformed-json") and problem["errors"][0]["pointer"] == ""
    assert sorted(row.props["body"] for row in world.events()) == ["1", "3"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n", b" \n", b"\r\n\r\n"])
async def test_lines_may_end_in_any_way_and_the_last_need_not(world: World, end: bytes) -> None:
    line = b'{"delay":"PT1H","payload":{"a":1}}'
    assert statuses(await world.demo.post(BATCH, end.join([line] * 3), LINES)) == [201] * 3
    assert statuses(await world.demo.post(BATCH, end.join([line] * 3) + end, LINES)) == [201] * 3
    assert {row.props["body"] for row in world.events()} == {'{"a":1}'}


async def test_lines_are_judged_each_for_itself(world: World) -> None:
    lines = [
        b'{"delay":"PT1H","payload":"\xff"}',
        b'{"delay":"PT1H","payload":NaN}',
        b"[" * 100,
        b"{}",
        b"null",
        b'{"delay":"PT1H","payload":"\xe2\x80\xa8"}',
        b'{"delay":"PT1H","payload":' + b"[" * 64 + b"]" * 64 + b"}",
        b'{"delay":"PT1H","payload":1,"payload":2}',
    ]
    assert statuses(await world.demo.post(BATCH, b"\n".join(lines), LINES)) == [422, 422, 422, 422, 422, 201, 422, 422]
    assert {row.props["body"] for row in world.events()} == {'"\u2028"'}


async def test_payloads_of_a_batch_come_back_byte_for_byte(world: World) -> None:
    payloads = ["1e2", "1.0", "12345678901234567890123", '"\\u00e4 \U0001f514"', "null", '{"b": 1,"a":[ ]}', '{"a":1,"a":2}']
    raw = "[ " + " ,\n".join(f'{{"delay" : "PT1H", "payload" : {payload} }}' for payload in payloads) + "\t]"
    answer = await world.demo.post(BATCH, raw.encode())
    assert statuses(answer) == [201] * len(payloads)
    for payload, line in zip(payloads, answer.json()["results"], strict=True):
        found = await world.demo.get(f"{EVENTS}/{line['id']}")
        assert f'"payload":{payload},'.encode() in found.body


async def test_an_id_given_twice_in_one_batch_is_one_event(world: World) -> None:
    events = [GOOD | {"id": "twice"}, GOOD | {"id": "other"}, GOOD | {"id": "twice"}, GOOD | {"id": "twice", "payload": 2}]
    assert statuses(await world.demo.post(BATCH, events)) == [201, 201, 200, 409]
    assert len(world.events()) == 2
    assert (await world.demo.event("twice"))["payload"] == 1


async def test_every_id_given_several_times_still_ends_in_one_event_each(world: World) -> None:
    events = [GOOD | {"id": f"i{number % 50}"} for number in range(200)]
    assert sorted(statuses(await world.demo.post(BATCH, events))) == [200] * 150 + [201] * 50
    assert len(world.events()) == 50


async def test_batch_sent_again_answers_200_for_each(world: World) -> None:
    events = [GOOD | {"id": f"i{number}", "payload": number} for number in range(120)]
    assert statuses(await world.demo.post(BATCH, events)) == [201] * 120
    before = world.dump()
    assert statuses(await world.demo.post(BATCH, events)) == [200] * 120
    after = world.dump()
    assert {key: value for key, value in after.items() if key[0] == "TocsinEvents"} == {
        key: value for key, value in before.items() if key[0] == "TocsinEvents"
    }


async def refused(client: Client, body: Any, status: int, headers: dict[str, str] | None = None) -> tuple[str, list[str]]:
    before = client.world.dump()
    answer = await client.post(BATCH, body, headers)
    assert answer.status == status, answer.body[:300]
    hold_problem(answer)
    assert client.world.dump() == before
    return answer.code, answer.pointers


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"[]", None, "invalid-content"),
        (b" [ \n ] ", None, "invalid-content"),
        (b"\n\r\n  \n", LINES, "invalid-content"),
        (b"{}", None, "invalid-content"),
        (b'{"delay":"PT1H","payload":1}', None, "invalid-content"),
        (b"null", None, "invalid-content"),
        (b'[{"delay":"PT1H","payload":1}', None, "malformed-json"),
        (b'[{"delay":"PT1H","payload":1},]', None, "malformed-json"),
        (b'[{"delay":"PT1H","payload":1}{"delay":"PT1H","payload":1}]', None, "malformed-json"),
        (b'[{"delay":"PT1H","payload":1}] 1', None, "malformed-json"),
        (b'[{"delay":"PT1H","payload":"\xff"}]', None, "malformed-json"),
        (b'{"delay":"PT1H","payload":1}\n{"delay":"PT1H","payload":1}', None, "malformed-json"),
        (b"", LINES, "empty-body"),
    ],
)
async def test_batch_that_is_none_is_422_and_stores_nothing(world: World, body: bytes, headers: Any, code: str) -> None:
    assert await refused(world.demo, body, 422, headers) == (code, [""])


async def test_events_of_an_array_are_judged_each_for_itself(world: World) -> None:
    good, start = b'{"delay":"PT1H","payload":1}', b'{"delay":"PT1H","payload":'
    raw = b"[" + b",".join([good, start + b"[" * 70 + b"]" * 70 + b"}", start + b"NaN}", b"null", good]) + b"]"
    answer = await world.demo.post(BATCH, raw)
    assert statuses(answer) == [201, 422, 422, 422, 201]
    pointers = [line["problem"]["errors"][0]["pointer"] for line in answer.json()["results"][1:4]]
    assert pointers == ["/payload", "", ""]


async def test_array_nested_beyond_all_bounds_is_422(world: World) -> None:
    assert await refused(world.demo, b"[" * 100_000, 422) == ("malformed-json", [""])
    good = b'{"delay":"PT1H","payload":1}'
    answer = await world.demo.post(BATCH, b"[" + b"[" * 100_000 + b"]" * 100_000 + b"," + good + b"]")
    assert answer.status == 200 and [each["status"] for each in answer.json()["results"]] == [422, 201]


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_batch_is_refused_without_building_it(world: World, name: str) -> None:
    make, status, lines = HOSTILE[name]
    raw = make()
    with traced_memory(40):
        answer = await world.demo.post(BATCH, raw)
    assert answer.status == status
    if lines:
        assert statuses(answer) == lines
    assert statuses(await world.demo.post(BATCH, [GOOD])) == [201]


async def test_number_beyond_a_double_is_a_payload(world: World) -> None:
    payload = b'{"n":[1e400, -1E+9999,%s]}' % (b"7" * 400)
    raw = b'{"delay":"PT1S","payload":%b%b}'
    for body, headers in ((b"[" + raw % (payload, b"") + b"]", None), (raw % (payload, b',"durability":"fast"'), LINES)):
        assert (await world.demo.post(BATCH, body, headers)).json()["accepted"] == 1
    await world.run(5)
    assert [got.delivery.body for got in world.receiver.received] == [payload, payload]


async def test_batch_of_another_media_type_is_415(world: World) -> None:
    assert await refused(world.demo, b"[]", 415, {"content-type": "text/csv"}) == ("unsupported-media-type", [])


async def test_ten_thousand_events_are_taken_and_one_more_is_413(world: World) -> None:
    line = json.dumps({"delay": "PT1H", "payload": 1}).encode()
    assert await refused(world.demo, b"\n".join([line] * 10_001), 413, LINES) == ("content-too-large", [])
    assert await refused(world.demo, b"[" + b",".join([line] * 10_001) + b"]", 413) == ("content-too-large", [])
    answer = await world.demo.post(BATCH, b"\n".join([line] * 10_000), LINES)
    assert statuses(answer) == [201] * 10_000
    assert len({entry["id"] for entry in answer.json()["results"]}) == len(world.events()) == 10_000


async def test_sixteen_mib_are_taken_and_one_byte_more_is_413(world: World) -> None:
    whole = 16 * 1024 * 1024
    body = b'[{"delay":"PT1H","payload":1}'
    fits = body + b" " * (whole - len(body) - 1) + b"]"
    assert len(fits) == whole
    assert await refused(world.demo, fits + b" ", 413) == ("content-too-large", [])
    assert statuses(await world.demo.post(BATCH, fits)) == [201]


async def test_large_payloads_of_a_batch_go_into_several_transactions(world: World) -> None:
    """Line ends double in storage, line separators do too: the bound counts what is written."""
    for filler in (b"\n", b"\t", b"\\u0000", "\u2028".encode(), b'\\"', "\U0001f514".encode()):
        inside = filler if filler in (b"\n", b"\t") else b'"' + filler * (250_000 // len(filler)) + b'"'
        payload = b"[" + filler * 250_000 + b"1]" if inside is filler else inside
        raw = b"[" + b",".join([b'{"delay":"PT1H","payload":' + payload + b"}"] * 30) + b"]"
        assert statuses(await world.demo.post(BATCH, raw)) == [201] * 30


async def test_rate_lets_the_first_in_and_refuses_the_rest(world: World) -> None:
    client = await world.tenant(limits={"events_per_second": 5})
    answer = await client.post(BATCH, [GOOD] * 8)
    assert statuses(answer) == [201] * 5 + [429] * 3
    assert answer.json()["results"][7]["problem"]["type"].endswith("/too-many-requests")
    before = world.without_caches(world.dump())
    refusal = await client.post(BATCH, [GOOD, 17])
    assert (refusal.status, refusal.code, refusal.headers["retry-after"]) == (429, "too-many-requests", "1")
    assert world.without_caches(world.dump()) == before
    await world.clock.advance(1)
    assert statuses(await client.post(BATCH, [GOOD] * 2)) == [201, 201]


async def test_bad_events_take_nothing_of_the_rate(world: World) -> None:
    client = await world.tenant(limits={"events_per_second": 5})
    assert statuses(await client.post(BATCH, [17] * 8 + [GOOD] * 5)) == [422] * 8 + [201] * 5


async def test_open_events_are_bounded_and_the_first_that_fit_are_taken(world: World) -> None:
    client = await world.tenant(limits={"open_events": 3})
    assert statuses(await client.post(BATCH, [GOOD] * 2)) == [201, 201]
    assert statuses(await client.post(BATCH, [GOOD] * 2)) == [201, 429]
    assert await refused(client, [GOOD] * 2, 429) == ("too-many-requests", [])
    assert len(world.events()) == 3
