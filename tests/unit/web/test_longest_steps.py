"""Hostile requests, answers and clocks under a meter: no step of the event loop takes longer than `MOST_STEP`, whatever is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import date, timedelta
from functools import partial
from itertools import islice, product
from typing import Any

import orjson
import pytest

from shared.core.event_loop import MOST_STEP
from shared.core.http1.answer import AnswerReader
from shared.delivery.channels.answer_heads import READ_BODY, head_of
from shared.delivery.channels.masks import masks_of
from shared.delivery.channels.model import HttpChannel
from shared.scheduler.model import MAX_BATCH_EVENTS
from shared.storage.azure import wire
from tests.steps import longest_step, seconds_of
from tests.unit.scheduler.harness import World

from .hostile import HOSTILE

pytestmark = pytest.mark.metered

FIRST = date(2027, 1, 18)
"""A Monday, three days after the world begins."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The application on a storage that never answers within a step, as no network does."""
    world = await World().open()
    for name in ("get", "query", "write"):
        setattr(world.tables, name, _suspended(getattr(world.tables, name)))
    yield world
    await world.close()


def _suspended(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def suspended(*given: Any, **named: Any) -> Any:
        await asyncio.sleep(0)
        return await call(*given, **named)

    return suspended


async def short_steps(work: Callable[[], Awaitable[Any]]) -> Any:
    """Do the work; return its last result. Fails if a step of it takes too long each time."""
    results: list[Any] = []

    async def kept() -> None:
        results.append(await work())

    steps = await longest_step(kept, MOST_STEP)
    assert steps.longest <= MOST_STEP, f"{steps.longest * 1000:.1f} ms in one of {steps.count} steps: {steps.task}"
    return results[-1]


def mondays(count: int, after: int = 0) -> list[str]:
    return [(FIRST + timedelta(days=7 * week + after)).isoformat() for week in range(count)]


def leap_days(count: int) -> list[str]:
    years = (year for year in range(2028, 9000) if year % 4 == 0 and (year % 100 or year % 400 == 0))
    return [f"{year}-02-29" for year in islice(years, count)]


# ---- bodies and batches

MANY = MAX_BATCH_EVENTS
_MEMBERS = b"{" + b",".join(b'"a%d":1' % number for number in range(100)) + b"}"
_LABELS = orjson.dumps({"delay": "PT1H", "payload": 1, "labels": {f"l{number}": 5 for number in range(500)}})
BATCHES: dict[str, Callable[[], Iterator[bytes]]] = {
    "empty": lambda: (b"{}" for _ in range(MANY)),
    "numbers": lambda: (b"0" for _ in range(MANY)),
    "a hundred wrong members each": lambda: (_MEMBERS for _ in range(MANY)),
    "five hundred wrong labels each": lambda: (_LABELS for _ in range(1_500)),
    "good": lambda: (b'{"delay":"PT1H","payload":1}' for _ in range(MANY)),
    "with ids": lambda: (b'{"id":"i%d","delay":"PT1H","payload":1}' % number for number in range(MANY)),
    "of one id": lambda: (b'{"id":"same","delay":"PT1H","payload":1}' for _ in range(MANY)),
    "of one key": lambda: (b'{"ordering_key":"k","delay":"PT1H","payload":1}' for _ in range(MANY)),
    "each due in another minute": lambda: (b'{"delay":"PT%dM","payload":1}' % (60 + number) for number in range(MANY)),
    "fast": lambda: (b'{"durability":"fast","delay":"PT1H","payload":1}' for _ in range(MANY)),
    "large": lambda: (b'{"id":"l%d","delay":"PT1H","payload":[%s1]}' % (number, b"1.5," * 65_000) for number in range(60)),
}


@pytest.mark.parametrize("name", BATCHES)
async def test_batch_of_many_events(world: World, name: str) -> None:
    body = b"[" + b",".join(BATCHES[name]()) + b"]"
    assert (await short_steps(lambda: world.demo.post("/api/v1/events/batch", body))).status == 200


async def test_lists_and_figures_of_events_that_are_due_in_thousands_of_minutes(world: World) -> None:
    body = b"[" + b",".join(BATCHES["each due in another minute"]()) + b"]"
    assert (await world.demo.post("/api/v1/events/batch", body)).status == 200
    for path in ("events?limit=1000", "events?limit=1000&id_prefix=zz", "events?limit=1000&error=zz", "stats", "load", "history"):
        assert (await short_steps(lambda path=path: world.demo.get(f"/api/v1/{path}"))).status == 200


@pytest.mark.parametrize("name", HOSTILE)
async def test_body_that_is_cheap_to_send_and_dear_to_build(world: World, name: str) -> None:
    make, status, _ = HOSTILE[name]
    body = make()
    assert (await short_steps(lambda: world.demo.post("/api/v1/events/batch", body))).status == status


_ROOM = 250_000
PAYLOADS: dict[str, Callable[[], bytes]] = {
    "arrays": lambda: b"[" + b"[]," * (_ROOM // 3) + b"1]",
    "digits": lambda: b"1" * _ROOM,
    "numbers": lambda: b"[" + b"1," * (_ROOM // 2) + b"1]",
    "floats": lambda: b"[" + b"1.5e300," * (_ROOM // 8) + b"1]",
    "long numbers": lambda: b"[" + (b"9" * 4000 + b",") * 60 + b"1]",
    "numbers beyond a double": lambda: b"[" + b"1e999," * (_ROOM // 6) + b"1]",
    "few values": lambda: b"[" + b"1.25," * 2_900 + b'"' + b"x" * 200_000 + b'"]',
    "strings": lambda: b'["' + b'a","' * (_ROOM // 4) + b'"]',
    "escapes": lambda: b'"' + b"\\u0061" * (_ROOM // 6) + b'"',
    "members": lambda: b"{" + b",".join(b'"%x":0' % number for number in range(_ROOM // 9)) + b"}",
    "no end": lambda: b"[" + b"1," * (_ROOM // 2) + b"x]",
}


@pytest.mark.parametrize("name", PAYLOADS)
async def test_event_and_schedule_with_a_large_payload(world: World, name: str) -> None:
    value = PAYLOADS[name]()
    event, schedule = b'{"id":"one","delay":"PT1H","payload":%b}' % value, b'{"every":"PT1H","payload":%b}' % value
    wanted = (422,) if name == "no end" else (200, 201)
    assert (await short_steps(lambda: world.demo.post("/api/v1/events", event))).status in wanted
    assert (await short_steps(lambda: world.demo.put("/api/v1/schedules/one", schedule))).status in wanted
    # The same value in another layout: it must be compared.
    assert (await short_steps(lambda: world.demo.post("/api/v1/events", event.replace(b'"payload":', b'"payload": ')))).status in (
        *wanted,
        409,
    )


_SMALL = 64 * 1024 - 200
WRONG: dict[str, Callable[[], bytes]] = {
    "members": lambda: b"{" + b",".join(b'"%x":0' % number for number in range(_SMALL // 9)) + b"}",
    "arrays": lambda: b"[" + b"[]," * (_SMALL // 3 - 2) + b"[]]",
    "numbers": lambda: b'{"dates":[' + b"0," * (_SMALL // 2 - 20) + b"0]}",
    "headers": lambda: b'{"type":"http","url":"http://localhost/","headers":{' + b",".join(b'"%x":0' % n for n in range(6_000)) + b"}}",
}


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_content_of_small_calls(world: World, name: str) -> None:
    body = WRONG[name]()
    for method, path in (("PUT", "calendars/c"), ("PUT", "tenants/t"), ("PUT", "tenants/demo/channels/c"), ("POST", "jobs?tenant=demo")):
        client = world.demo if path.startswith("calendars") else world.admin
        answer = await short_steps(lambda client=client, method=method, path=path: client.call(method, f"/api/v1/{path}", body))
        assert answer.status == 422
    labels = b'{"delay":"PT1H","payload":1,"labels":{' + b",".join(b'"%x":5' % number for number in range(13_000)) + b"}}"
    assert (await short_steps(lambda: world.demo.post("/api/v1/events", labels))).status == 422


REPORTS: dict[str, Callable[[], bytes]] = {
    "brackets": lambda: b"[" * 400_000,
    "arrays": lambda: b'{"events":[' + b"[]," * 330_000 + b"[]]}",
    "numbers": lambda: b'{"a":[' + b"0," * 450_000 + b"0]}",
    "numbers within bounds": lambda: b'{"a":[' + b"0," * 99_000 + b"0]}",
    "names": lambda: b"{" + b",".join(b'"%x":0' % number for number in range(99_000)) + b"}",
    "names within names": lambda: b'{"vm":{' + b",".join(b'"%x":{}' % number for number in range(49_000)) + b"}}",
}


@pytest.mark.parametrize("name", REPORTS)
async def test_wrong_report_of_an_agent(world: World, name: str) -> None:
    content = REPORTS[name]()
    assert (await world.admin.put("/api/v1/fleets/web?tenant=demo", {"partitions": 1})).status == 201
    # Event Grid may send members that nobody knows.
    for path, wanted in (("reports", {422}), ("eventgrid", {200, 422})):
        call = partial(world.admin.post, f"/api/v1/fleets/web/maintenance/{path}?tenant=demo", content)
        assert (await short_steps(call)).status in wanted


@pytest.mark.parametrize(
    "query",
    [
        "events?label=" + "a:b," * 590,
        "events?cursor=" + "W" * 2048,
        "events?" + "&".join(f"p{number}=1" for number in range(10_000)),
        "events?id_prefix=" + "%25" * 20_000,
        "schedules?cursor=" + "b" * 2048,
    ],
    ids=lambda query: query[:12],
)
async def test_hostile_query(world: World, query: str) -> None:
    assert (await short_steps(lambda: world.demo.get(f"/api/v1/{query}"))).status == 422


# ---- schedules

SCHEDULES: dict[str, dict[str, Any]] = {
    "weekly": {"cron": "58,59 23 * * MON", "timezone": "Europe/Berlin", "exclude": {"calendars": ["mondays"]}},
    "interval": {"every": "P7D", "start": "2027-01-18T00:00:00Z", "exclude": {"calendars": ["mondays"]}},
    "monthly": {"cron": "* * * * *", "timezone": "Europe/Berlin", "at_most_once_per": "month", "exclude": {"dates": mondays(366, 1)}},
    "rare": {"cron": "59 23 29 2 */6", "timezone": "Europe/Berlin"},
    "rarest day": {"cron": "59 59 23 L * SAT#4", "timezone": "Europe/Berlin"},
    "each second but": {
        "cron": "* * * * * *",
        "timezone": "Europe/Berlin",
        "exclude": {"dates": mondays(366, 1)},
        "at_most_once_per": "week",
    },
    "last second": {"cron": "59 59 23 31W 12 ?", "timezone": "Antarctica/Troll"},
    "dense": {"every": "PT1S", "catch_up": {"policy": "all", "within": "P7D"}},
    "dense until lately": {"cron": "* * * * *", "exclude": {"dates": mondays(3)}, "catch_up": {"policy": "last", "within": "P7D"}},
}


async def test_schedules_whose_exclusions_swallow_hundreds_of_occurrences(world: World) -> None:
    demo = world.demo
    assert (await short_steps(lambda: demo.put("/api/v1/calendars/mondays", {"dates": mondays(690)}))).status in (200, 201)
    for name, rule in SCHEDULES.items():
        path = f"/api/v1/schedules/{name.replace(' ', '-')}"
        assert (await short_steps(lambda path=path, rule=rule: demo.put(path, {**rule, "payload": 1}))).status in (200, 201)
        for verb in ("pause", "resume"):
            assert (await short_steps(lambda path=path, verb=verb: demo.post(f"{path}/{verb}"))).status == 200
        for call in (path, f"{path}/preview?n=100"):
            assert (await short_steps(lambda call=call: demo.get(call))).status == 200
        past = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:16:00Z", "id": "past"}
        assert (await short_steps(lambda path=path, past=past: demo.post(f"{path}/backfill", past))).status == 202
    for number in range(60):
        rule = {**SCHEDULES["weekly"], "exclude": {"calendars": ["mondays"], "dates": mondays(366, 1)}}
        assert (await demo.put(f"/api/v1/schedules/more-{number}", {**rule, "payload": 1})).status == 201
    assert (await short_steps(lambda: demo.get("/api/v1/schedules?limit=1000"))).status == 200
    weeks = iter(range(689, 0, -1))
    assert (await short_steps(lambda: demo.put("/api/v1/calendars/mondays", {"dates": mondays(next(weeks))}))).status == 200
    assert (await short_steps(lambda: demo.get("/api/v1/calendars"))).status == 200
    recurring = world.app.scheduler.recurring

    async def a_week_without_a_sweep() -> None:
        await world.clock.advance(7 * 86_400, settle=1)
        await demo.get("/api/v1/schedules?limit=1000")
        await world.do(recurring.chain.sweep(world.now))
        await world.do(recurring.calendars.follow_all(world.now))
        await world.do(recurring.chain.retain(world.now))

    await short_steps(a_week_without_a_sweep)


@pytest.mark.parametrize(
    ("dates", "rule", "pointer"),
    [
        (leap_days(1000), {"cron": "0 0 29 2 *", "exclude": {"calendars": ["days"]}}, "/exclude"),
        (mondays(1000), {"cron": "0 0 * * MON", "exclude": {"calendars": ["days"]}}, "/exclude"),
        (
            mondays(1000, 7 * 366),
            {"every": "P7D", "start": "2027-01-18T00:00:00Z", "exclude": {"calendars": ["days"], "dates": mondays(366)}},
            "/exclude",
        ),
        ([], {"cron": "0 0 29 2 *", "start": "9998-03-01T00:00:00Z"}, "/start"),
        ([], {"cron": "0 0 30 2 *"}, "/cron"),
        ([], {"cron": f"0 0 0 {','.join(f'{day}W' for day in range(1, 32))},LW * SAT"}, "/cron"),
    ],
)
async def test_schedule_that_no_search_finds_an_occurrence_of_is_refused(
    world: World, dates: list[str], rule: dict[str, Any], pointer: str
) -> None:
    assert (await world.demo.put("/api/v1/calendars/days", {"dates": dates})).status == 201
    answer = await short_steps(lambda: world.demo.put("/api/v1/schedules/one", {**rule, "payload": 1}))
    assert answer.status == 422 and [each["pointer"] for each in answer.json()["errors"]] == [pointer]
    assert (await world.demo.get("/api/v1/schedules/one")).status == 404


# ---- answers of receivers and of storage

_MARKS = "&".join("=%2F%3C" + "".join(letters) for letters in islice(product("abcdefghijkl", repeat=2), 200))
CHANNEL = HttpChannel.model_validate(
    {
        "type": "http",
        "url": f"https://a.example/?{_MARKS}",
        "headers": {f"x-{number}": f"v{number};" + "a%<>" * 100 for number in range(30)},
    }
)
ANSWERS = {
    "many fields": b"HTTP/1.1 500 X\r\n" + b"a:\r\n" * 12_000 + b"\r\n" + b"x" * 10_000,
    "values to mask": b"HTTP/1.1 500 X\r\n" + b"x-a: a%<>a%<>\r\n" * 1_000 + b"\r\n" + b"qa%<>" * 8_000,
    "small chunks": b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 9_000 + b"0\r\n\r\n",
    "trailers": b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a:\r\n" * 14_000,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_hostile_answer_of_a_receiver(name: str) -> None:
    masks = masks_of(CHANNEL)

    def read() -> None:
        reader = AnswerReader(READ_BODY, keep_accepted=True)
        reader.feed(ANSWERS[name])
        assert head_of(reader, masks, fields=True) is not None

    assert seconds_of(read, MOST_STEP) <= MOST_STEP
    assert seconds_of(lambda: masks_of(CHANNEL), MOST_STEP) <= MOST_STEP


def test_largest_page_of_rows() -> None:
    stamp = "2026-11-28T12:00:00.1234567Z"
    props = {"state": "scheduled", "due": "1800000000000", "due@odata.type": "Edm.Int64", "body": "x" * 3_500, "labels": '{"a":"b"}'}
    row = {"odata.etag": f"W/\"datetime'{stamp}'\"", "PartitionKey": "p", "RowKey": "e001", "Timestamp": stamp, **props}
    page = orjson.dumps({"value": [row] * 1_000})
    assert seconds_of(lambda: wire.decode_page("p", page, 0), MOST_STEP) <= MOST_STEP
