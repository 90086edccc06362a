"""Events of a batch that is checked in several steps of the event loop."""

from __future__ import annotations

from collections import Counter

import pytest

from shared.scheduler.ingest import admission
from shared.web.bodies import ELEMENT_COST, PACE, Reader

from ..harness import World

HOUR = 3_600_000
BRIEF = "/api/v1/tenants/demo/channels/brief"


@pytest.mark.parametrize("size", [2_000, 20_000])
async def test_each_step_reads_the_time_anew_and_a_delay_counts_from_it(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    world = await World().open()
    began = world.now

    async def take_turn(reader: Reader) -> None:
        await world.clock.advance(1.0, settle=1)

    monkeypatch.setattr(admission, "take_turn", take_turn)
    answer = await world.demo.post("/api/v1/events/batch", [{"delay": "PT1H", "payload": "x" * size}] * 50)
    assert answer.json()["accepted"] == 50
    props = [row.props for row in world.events()]
    assert all(int(each["due"]) == int(each["created"]) + HOUR for each in props)
    steps = Counter(int(each["created"]) - began for each in props)
    await world.close()
    most = PACE // (size + ELEMENT_COST) + 1
    assert len(steps) >= 50 // most
    assert max(steps.values()) <= most


async def test_a_channel_that_is_removed_between_two_steps_takes_no_further_event(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await World().open()
    made = await world.admin.put(BRIEF, {"type": "queue", "queue": "orders"})
    assert made.status == 201
    removed = 0

    async def take_turn(reader: Reader) -> None:
        nonlocal removed
        removed += 1
        if removed == 1:
            assert (await world.admin.without_time().delete(BRIEF)).status == 204

    monkeypatch.setattr(admission, "take_turn", take_turn)
    answer = await world.demo.post("/api/v1/events/batch", [{"delay": "PT1H", "channel": "brief", "payload": "x" * 2_000}] * 50)
    await world.close()
    assert 0 < answer.json()["accepted"] <= PACE // (2_000 + ELEMENT_COST) + 1
