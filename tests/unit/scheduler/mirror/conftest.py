"""A mirrored pair of accounts with one application."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .pair import PairWorld


@pytest.fixture
async def pair() -> AsyncIterator[PairWorld]:
    """A mirrored pair, the first serving."""
    world = PairWorld()
    await world.open()
    yield world
    await world.close()
