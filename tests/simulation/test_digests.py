"""Histories repeat in every process: none depends on the order in which a process happens to hold strings in a set."""

from __future__ import annotations

from tests.simulation.digests import DIGESTS, EFFECTS, differing, digests

SEEDS = range(20)


def test_short_histories_of_every_kind_are_the_same_under_every_hash_seed() -> None:
    assert differing(SEEDS, effects=EFFECTS) == []


def test_a_digest_tells_histories_apart() -> None:
    for kind, found in digests(DIGESTS, range(2), EFFECTS).items():
        assert len(set(found)) == 2, kind
