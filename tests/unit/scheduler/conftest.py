from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .harness import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The application on storage in memory."""
    world = await World().open()
    yield world
    await world.close()
