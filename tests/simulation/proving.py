"""Plays of many seeds, for tests and proofs: that promises are kept in all of them, or that a planted bug breaks one in one of them."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.proofs.facts import note

COLLECT_EVERY = 50
"""Histories between two collections of the garbage."""
SHOWN = 100
"""Characters of a violation in a certificate."""


def assert_kept(play: Callable[[int], Any], seeds: range, command: str) -> list[Counter[str]]:
    """Play these seeds, and return the counts of each. Fail with the seeds in which a promise is broken.

    command: the one that shows a seed's history, without the seed.
    """
    counts, broken = [], []
    for number, seed in enumerate(seeds, 1):
        report = play(seed)
        counts.append(report.counts)
        if report.violation is not None:
            broken.append(f"seed {seed}: {report.violation}")
        if number % COLLECT_EVERY == 0:
            gc.collect()
    gc.collect()
    assert not broken, "\n".join([*broken, f"again: {command} --seed N --verbose"])
    note(seeds=_named(seeds))
    return counts


def assert_found(bug: str, play: Callable[[int], Any], seeds: range) -> None:
    """Play these seeds until the planted bug breaks a promise. Fail when none does."""
    for seed in seeds:
        violation = play(seed).violation
        if violation is not None:
            note(verdict="caught", by=violation.partition(":")[0][:SHOWN], seed=seed, seeds=_named(seeds))
            return
    raise AssertionError(f"{len(seeds)} histories do not notice: {bug}")


def _named(seeds: range) -> str:
    return f"{seeds.start} to {seeds.stop - 1}"
