"""Two versions on one storage, after the number of the stored forms was raised: the older one serves reads, and the newer one the rest."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from typing import cast

import pytest

from shared.app.application import Application, build
from shared.app.ports import Ports
from shared.core.ids import SeededIds
from shared.delivery.channels.model import CHANNEL_TYPES
from shared.delivery.channels.ports import Sender
from shared.engine.stored_forms import FORMS_ROW, LOOK_EVERY, OLDER_WITHIN, FormsRow
from shared.storage.names import EVENTS, PK_TICKS, QUEUE_INGEST, QUEUE_SHARDS, SWEEPS
from shared.storage.ports import Upsert
from shared.web.local_client import LocalClient
from tests.unit.scheduler.harness import ADMIN, ROUTES, World
from tests.unit.scheduler.mirror.pair import PairWorld

EVENT = "/api/v1/events"
RAISE = "/api/v1/storage/forms/raise"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The process of the older version."""
    opened = await World().open()
    yield opened
    await opened.close()


@pytest.fixture
async def newer(world: World) -> AsyncIterator[Application]:
    """The process of the newer version."""
    senders = cast(Mapping[str, Sender], dict.fromkeys(CHANNEL_TYPES, world.receiver))
    app = build(world.settings, Ports(world.storage, world.clock, SeededIds(99), senders, stored_forms=2))
    await app.forms.begin()
    yield app
    await app.scheduler.flow.close()


def admin_of(app: Application) -> LocalClient:
    async def get_app() -> Application:
        return app

    return LocalClient(ROUTES, get_app, key=ADMIN)


async def raised(world: World, newer: Application) -> None:
    """Raise the number once the older version is thought to have ended, and let it find that out."""
    await world.clock.advance(OLDER_WITHIN / 1000)
    answer = await world.do(admin_of(newer).post(RAISE, {"to": 2}))
    assert (answer.status, answer.json()) == (200, {"stored": 2, "own": 2})
    await world.clock.advance(LOOK_EVERY)


async def test_before_the_number_is_raised_both_versions_work(world: World, newer: Application) -> None:
    assert not await newer.forms.is_newer() and newer.forms.found == 1
    assert (await world.demo.post(EVENT, {"delay": "PT1S", "payload": 1})).status == 201
    await world.run(5)
    assert len(world.receiver.received) == 1


async def test_the_older_version_answers_writes_with_503_and_serves_reads(world: World, newer: Application) -> None:
    kept = (await world.demo.create(delay="PT1H"))["id"]
    await raised(world, newer)
    before = world.dump()
    for method, path, body in (
        ("POST", EVENT, {"delay": "PT1S", "payload": 1}),
        ("DELETE", f"{EVENT}/{kept}", None),
        ("PATCH", f"{EVENT}/{kept}", {"delay": "PT2H"}),
        ("PUT", "/api/v1/fleets/f", {"partitions": 1}),
        ("POST", "/api/v1/fleets/f/nodes/a/beat", {"incarnation": "x1", "seq": 1}),
        ("PUT", "/api/v1/locks/l", {"holder": "a", "nonce": "n1"}),
        ("POST", f"{EVENT}/batch", [{"delay": "PT1S", "payload": 1}]),
    ):
        answer = await world.demo.call(method, path, body)
        assert (answer.status, answer.code) == (503, "newer-stored-forms"), (method, path, answer)
        assert answer.json()["outcome"] == "unchanged" and int(answer.headers["retry-after"]) > 0
    assert (await world.admin.post(RAISE, {"to": 1})).code == "newer-stored-forms"
    assert (await world.demo.event(kept))["state"] == "scheduled"
    assert [each["id"] for each in await world.demo.all(EVENT)] == [kept]
    assert (await world.admin.get("/api/v1/storage/forms")).json() == {"stored": 2, "own": 1}
    for path in ("stats", "history", "load", "jobs", "schedules", "rejects", "fleets", "locks", "key", "events?state=dead"):
        assert (await world.demo.get(f"/api/v1/{path}")).status == 200, path
    for path in ("tenants", "audit", "storage", "tenants/demo/channels", "tenants/demo/keys"):
        assert (await world.admin.get(f"/api/v1/{path}")).status == 200, path
    assert world.dump() == before, "reads change nothing either"


async def test_the_older_version_says_in_readyz_and_once_in_its_log_that_it_does_not_work(
    world: World, newer: Application, caplog: pytest.LogCaptureFixture
) -> None:
    await raised(world, newer)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            answer = await world.nobody.get("/api/readyz")
            assert (answer.status, answer.code) == (503, "newer-stored-forms")
            assert answer.json()["storage"] == {"reachable": True}
            assert (await world.do(world.app.timers.sweep())) == {}
    found = [record for record in caplog.records if record.__dict__.get("action") == "newer_stored_forms"]
    assert [(record.levelname, record.__dict__["found"], record.__dict__["own"]) for record in found] == [("WARNING", 2, 1)]
    assert (await world.do(admin_of(newer).get("/api/readyz"))).code != "newer-stored-forms"


async def test_messages_wait_for_a_process_of_the_newer_version_and_each_event_is_delivered_once(world: World, newer: Application) -> None:
    await raised(world, newer)
    newest = admin_of(newer)
    made = [
        (await world.do(newest.post(f"{EVENT}?tenant=demo", {"delay": delay, "payload": 1}))).json()["id"] for delay in ("PT1S", "PT20S")
    ]
    await world.queues.send(QUEUE_INGEST, '{"key":"local-demo-key","tenant":"demo","event":{"id":"queued","delay":"PT1S","payload":1}}')
    await world.run(60)
    assert world.receiver.received == [] and world.rows(EVENTS) != []
    assert await world.queues.length(QUEUE_INGEST) == 1 and await world.queues.length(QUEUE_SHARDS) >= 1
    assert [(await world.demo.event(event))["state"] for event in made] == ["scheduled", "scheduled"]
    # Now the newer version gets the messages.
    older, world.app = world.app, newer
    await world.run(120)
    assert sorted(each.delivery.id for each in world.receiver.received) == sorted([*made, "queued"])
    world.app = older


async def test_a_delivery_that_has_begun_is_settled_and_no_other_begins(world: World, newer: Application) -> None:
    world.receiver.takes = 90.0
    first = (await world.demo.create(delay="PT1S"))["id"]
    second = (await world.demo.create(delay="PT70S"))["id"]
    await world.run(5)
    await world.tables.write(SWEEPS, PK_TICKS, (Upsert(FORMS_ROW, FormsRow(2).props()),))
    await world.run(150)
    assert [each.delivery.id for each in world.receiver.received] == [first]
    assert (await world.demo.event(first))["state"] == "delivered"
    assert (await world.demo.event(second))["state"] == "scheduled"


async def test_a_process_that_starts_on_newer_forms_stores_nothing(world: World, newer: Application) -> None:
    await raised(world, newer)
    await world.close()
    before = world.dump()
    await world.open()
    await world.do(world.app.recover())
    assert world.app.forms.newer and world.dump() == before
    assert (await world.demo.post(EVENT, {"delay": "PT1S", "payload": 1})).code == "newer-stored-forms"


async def test_the_number_is_raised_by_an_administrator_of_the_version_that_knows_it(world: World, newer: Application) -> None:
    assert (await world.admin.post(RAISE, {"to": 2})).code == "older-version"
    assert (await world.demo.post(RAISE, {"to": 2})).code == "missing-scope"
    await world.run(20)
    assert (await world.do(admin_of(newer).post(RAISE, {"to": 2}))).code == "older-version", "the older version has just swept"
    await raised(world, newer)
    records = (await world.do(admin_of(newer).get("/api/v1/audit"))).json()["items"]
    assert any("forms/raise" in str(each) for each in records), records


async def test_each_account_of_a_pair_has_its_number_and_a_new_second_account_gets_that_of_the_first() -> None:
    pair = PairWorld()
    await pair.open()
    other = pair.app.other
    assert other is not None and (pair.app.forms.found, other.forms.found) == (1, 1)
    answer = await pair.admin.get("/api/v1/storage/forms")
    assert answer.json() == {"stored": 1, "own": 1}
    second = pair.app.storage.second
    assert second is not None
    await second.tables.write(SWEEPS, PK_TICKS, (Upsert(FORMS_ROW, FormsRow(2).props()),))
    await pair.clock.advance(LOOK_EVERY)
    assert await other.forms.is_newer() and not await pair.app.forms.is_newer()
    await pair.close()
