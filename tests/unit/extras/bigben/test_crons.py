"""BigBen's crons: their expressions as schedules read them, and the routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from shared.core.clock import to_text
from shared.core.errors import Problem
from shared.extras.bigben.crons import own_expression
from shared.extras.bigben.model import CronType
from tests.unit.scheduler.harness import World

BASE = "/api/bigben/cron"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("kind", "expression", "fields"),
    [
        ("UNIX", "*/15 9-17 * * MON-FRI", "*/15 9-17 * * MON-FRI"),
        ("UNIX", "0 0 1 * 0", "0 0 1 * 0"),
        ("CRON4J", "30 2 * * 0,6", "30 2 * * 0,6"),
        ("QUARTZ", "0 0/5 14 * * ?", "0-59/5 14 * * *"),
        ("QUARTZ", "0 15 10 ? * 2-6", "15 10 * * 1-5"),
        ("QUARTZ", "0 15 10 ? * MON-FRI *", "15 10 * * MON-FRI"),
        ("QUARTZ", "0 0 12 ? * 1,7", "0 12 * * 0,6"),
        ("QUARTZ", "0 0 12 1/5 * ?", "0 12 1-31/5 * *"),
        ("SPRING", "0 0 8 * * 1-5", "0 8 * * 1-5"),
        ("QUARTZ", "30 0 12 * * ?", "30 0 12 * * *"),
        ("QUARTZ", "0 0 12 ? * 6#3", "0 12 * * 5#3"),
        ("QUARTZ", "0 0 12 15W * ?", "0 12 15W * *"),
        ("SPRING", "0 0 12 1 * MON", "0 0 12 1 * MON"),
        ("CRON4J", "0 12 1 * MON", "0 0 12 1 * MON"),
    ],
)
def test_each_kind_of_expression_as_a_schedule_reads_it(kind: CronType, expression: str, fields: str) -> None:
    assert own_expression(expression, kind) == fields


@pytest.mark.parametrize(
    ("kind", "expression", "reason"),
    [
        ("QUARTZ", "0 0 12 * * ? 2030", "six fields"),
        ("QUARTZ", "0 12 * * *", "six fields"),
        ("QUARTZ", "0 0 12 L-3 * ?", "only L and LW"),
        ("UNIX", "0 0 12 * * *", "five fields"),
    ],
)
def test_what_a_schedule_cannot_express_is_refused(kind: CronType, expression: str, reason: str) -> None:
    with pytest.raises(Problem) as refused:
        own_expression(expression, kind)
    assert (refused.value.status, refused.value.errors[0]["pointer"]) == (422, "/expression")
    assert reason in refused.value.detail


async def test_a_cron_fires_each_time_as_a_full_event(world: World) -> None:
    made = await world.demo.post(BASE, {"id": "tick", "expression": "0 * * * * ?", "type": "QUARTZ", "tenant": "demo"})
    assert (made.status, made.json()) == (200, {"status": "OK"})
    await world.run(185)
    bodies = [orjson.loads(got.delivery.body) for got in world.receiver.received]
    assert len(bodies) == 3
    sent = [(to_text(got.delivery.due), got.delivery.id) for got in world.receiver.received]
    assert [due for due, _ in sent] == [f"2027-01-15T08:0{minute}:00.000Z" for minute in (1, 2, 3)]
    assert len({id for _, id in sent}) == 3
    times = [f"2027-01-15T08:0{minute}Z" for minute in (1, 2, 3)]
    assert [(body["eventTime"], body["eventId"]) for body in bodies] == [(at, f"QUARTZ/{at}") for at in times]
    assert bodies[0] == {
        "id": "tick",
        "tenant": "demo",
        "mode": "UPSERT",
        "deliveryOption": "FULL_EVENT",
        "eventStatus": "TRIGGERED",
        "payload": "0 * * * * ?",
        "cronType": "QUARTZ",
        "eventTime": "2027-01-15T08:01Z",
        "eventId": "QUARTZ/2027-01-15T08:01Z",
        "triggeredAt": "2027-01-15T08:01Z",
    }
    [found] = (await world.demo.get(f"{BASE}/demo/tick?describe=true")).json()
    cron = found["cron"]
    assert (cron["expression"], cron["type"], found["description"]) == ("0 * * * * ?", "QUARTZ", "Every minute")
    assert cron["lastExecutionTime"].endswith("08:03:00.000Z")


@pytest.mark.parametrize(
    ("kind", "expression", "description"),
    [
        ("UNIX", "0 1 * * *", "At 01:00"),
        ("SPRING", "0 0 12 1 * MON", "at 12:00 on day 1 of each month if it is Monday, in UTC"),
        ("QUARTZ", "0 0 12 1,L * ?", "at 12:00 on day 1 and the last day of each month, in UTC"),
    ],
)
async def test_a_cron_is_described_as_it_is_read(world: World, kind: str, expression: str, description: str) -> None:
    cron = {"id": "x", "expression": expression, "type": kind, "tenant": "demo"}
    assert (await world.demo.post(f"{BASE}/describe", cron)).json()["description"] == description


async def test_an_id_may_have_a_cron_of_each_type_and_they_go_one_by_one_or_all(world: World) -> None:
    for kind, expression in (("UNIX", "0 1 * * *"), ("SPRING", "0 0 2 * * *")):
        await world.demo.post(BASE, {"id": "a/b", "expression": expression, "type": kind, "tenant": "demo"})

    async def types() -> list[str]:
        return [each["cron"]["type"] for each in (await world.demo.get(f"{BASE}/demo/a%2Fb")).json()]

    assert await types() == ["UNIX", "SPRING"]
    assert (await world.demo.delete(f"{BASE}/demo/a%2Fb/UNIX")).json() == {"status": "OK"}
    assert await types() == ["SPRING"]
    assert (await world.demo.delete(f"{BASE}/demo/a%2Fb/*")).status == 200
    assert await types() == []
    assert (await world.demo.delete(f"{BASE}/demo/a%2Fb")).status == 200
    assert (await world.demo.delete(f"{BASE}/demo/a%2Fb/WEEKLY")).status == 422


GOOD: dict[str, Any] = {"id": "x", "expression": "0 1 * * *", "type": "UNIX", "tenant": "demo"}


@pytest.mark.parametrize(
    ("change", "status", "pointer"),
    [
        ({"expression": "0 1 30 2 *"}, 422, "/expression"),
        ({"expression": "nonsense"}, 422, "/expression"),
        ({"type": "DAILY"}, 422, "/type"),
        ({"tenant": "nobody"}, 404, None),
    ],
)
async def test_a_cron_that_cannot_be_is_refused(world: World, change: dict[str, Any], status: int, pointer: str | None) -> None:
    answer = await world.demo.post(BASE, GOOD | change)
    assert answer.status == status
    if pointer is not None:
        assert answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("payload", [5, {"payload": "0 1 * * *"}, {"id": "x", "cronType": "UNIX"}])
@pytest.mark.parametrize("rule", [{"every": "PT1H"}, {"cron": "0 1 * * *"}])
async def test_schedules_of_the_own_api_are_not_changed_by_the_compatible_one(world: World, rule: dict[str, Any], payload: Any) -> None:
    assert (await world.demo.put("/api/v1/schedules/x~unix", rule | {"payload": payload})).status == 201
    answer = await world.demo.get(f"{BASE}/demo/x?describe=true")
    assert (answer.status, answer.json()) == (200, [])
    assert (await world.demo.delete(f"{BASE}/demo/x/*")).status == 200
    before = world.dump()
    taken = await world.demo.post(BASE, GOOD)
    assert (taken.status, taken.code) == (409, "made-elsewhere") and "through /schedules" in taken.json()["detail"]
    assert world.dump() == before
    assert (await world.demo.get("/api/v1/schedules/x~unix")).status == 200


async def test_crons_are_not_replaced_by_the_own_api_which_can_remove_them(world: World) -> None:
    assert (await world.demo.post(BASE, GOOD)).status == 200
    before = world.dump()
    answer = await world.demo.put("/api/v1/schedules/x~unix", {"cron": "0 2 * * *", "payload": 1})
    assert (answer.status, answer.code) == (409, "made-elsewhere") and "the API of BigBen" in answer.json()["detail"]
    assert world.dump() == before
    assert (await world.demo.post(BASE, GOOD | {"expression": "0 3 * * *"})).status == 200
    assert (await world.demo.delete("/api/v1/schedules/x~unix")).status == 204
    assert (await world.demo.put("/api/v1/schedules/x~unix", {"cron": "0 2 * * *", "payload": 1})).status == 201
    assert (await world.demo.get(f"{BASE}/demo/x")).json() == []


async def test_crons_of_another_tenant_are_out_of_reach(world: World) -> None:
    await world.demo.post(BASE, GOOD)
    acme = await world.tenant("acme")
    assert (await acme.get(f"{BASE}/demo/x")).status == 404
    assert (await acme.delete(f"{BASE}/demo/x/*")).status == 404
    assert (await acme.post(BASE, GOOD)).status == 404
    assert len((await world.demo.get(f"{BASE}/demo/x")).json()) == 1
