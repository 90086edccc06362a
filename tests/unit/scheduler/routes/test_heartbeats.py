"""Heartbeat monitors: silence delivers one event, each call puts it off, and the call after an alarm begins anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.delivery.channels.ports import Verdict
from tests.unit.scheduler.harness import World

PATH = "/api/v1/heartbeats/backup"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


def alarms(world: World) -> list[Any]:
    return [row.props for row in world.events() if row.props["id"] == "heartbeat:backup" and row.props["state"] == "delivered"]


async def test_silence_delivers_one_event_and_a_later_call_begins_anew(world: World) -> None:
    first = await world.demo.post(PATH, {"within": "PT10M"})
    assert (first.status, first.json()["state"]) == (201, "alive")
    for _ in range(5):
        await world.run(9 * 60, step=5)
        called = await world.demo.post(PATH, {"within": "PT10M", "payload": {"disk": 3}})
        assert (called.status, alarms(world)) == (200, [])
    last = to_text(world.now)
    await world.run(11 * 60, step=5)
    [alarm] = alarms(world)
    assert '"payload":{"disk":3}' in str(alarm["body"]) and f'"last":"{last[:19]}' in str(alarm["body"])
    assert (await world.demo.get(PATH)).json()["state"] == "silent"
    await world.run(60 * 60, step=30)
    assert len(alarms(world)) == 1, "it is told once"

    assert (await world.demo.post(PATH, {"within": "PT10M"})).status == 201
    assert (await world.demo.get(PATH)).json()["state"] == "alive"
    await world.run(11 * 60, step=5)
    assert len(alarms(world)) == 2


async def test_ended_monitor_is_silent(world: World) -> None:
    assert (await world.demo.get(PATH)).status == 404
    assert (await world.demo.delete(PATH)).json()["detail"] == "There is no such heartbeat."
    await world.demo.post(PATH, {"within": "PT1M"})
    assert (await world.demo.delete(PATH)).status == 204
    await world.run(120, step=5)
    assert alarms(world) == [] and (await world.demo.get(PATH)).status == 404


async def test_call_while_the_alarm_begins_is_to_be_repeated(world: World) -> None:
    world.receiver.otherwise = Verdict("retry", 503)
    await world.demo.post(PATH, {"within": "PT10S"})
    answers = []
    for _ in range(40):
        await world.run(0.25)
        answers.append(await world.demo.post(PATH, {"within": "PT10S"}) if len(answers) % 2 else await world.demo.get(PATH))
    assert {each.status for each in answers} <= {200, 201}, "calls in time never meet the alarm"
    await world.run(9, step=0.25)
    called = await world.demo.post(PATH, {"within": "PT10S"})
    assert (called.status, called.headers["retry-after"]) == (409, "1")


BAD: list[tuple[dict[str, Any], str]] = [({}, "/within"), ({"within": "PT1S"}, "/within"), ({"within": "PT1M", "channel": "x"}, "/channel")]


@pytest.mark.parametrize(("body", "pointer"), BAD)
async def test_bad_calls(world: World, body: dict[str, Any], pointer: str) -> None:
    refused = await world.demo.post(PATH, body)
    assert refused.status == 422 and refused.json()["errors"][0]["pointer"] == pointer
