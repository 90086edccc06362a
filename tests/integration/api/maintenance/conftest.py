"""The fleet that the tests of maintenance use."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.harness import World

from .agents import DB, MAKE


@pytest.fixture
async def db(world: World) -> World:
    assert (await world.demo.put(DB, MAKE)).status == 201
    return world
