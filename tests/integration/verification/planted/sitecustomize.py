"""Plants the bug that PLANTED names into this process, before it imports anything else. Only tests put this folder on PYTHONPATH."""

from __future__ import annotations

import os


def plant(name: str) -> None:
    """Patch the code for as long as the process lives."""
    from tests.model.turns.mutants import MUTANTS
    from tests.simulation.leases.planted import PLANTED as LEASES
    from tests.simulation.planted import PLANTED as SHARDS

    kind, _, bug = name.partition(": ")
    if kind == "shards":
        patches = [(where, attribute, wrong) for (where, attribute), wrong in SHARDS[bug]]
    elif kind == "leases":
        patches = LEASES[bug]()
    else:
        patches = next(mutant for mutant in MUTANTS if mutant.name == bug).patches()
    for where, attribute, wrong in patches:
        setattr(where, attribute, wrong)


if os.environ.get("PLANTED"):
    plant(os.environ["PLANTED"])
