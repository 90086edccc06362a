"""The trace of each planted bug shows as much as the table says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from shared.extras.verification.verify import TraceVerdict, verify
from tests.proofs.facts import note

from . import planted as shards
from .checkpoints import planted as turns
from .checkpoints.history import simulate as simulate_turns
from .history import simulate
from .leases import planted as leases
from .leases.history import ROLLBACK
from .leases.history import simulate as simulate_leases
from .trace_visibility import SIMULATED, VisibleBug
from .traced import traced_checkpoints, traced_leases, traced_scheduler

PLANTED: dict[str, tuple[Iterable[str], Callable[[str], AbstractContextManager[Any]]]] = {
    "shards": (shards.PLANTED, shards.planted),
    "leases": (leases.PLANTED | leases.ROLLBACK_PLANTED, leases.planted),
    "turns": (turns.PLANTED, turns.planted),
}
SEEN = [(kind, bug, found) for kind, bugs in SIMULATED.items() for bug, found in bugs.items() if isinstance(found, VisibleBug)]
UNSEEN = [(kind, bug) for kind, bugs in SIMULATED.items() for bug, found in bugs.items() if not isinstance(found, VisibleBug)]
PARTS = 2
HUNTED = {"shards": 12, "leases": 40, "turns": 1}
"""Seeds in which a bug that a trace does not show is looked for."""


def verdict(kind: str, bug: str, seed: int) -> TraceVerdict:
    """Return what the trace of a history with the bug shows."""
    with PLANTED[kind][1](bug):
        if kind == "shards":
            with traced_scheduler() as traces:
                simulate(seed, shards.STYLES.get(bug))
        elif kind == "leases":
            with traced_leases() as traces:
                simulate_leases(seed, ROLLBACK if bug in leases.ROLLBACK_PLANTED else None)
        else:
            with traced_checkpoints() as traces:
                simulate_turns(seed, turns.PLANTED[bug][0], hours=2)
    return verify(traces.lines())


@pytest.mark.parametrize(("kind", "bug", "found"), SEEN, ids=[f"{kind}: {bug}" for kind, bug, _ in SEEN])
def test_a_trace_shows_it(kind: str, bug: str, found: VisibleBug) -> None:
    illegal = verdict(kind, bug, found.seed).illegal
    assert any(found.rule in rule for step in illegal for rule in step.rules), illegal
    note(verdict="shown", by=found.rule, seed=found.seed)


@pytest.mark.parametrize(("kind", "bug"), UNSEEN, ids=[f"{kind}: {bug}" for kind, bug in UNSEEN])
def test_a_trace_does_not_show_it_and_raises_no_false_alarm(kind: str, bug: str) -> None:
    for seed in range(HUNTED[kind]):
        assert not verdict(kind, bug, seed).illegal, f"seed {seed}: the table is behind"
    note(verdict="not shown", seeds=HUNTED[kind])
