"""The assertions of BigBen's own API tests (`APITests`, `BigBenTests`) as a table, run against the compatible routes.

An assertion that does not hold here names the sentence of the page that tells a client so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.core.clock import to_text
from shared.delivery.channels.cloudevents import binary_headers
from shared.delivery.channels.fake import DELIVERED
from shared.delivery.channels.ports import Verdict
from tests.unit.scheduler.harness import World

EVENTS = "/api/bigben/events"
PAGE = Path(__file__).parents[4] / "docs/reference/bigben.md"
HTTP = {"type": "HTTP", "props": {"url": "http://localhost:9090/test", "headers": {"header1": "value1", "header2": "value2"}}}
KAFKA = {"type": "MESSAGING", "props": {"topic": "topic1", "bootstrap.servers": "localhost:9092"}}
KAFKA_OF_TESTS = {"type": "MESSAGING", "props": {"topic": "test", "brokers.url": ""}}
CLASS = {"type": "CUSTOM_CLASS", "props": {"eventProcessorClass": "com.walmartlabs.bigben.processors.NoOpCustomClassProcessor"}}
PAYLOAD_ONLY = {"deliveryOption": "PAYLOAD_ONLY"}
LATER = 100_000 * 60
SENT = object()
"""Stands for the value of the same field in the last request."""


@dataclass(frozen=True)
class Story:
    """One of BigBen's tests: it registers a processor, schedules the requests one after the other, reads, and waits."""

    requests: list[dict[str, Any]]
    processor: dict[str, Any] | None = None
    looks: list[str] = field(default_factory=list)
    runs: float = 0
    answers: Verdict = DELIVERED


@dataclass(frozen=True)
class Assertion:
    """One assertion: what BigBen's test expects, and what is observed here if that differs, with the page's words about it."""

    place: str
    expected: Any
    here: Any = None
    page: str = ""


def due(seconds: float, **more: Any) -> dict[str, Any]:
    return {"in": seconds} | more


def is_prefixed(value: Any) -> bool:
    return str(value).startswith("a-")


def is_not_prefixed(value: Any) -> bool:
    return value is not None and not is_prefixed(value)


NO_RAW_PAYLOAD = "any other string as a JSON string"
NO_PREFIX = "`eventId` does not begin with `a-`"
NO_CLASSES = "`CUSTOM_CLASS` processors cannot be registered"
NO_BROKERS = "`bootstrap.servers` and `topic` are required"
RETRIES = "Failed deliveries follow the tenant's retry policy"
BARE_KAFKA = "a Kafka message with `PAYLOAD_ONLY` holds the payload alone"


def is_rejected() -> list[Assertion]:
    return [Assertion("schedule.status", 400), Assertion("schedule.eventStatus", "REJECTED")]


def is_accepted(status: str = "ACCEPTED") -> list[Assertion]:
    return [Assertion("register.status", 200), Assertion("schedule.status", 200), Assertion("schedule.eventStatus", status)]


def has_headers() -> list[Assertion]:
    headers = {"header1": "value1", "header2": "value2", "content-type": "application/json"}
    return [Assertion(f"header.{name}", value) for name, value in headers.items()]


def is_found(look: str, option: str, named: Assertion) -> list[Assertion]:
    plain = {"status": 200, "eventStatus": "UN_PROCESSED", "payload": "P1", "tenant": SENT, "deliveryOption": option, "eventTime": SENT}
    return [*(Assertion(f"{look}.{name}", value) for name, value in plain.items()), named]


def is_delivered(**fields: Any) -> list[Assertion]:
    return [Assertion(f"delivered.{name}", value) for name, value in fields.items()]


def prefix(look: str) -> Assertion:
    return Assertion(f"{look}.eventId", is_prefixed, is_not_prefixed, NO_PREFIX)


def no_prefix(look: str) -> Assertion:
    return Assertion(f"{look}.eventId", is_not_prefixed)


TABLE: dict[str, tuple[Story, list[Assertion]]] = {
    "events at the same time": (
        Story([due(90) for _ in range(20)], CLASS, ["find"]),
        [Assertion("register.status", 200, 422, NO_CLASSES)],
    ),
    "events at the same time, over HTTP": (
        Story([due(90, id=f"same-{number}") for number in range(20)], HTTP, ["find after"], runs=120),
        [Assertion("find after.eventStatus", "PROCESSED"), Assertion("find after.eventTime", SENT)],
    ),
    "unknown tenant": (Story([due(0, tenant="ABC")]), is_rejected()),
    "missing tenant": (Story([due(0, tenant=None)]), is_rejected()),
    "missing event time": (Story([{"tenant": "ABC", "eventTime": None}]), is_rejected()),
    "event time in wrong format": (Story([{"tenant": "ABC", "eventTime": "time"}]), is_rejected()),
    "event time in past": (
        Story([due(-60)], HTTP, runs=20),
        [*is_accepted("TRIGGERED"), *is_delivered(eventStatus="TRIGGERED", deliveryOption="FULL_EVENT", tenant=SENT), *has_headers()],
    ),
    "event time in past, payload only": (
        Story([due(-60, payload="testP", **PAYLOAD_ONLY)], HTTP, runs=20),
        [*is_accepted("TRIGGERED"), Assertion("body", "testP", '"testP"', NO_RAW_PAYLOAD), *has_headers()],
    ),
    "no payload with payload only": (Story([due(60, **PAYLOAD_ONLY)], HTTP), [Assertion("register.status", 200), *is_rejected()]),
    "find and dry run": (
        Story([due(LATER, payload="P1")], HTTP, ["find", "dryrun"], runs=20),
        [
            *is_accepted(),
            *is_found("find", "FULL_EVENT", no_prefix("find")),
            *is_found("dryrun", "FULL_EVENT", no_prefix("dryrun")),
            *is_delivered(eventStatus="TRIGGERED", payload="P1", tenant=SENT, deliveryOption="FULL_EVENT", eventTime=SENT),
            no_prefix("delivered"),
        ],
    ),
    "find and dry run, payload only": (
        Story([due(LATER, payload="P1", **PAYLOAD_ONLY)], HTTP, ["find", "dryrun"], runs=20),
        [
            *is_accepted(),
            *is_found("find", "PAYLOAD_ONLY", prefix("find")),
            *is_found("dryrun", "PAYLOAD_ONLY", prefix("dryrun")),
            Assertion("body", "P1", '"P1"', NO_RAW_PAYLOAD),
        ],
    ),
    "kafka": (
        Story([due(-60, payload="P1")], KAFKA, runs=20),
        [
            *is_accepted("TRIGGERED"),
            *is_delivered(eventStatus="TRIGGERED", payload="P1", tenant=SENT, deliveryOption="FULL_EVENT", eventTime=SENT),
        ],
    ),
    "kafka, payload only": (
        Story([due(-60, payload="P2", **PAYLOAD_ONLY)], KAFKA, runs=20),
        [
            *is_accepted("TRIGGERED"),
            *(Assertion(f"delivered.{name}", SENT, None, BARE_KAFKA) for name in ("payload", "tenant", "eventTime")),
        ],
    ),
    "schedule and find": (
        Story([due(180, payload="P")], HTTP, ["find"]),
        [*is_accepted(), Assertion("find.status", 200), Assertion("find.eventTime", SENT), Assertion("find.payload", "P")],
    ),
    "update the payload": (
        Story([due(180, payload="P"), due(180, payload="P1")], HTTP, ["find"]),
        [*is_accepted("UPDATED"), Assertion("find.status", 200), Assertion("find.eventTime", SENT), Assertion("find.payload", "P1")],
    ),
    "update the time": (
        Story([due(180, payload="P"), due(240, payload="P2")], HTTP, ["find"]),
        [*is_accepted("UPDATED"), Assertion("find.status", 200), Assertion("find.eventTime", SENT), Assertion("find.payload", "P2")],
    ),
    "remove": (
        Story([due(180, payload="P"), due(180, payload="P", mode="REMOVE")], HTTP, ["find"]),
        [Assertion("schedule.status", 200), Assertion("find.status", 404)],
    ),
    "HTTP, past event": (
        Story([due(-1, payload="Payload1")], HTTP, runs=20),
        [
            Assertion("header.header1", "value1"),
            *is_delivered(id=SENT, eventTime=SENT, payload="Payload1", tenant=SENT, mode="UPSERT", eventId=None, eventStatus="TRIGGERED"),
            Assertion("schedule.status", 200),
            Assertion("schedule.eventId", None),
        ],
    ),
    "HTTP, future event": (
        Story([due(70, payload="Payload1"), due(70, payload="Payload2")], HTTP, runs=80),
        [
            *is_delivered(id=SENT, eventTime=SENT, payload="Payload2", tenant=SENT, mode="UPSERT", eventStatus="TRIGGERED"),
            no_prefix("delivered"),
            Assertion("schedule.status", 200),
        ],
    ),
    "HTTP, the receiver answers 500": (
        Story([due(-1, payload="Payload1")], HTTP, runs=10, answers=Verdict("retry", 500, "answered 500")),
        [Assertion("schedule.status", 200), Assertion("attempts", 4, 2, RETRIES)],
    ),
    "HTTP, the receiver answers 400": (
        Story([due(-1, payload="Payload1")], HTTP, runs=20, answers=Verdict("final", 400, "answered 400")),
        [Assertion("schedule.status", 200), Assertion("attempts", 1)],
    ),
    "kafka of the tests": (
        Story([due(-1, payload="Payload1")], KAFKA_OF_TESTS),
        [Assertion("register.status", 200, 422, NO_BROKERS), Assertion("schedule.status", 200, 400, NO_BROKERS)],
    ),
    "events of a shard": (
        Story([due(120, id=f"id_{number}") for number in range(10)], HTTP, ["find"]),
        [Assertion("find.status", 200), Assertion("find.eventStatus", "UN_PROCESSED")],
    ),
}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


async def observe(world: World, story: Story) -> tuple[dict[str, Any], dict[str, Any]]:
    """Play the story. Returns the last request and the observed value of each place, as `step.field`."""
    seen: dict[str, Any] = {}
    sent: dict[str, Any] = {}
    world.receiver.otherwise = story.answers

    async def look(step: str) -> None:
        name = step.split()[0]
        call = world.admin.get if name == "find" else world.admin.post
        note(step, await call(f"{EVENTS}/{name}?id={sent['id']}&tenant={sent['tenant']}"))

    def note(step: str, answer: Any) -> None:
        body = answer.json()
        fields = body[0] if isinstance(body, list) else body
        seen.update({f"{step}.{name}": value for name, value in fields.items()} | {f"{step}.status": answer.status})

    if story.processor is not None:
        note("register", await world.admin.post(f"{EVENTS}/tenant/register", {"tenant": "seed", **story.processor}))
    for request in story.requests:
        moment = {"eventTime": to_text(world.now + int(request["in"] * 1000))} if "in" in request else {}
        given = {name: value for name, value in request.items() if name != "in"}
        sent = {"id": "id123", "tenant": "seed", "payload": None, "mode": "UPSERT", "deliveryOption": "FULL_EVENT"} | moment | given
        note("schedule", await world.admin.post(f"{EVENTS}/schedule", [sent]))
    for step in story.looks:
        if "after" not in step:
            await look(step)
    await world.run(story.runs)
    for step in story.looks:
        if "after" in step:
            await look(step)
    seen["attempts"] = len(world.receiver.received)
    if world.receiver.received:
        got = world.receiver.received[-1]
        seen["body"] = got.delivery.body.decode()
        fields = orjson.loads(got.delivery.body)
        seen |= {f"delivered.{name}": value for name, value in fields.items()} if isinstance(fields, dict) else {}
        headers = binary_headers(got.target, got.delivery) | getattr(got.target.spec, "headers", {})
        seen |= {f"header.{name}": value for name, value in headers.items()}
    return sent, seen


def holds(expected: Any, sent: dict[str, Any], place: str, seen: dict[str, Any]) -> bool:
    found = seen.get(place)
    if isinstance(expected, Callable):  # type: ignore[arg-type]
        return bool(expected(found))
    return bool(found == (sent[place.rpartition(".")[2]] if expected is SENT else expected))


@pytest.mark.parametrize("name", TABLE)
async def test_assertions_of_the_original_hold_or_are_named_differences(world: World, name: str) -> None:
    story, assertions = TABLE[name]
    sent, seen = await observe(world, story)
    wrong: list[str] = []
    for each in assertions:
        if each.page:
            as_stated = holds(each.here, sent, each.place, seen) and not holds(each.expected, sent, each.place, seen)
        else:
            as_stated = holds(each.expected, sent, each.place, seen)
        if not as_stated:
            wrong.append(f"{each.place}: {seen.get(each.place)!r}, BigBen has {each.expected!r}")
    assert wrong == []


def test_page_names_each_difference() -> None:
    text = PAGE.read_text(encoding="utf-8")
    sentences = {each.page for _, assertions in TABLE.values() for each in assertions if each.page}
    assert sentences and [sentence for sentence in sentences if sentence not in text] == []
