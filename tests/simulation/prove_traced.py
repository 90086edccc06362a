"""Traces of many histories of every kind raise no false alarm."""

from __future__ import annotations

import pytest

from shared.extras.verification.verify import verify
from tests.proofs.facts import note

from .__main__ import KINDS
from .traced import traced_scheduler

SEEDS = range(2, 22)


@pytest.mark.parametrize("kind", KINDS)
def test_histories_of_shards_verify_with_lost_lines(kind: str) -> None:
    steps = 0
    for seed in SEEDS:
        with traced_scheduler() as traces:
            KINDS[kind](seed, None)
        lines = traces.lines()
        for found in (verify(lines), verify([line for number, line in enumerate(lines) if number % 7])):
            assert not found.illegal, f"seed {seed}: {found.illegal}"
            steps += sum(found.steps.values())
    note(seeds=f"{SEEDS.start} to {SEEDS.stop - 1}", steps=steps)
