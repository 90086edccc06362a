"""Seeds whose histories break a promise, each an open finding. Proofs keep them apart, and a certificate names them.

A proof that leaves a seed out plays it all the same, and fails once its history keeps every promise: then the seed goes from the list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from tests.proofs.facts import note
from tests.simulation.proving import assert_kept


def assert_kept_but_open(play: Callable[[int], Any], seeds: range, command: str, open_seeds: Collection[int]) -> list[Counter[str]]:
    """Play these seeds and return the counts of all histories that keep every promise. Fail unless these are all but the open seeds."""
    left_out = sorted(set(seeds) & set(open_seeds))
    borders = [seeds.start, *(border for seed in left_out for border in (seed, seed + 1)), seeds.stop]
    counts: list[Counter[str]] = []
    for start, stop in zip(borders[::2], borders[1::2], strict=True):
        counts += assert_kept(play, range(start, stop), command)
    found = {seed: play(seed).violation for seed in left_out}
    assert all(found.values()), f"no promise is broken any more: take the seeds out of the list: {found}"
    note(seeds=f"{seeds.start} to {seeds.stop - 1}", open=left_out)
    return counts
