"""Servers of a quick fleet, which are stopped after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..conftest import quick_fleet
from .keepers import PARTITIONS, Servers


@pytest.fixture
def servers() -> Iterator[Servers]:
    found = Servers(quick_fleet(PARTITIONS))
    yield found
    found.stop()
