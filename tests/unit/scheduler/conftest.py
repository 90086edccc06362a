from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .flow.flowing import Instances
from .harness import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The application on storage in memory."""
    world = await World().open()
    yield world
    await world.close()


@pytest.fixture
async def two() -> AsyncIterator[Instances]:
    """Two instances on one storage, with shards of ten events."""
    world = Instances(shard_events=10)
    await world.open()
    yield world
    await world.close()
