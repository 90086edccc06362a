"""The fleet and the replica that the tests of checkpoints use."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.harness import World

from .replicas import DB, MAKE, Replica


@pytest.fixture
async def db(world: World) -> World:
    assert (await world.demo.put(DB, MAKE)).status == 201
    return world


@pytest.fixture
async def b(db: World) -> Replica:
    return Replica(db.demo, "b")
