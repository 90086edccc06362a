"""Channels, tenants, keys, calendars and fleets, set up by the clients of a whole service in memory."""

from __future__ import annotations

import json
import pickle
from collections.abc import AsyncIterator, Callable
from datetime import date, timedelta
from typing import Any

import httpx
import pytest

import shared as tocsin
from shared.client.resources.changes import TRIES
from shared.core.settings import LOCAL_ADMIN_KEY
from shared.testing import BlockingTocsin, Tocsin

SECONDS = timedelta(seconds=1)
URL = "http://receiver.test/x"


@pytest.fixture
async def kit() -> AsyncIterator[Tocsin]:
    async with Tocsin() as running:
        yield running


@pytest.fixture
def admin(kit: Tocsin) -> tocsin.AsyncClient:
    return kit.client_with(LOCAL_ADMIN_KEY, tenant="demo")


async def test_a_channel_is_created_read_paused_and_deleted(admin: tocsin.AsyncClient) -> None:
    made = await admin.channels.put("hook", type="http", url=URL, timeout=9 * SECONDS, headers={"x-team": "blue"})
    assert made.secret is not None and made.secret.startswith("whsec_") and made.secret not in repr(made)
    found = await admin.channels.get("hook")
    assert (found.name, found.type, found.paused, found.breaker.state, found.secret) == ("hook", "http", False, "closed", None)
    assert found.definition["timeout"] == "PT9S" and found.definition["headers"] == {"x-team": "***"} and URL not in repr(found)
    paused = await admin.channels.pause("hook", reason="it moves")
    assert (paused.paused, paused.reason) == (True, "it moves") and paused.paused_at is not None
    assert [(each.name, each.paused) async for each in admin.channels.list()] == [("default", False), ("hook", True)]
    assert not (await admin.channels.resume("hook")).paused
    rotated = await admin.channels.rotate("hook")
    assert rotated.secret != made.secret and rotated.previous_until is not None and rotated.secret not in repr(rotated)
    assert (await admin.channels.get("hook")).previous_until == rotated.previous_until
    with pytest.raises(tocsin.Changed):
        await admin.channels.delete("hook", if_match=found.etag)
    await admin.channels.delete("hook")
    with pytest.raises(tocsin.NotFound):
        await admin.channels.get("hook")


async def test_set_changes_the_named_fields_and_keeps_all_others(admin: tocsin.AsyncClient) -> None:
    whole: Any = {"headers": {"X-Team": "blue", "x-other": "1"}, "limits": {"concurrency": 3}, "per_key": {"ordered": True}}
    await admin.channels.put("hook", type="http", url=URL, timeout=9 * SECONDS, **whole)
    found = (
        await admin.channels.set("hook", url=f"{URL}/new", headers={"x-team": "red"}, limits={"deliveries_per_second": 5.0})
    ).definition
    assert (found["url"], found["timeout"], found["per_key"]) == (f"{URL}/new", "PT9S", {"ordered": True, "failed_blocks": True})
    assert found["headers"] == {"x-other": "***", "x-team": "***"}
    assert found["limits"] == {"concurrency": 3, "deliveries_per_second": 5.0}
    reset = (await admin.channels.set("hook", timeout=None, per_key=None)).definition
    assert (reset["timeout"], reset.get("per_key")) == ("PT15S", None) and reset["url"] == f"{URL}/new"
    with pytest.raises(tocsin.NotFound):
        await admin.channels.set("nothing", url=URL)
    with pytest.raises(ValueError, match="at least one field"):
        await admin.channels.set("hook")


DEFINITIONS: dict[str, Any] = {
    "http": {"type": "http", "url": URL, "long_work": {"within": timedelta(hours=1)}, "final_statuses": [404], "answer_headers": True},
    "queue": {"type": "queue", "queue": "orders"},
    "fleet": {"type": "fleet", "fleet": "web", "path": "/events", "per_key": {"ordered": True}},
    "eventgrid": {"type": "eventgrid", "endpoint": "https://t.westeurope-1.eventgrid.azure.net/api/events"},
    "servicebus": {
        "type": "servicebus",
        "namespace": "shop.servicebus.windows.net",
        "entity": "orders",
        "key_name": "send",
        "key": "c2VjcmV0",
    },
    "kafka": {"type": "kafka", "servers": "shop.servicebus.windows.net:9093", "topic": "orders", "key": "/order"},
}


@pytest.mark.parametrize("kind", DEFINITIONS)
async def test_the_definition_that_was_read_can_be_stored_again(admin: tocsin.AsyncClient, kind: str) -> None:
    await admin.fleets.put("web", partitions=4)
    made = await admin.channels.put("hook", **DEFINITIONS[kind])
    again = await admin.channels.put("hook", if_match=made.etag, **made.definition)
    changed = await admin.channels.set("hook", limits={"concurrency": 2})
    limits = {"concurrency": 2, "deliveries_per_second": None}
    assert again.definition == made.definition and changed.definition == {**made.definition, "limits": limits}


async def test_a_tenant_keeps_the_settings_that_set_does_not_name(kit: Tocsin) -> None:
    tenants = kit.client_with(LOCAL_ADMIN_KEY).tenants
    made = await tenants.put("shop", limits={"events_per_second": 50}, retry={"schedule": [60 * SECONDS]}, searchable=["order"])
    assert (made.name, made.created) == ("shop", kit.now)
    changed = await tenants.set("shop", limits={"open_events": 7}, retry={"attempts": 3, "first": SECONDS})
    assert (await tenants.get("shop")) == changed and changed.definition["searchable"] == ["order"]
    limits, retry = changed.definition["limits"], changed.definition["retry"]
    assert limits is not None and retry is not None
    assert (limits["events_per_second"], limits["open_events"]) == (50, 7)
    assert (retry["attempts"], retry["first"]) == (3, "PT1S") and "schedule" not in retry
    assert (await tenants.put("shop", **changed.definition)).definition == changed.definition
    assert [each.name async for each in tenants.list()] == ["demo", "shop"]
    await tenants.delete("shop")
    with pytest.raises(tocsin.NotFound):
        await tenants.get("shop")


async def test_a_key_works_once_created_and_not_once_revoked(kit: Tocsin, admin: tocsin.AsyncClient) -> None:
    made = await admin.keys.create(["events"], note="the web shop", expires=kit.now + timedelta(days=1))
    assert made.key.startswith(made.prefix) and made.key not in repr(made)
    user = kit.client_with(made.key)
    own = await user.keys.own()
    assert (own.prefix, own.tenant, own.scopes) == (made.prefix, "demo", ("events",))
    [shown] = [each async for each in admin.keys.list() if each.prefix == made.prefix]
    assert (shown.note, shown.expires, shown.created) == ("the web shop", kit.now + timedelta(days=1), made.created)
    with pytest.raises(tocsin.Forbidden):
        await kit.client_with(made.key, tenant="demo").keys.create(["admin"])
    await admin.keys.revoke(made.prefix)
    await kit.advance(seconds=5)
    with pytest.raises(tocsin.Unauthenticated):
        await user.keys.own()
    assert (await kit.client_with(LOCAL_ADMIN_KEY).keys.own()).tenant is None


async def test_a_calendar_is_put_listed_and_deleted(kit: Tocsin) -> None:
    days = (date(2026, 12, 24), date(2026, 12, 25))
    made = await kit.client.calendars.put("holidays", reversed(days))
    assert made.dates == days and await kit.client.calendars.get("holidays") == made
    await kit.client.calendars.put("holidays", days[:1], if_match=made.etag)
    with pytest.raises(tocsin.Changed):
        await kit.client.calendars.put("holidays", [], if_match=made.etag)
    assert [(each.name, each.dates) async for each in kit.client.calendars.list()] == [("holidays", days[:1])]
    await kit.client.calendars.delete("holidays")
    assert [each async for each in kit.client.calendars.list()] == []


async def test_a_fleet_keeps_what_set_does_not_name(kit: Tocsin, admin: tocsin.AsyncClient) -> None:
    profile: Any = {"beat": SECONDS, "validity": 3 * SECONDS, "takeover": 5 * SECONDS}
    made = await admin.fleets.put(
        "web", partitions=16, profile=profile, maintenance={"leads": {"Preempt": 2 * SECONDS}, "rules": [{"action": "approve"}]}
    )
    assert (made.name, made.partitions, made.created, made.resizing) == ("web", 16, kit.now, None)
    changed = await admin.fleets.set("web", servers={"minimum": 2}, maintenance={"leads": {"Freeze": "PT1S"}})
    assert changed.definition["profile"] == {"beat": "PT1S", "validity": "PT3S", "takeover": "PT5S"}
    maintenance = changed.definition["maintenance"]
    assert maintenance is not None and maintenance["leads"] == {"Preempt": "PT2S", "Freeze": "PT1S"} and maintenance["rules"]
    assert (await admin.fleets.put("web", **changed.definition)).definition == changed.definition
    with pytest.raises(tocsin.Refused):
        await admin.fleets.set("web", partitions=17)
    assert [each.partitions async for each in admin.fleets.list()] == [16]
    await admin.fleets.delete("web")
    assert [each async for each in admin.fleets.list()] == []


async def test_a_schedule_keeps_what_set_does_not_name_and_stays_paused(kit: Tocsin) -> None:
    options: Any = {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "jitter": 60 * SECONDS, "exclude": {"dates": ["2027-02-01"]}}
    options |= {"catch_up": {"policy": "last", "within": timedelta(hours=2)}, "overlap": "skip"}
    await kit.client.schedules.put("daily", {"order": 17, "kept": 1}, **options)
    await kit.advance(days=2)
    await kit.client.schedules.pause("daily")
    before = await kit.client.schedules.get("daily")
    moved = await kit.client.schedules.set("daily", cron="30 9 * * *", payload={"order": 18}, end=kit.now + timedelta(days=9))
    state = {"cron", "reads_as", "payload", "end", "revision", "etag", "next", "last"}
    assert (moved.cron, moved.payload, moved.end, moved.paused) == ("30 9 * * *", {"order": 18}, kit.now + timedelta(days=9), True)
    assert {**vars(moved), **dict.fromkeys(state)} == {**vars(before), **dict.fromkeys(state)}
    every = await kit.client.schedules.set("daily", cron=None, timezone=None, every=timedelta(hours=1), exclude=None)
    assert (every.cron, every.every, every.exclude, every.payload) == (None, timedelta(hours=1), None, {"order": 18})
    with pytest.raises(TypeError, match="every: 60"):
        await kit.client.schedules.set("daily", every=60)


class Rival:
    """A transport to the service that changes the channel with another client before each of the first `times` PUTs."""

    def __init__(self, kit: BlockingTocsin, times: int) -> None:
        self._other, self._left = kit.client_with(LOCAL_ADMIN_KEY, tenant="demo"), times
        self.puts, self._text = 0, f"{times} changes"
        self.client = tocsin.Client("http://tocsin.test", LOCAL_ADMIN_KEY, tenant="demo", transport=httpx.MockTransport(self._pass))

    def _pass(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            self.puts += 1
            if self._left:
                self._left -= 1
                self._other.channels.set("hook", headers={f"x-{self._left}": self._text})
        return self._other._http.send(request)


def test_set_begins_again_if_another_call_has_changed_the_channel_and_undoes_nothing() -> None:
    with BlockingTocsin() as kit:
        kit.client_with(LOCAL_ADMIN_KEY, tenant="demo").channels.put("hook", type="http", url=URL)
        rival = Rival(kit, TRIES - 1)
        found = rival.client.channels.set("hook", timeout=9 * SECONDS).definition
        assert rival.puts == TRIES and found["timeout"] == "PT9S" and found["headers"] == {f"x-{n}": "***" for n in range(TRIES - 1)}
        busy = Rival(kit, TRIES)
        with pytest.raises(tocsin.Changed):
            busy.client.channels.set("hook", timeout=8 * SECONDS)
        assert busy.puts == TRIES


CHANNEL: dict[str, Any] = {"name": "x", "type": "http", "url": URL, "created": "2030-01-01T00:00:00Z", "paused": False}
CHANNEL |= {"flow": {"breaker": "closed"}, "timeout": "PT9S"}


class Answers:
    """A client whose requests get these answers, and then the last one repeatedly."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.sent: list[tuple[str, Any]] = []
        self._answers = list(answers)
        transport = httpx.MockTransport(self._answer)
        self.client = tocsin.Client("http://tocsin.test", LOCAL_ADMIN_KEY, tenant="demo", transport=transport, sleep=lambda _: None)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.sent.append((request.method, json.loads(request.content) if request.content else None))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def shown(tag: str) -> httpx.Response:
    return httpx.Response(200, json=CHANNEL, headers={"etag": tag})


def test_set_whose_answer_was_lost_is_done_once_it_is_known() -> None:
    changed = httpx.Response(412, json={"type": "x/precondition-failed", "status": 412, "detail": "it has changed"})
    answers = Answers(shown('"1"'), httpx.ReadTimeout("slow"), changed, shown('"2"'), shown('"3"'))
    assert answers.client.channels.set("x", timeout=8 * SECONDS).etag == '"3"'
    assert [method for method, _ in answers.sent] == ["GET", "PUT", "PUT", "GET", "PUT"]
    assert answers.sent[-1][1] == {"type": "http", "url": URL, "timeout": "PT8S"}


def test_set_changes_nothing_where_the_entity_tag_was_lost() -> None:
    answers = Answers(httpx.Response(200, json=CHANNEL))
    with pytest.raises(tocsin.Unreadable, match="has no ETag header"):
        answers.client.channels.set("x", timeout=SECONDS)
    assert [method for method, _ in answers.sent] == ["GET"]


@pytest.mark.parametrize("call", [lambda c: c.keys.create(["read"]), lambda c: c.channels.delete("x")])
def test_calls_that_are_not_idempotent_are_sent_once(call: Callable[[tocsin.Client], Any]) -> None:
    answers = Answers(httpx.ReadTimeout("slow"))
    with pytest.raises(tocsin.Unreachable) as lost:
        call(answers.client)
    assert lost.value.sent and len(answers.sent) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.channels.get("x"),
        lambda c: c.channels.list(),
        lambda c: c.channels.set("x", url=URL),
        lambda c: c.keys.list(),
        lambda c: c.keys.create(["read"]),
    ],
)
def test_channels_and_keys_need_the_name_of_a_tenant(call: Callable[[tocsin.Client], Any]) -> None:
    with pytest.raises(ValueError, match="tenant='shop'"):
        call(tocsin.Client("https://tocsin.test", LOCAL_ADMIN_KEY))


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_do_not_lead_to_other_operations(name: str) -> None:
    answers = Answers(shown('"1"'))
    for call in (answers.client.channels.delete, answers.client.tenants.delete, answers.client.calendars.get, answers.client.fleets.get):
        with pytest.raises(ValueError, match="is not a name"):
            call(name)
    assert answers.sent == []


def test_a_slash_in_a_name_stays_a_part_of_the_name() -> None:
    with BlockingTocsin() as kit:
        admin = kit.client_with(LOCAL_ADMIN_KEY, tenant="demo")
        with pytest.raises(tocsin.Refused):
            admin.tenants.delete("demo/channels/default")
        assert [each.name for each in admin.channels.list()] == ["default"]


def test_numbers_in_place_of_durations_and_texts_in_place_of_lists_are_refused_before_anything_is_sent() -> None:
    answers = Answers(shown('"1"'))
    wrong: Any = 15
    with pytest.raises(TypeError, match=r"timeout: 15 is not a timedelta; write timedelta\(seconds=15\)"):
        answers.client.channels.put("x", type="http", url=URL, timeout=wrong)
    with pytest.raises(TypeError, match=r"retry\.schedule: 15"):
        answers.client.tenants.set("x", retry={"schedule": [wrong]})
    with pytest.raises(TypeError, match=r"maintenance\.leads: 15"):
        answers.client.fleets.set("x", maintenance={"leads": {"Freeze": wrong}})
    with pytest.raises(ValueError, match="negative"):
        answers.client.channels.set("x", timeout=-SECONDS)
    with pytest.raises(TypeError, match=r"write a list such as \['read'\]"):
        answers.client.keys.create("read")  # type: ignore[arg-type]
    assert answers.sent == []


@pytest.mark.parametrize("body", [{}, {"name": "x"}, [], {**CHANNEL, "created": "soon"}, {**CHANNEL, "flow": None}])
def test_an_answer_of_another_server_is_unreadable(body: Any) -> None:
    client = Answers(httpx.Response(200, json=body)).client
    with pytest.raises(tocsin.Unreadable):
        client.channels.get("x")
    with pytest.raises(tocsin.Unreadable):
        list(client.channels.list())


def test_members_of_a_newer_service_are_ignored() -> None:
    found = Answers(httpx.Response(200, json={**CHANNEL, "flow": {"breaker": "closed", "new": 1}, "new": 1})).client.channels.get("x")
    assert found.definition["timeout"] == "PT9S" and found.etag is None


def test_results_may_be_kept() -> None:
    found = Answers(shown('"1"')).client.channels.get("x")
    assert pickle.loads(pickle.dumps(found)) == found
