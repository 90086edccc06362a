"""Both clients: the requests that they send, that these are the same, and that the key is not shown anywhere."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
import re
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import orjson
import pytest

import shared as tocsin
from shared.client.http import OF_NO_TENANT, to_failure
from shared.client.operations.blocking import Fanouts, Jobs, Schedules
from shared.client.operations.concurrent import AsyncFanouts, AsyncJobs, AsyncSchedules
from shared.client.resources import blocking as blocking_resources
from shared.client.resources import concurrent as concurrent_resources
from shared.core.clock import SettableClock
from shared.core.settings import LOCAL_ADMIN_KEY
from shared.extras.parts import build_routes
from shared.testing import Tocsin
from tests.paths import ROOT

KEY = "a-very-secret-key"
URL = "https://app.example"
TIME = "2030-01-01T00:00:00.000Z"
DUE = datetime(2030, 1, 1, tzinfo=UTC)
EVENT = {"id": "e1", "tenant": "demo", "state": "scheduled", "due": TIME, "created": TIME}
REFUSAL = {"type": "https://tocsin.dev/problems/already-final", "title": "Already final", "status": 409, "detail": "it has ended"}
LINES = [
    {"id": "x@a", "channel": "a", "status": 204, "state": "cancelled"},
    {"id": "x@b", "channel": "b", "status": 409, "state": "delivered", "problem": REFUSAL},
]
LATE = {"p50": None, "p99": None, "max": None}
STATS = {"open": 1, "overdue": 0, "delivered": 0, "dead": 0, "late_ms": LATE, "channels": {"c": {"delivered": 0, "late_ms": LATE}}}


def respond(request: httpx.Request) -> httpx.Response:
    """Something that fits every operation."""
    path = request.url.path.removeprefix("/api/v1/")
    if b'"channels"' in request.content or (path == "events/x" and request.method == "GET"):
        return httpx.Response(200, json={"id": "x", "tenant": "demo", "channels": ["a", "b"], "events": [EVENT, EVENT]})
    if path == "events/x" or path.startswith("events/x/"):
        return httpx.Response(200, json={"id": "x", "changed": 1, "results": LINES})
    if request.method == "DELETE":
        return httpx.Response(204)
    if (found := resource(path)) is not None:
        listed = {"items": [found], "next": None}
        return httpx.Response(200, json=listed if "limit" in request.url.params else found, headers={"etag": '"v1"'})
    if path == "events/batch":
        results = [{"index": n, "status": 201, "id": f"s{n}"} for n, _ in enumerate(request.content.split(b"\n"))]
        return httpx.Response(200, json={"results": results})
    if path == "jobs" or path.startswith("jobs/"):
        job = {"id": "j1", "action": "move", "state": "counted", "count": 3, "confirmation": "3-abc", "created": TIME}
        return httpx.Response(200, json={"items": [job], "next": None} if request.url.params else job)
    if request.method == "GET" and path in ("events", "dead-letters", "schedules"):
        last = "cursor" in request.url.params
        item = {"id": "daily", "cron": "0 9 * * *"} if path == "schedules" else EVENT
        return httpx.Response(200, json={"items": [item], "next": None if last else "more"})
    if path == "heartbeats/backup":
        return httpx.Response(200, json={"name": "backup", "state": "alive", "due": TIME})
    if path.endswith("backfill"):
        return httpx.Response(202, json={"id": "day", "created": 1, "existing": 0})
    if path == "load":
        return httpx.Response(200, json={"items": [{"minute": TIME, "scheduled": 3}]})
    if path.endswith("preview"):
        return httpx.Response(200, json={"items": [{"at": TIME}, {"at": TIME, "reason": "gap"}]})
    if path == "stats":
        return httpx.Response(200, json=STATS)
    if path == "dead-letters/redrive":
        return httpx.Response(202, json={"redriven": 4})
    if path.startswith("schedules/") and not path.endswith("trigger"):
        return httpx.Response(200, json={"id": "daily", "cron": "0 9 * * *", "every": "PT1H", "paused": True}, headers={"etag": '"v1"'})
    return httpx.Response(200, json=EVENT, headers={"etag": '"v1"'})


def resource(path: str) -> dict[str, Any] | None:
    """A channel, tenant, key, calendar or fleet."""
    if path == "key":
        return {"prefix": "tsn_a", "tenant": "demo", "scopes": ["events"]}
    if path.startswith("tenants/shop/keys"):
        return {"prefix": "tsn_a", "scopes": ["read"], "created": TIME, "last_used": "2030-01-01", "key": "tsn_a_secret"}
    if path.endswith("rotate"):
        return {"secret": "whsec_new", "previous_until": TIME}
    if path.startswith("tenants/shop/channels"):
        flow = {"breaker": "closed"}
        return {"name": "hook", "type": "http", "url": "https://x.example/", "created": TIME, "paused": False, "flow": flow}
    if path.startswith("tenants"):
        return {"name": "shop", "uid": "u1", "created": TIME, "limits": {"open_events": 9}}
    if path.startswith("calendars"):
        return {"name": "holidays", "dates": ["2030-01-01"]}
    if path.startswith("fleets"):
        return {"name": "web", "partitions": 16, "generation": 1, "created": TIME, "resizing": {"from": 8, "closed": 1, "opened": 2}}
    return None


RESOURCES = ("Channels", "Tenants", "Keys", "Calendars", "Fleets")

type Verb = Callable[[Any], Any]
VERBS: dict[str, Verb] = {
    "schedule": lambda c: c.schedule({"n": 1}, due=DUE, id="e1"),
    "batch": lambda c: c.batch([{"payload": 1, "delay": timedelta(1), "id": "a"}]),
    "fan_out": lambda c: c.fan_out({"n": 1}, ["a", "b"], due=DUE, id="x"),
    "fanouts.get": lambda c: c.fanouts.get("x"),
    "fanouts.change": lambda c: c.fanouts.change("x", delay=timedelta(1)),
    "fanouts.cancel": lambda c: c.fanouts.cancel("x"),
    "fanouts.fire": lambda c: c.fanouts.fire("x"),
    "fanouts.redrive": lambda c: c.fanouts.redrive("x"),
    "get": lambda c: c.get("e1"),
    "list": lambda c: c.list(since=DUE, state="dead", channel="orders", labels={"order": "17", "team": "x,y"}),
    "change": lambda c: c.change("e1", delay=timedelta(1), if_match='"v1"'),
    "cancel": lambda c: c.cancel("e1", if_match='"v1"'),
    "fire": lambda c: c.fire("e1"),
    "redrive": lambda c: c.redrive("e1"),
    "dead_letters": lambda c: c.dead_letters(until=DUE),
    "redrive_all": lambda c: c.redrive_all(channel="orders"),
    "stats": lambda c: c.stats(),
    "load": lambda c: c.load(DUE, DUE + timedelta(hours=1)),
    "call": lambda c: c.call("PUT", "tenants/shop", {}),
    "schedules.put": lambda c: c.schedules.put("daily", 1, cron="0 9 * * *", timezone="Europe/Berlin"),
    "schedules.set": lambda c: c.schedules.set("daily", cron="0 10 * * *", payload={"timeout": 1}),
    "schedules.get": lambda c: c.schedules.get("daily"),
    "schedules.list": lambda c: c.schedules.list(),
    "schedules.delete": lambda c: c.schedules.delete("daily", if_match='"v1"'),
    "schedules.delete, overdue ones kept": lambda c: c.schedules.delete("daily", keep_overdue=True),
    "schedules.pause": lambda c: c.schedules.pause("daily"),
    "schedules.resume": lambda c: c.schedules.resume("daily"),
    "schedules.trigger": lambda c: c.schedules.trigger("daily"),
    "heartbeat": lambda c: c.heartbeat("backup", within=timedelta(minutes=10), channel="ops", payload=1),
    "end_heartbeat": lambda c: c.end_heartbeat("backup"),
    "schedules.backfill": lambda c: c.schedules.backfill("daily", DUE, DUE + timedelta(days=1), name="day", spread=timedelta(minutes=5)),
    "schedules.preview": lambda c: c.schedules.preview("daily", 2),
    "jobs.prepare": lambda c: c.jobs.prepare("move", labels={"order": "17"}, later=timedelta(hours=1)),
    "jobs.get": lambda c: c.jobs.get("j1"),
    "jobs.list": lambda c: c.jobs.list(),
    "jobs.confirm": lambda c: c.jobs.confirm("j1", "3-abc"),
    "jobs.cancel": lambda c: c.jobs.cancel("j1"),
    "channels.put": lambda c: c.channels.put("hook", type="http", url="https://x.example/", timeout=timedelta(seconds=9)),
    "channels.set": lambda c: c.channels.set("hook", limits={"concurrency": 5}, per_key=None),
    "channels.get": lambda c: c.channels.get("hook"),
    "channels.list": lambda c: c.channels.list(),
    "channels.delete": lambda c: c.channels.delete("hook", if_match='"v1"'),
    "channels.pause": lambda c: c.channels.pause("hook", reason="it moves"),
    "channels.resume": lambda c: c.channels.resume("hook"),
    "channels.rotate": lambda c: c.channels.rotate("hook"),
    "tenants.put": lambda c: c.tenants.put("shop", inherit=True, retry={"schedule": [timedelta(minutes=1)]}),
    "tenants.set": lambda c: c.tenants.set("shop", searchable=["order"]),
    "tenants.get": lambda c: c.tenants.get("shop"),
    "tenants.list": lambda c: c.tenants.list(),
    "tenants.delete": lambda c: c.tenants.delete("shop"),
    "keys.create": lambda c: c.keys.create(["read"], note="the web shop", expires=DUE),
    "keys.list": lambda c: c.keys.list(),
    "keys.revoke": lambda c: c.keys.revoke("tsn_a"),
    "keys.own": lambda c: c.keys.own(),
    "calendars.put": lambda c: c.calendars.put("holidays", [DUE.date()]),
    "calendars.get": lambda c: c.calendars.get("holidays"),
    "calendars.list": lambda c: c.calendars.list(),
    "calendars.delete": lambda c: c.calendars.delete("holidays"),
    "fleets.put": lambda c: c.fleets.put("web", partitions=16, profile="fast", if_match='"v1"'),
    "fleets.set": lambda c: c.fleets.set("web", servers={"minimum": 2}),
    "fleets.get": lambda c: c.fleets.get("web"),
    "fleets.list": lambda c: c.fleets.list(),
    "fleets.delete": lambda c: c.fleets.delete("web"),
}
SENT = {
    "schedule": "POST /api/v1/events",
    "batch": "POST /api/v1/events/batch",
    "fan_out": "POST /api/v1/events",
    "fanouts.get": "GET /api/v1/events/x",
    "fanouts.change": "PATCH /api/v1/events/x",
    "fanouts.cancel": "DELETE /api/v1/events/x",
    "fanouts.fire": "POST /api/v1/events/x/fire",
    "fanouts.redrive": "POST /api/v1/events/x/redrive",
    "get": "GET /api/v1/events/e1",
    "list": "GET /api/v1/events?limit=1000&from=2030-01-01T00%3A00%3A00.000Z&state=dead&channel=orders&label=order%3D17%2Cteam%3Dx%5C%2Cy",
    "change": "PATCH /api/v1/events/e1",
    "cancel": "DELETE /api/v1/events/e1",
    "fire": "POST /api/v1/events/e1/fire",
    "redrive": "POST /api/v1/events/e1/redrive",
    "dead_letters": "GET /api/v1/dead-letters?limit=1000&to=2030-01-01T00%3A00%3A00.000Z",
    "redrive_all": "POST /api/v1/dead-letters/redrive",
    "stats": "GET /api/v1/stats",
    "load": "GET /api/v1/load?from=2030-01-01T00%3A00%3A00.000Z&to=2030-01-01T01%3A00%3A00.000Z",
    "call": "PUT /api/v1/tenants/shop",
    "schedules.put": "PUT /api/v1/schedules/daily",
    "schedules.set": "GET /api/v1/schedules/daily",
    "schedules.get": "GET /api/v1/schedules/daily",
    "schedules.list": "GET /api/v1/schedules?limit=1000",
    "schedules.delete": "DELETE /api/v1/schedules/daily",
    "schedules.delete, overdue ones kept": "DELETE /api/v1/schedules/daily?overdue=keep",
    "schedules.pause": "POST /api/v1/schedules/daily/pause",
    "schedules.resume": "POST /api/v1/schedules/daily/resume",
    "schedules.trigger": "POST /api/v1/schedules/daily/trigger",
    "heartbeat": "POST /api/v1/heartbeats/backup",
    "end_heartbeat": "DELETE /api/v1/heartbeats/backup",
    "schedules.backfill": "POST /api/v1/schedules/daily/backfill",
    "schedules.preview": "GET /api/v1/schedules/daily/preview?n=2",
    "jobs.prepare": "POST /api/v1/jobs",
    "jobs.get": "GET /api/v1/jobs/j1",
    "jobs.list": "GET /api/v1/jobs?limit=1000",
    "jobs.confirm": "POST /api/v1/jobs/j1/confirm",
    "jobs.cancel": "POST /api/v1/jobs/j1/cancel",
    "channels.put": "PUT /api/v1/tenants/shop/channels/hook",
    "channels.set": "GET /api/v1/tenants/shop/channels/hook",
    "channels.get": "GET /api/v1/tenants/shop/channels/hook",
    "channels.list": "GET /api/v1/tenants/shop/channels?limit=1000",
    "channels.delete": "DELETE /api/v1/tenants/shop/channels/hook",
    "channels.pause": "POST /api/v1/tenants/shop/channels/hook/pause",
    "channels.resume": "POST /api/v1/tenants/shop/channels/hook/resume",
    "channels.rotate": "POST /api/v1/tenants/shop/channels/hook/secret/rotate",
    "tenants.put": "PUT /api/v1/tenants/shop?inherit=true",
    "tenants.set": "GET /api/v1/tenants/shop",
    "tenants.get": "GET /api/v1/tenants/shop",
    "tenants.list": "GET /api/v1/tenants?limit=1000",
    "tenants.delete": "DELETE /api/v1/tenants/shop",
    "keys.create": "POST /api/v1/tenants/shop/keys",
    "keys.list": "GET /api/v1/tenants/shop/keys?limit=1000",
    "keys.revoke": "DELETE /api/v1/tenants/shop/keys/tsn_a",
    "keys.own": "GET /api/v1/key",
    "calendars.put": "PUT /api/v1/calendars/holidays?tenant=shop",
    "calendars.get": "GET /api/v1/calendars/holidays?tenant=shop",
    "calendars.list": "GET /api/v1/calendars?limit=1000&tenant=shop",
    "calendars.delete": "DELETE /api/v1/calendars/holidays?tenant=shop",
    "fleets.put": "PUT /api/v1/fleets/web?tenant=shop",
    "fleets.set": "GET /api/v1/fleets/web?tenant=shop",
    "fleets.get": "GET /api/v1/fleets/web?tenant=shop",
    "fleets.list": "GET /api/v1/fleets?limit=1000&tenant=shop",
    "fleets.delete": "DELETE /api/v1/fleets/web?tenant=shop",
}


class Wire:
    """Records what is sent; answers as `answers` say, and then as it fits."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []
        self._answers = list(answers)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if not self._answers:
            return respond(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def blocking(self, **options: Any) -> tocsin.Client:
        return tocsin.Client(URL, KEY, transport=httpx.MockTransport(self._respond), sleep=self.slept.append, **options)

    def concurrent(self, **options: Any) -> tocsin.AsyncClient:
        wire = self

        class Noted(SettableClock):
            async def sleep(self, seconds: float) -> None:
                wire.slept.append(seconds)

        return tocsin.AsyncClient(URL, KEY, transport=httpx.MockTransport(self._respond), clock=Noted(), **options)


async def awaited(found: Any) -> Any:
    if inspect.isasyncgen(found):
        return [each async for each in found]
    return await found


@pytest.mark.parametrize("name", VERBS)
async def test_both_send_and_read_the_same(name: str) -> None:
    one, other = Wire(), Wire()
    tenant = "shop" if name.partition(".")[0] in ("channels", "tenants", "keys", "calendars", "fleets") else None
    found = VERBS[name](one.blocking(tenant=tenant))
    if inspect.isgenerator(found):
        found = list(found)
    assert await awaited(VERBS[name](other.concurrent(tenant=tenant))) == found
    for wire in (one, other):
        request = wire.requests[0]
        assert f"{request.method} {request.url.raw_path.decode()}" == SENT[name]
        assert request.headers["authorization"] == f"Bearer {KEY}" and request.headers["user-agent"].startswith("tocsin-python/")
        assert ("content-type" in request.headers) == bool(request.content)
        assert "transfer-encoding" not in request.headers

    def shape(request: httpx.Request) -> tuple[str, bytes, str | None]:
        return request.method, re.sub(rb'"id":"[0-9a-f]{16,32}"', b'"id":"made"', request.content), request.headers.get("if-match")

    first, second = ([shape(each) for each in wire.requests] for wire in (one, other))
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tocsin.Client, tocsin.AsyncClient),
        (Schedules, AsyncSchedules),
        (Jobs, AsyncJobs),
        (Fanouts, AsyncFanouts),
        *((getattr(blocking_resources, name), getattr(concurrent_resources, f"Async{name}")) for name in RESOURCES),
    ],
)
def test_both_have_the_same_operations_with_the_same_arguments(one: type, other: type) -> None:
    def operations(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(function).parameters) for name, function in found if not name.startswith("_")}

    assert operations(one) == operations(other)
    prefix = "" if one is tocsin.Client else f"{one.__name__.lower()}."
    assert {prefix + name for name in operations(one)} - {"close", "lock"} <= VERBS.keys()


def test_a_cancel_of_a_fan_out_by_its_id_is_refused_unless_all_its_events_are_cancelled() -> None:
    client = Wire().blocking()
    assert [line.id for line in client.fanouts.cancel("x").unchanged] == ["x@b"]
    with pytest.raises(tocsin.Conflict, match="it has ended"):
        client.cancel("x")
    cancelled = [LINES[0], {**LINES[1], "state": "cancelled"}]
    Wire(httpx.Response(200, json={"id": "x", "changed": 1, "results": cancelled})).blocking().cancel("x")


def test_lists_go_through_all_pages_and_only_as_far_as_asked() -> None:
    wire = Wire()
    found = wire.blocking().list()
    assert next(found).id == "e1" and len(wire.requests) == 1
    assert [event.id for event in found] == ["e1"]
    assert [request.url.params.get("cursor") for request in wire.requests] == [None, "more"]


def test_results_are_of_pythons_own_types() -> None:
    client = Wire().blocking()
    assert client.load()[0].minute == DUE and client.load()[0].scheduled == 3
    assert [(each.at, each.reason) for each in client.schedules.preview("daily")] == [(DUE, None), (DUE, "gap")]
    assert client.schedules.get("daily").every == timedelta(hours=1) and client.redrive_all() == 4
    assert client.stats().channels["c"].delivered == 0


async def test_admin_names_the_tenant_on_every_call() -> None:
    wire = Wire()
    client = wire.blocking(tenant="shop")
    client.get("e1")
    list(client.list())
    client.call("GET", "stats?x=1")
    await wire.concurrent(tenant="shop").cancel("e1")
    assert [request.url.params["tenant"] for request in wire.requests] == ["shop"] * 5
    assert wire.requests[3].url.params["x"] == "1"


def busy() -> httpx.Response:
    return httpx.Response(429, headers={"Retry-After": "3"}, json={"type": "x/too-many-requests", "status": 429, "detail": "over"})


async def test_both_wait_between_tries_and_use_the_same_id_again() -> None:
    for concurrent in (False, True):
        wire = Wire(busy(), httpx.ReadTimeout("slow"))
        found = await wire.concurrent().schedule(1, due=DUE) if concurrent else wire.blocking().schedule(1, due=DUE)
        assert found.id == "e1" and len(wire.requests) == 3
        assert len({orjson.loads(request.content)["id"] for request in wire.requests}) == 1
        assert 3.0 <= wire.slept[0] <= 3.2 and 0.0 <= wire.slept[1] <= 0.4


def test_answers_of_batches_are_waited_for_longer() -> None:
    wire = Wire()
    with wire.blocking(timeout=5.0) as client:
        client.stats()
        client.batch([{"payload": 1, "delay": timedelta(1)}])
    assert [request.extensions["timeout"]["read"] for request in wire.requests] == [5.0, 180.0]


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError])
def test_connections_that_were_never_made_sent_nothing(error: type[httpx.TransportError]) -> None:
    assert not to_failure(error("no")).sent


@pytest.mark.parametrize("error", [httpx.ReadTimeout, httpx.WriteTimeout, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError])
def test_everything_else_may_have_been_taken(error: type[httpx.TransportError]) -> None:
    assert to_failure(error("no")).sent


async def test_nobody_listening_is_unreachable_and_certainly_nothing_was_sent() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with tocsin.Client(url, KEY, retries=0) as client, pytest.raises(tocsin.Unreachable) as refused:
            client.stats()
        assert not refused.value.sent and isinstance(refused.value.__cause__, httpx.ConnectError)
        async with tocsin.AsyncClient(url, KEY, retries=0) as other:
            with pytest.raises(tocsin.Unreachable):
                await other.stats()


@pytest.mark.parametrize("verb", ["get", "cancel", "fire", "redrive"])
def test_refusal_names_what_was_asked_for_with_its_id(verb: str) -> None:
    missing = {"type": "x/not-found", "status": 404, "detail": "there is no such event"}
    with Wire(httpx.Response(404, json=missing)).blocking() as client, pytest.raises(tocsin.NotFound, match="order-17") as refused:
        getattr(client, verb)("order-17")
    assert refused.value.detail == "there is no such event" and refused.value.call in str(refused.value)
    assert refused.value.call.endswith(f" events/order-17{f'/{verb}' if verb in ('fire', 'redrive') else ''}")


def test_stats_have_every_figure_of_the_service_and_bear_what_is_missing_or_new() -> None:
    figures = {"stuck": 2, "retrying": 3, "held": 4, "lapsed": 5, "cancelled": 6, "mirror_lag_ms": 7, "held_partial": True, "news": 1}
    stats = STATS | figures | {"channels": {"c": {"delivered": 1, "dead": 8, "held": 9, "state": "paused", "late_ms": LATE, "news": 1}}}
    client = Wire(httpx.Response(200, json=stats), httpx.Response(200, json=STATS)).blocking()
    full, bare = client.stats(), client.stats()
    assert (full.stuck, full.retrying, full.held, full.lapsed, full.cancelled, full.mirror_lag_ms) == (2, 3, 4, 5, 6, 7)
    assert (full.channels["c"].dead, full.channels["c"].held, full.channels["c"].state, full.held_partial) == (8, 9, "paused", True)
    assert (bare.stuck, bare.retrying, bare.held, bare.mirror_lag_ms, bare.channels["c"].held) == (0, 0, 0, None, 0)


async def test_key_is_seen_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    denied = {"type": "x/unauthenticated", "status": 401, "detail": "not a valid key"}
    with Wire(httpx.Response(401, json=denied), httpx.ReadError("broken")).blocking(retries=0) as client:
        shown = [repr(client), str(client), repr(client.schedules)]
        for _ in range(2):
            with pytest.raises(tocsin.TocsinError) as caught:
                client.stats()
            error: BaseException | None = caught.value
            while error is not None:
                shown += [repr(error), str(error), repr(vars(error))]
                error = error.__cause__
    concurrent = Wire().concurrent()
    await concurrent.stats()
    shown += [repr(concurrent), caplog.text]
    assert not [text for text in shown if KEY in text]
    assert "app.example" in repr(client) and "app.example" in repr(concurrent)


@pytest.mark.parametrize("key", ["", "short", "has space in it", "line\nbreak-in-it", "ümlauts-in-it", KEY + "\r\nx: y"])
def test_what_is_no_key_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="key is malformed") as caught:
        tocsin.Client(URL, key)
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize("url", ["app.example", "ftp://app.example", "https://", "https://user:pw@app.example", "https://a.example/?x=1"])
def test_what_is_no_address_of_an_app_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the url must"):
        tocsin.Client(url, KEY)


@pytest.mark.parametrize("url", ["https://app.example", "https://app.example/", "https://app.example//"])
def test_address_may_end_in_a_slash(url: str) -> None:
    assert repr(tocsin.Client(url, KEY)) == "Client('https://app.example/api/v1/')"


def test_redirects_are_not_followed_since_they_would_take_the_key_along() -> None:
    wire = Wire(httpx.Response(307, headers={"location": "https://elsewhere.example/"}))
    with pytest.raises(tocsin.Refused) as refused:
        wire.blocking().stats()
    assert refused.value.status == 307 and len(wire.requests) == 1


def test_own_certificates_come_with_a_transport() -> None:
    with tocsin.Client(URL, KEY, transport=httpx.HTTPTransport(verify=ssl.create_default_context())) as client:
        assert repr(client) == "Client('https://app.example/api/v1/')"


def test_results_may_be_kept() -> None:
    event = Wire().blocking().get("e1")
    assert pickle.loads(pickle.dumps(event)) == event
    with pytest.raises(AttributeError, match="state"):
        event.state = "dead"


def test_the_clients_know_which_operations_refuse_a_tenant_in_the_query() -> None:
    first: dict[str, set[bool]] = {}
    for route in build_routes():
        version, _, path = route.template.partition("/")
        if version == "v1":
            first.setdefault(path.partition("/")[0], set()).add(route.of_tenant or "tenant" in route.query.model_fields)
    assert {name for name, found in first.items() if found == {False}} == OF_NO_TENANT
    assert [name for name, found in first.items() if len(found) == 2] == []
    source = (ROOT / "clients" / "typescript" / "src" / "call.ts").read_text()
    assert f"new Set({json.dumps(sorted(OF_NO_TENANT))})" in source


async def test_an_admin_with_a_tenant_calls_every_operation() -> None:
    async with Tocsin() as kit:
        admin = kit.client_with(LOCAL_ADMIN_KEY, tenant="demo")
        made = await admin.call("PUT", "/tenants/demo/channels/x", {"type": "http", "url": "http://receiver.test/x"})
        assert made["name"] == "x"
        assert (await admin.call("GET", "tenants/demo"))["name"] == "demo"
        assert (await admin.call("GET", "audit"))["items"]
        assert (await admin.call("GET", "events"))["items"] == []
