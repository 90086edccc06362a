"""The test kit: time that passes at once, deliveries into code of the user's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

import shared as tocsin
from shared.app.timers import Timers
from shared.testing import BlockingTocsin, Received, Tocsin, Verdict
from shared.testing.kit import KEY

DAY = timedelta(days=1)
START = datetime(2027, 1, 15, 8, tzinfo=UTC)


def lateness(received: list[Received]) -> list[float]:
    """In seconds."""
    return [got.delivery.late.total_seconds() for got in received]


async def test_thirty_days_pass_and_the_event_fires_at_its_millisecond() -> None:
    async with Tocsin() as kit:
        due = datetime(2027, 2, 14, 10, 21, 55, 250_000, tzinfo=UTC)
        event = await kit.client.schedule({"order": 17}, due=due)
        assert await kit.advance_to(due - timedelta(milliseconds=1)) == []
        [got] = await kit.advance(milliseconds=1)
        assert (got.id, got.payload, got.delivery.attempt, got.delivery.due) == (event.id, {"order": 17}, 1, due)
        assert got.began == got.ended == got.delivery.fired == due and lateness([got]) == [0]
        assert kit.now == due and kit.receiver.received == [got]
        await kit.advance(seconds=2)
        assert (await kit.client.get(event.id)).state == "delivered"


async def test_events_come_in_the_order_of_their_time_however_far_apart() -> None:
    async with Tocsin() as kit:
        delays = [timedelta(seconds=1), timedelta(minutes=1), 3 * DAY, 365 * DAY, timedelta(0), 999 * DAY, timedelta(milliseconds=1)]
        for delay in delays:
            await kit.client.schedule(delay.total_seconds(), delay=delay)
        await kit.advance(1000 * DAY)
        received = kit.receiver.received
        assert [got.payload for got in received] == sorted(delay.total_seconds() for delay in delays)
        # What is due at once or nearly so must first be stored, and its message seen.
        assert max(lateness(received)) < 2 and lateness(received)[-4:] == [0, 0, 0, 0]


async def test_time_without_events_costs_a_few_ticks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[str] = []
    run_once = Timers.run_once

    async def counted(self: Timers, timer: str) -> dict[str, dict[str, int]]:
        ticks.append(timer)
        return await run_once(self, timer)

    monkeypatch.setattr(Timers, "run_once", counted)
    async with Tocsin() as kit:
        await kit.client.schedule(1, delay=30 * DAY)
        assert len(await kit.advance(days=30)) == 1
        # Each timer looks once a day; the scan alone would tick 172,800 times.
        assert len(ticks) < 31 * len(set(ticks)) + 20


async def test_scripted_failures_are_retried_at_their_times_and_end_as_the_policy_says() -> None:
    async with Tocsin() as kit:
        kit.receiver.script("twice", Verdict("retry", 503), Verdict("retry", 500, retry_after=3600.0), Verdict("delivered", 200))
        kit.receiver.script("never", Verdict("final", 404, "answered 404 Not Found"))
        await kit.client.batch([{"id": name, "payload": 1, "delay": DAY} for name in ("twice", "never")])
        received = await kit.advance(2 * DAY)
        assert sorted((got.id, got.delivery.attempt) for got in received) == [("never", 1), ("twice", 1), ("twice", 2), ("twice", 3)]
        assert lateness(kit.receiver.of("twice"))[2] >= 3600
        assert [event.id async for event in kit.client.dead_letters()] == ["never"]
        dead = await kit.client.get("never")
        assert (dead.state, dead.error, dead.attempts[0].status) == ("dead", "answered 404 Not Found", 404)
        kit.receiver.script("never", Verdict("delivered", 200))
        await kit.client.redrive("never")
        assert [got.id for got in await kit.advance(minutes=1)] == ["never"]


async def test_cancelled_and_changed_events_behave_as_changed() -> None:
    async with Tocsin() as kit:
        one, other = await kit.client.schedule("one", delay=DAY), await kit.client.schedule("other", delay=DAY)
        await kit.client.cancel(one.id)
        await kit.client.change(other.id, delay=2 * DAY, if_match=other.etag)
        assert await kit.advance(1.5 * DAY) == []
        assert [got.payload for got in await kit.advance(DAY)] == ["other"]
        with pytest.raises(tocsin.Conflict) as refused:
            await kit.client.cancel(one.id)
        assert refused.value.code == "already-final"


async def test_changes_of_one_instant_count_in_their_order() -> None:
    async with Tocsin() as kit:
        event = await kit.client.schedule(0, delay=DAY)
        for number in range(1, 30):
            await kit.client.change(event.id, payload=number)
        [got] = await kit.advance(DAY)
        assert got.payload == 29


async def test_herd_of_one_instant_comes_at_that_instant() -> None:
    async with Tocsin() as kit:
        batch = await kit.client.batch({"payload": n, "due": START + DAY} for n in range(1_500))
        assert batch.accepted == 1_500 and batch.rejected == ()
        received = await kit.advance(2 * DAY)
        assert sorted(got.payload for got in received) == list(range(1_500)) and set(lateness(received)) == {0}


async def test_function_gets_what_production_sends_and_verifies_it_by_the_kits_clock() -> None:
    taken: list[tocsin.Delivery] = []

    async def handler(request: httpx.Request) -> None:
        taken.append(tocsin.verify(request.headers, request.content, kit.secret))
        assert (request.method, str(request.url)) == ("POST", "http://shop.test/hooks?x=1")
        with pytest.raises(tocsin.BadDelivery):
            tocsin.verify(request.headers, request.content + b" ", kit.secret)

    async with Tocsin(deliver_to=handler, url="http://shop.test/hooks?x=1") as kit:
        event = await kit.client.schedule({"order": 17}, delay=400 * DAY)
        [got] = await kit.advance(400 * DAY)
        [delivery] = taken
        assert (delivery.id, delivery.payload, delivery.attempt, delivery.channel) == (event.id, {"order": 17}, 1, "default")
        assert delivery.due == delivery.fired == START + 400 * DAY and got.verdict.status == 204


@pytest.mark.parametrize(
    ("answer", "outcome"), [(None, "delivered"), (202, "delivered"), (500, "retry"), (404, "retry"), (302, "retry"), (422, "final")]
)
async def test_answers_are_judged_as_in_production(answer: int | None, outcome: str) -> None:
    async with Tocsin(deliver_to=lambda request: answer) as kit:
        await kit.client.schedule(1, delay=DAY)
        [got] = await kit.advance(DAY)
        assert got.verdict.outcome == outcome


async def test_a_receiver_completes_an_event_later() -> None:
    works: list[tocsin.Work] = []

    async def handler(request: httpx.Request) -> httpx.Response:
        work = tocsin.verify(request.headers, request.content, kit.secret).work
        assert work is not None
        works.append(work)
        return httpx.Response(202, headers=work.later())

    async with Tocsin(deliver_to=handler) as kit:
        channel = {"type": "http", "url": "http://localhost:7072/", "long_work": {"within": "PT1H"}}
        await kit.admin.call("PUT", "tenants/demo/channels/default", channel)
        event = await kit.client.schedule(1, delay=DAY)
        await kit.advance(DAY)
        [work] = works
        shown = await kit.client.get(event.id)
        assert shown.state == "working" and shown.work is not None and shown.work.within == work.within
        assert (await work.complete_async(transport=kit.transport)).event == "delivered"
        assert (await kit.client.get(event.id)).state == "delivered"


async def test_retry_after_of_a_response_is_honoured() -> None:
    answers = [httpx.Response(503, headers={"retry-after": "1800"}), httpx.Response(200)]
    async with Tocsin(deliver_to=lambda request: answers.pop(0)) as kit:
        await kit.client.schedule(1, delay=DAY)
        received = await kit.advance(2 * DAY)
        assert lateness(received)[0] == 0 and 1800 <= lateness(received)[1] < 1810


async def test_asgi_app_is_called_in_this_process() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert message["body"] == b'{"order":17}' and scope["path"] == "/hooks"
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with Tocsin(deliver_to=app, url="http://shop.test/hooks") as kit:
        await kit.client.schedule({"order": 17}, delay=DAY)
        [got] = await kit.advance(DAY)
        assert got.verdict == Verdict("delivered", 201)


async def test_wsgi_app_is_called_in_a_thread() -> None:
    threads = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        threads.append(threading.current_thread())
        start_response("200 OK", [])
        return [b""]

    async with Tocsin(deliver_to=app) as kit:
        await kit.client.schedule(1, delay=DAY)
        assert [got.verdict.status for got in await kit.advance(DAY)] == [200]
    assert threads and threads[0] is not threading.main_thread()


async def test_handler_gets_requests_without_a_body_and_bodies_of_any_type() -> None:
    got = []

    def handler(request: httpx.Request) -> int:
        got.append(
            (
                request.method,
                request.content,
                request.headers.get("content-type"),
                tocsin.verify(request.headers, request.content, kit.secret).payload,
            )
        )
        return 204

    async with Tocsin(deliver_to=handler) as kit:
        await kit.client.schedule(None, delay=DAY, id="a", target={"method": "GET"})
        await kit.client.schedule(b"<a/>", delay=DAY, id="b", content_type="text/xml")
        await kit.advance(DAY)
        received = {each.id: each.payload for each in kit.receiver.received}
    assert sorted(got, key=str) == [("GET", b"", None, None), ("POST", b"<a/>", "text/xml", b"<a/>")]
    assert received == {"a": None, "b": b"<a/>"}


async def test_handler_may_schedule_the_next_event() -> None:
    async def handler(request: httpx.Request) -> None:
        delivery = tocsin.verify(request.headers, request.content, kit.secret)
        if delivery.payload < 5:
            await kit.client.schedule(delivery.payload + 1, due=delivery.due + DAY)

    async with Tocsin(deliver_to=handler) as kit:
        await kit.client.schedule(1, due=START + DAY)
        received = await kit.advance(10 * DAY)
        assert [got.payload for got in received] == [1, 2, 3, 4, 5] and set(lateness(received)) == {0}


async def test_clock_stands_still_while_a_handler_works_in_real_time() -> None:
    seen: list[datetime] = []

    def slow() -> None:
        assert not threading.Event().wait(0.02)

    async def handler(request: httpx.Request) -> None:
        seen.append(kit.now)
        await asyncio.to_thread(slow)
        seen.append(kit.now)

    async with Tocsin(deliver_to=handler) as kit:
        await kit.client.schedule(1, due=START + DAY)
        await kit.client.schedule(2, due=START + DAY + timedelta(seconds=1))
        await kit.advance(2 * DAY)
    assert seen[0] == seen[1] and seen[2] == seen[3] == seen[0] + timedelta(seconds=1)


async def test_handler_may_sleep_by_the_kits_clock_and_time_out_by_it() -> None:
    async def handler(request: httpx.Request) -> None:
        await kit.clock.sleep(naps.pop(0))

    naps = [10.0, 20.0, 0.0]
    async with Tocsin(deliver_to=handler) as kit:
        await kit.client.schedule("a nap", id="nap", delay=DAY)
        await kit.client.schedule("too long", id="long", delay=2 * DAY)
        received = await kit.advance(3 * DAY)
        verdicts = [(got.id, got.verdict.outcome, got.verdict.error, (got.ended - got.began).total_seconds()) for got in received]
        assert verdicts[:2] == [("nap", "delivered", None, 10), ("long", "retry", "no answer within 15 s", 15)]
        assert [got.verdict.outcome for got in received[2:]] == ["delivered"]


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken, AssertionError, pytest.fail.Exception])
async def test_what_a_handler_raises_leaves_advance(error: type[BaseException]) -> None:
    async def handler(request: httpx.Request) -> None:
        raise error("a bug of the user's")

    async with Tocsin(deliver_to=handler) as kit:
        await kit.client.schedule(1, delay=DAY)
        with pytest.raises(error, match="a bug of the user's"):
            await kit.advance(2 * DAY)


async def test_what_an_app_raises_may_stand_for_a_500_instead() -> None:
    failures = [Broken(), Broken()]

    async def handler(request: httpx.Request) -> None:
        if failures:
            raise failures.pop()

    async with Tocsin(deliver_to=handler, raise_exceptions=False) as kit:
        await kit.client.schedule(1, delay=DAY)
        assert [got.verdict.status for got in await kit.advance(2 * DAY)] == [500, 500, 204]


async def test_handler_that_hangs_is_reported_and_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.testing.handling.HANDLER_TIMEOUT", 0.01)

    async def handler(request: httpx.Request) -> None:
        await asyncio.Event().wait()

    async with Tocsin(deliver_to=handler) as kit:
        await kit.client.schedule(1, delay=DAY)
        with pytest.raises(TimeoutError, match="has not answered"):
            await kit.advance(2 * DAY)


async def test_task_that_never_waits_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.testing.host.MAX_LOOP_TURNS", 1_000)

    async def spin() -> None:
        while True:  # noqa: ASYNC110  this is the fault
            await asyncio.sleep(0)

    async with Tocsin() as kit:
        spinning = asyncio.create_task(spin())
        with pytest.raises(RuntimeError, match="spins"):
            await kit.advance(DAY)
        spinning.cancel()


async def test_clock_stands_still_while_a_receiver_gives_way_to_other_tasks() -> None:
    async def give_way(delivery: tocsin.Delivery) -> Verdict:
        for _ in range(1_000):
            await asyncio.sleep(0)
        return Verdict("delivered", 200)

    async with Tocsin() as kit:
        kit.receiver.otherwise = give_way
        await kit.client.schedule(1, delay=DAY)
        [got] = await kit.advance(DAY)
        assert got.ended == got.began


async def test_channels_have_secrets_of_their_own() -> None:
    async with Tocsin() as kit:
        secret = await kit.channel("orders", "https://shop.example/orders")
        assert secret.startswith("whsec_") and secret != kit.secret
        await kit.client.schedule(1, delay=DAY, channel="orders")
        [got] = await kit.advance(DAY)
        assert (got.delivery.tenant, got.delivery.channel) == ("demo", "orders")


async def test_calls_made_side_by_side_all_come_back() -> None:
    async with Tocsin() as kit:
        events = await asyncio.gather(*(kit.client.schedule(n, delay=DAY) for n in range(50)))
        assert len({event.id for event in events}) == 50
        advanced, found = await asyncio.gather(kit.advance(2 * DAY), kit.client.get(events[0].id))
        assert len(advanced) == 50 and found.id == events[0].id
        assert (await kit.client.stats()).delivered == 50


async def test_limits_of_a_tenant_are_met_and_waited_for_by_the_kits_clock() -> None:
    async with Tocsin() as kit:
        await kit.admin.call("PUT", "tenants/demo", {"limits": {"events_per_second": 10}})
        await kit.advance(seconds=10)
        batch = await kit.client.batch({"payload": n, "delay": DAY} for n in range(25))
        assert batch.accepted == 25 and kit.now > START + timedelta(seconds=11)


async def test_settings_of_the_service_are_given_and_the_environments_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_SHARD_EVENTS", "nonsense")
    async with Tocsin(shard_events=7) as kit:
        assert kit.app.settings.shard_events == 7


async def test_time_only_goes_forward() -> None:
    async with Tocsin() as kit:
        with pytest.raises(ValueError, match="forward"):
            await kit.advance(seconds=-1)
        assert await kit.advance_to(START - DAY) == []


async def test_schedules_recur_through_summer_time_and_pauses() -> None:
    async with Tocsin() as kit:
        schedules = kit.client.schedules
        made = await schedules.put("daily", {"n": 1}, cron="30 2 * * *", timezone="Europe/Berlin", start=datetime(2027, 3, 26, tzinfo=UTC))
        assert (made.paused, made.timezone, made.next) == (False, "Europe/Berlin", datetime(2027, 3, 26, 1, 30, tzinfo=UTC))
        gap = datetime(2027, 3, 28, 1, 0, tzinfo=UTC)
        assert (gap, "gap") in [(each.at, each.reason) for each in await schedules.preview("daily", 5)]
        received = await kit.advance_to(datetime(2027, 3, 30, tzinfo=UTC))
        assert [got.delivery.due for got in received] == [
            datetime(2027, 3, 26, 1, 30, tzinfo=UTC),
            datetime(2027, 3, 27, 1, 30, tzinfo=UTC),
            gap,
            datetime(2027, 3, 29, 0, 30, tzinfo=UTC),
        ]
        assert set(lateness(received)) == {0}
        assert (await schedules.pause("daily")).paused and await kit.advance(10 * DAY) == []
        await schedules.resume("daily")
        assert len(await kit.advance(3 * DAY)) == 3
        assert (await schedules.trigger("daily")).payload == {"n": 1} and len(await kit.advance(minutes=1)) == 1
        assert [each.id async for each in schedules.list()] == ["daily"] and (await schedules.get("daily")).last is not None
        await schedules.delete("daily")
        assert await kit.advance(3 * DAY) == []


async def test_hourly_schedule_fires_168_times_in_a_week() -> None:
    async with Tocsin() as kit:
        await kit.client.schedules.put("hourly", 1, every=timedelta(hours=1))
        received = await kit.advance(7 * DAY)
        assert len(received) == 168 and set(lateness(received)) == {0}


async def test_a_repeated_story_is_the_same_to_the_millisecond() -> None:
    async def story() -> list[tuple[str, datetime, int]]:
        async with Tocsin() as kit:
            kit.receiver.otherwise = Verdict("retry", 500)
            await kit.client.batch({"id": f"e{n}", "payload": n, "delay": timedelta(hours=n)} for n in range(5))
            return [(got.id, got.began, got.delivery.attempt) for got in await kit.advance(6 * DAY)]

    first = await story()
    assert len(first) == 5 * 10 and first == await story()


async def test_answers_may_be_functions_of_the_delivery() -> None:
    def answer(delivery: tocsin.Delivery) -> Verdict:
        return Verdict("delivered", 200) if delivery.due == START + DAY and delivery.payload == "yes" else Verdict("final", 404)

    async def later(delivery: tocsin.Delivery) -> Verdict:
        await kit.clock.sleep(1)
        return Verdict("delivered", 200 + delivery.attempt)

    async with Tocsin() as kit:
        kit.receiver.otherwise = answer
        kit.receiver.first("slow", Verdict("retry", 500), later)
        await kit.client.batch({"payload": word, "due": START + DAY} for word in ("yes", "no"))
        await kit.client.schedule(0, id="slow", delay=DAY)
        received = await kit.advance(2 * DAY)
        assert {(got.payload, got.verdict.status) for got in received} == {("yes", 200), ("no", 404), (0, 500), (0, 202)}
        assert len(kit.receiver.of("slow")) == 2 and len(kit.receiver.delivered()) == 2


def test_secrets_show_in_no_representation() -> None:
    with BlockingTocsin() as kit:
        kit.client.schedule(1, delay=DAY)
        other = kit.channel("orders", "https://shop.example/orders")
        received = kit.advance(DAY)
        shown = repr([received, kit, kit.receiver, kit.client, kit.admin])
        assert len(received) == 1 and not [secret for secret in (kit.secret, other, KEY, "whsec_") if secret in shown]


@pytest.mark.parametrize("handler", [7, "text", lambda: None, lambda a, b, c, d: None])
async def test_what_cannot_take_deliveries_is_refused(handler: Any) -> None:
    with pytest.raises(TypeError, match="deliver_to takes"):
        async with Tocsin(deliver_to=handler):
            pass


def test_kit_without_async_does_the_same() -> None:
    taken: list[tuple[int, datetime]] = []

    def handler(request: httpx.Request) -> int:
        delivery = tocsin.verify(request.headers, request.content, kit.secret)
        taken.append((delivery.payload, kit.now))
        if delivery.payload < 3:
            kit.client.schedule(delivery.payload + 1, due=delivery.due + DAY)
        return 200

    with BlockingTocsin(deliver_to=handler, url="http://shop.test/hooks") as kit:
        kit.client.schedule(1, due=START + 30 * DAY)
        assert kit.advance_to(START + 29 * DAY) == []
        received = kit.advance(days=5)
        assert [got.payload for got in received] == [1, 2, 3] and kit.receiver.received == received
        assert taken == [(1, START + 30 * DAY), (2, START + 31 * DAY), (3, START + 32 * DAY)]
        assert [event.state for event in kit.client.list()] == ["delivered"] * 3
        assert kit.channel("orders", "https://shop.example/").startswith("whsec_")
        kit.admin.call("PUT", "tenants/demo", {"limits": {"events_per_second": 5}})
        kit.advance(seconds=10)
        assert kit.client.batch({"payload": 9, "delay": DAY} for _ in range(12)).accepted == 12


async def test_a_fleet_channel_delivers_to_the_endpoint_of_the_owner() -> None:
    taken: list[tuple[str, str]] = []

    def handler(request: httpx.Request) -> int:
        assert tocsin.verify(request.headers, request.content, secret).payload == {"add": 1}
        taken.append((str(request.url), request.headers["tocsin-owner"].partition(", id=")[0]))
        return 421 if len(taken) == 1 else 204

    async with Tocsin(deliver_to=handler) as kit:
        await kit.client.call("PUT", "fleets/search", {"partitions": 1})
        made = await kit.admin.call("PUT", "tenants/demo/channels/owners", {"type": "fleet", "fleet": "search", "path": "/events"})
        secret = made["secret"]
        life = {"incarnation": "00000000-0000-4000-8000-000000000001"}
        await kit.client.call("POST", "fleets/search/nodes/s7/beat", {**life, "seq": 1, "endpoint": "http://localhost:9001"})
        await kit.client.call("POST", "fleets/search/leases/claim", {**life, "node": "s7", "partitions": [0]})
        event = await kit.client.schedule({"add": 1}, delay=timedelta(seconds=1), channel="owners", ordering_key="customer-7")
        await kit.advance(seconds=5)
        assert (await kit.client.get(event.id)).state == "delivered"
    assert taken == [("http://localhost:9001/events", "fleet=search, generation=1, partition=0, epoch=1")] * 2


def test_blocking_handler_that_fails_is_reported() -> None:
    def handler(request: httpx.Request) -> int:
        raise Broken("a bug of the user's")

    with BlockingTocsin(deliver_to=handler) as kit:
        kit.client.schedule(1, delay=DAY)
        with pytest.raises(Broken):
            kit.advance(days=2)
