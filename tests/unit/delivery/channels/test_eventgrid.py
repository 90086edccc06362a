"""The Event Grid sender: batches and verdicts on a scripted publisher, the wire on a fake Event Grid with the real SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from yarl import URL

from shared.core.clock import SettableClock
from shared.delivery.channels import eventgrid
from shared.delivery.channels.eventgrid import EventGridSender, is_azure
from shared.delivery.channels.model import EventGridChannel
from shared.delivery.channels.ports import Target, Verdict
from tests.texts import assert_text

from .conftest import NOW, http_target, make_delivery, make_settings

TOPIC = "https://topic.westeurope-1.eventgrid.azure.net/api/events"


def to_topic(endpoint: str = TOPIC) -> Target:
    return Target("demo", "grid", EventGridChannel(type="eventgrid", endpoint=endpoint))


class Answer:
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code, self.headers, self.reason = status, {k.replace("_", "-"): v for k, v in headers.items()}, "s3cret"


def http_error(status: int, **headers: str) -> HttpResponseError:
    error = HttpResponseError("s3cret body")
    error.status_code, error.response = status, Answer(status, **headers)  # type: ignore[assignment]
    return error


class Scripted:
    """A publisher that fails when an event of the batch is in `poison`, or with `error` for all."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.error: Exception | None = None
        self.poison: dict[str, Exception] = {}
        self.closed = 0

    async def send(self, events: list[Any], /) -> None:
        self.batches.append(events)
        for event in events:
            if event.id in self.poison:
                raise self.poison[event.id]
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        self.closed += 1


def make(clock: SettableClock | None = None, *, linger: float = 0.0) -> tuple[EventGridSender, Scripted, list[str]]:
    publisher, opened = Scripted(), list[str]()

    def open_publisher(endpoint: str) -> Scripted:
        opened.append(endpoint)
        return publisher

    sender = EventGridSender(make_settings(), clock or SettableClock(NOW), publishers=open_publisher, linger=linger)
    return sender, publisher, opened


async def send_all(sender: EventGridSender, count: int, endpoint: str = TOPIC) -> list[Verdict]:
    return await asyncio.gather(*[sender.send(to_topic(endpoint), make_delivery(f"ev-{n}")) for n in range(count)])


async def test_what_comes_together_is_published_together() -> None:
    sender, publisher, opened = make()
    verdicts = await send_all(sender, 250)
    assert set(verdicts) == {Verdict("delivered", 200)}
    assert [len(batch) for batch in publisher.batches] == [100, 100, 50]
    assert opened == [TOPIC]
    await sender.close()
    assert publisher.closed == 1


async def test_a_first_event_waits_a_few_milliseconds_for_others() -> None:
    clock = SettableClock(NOW)
    sender, publisher, _ = make(clock, linger=0.002)
    first = asyncio.create_task(sender.send(to_topic(), make_delivery("ev-1")))
    await clock.advance(0.001)
    second = asyncio.create_task(sender.send(to_topic(), make_delivery("ev-2")))
    await clock.advance(0.0005)
    assert publisher.batches == []
    await clock.advance(0.001)
    assert (await first, await second) == (Verdict("delivered", 200), Verdict("delivered", 200))
    assert [[event.id for event in batch] for batch in publisher.batches] == [["ev-1", "ev-2"]]
    await sender.close()


async def test_endpoints_do_not_share_batches() -> None:
    sender, publisher, opened = make()
    other = TOPIC.replace("topic", "other")
    await asyncio.gather(send_all(sender, 2), send_all(sender, 3, other))
    assert sorted(len(batch) for batch in publisher.batches) == [2, 3]
    assert sorted(opened) == sorted([TOPIC, other])
    await sender.close()


async def test_a_batch_stays_below_one_mebibyte() -> None:
    sender, publisher, _ = make()
    body = b'"' + b"x" * 250_000 + b'"'
    await asyncio.gather(*[sender.send(to_topic(), make_delivery(f"ev-{n}", body=body)) for n in range(10)])
    assert [len(batch) for batch in publisher.batches] == [4, 4, 2]
    await sender.close()


async def test_an_event_carries_payload_and_attributes() -> None:
    sender, publisher, _ = make()
    await sender.send(to_topic(), make_delivery(attempt=2, traceparent="00-ab-cd-01"))
    [[event]] = publisher.batches
    assert (event.id, event.source, event.type, event.data) == ("ev-1", "/tenants/demo/channels/grid", "tocsin.event.due", {"n": 1.0})
    assert event.extensions["tocsinattempt"] == 2 and event.extensions["traceparent"] == "00-ab-cd-01"
    await sender.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (http_error(503, Retry_After="9"), ("retry", 503, 9.0)),
        (http_error(429), ("retry", 429, None)),
        (http_error(410), ("final", 410, None)),
        (http_error(302), ("retry", 302, None)),
        (http_error(401), ("retry", 401, None)),
        (http_error(403), ("retry", 403, None)),
        (http_error(404), ("retry", 404, None)),
        (ClientAuthenticationError("s3cret"), ("retry", None, None)),
        (ServiceRequestError("s3cret"), ("retry", None, None)),
        (OSError("s3cret"), ("retry", None, None)),
        (KeyError("s3cret"), ("retry", None, None)),
    ],
)
async def test_all_of_a_batch_get_its_verdict(error: Exception, expected: tuple[Any, ...]) -> None:
    sender, publisher, _ = make()
    publisher.error = error
    for verdict in await send_all(sender, 3):
        assert (verdict.outcome, verdict.status, verdict.retry_after) == expected
        assert verdict.error and "s3cret" not in verdict.error and len(verdict.error) <= 500
    assert len(publisher.batches) == 1
    await sender.close()


@pytest.mark.parametrize(("error", "status"), [(http_error(400), 400), (http_error(413), 413), (RecursionError(), None)])
async def test_one_bad_event_does_not_take_its_batch_along(error: Exception, status: int | None) -> None:
    sender, publisher, _ = make()
    publisher.poison["ev-13"] = error
    verdicts = await send_all(sender, 50)
    assert [n for n, verdict in enumerate(verdicts) if verdict.outcome != "delivered"] == [13]
    assert verdicts[13][:2] == ("final", status)
    assert len(publisher.batches) <= 13
    await sender.close()


@pytest.mark.parametrize("body", [b"1e400", b"[" * 100_000 + b"]" * 100_000, b"{"])
async def test_a_payload_that_cannot_be_written_again_is_final(body: bytes) -> None:
    sender, publisher, _ = make()
    verdict = await sender.send(to_topic(), make_delivery(body=body))
    assert verdict.outcome == "final" and publisher.batches == []
    await sender.close()


async def test_an_event_beyond_the_services_limit_is_final() -> None:
    sender, publisher, _ = make()
    verdict = await sender.send(to_topic(), make_delivery(body=b'"' + "é".encode() * 200_000 + b'"'))
    assert verdict.outcome == "final" and verdict.error and "Event Grid takes" in verdict.error and publisher.batches == []
    await sender.close()


async def test_a_silent_service_is_left_after_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventgrid, "TIMEOUT", 0.05)
    sender, publisher, _ = make()

    async def silent(events: list[Any], /) -> None:
        await asyncio.Event().wait()

    publisher.send = silent  # type: ignore[method-assign]
    assert_text("delivery.event-grid-silent", (await sender.send(to_topic(), make_delivery())).error, seconds=0.05)
    await sender.close()


async def test_a_cancelled_delivery_leaves_the_others_alone() -> None:
    sender, _, _ = make()
    tasks = [asyncio.create_task(sender.send(to_topic(), make_delivery(f"ev-{n}"))) for n in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(done[1], asyncio.CancelledError)
    assert [done[0], done[2]] == [Verdict("delivered", 200)] * 2
    await sender.close()


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://topic.westeurope-1.eventgrid.azure.net/api/events",
        "https://evil.example/api/events",
        "https://eventgrid.azure.net.evil.example/api/events",
        "https://topic.eventgrid.azure.net:8443/api/events",
        "https://user:pw@topic.eventgrid.azure.net/api/events",
        "https://127.0.0.1/api/events",
        "http://localhost:1/api/events",
        "https://[::1/x",
    ],
)
async def test_events_and_tokens_go_nowhere_but_to_event_grid(endpoint: str) -> None:
    sender, publisher, opened = make()
    verdict = await sender.send(to_topic(endpoint), make_delivery())
    assert verdict.outcome == "final" and verdict.error and "pw" not in verdict.error
    assert opened == [] and publisher.batches == []
    await sender.close()


def test_azures_domains_are_known() -> None:
    assert is_azure(URL(TOPIC)) and is_azure(URL("https://T.Eventgrid.Azure.US/api/events"))


async def test_a_channel_of_another_type_is_a_bug_of_ours() -> None:
    sender, _, _ = make()
    with pytest.raises(TypeError):
        await sender.send(http_target("https://example.com/"), make_delivery())
    await sender.close()


class FakeGrid:
    """Event Grid's publishing endpoint: notes requests, answers `status`."""

    def __init__(self) -> None:
        self.status, self.headers, self.requests = 200, dict[str, str](), list[tuple[dict[str, str], Any]]()
        self.endpoint = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(({name.lower(): value for name, value in request.headers.items()}, await request.json()))
        return web.Response(status=self.status, headers=self.headers)


@pytest.fixture
async def grid() -> Any:
    fake, app = FakeGrid(), web.Application()
    app.router.add_post("/api/events", fake.handle)
    app.router.add_post("/elsewhere", fake.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.endpoint = f"http://localhost:{runner.addresses[0][1]}/api/events"
    yield fake
    await runner.cleanup()


async def test_the_sdk_publishes_a_batch_to_a_named_emulator_without_any_token(grid: FakeGrid) -> None:
    sender = EventGridSender(make_settings("localhost"), linger=0.0)
    bodies = [b'{"a": null}', b"null", b'"text"', b"[1, 2.5, true]", b"123456789012345678901234567890"]
    verdicts = await asyncio.gather(
        *[sender.send(to_topic(grid.endpoint), make_delivery(f"ev-{n}", body=body)) for n, body in enumerate(bodies)]
    )
    assert set(verdicts) == {Verdict("delivered", 200)}
    [(headers, events)] = grid.requests
    assert headers["content-type"].startswith("application/cloudevents-batch+json")
    assert headers["aeg-sas-key"] == "none" and "authorization" not in headers
    assert [event["data"] for event in events] == [{"a": None}, None, "text", [1, 2.5, True], 123456789012345678901234567890]
    assert events[0]["specversion"] == "1.0" and events[0]["tocsinlatems"] == 40 and events[0]["datacontenttype"] == "application/json"
    await sender.close()


async def test_the_sdk_neither_retries_nor_follows(grid: FakeGrid) -> None:
    sender = EventGridSender(make_settings("localhost"), linger=0.0)
    grid.status, grid.headers = 503, {"Retry-After": "30"}
    assert (await sender.send(to_topic(grid.endpoint), make_delivery()))[:2] == ("retry", 503)
    grid.status, grid.headers = 307, {"Location": grid.endpoint.replace("api/events", "elsewhere")}
    assert (await sender.send(to_topic(grid.endpoint), make_delivery()))[:2] == ("retry", 307)
    assert len(grid.requests) == 2
    await sender.close()


async def test_the_real_credential_is_made_for_azure_only() -> None:
    sender = EventGridSender(make_settings("localhost"))
    sender._azure("http://localhost:1/api/events")
    assert sender._azure._credential is None
    client = sender._azure(TOPIC)
    assert sender._azure._credential is not None
    await client.close()
    await sender.close()
    assert sender._azure._credential is None
