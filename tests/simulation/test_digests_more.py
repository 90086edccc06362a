"""More and whole histories of `test_digests`."""

from __future__ import annotations

import pytest

from tests.simulation.digests import DIGESTS, differing

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", DIGESTS)
def test_whole_histories_are_the_same_under_every_hash_seed(kind: str) -> None:
    assert differing(range(100), [kind]) == []


@pytest.mark.parametrize("first", [100, 200])
def test_more_plain_histories_are_the_same_under_every_hash_seed(first: int) -> None:
    assert differing(range(first, first + 100), ["plain"]) == []
