"""Calls about one event that is removed while they run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from shared.storage.names import EVENTS, IDS
from shared.storage.ports import ANY, Delete, Op
from tests.unit.scheduler.harness import World

PATH = "/api/v1/events"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


@pytest.mark.parametrize("given", [{"channel": "default"}, {"delay": "PT2H"}, {"payload": 2}], ids=["channel", "due", "payload"])
async def test_a_patch_of_an_event_that_is_removed_before_it_is_written_finds_none(
    world: World, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    await world.demo.create(id="x", delay="PT1H")
    write, removed = world.tables.write, list[str]()

    async def removed_before(table: str, pk: str, ops: Sequence[Op]) -> Any:
        if table == EVENTS and not removed:
            for row in [each for each in world.events() if each.props["id"] == "x"]:
                removed.append(row.rk)
                await write(EVENTS, row.pk, [Delete(row.rk, ANY)])
            for row in world.rows(IDS):
                await write(IDS, row.pk, [Delete(row.rk, ANY)])
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", removed_before)
    answer = await world.demo.patch(f"{PATH}/x", given)
    assert len(removed) == 1
    assert (answer.status, answer.json()["type"].rpartition("/")[2]) == (404, "not-found")
