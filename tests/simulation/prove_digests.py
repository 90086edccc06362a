"""More and whole histories of `test_digests`."""

from __future__ import annotations

import pytest

from tests.proofs.facts import note
from tests.simulation.digests import DIGESTS, differing

PARTS = 6
SEEDS = range(20, 60)


@pytest.mark.parametrize("kind", DIGESTS)
def test_whole_histories_are_the_same_under_every_hash_seed(kind: str) -> None:
    assert differing(SEEDS, [kind]) == []
    note(seeds=f"{SEEDS.start} to {SEEDS.stop - 1}")
