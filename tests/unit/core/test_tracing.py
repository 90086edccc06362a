"""One event, one trace: from the request through storage and queue to each delivery."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    DEFAULT_ON,
    Decision,
    ParentBasedTraceIdRatio,
    Sampler,
    StaticSampler,
)
from opentelemetry.trace import SpanKind, StatusCode

from shared.core import tracing
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.extras.kafka_source.consumer import KafkaMessage, _trace_of
from shared.extras.kafka_source.ingest import item_of
from shared.extras.kafka_source.sources import KafkaSource
from shared.scheduler.ingest.admission import TRACED_OF_BATCH
from shared.storage.names import QUEUE_INGEST
from tests.unit.scheduler.harness import World

EVENTS = "/api/v1/events"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{PARENT}-01"
BODY = {"delay": "PT2S", "payload": 1}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The application on storage in memory."""
    world = await World().open()
    yield world
    await world.close()


def provided(monkeypatch: pytest.MonkeyPatch, **options: Any) -> InMemorySpanExporter:
    """An SDK, for one test: the API lets a process set one once, and for good."""
    spans = InMemorySpanExporter()
    provider = TracerProvider(**options)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return spans


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Return the spans that an SDK exports."""
    yield provided(monkeypatch)


def finished(spans: InMemorySpanExporter, start: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name.startswith(start)]


def ids(span: ReadableSpan) -> tuple[str, str, str | None]:
    """Trace, span, parent."""
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", f"{span.parent.span_id:016x}" if span.parent else None


def sent(world: World) -> list[str | None]:
    return [got.delivery.traceparent for got in world.receiver.received]


async def test_event_is_one_trace_from_the_request_to_its_last_attempt(world: World, spans: InMemorySpanExporter) -> None:
    made = (await world.demo.post(EVENTS, BODY, {"traceparent": GIVEN})).json()
    world.receiver.script(made["id"], Verdict("retry", 503, "answered 503", retry_after=1.0), Verdict("delivered", 200))
    await world.run(30)
    [request] = finished(spans, "POST")
    first, second = finished(spans, "deliver")
    trace_id, request_id, parent = ids(request)
    assert (trace_id, parent) == (TRACE, PARENT) and request.kind is SpanKind.SERVER
    assert [(ids(span)[0], ids(span)[2]) for span in (first, second)] == [(TRACE, request_id)] * 2
    assert sent(world) == [f"00-{TRACE}-{ids(span)[1]}-01" for span in (first, second)], "the receiver goes on where the attempt stands"
    assert request.attributes is not None and first.attributes is not None and second.attributes is not None
    assert (request.name, request.attributes["http.response.status_code"]) == ("POST /api/v1/events", 201)
    attributes = dict(first.attributes)
    assert attributes == {
        "tocsin.tenant": "demo",
        "tocsin.channel": "default",
        "tocsin.event": made["id"],
        "tocsin.attempt": 1,
        "tocsin.late_ms": 0,
        "tocsin.outcome": "retry",
        "http.response.status_code": 503,
    }
    assert (second.attributes["tocsin.attempt"], second.attributes["tocsin.outcome"]) == (2, "delivered")
    assert (first.status.status_code, first.status.description, second.status.status_code) == (
        StatusCode.ERROR,
        "answered 503",
        StatusCode.UNSET,
    )


async def test_events_of_a_batch_share_the_requests_trace(world: World, spans: InMemorySpanExporter) -> None:
    await world.demo.post(f"{EVENTS}/batch", [BODY, BODY, BODY], {"traceparent": GIVEN})
    await world.run(10)
    [request] = finished(spans, "POST")
    assert {(ids(span)[0], ids(span)[2]) for span in finished(spans, "deliver")} == {(TRACE, ids(request)[1])}
    assert len(set(sent(world))) == 3


async def test_only_the_first_events_of_a_large_batch_are_traced(world: World, spans: InMemorySpanExporter) -> None:
    many = TRACED_OF_BATCH + 3
    await world.demo.post(f"{EVENTS}/batch", [BODY] * many, {"traceparent": GIVEN})
    await world.run(10)
    assert len(finished(spans, "deliver")) == TRACED_OF_BATCH
    assert {(str(each)[:35], str(each)[53:]) for each in sent(world)} == {(GIVEN[:35], "01"), (GIVEN[:35], "00")}
    assert len(sent(world)) == many


async def test_request_without_a_trace_begins_one(world: World, spans: InMemorySpanExporter) -> None:
    await world.demo.post(EVENTS, BODY)
    await world.run(10)
    [request], [delivery] = finished(spans, "POST"), finished(spans, "deliver")
    assert ids(request)[2] is None and ids(delivery)[::2] == ids(request)[:2]


async def test_attempt_is_linked_to_the_work_on_its_shard_a_part_of_the_invocation(world: World, spans: InMemorySpanExporter) -> None:
    await world.demo.post(EVENTS, BODY, {"traceparent": GIVEN})
    await world.clock.advance(1)
    [message] = await world.queues.receive("tocsin-shards")
    tracer = trace.get_tracer_provider().get_tracer("host")
    with tracer.start_as_current_span("fire_shard") as host:
        await world.do(world.app.scheduler.firing.serve(message.text))
    [delivery] = finished(spans, "deliver")
    [shard] = finished(spans, "serve shard")
    assert shard.parent is not None and shard.parent.span_id == host.get_span_context().span_id
    assert [link.context for link in delivery.links] == [shard.get_span_context()]
    assert ids(delivery)[0] == TRACE


async def test_owner_of_an_express_shard_is_no_part_of_its_first_request(spans: InMemorySpanExporter) -> None:
    world = await World(express_events=10).open()
    made = [(await world.demo.post(EVENTS, {**BODY, "delay": "PT0.5S"}, {"traceparent": GIVEN})).json()["id"] for _ in range(2)]
    await world.run(5)
    await world.close()
    [owner] = finished(spans, "serve shard")
    assert owner.parent is None and ids(owner)[0] != TRACE
    requests = {ids(span)[1] for span in finished(spans, "POST")}
    attempts = finished(spans, "deliver")
    assert {ids(span)[2] for span in attempts} == requests and len(attempts) == len(made)
    assert {link.context.span_id for span in attempts for link in span.links} == {owner.get_span_context().span_id}


async def test_event_taken_in_before_traces_were_switched_on_gets_one_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.demo.post(EVENTS, BODY)
    spans = provided(monkeypatch)
    await world.run(10)
    [delivery] = finished(spans, "deliver")
    assert ids(delivery)[2] is None and str(sent(world)[0]).startswith(f"00-{ids(delivery)[0]}-{ids(delivery)[1]}-")


async def test_moved_and_redriven_events_stay_in_their_trace(world: World, spans: InMemorySpanExporter) -> None:
    made = (await world.demo.post(EVENTS, BODY | {"retry": {"attempts": 1}}, {"traceparent": GIVEN})).json()
    [request] = finished(spans, "POST /api/v1/events")
    world.receiver.script(made["id"], Verdict("final", 400), Verdict("delivered", 200))
    await world.demo.patch(f"{EVENTS}/{made['id']}", {"delay": "PT20S"})
    await world.run(40)
    await world.demo.post(f"{EVENTS}/{made['id']}/redrive")
    await world.run(20)
    assert [ids(span)[::2] for span in finished(spans, "deliver")] == [(TRACE, ids(request)[1])] * 2


async def test_choice_not_to_sample_goes_on_to_the_receiver(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = provided(monkeypatch, sampler=ALWAYS_OFF)
    await world.demo.post(EVENTS, BODY, {"traceparent": GIVEN})
    await world.run(10)
    [header] = sent(world)
    assert header is not None and header.startswith(f"00-{TRACE}-") and header.endswith("-00") and not spans.get_finished_spans()


@pytest.mark.parametrize("flags", ["00", "02"])
@pytest.mark.parametrize("sampler", [DEFAULT_OFF, DEFAULT_ON, ParentBasedTraceIdRatio(0.0)])
async def test_a_trace_that_its_parent_does_not_record_makes_no_span_and_goes_on_to_the_receiver(
    world: World, monkeypatch: pytest.MonkeyPatch, sampler: Sampler, flags: str
) -> None:
    spans = provided(monkeypatch, sampler=sampler)
    made: list[str] = []
    monkeypatch.setattr(trace, "get_tracer", lambda name, get=trace.get_tracer: made.append(name) or get(name))
    await world.demo.post(EVENTS, BODY, {"traceparent": GIVEN[:-2] + flags})
    before = len(made)
    await world.run(10)
    assert not spans.get_finished_spans() or {span.name for span in spans.get_finished_spans()} == {"serve shard"}
    [header] = sent(world)
    assert header is not None and header.startswith(f"00-{TRACE}-") and header.endswith(("-00", "-02"))
    assert len(made) == before + 1, "for the work on the shard, not for the delivery"


async def test_a_sampler_of_ones_own_is_asked_for_each_delivery(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = provided(monkeypatch, sampler=ALWAYS_ON)
    await world.demo.post(EVENTS, BODY, {"traceparent": GIVEN[:-1] + "0"})
    await world.run(10)
    assert len(finished(spans, "POST")) == len(finished(spans, "deliver")) == 1


async def test_a_sampler_that_cannot_be_hashed_keeps_nothing_from_being_delivered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(StaticSampler):
        __hash__ = None  # type: ignore[assignment]

    provided(monkeypatch, sampler=Odd(Decision.DROP))
    await world.demo.post(EVENTS, BODY)
    await world.run(10)
    assert len(sent(world)) == 1


async def test_sender_that_breaks_leaves_a_span_that_says_so(world: World, spans: InMemorySpanExporter) -> None:
    def broken(target: Target, delivery: OutgoingDelivery) -> Verdict:
        raise RuntimeError("a bug")

    made = (await world.demo.post(EVENTS, BODY)).json()
    world.receiver.script(made["id"], broken, Verdict("delivered", 200))
    await world.run(30)
    first, second = finished(spans, "deliver")
    assert first.status.status_code is StatusCode.ERROR and [event.name for event in first.events] == ["exception"]
    assert second.status.status_code is StatusCode.UNSET


async def test_refused_request_shows_its_status(world: World, spans: InMemorySpanExporter) -> None:
    assert (await world.demo.post(EVENTS, {"payload": 1})).status == 422
    [request] = finished(spans, "POST")
    assert request.attributes is not None and request.attributes["http.response.status_code"] == 422
    assert request.status.status_code is StatusCode.UNSET, "the caller's fault, not the service's"


async def test_probes_and_other_open_routes_are_not_traced(world: World, spans: InMemorySpanExporter) -> None:
    assert (await world.nobody.get("/api/readyz")).status in (200, 503)
    assert not spans.get_finished_spans()


# ---- without an SDK


async def test_trace_of_the_request_goes_through_untouched(world: World) -> None:
    await world.demo.post(EVENTS, BODY, {"traceparent": GIVEN})
    await world.demo.post(f"{EVENTS}/batch", [BODY, BODY], {"traceparent": f"00-{TRACE}-{PARENT}-00"})
    await world.run(10)
    assert sorted(map(str, sent(world))) == [f"00-{TRACE}-{PARENT}-00"] * 2 + [GIVEN]


async def test_nothing_is_stored_or_sent_without_tracing(world: World) -> None:
    await world.demo.post(EVENTS, BODY)
    assert [row.props.keys() & {"trace"} for row in world.events()] == [set()]
    await world.run(10)
    assert sent(world) == [None]


@pytest.mark.parametrize(
    "header",
    [
        *("", "x", GIVEN.upper(), GIVEN[:-1], GIVEN + "0", GIVEN + "-", GIVEN + "-00", GIVEN.replace("-", "_"), "x" * 10_000),
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{PARENT}-01",
        f"{GIVEN},{GIVEN}",
        f"cc-{TRACE}-{PARENT}-01.what",
    ],
)
async def test_malformed_trace_is_as_good_as_none(world: World, header: str) -> None:
    assert (await world.demo.post(EVENTS, BODY, {"traceparent": header})).status == 201
    await world.run(10)
    assert sent(world) == [None]


async def test_header_of_a_later_version_is_read_as_far_as_it_is_known(world: World) -> None:
    await world.demo.post(EVENTS, BODY, {"traceparent": f"cc-{TRACE}-{PARENT}-01-what-the-future-brings"})
    await world.run(10)
    assert sent(world) == [GIVEN]


def test_without_an_sdk_there_is_nothing_to_do() -> None:
    assert not tracing.on() and not tracing.traced({"host": "x"}) and tracing.current() is None


async def test_trace_of_an_event_that_waits_in_the_ingest_queue_is_kept(world: World) -> None:
    answer = await world.demo.post(EVENTS, BODY | {"durability": "fast"}, {"traceparent": GIVEN})
    assert answer.status == 202
    await world.run(10)
    assert sent(world) == [GIVEN]


# ---- other entries than HTTP


async def test_events_of_a_producers_message_stay_in_the_trace_it_names(world: World, spans: InMemorySpanExporter) -> None:
    letter = {"tenant": "demo", "key": world.demo.key, "events": [BODY, BODY], "traceparent": GIVEN}
    await world.queues.send(QUEUE_INGEST, orjson.dumps(letter).decode())
    await world.run(10)
    assert {ids(span)[::2] for span in finished(spans, "deliver")} == {(TRACE, PARENT)} and len(sent(world)) == 2


@pytest.mark.parametrize("given", [{}, {"traceparent": "nonsense"}, {"traceparent": None}])
async def test_a_producers_message_without_a_trace_has_no_part_in_that_of_the_function_which_takes_it_in(
    world: World, spans: InMemorySpanExporter, given: dict[str, str | None]
) -> None:
    tracer = trace.get_tracer_provider().get_tracer("host")
    await world.queues.send(QUEUE_INGEST, orjson.dumps({"tenant": "demo", "key": world.demo.key, "events": [BODY, BODY], **given}).decode())
    with tracer.start_as_current_span("ingest_events"):
        await world.run(10)
    assert [ids(span)[2] for span in finished(spans, "deliver")] == [None, None]
    assert len({ids(span)[0] for span in finished(spans, "deliver")}) == 2


async def test_an_event_from_kafka_stays_in_the_trace_of_its_message(world: World, spans: InMemorySpanExporter) -> None:
    source = KafkaSource(servers="b:9092", topic="orders", tenant="demo")
    at = world.clock.now()
    records = [KafkaMessage(0, 1, at, orjson.dumps(BODY), GIVEN), KafkaMessage(0, 2, at, orjson.dumps(BODY))]
    await world.do(world.app.scheduler.intake.take("demo", [item_of(source, record) for record in records], origin="kafka"))
    await world.run(10)
    found = sorted(finished(spans, "deliver"), key=lambda span: ids(span)[2] or "")
    assert [ids(span)[2] for span in found] == [None, PARENT] and ids(found[1])[0] == TRACE


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (None, None),
        ([], None),
        ([("ce_id", b"x"), ("TraceParent", GIVEN.encode()), ("traceparent", b"second")], GIVEN),
        ([("traceparent", None)], None),
        ([("traceparent", b"\xff")], "\ufffd"),
        ([("traceparent", GIVEN)], GIVEN),
    ],
)
def test_the_trace_of_a_kafka_message_is_in_its_header(headers: list[tuple[str, Any]] | None, found: str | None) -> None:
    assert _trace_of(headers) == found


async def test_a_recurring_schedules_events_have_a_trace_each(world: World, spans: InMemorySpanExporter) -> None:
    body = {"every": "PT10S", "payload": 1}
    answer = await world.demo.put("/api/v1/schedules/s1", body, {"traceparent": GIVEN})
    assert answer.status == 201, answer
    await world.run(40)
    found = [ids(span) for span in finished(spans, "deliver")]
    assert len(found) >= 3 and {parent for _, _, parent in found} == {None} and len({trace_id for trace_id, _, _ in found}) == len(found)


async def test_every_call_with_a_key_is_a_span_of_its_own(world: World, spans: InMemorySpanExporter) -> None:
    for path in ("fleets", "stats", "schedules", "fleets/none/leases/stale", "fleets/none/turns"):
        await world.demo.get(f"/api/v1/{path}", {"traceparent": GIVEN})
    requests = finished(spans, "GET")
    assert {ids(span)[::2] for span in requests} == {(TRACE, PARENT)} and len(requests) == 5
    assert {span.name for span in requests} >= {"GET /api/v1/fleets", "GET /api/v1/fleets/{fleet}/turns"}
