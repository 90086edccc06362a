"""Keepers that publish loads, on virtual time: they balance soon, stay balanced under noise, and never get worse on the way."""

from __future__ import annotations

import pytest

from .balancing import kcl, tocsin
from .history import listening
from .skews import skews

SERVERS, PARTITIONS = 4, 32


@pytest.mark.parametrize("name", ["uniform", "zipf", "hot"])
def test_published_loads_are_balanced_within_minutes_and_then_hardly_anything_moves(name: str) -> None:
    skew = next(each for each in skews(PARTITIONS, SERVERS) if each.name == name)
    with listening():
        found, owners = tocsin(skew, SERVERS, PARTITIONS, 720.0, 1)
    assert found.balanced is not None and found.balanced <= 300
    assert found.share == 1 and found.late <= 2
    assert found.overshoot <= 0.05
    assert found.moves == 0 if name == "uniform" else found.moves <= PARTITIONS
    other = kcl(skew, owners, 720.0, 1)
    assert other.series[0][1] == pytest.approx(found.series[0][1]), "both begin with the same owners"
