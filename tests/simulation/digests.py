"""Digests of histories of every kind, which say whether histories repeat. `python -m tests.simulation.digests` prints them as JSON.

A digest covers all that was asked of storage and receivers and all that was answered, with every property of every row in its order. That
is more than a trace shows.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from shared.storage.memory import MemoryTables
from tests.model.checking.mutants import patched
from tests.paths import ROOT

from . import history
from .__main__ import KINDS
from .checkpoints.history import simulate as simulate_turns
from .leases.delivering import simulate_deliveries
from .leases.history import simulate as simulate_leases
from .leases.report import Report as LeasesReport
from .leases.resizing import simulate_resizes

HASH_SEEDS = ("1", "2", "3")
"""Values of PYTHONHASHSEED: each orders sets of strings in another way."""
EFFECTS = 200
"""Effects of a short history: it ends at the next one. Plain histories are short as they are."""
TURN_HOURS = 0.2
"""Hours of a replica group's history."""


def of_history(play: Callable[[int], history.Report], seed: int) -> str:
    """Return the digest of a history of the scheduler."""
    # Tasks of a history that is cut off are cancelled in any order.
    return _hashed(repr(tuple(entry)) for entry in play(seed).trace.lines[: history.MOST_LINES])


def of_fleet(play: Callable[[int], LeasesReport], seed: int) -> str:
    """Return the digest of a history of a fleet: its trace, and the rows at its end."""
    world = play(seed).world
    return _hashed((*map(repr, world.trace), repr(_rows(world.store))))


def of_turns(seed: int) -> str:
    """Return the digest of a history of a replica group: who had turns, the end of its trace, and the rows at its end."""
    report = simulate_turns(seed, hours=TURN_HOURS)
    return _hashed((repr((report.order, report.timeouts)), *report.world.trace, repr(_rows(report.world.store))))


DIGESTS: dict[str, Callable[[int], str]] = {
    "plain": partial(of_history, history.simulate),
    **{kind: partial(of_history, play) for kind, play in KINDS.items()},
    "leases": partial(of_fleet, simulate_leases),
    "resizes": partial(of_fleet, simulate_resizes),
    "deliveries": partial(of_fleet, simulate_deliveries),
    "turns": of_turns,
}
"""Functions that play the history of a seed and return its digest, by the kind of the history."""


def digests(kinds: Iterable[str], seeds: Sequence[int], effects: int = history.MOST_LINES) -> dict[str, list[str]]:
    """Return the digests of the histories of `seeds`, by kind. effects: effects after which a history of the scheduler that is not plain is
    cut off."""
    found = {}
    gc.disable()
    try:
        for kind in kinds:
            with patched([(history, "MOST_LINES", history.MOST_LINES if kind == "plain" else effects)]):
                found[kind] = [DIGESTS[kind](seed) for seed in seeds]
            gc.collect()
    finally:
        gc.enable()
    return found


def differing(seeds: Sequence[int], kinds: Iterable[str] = DIGESTS, effects: int = history.MOST_LINES) -> list[str]:
    """Return the histories that differ between processes of different hash seeds, such as `keys 3`."""
    program = (sys.executable, "-m", "tests.simulation.digests", "--effects", str(effects))
    asked = ("--start", str(seeds[0]), "--seeds", str(len(seeds)), "--kinds", *kinds)
    running = [
        subprocess.Popen((*program, *asked), cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": salt}, stdout=subprocess.PIPE, text=True)
        for salt in HASH_SEEDS
    ]
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    first, *others = map(json.loads, printed)
    assert first.keys() == set(kinds) and all(len(found) == len(seeds) for found in first.values())
    return [
        f"{kind} {seed}"
        for kind, found in first.items()
        for number, seed in enumerate(seeds)
        if any(other[kind][number] != found[number] for other in others)
    ]


def _rows(tables: MemoryTables) -> list[Any]:
    """Return all rows of all tables, in the order in which they were first stored."""
    return [
        (table, pk, list(partition.rows.values())) for table, partitions in tables._tables.items() for pk, partition in partitions.items()
    ]


def _hashed(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()


def main() -> None:
    """Print the digests as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.digests", description="Digests of histories, as JSON.")
    parser.add_argument("--seeds", type=int, default=20, help="number of histories of each kind (default 20)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--kinds", nargs="+", choices=DIGESTS, default=[*DIGESTS], metavar="KIND", help=", ".join(DIGESTS))
    parser.add_argument("--effects", type=int, default=history.MOST_LINES, help="effects after which a history ends (default: its own end)")
    asked = parser.parse_args()
    print(json.dumps(digests(asked.kinds, range(asked.start, asked.start + asked.seeds), asked.effects)))


if __name__ == "__main__":
    main()
