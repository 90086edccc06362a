"""The table of what a trace shows names every planted bug, and is true."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from shared.ops.verification.verify import TraceVerdict, verify
from tests.model.leases import test_lease_protocol, test_lease_resizing, test_remote_leases
from tests.model.shards.test_shard_mutants import EXPECTED as SHARDS
from tests.model.turns import test_turn_protocol
from tests.paths import ROOT

from . import planted as shards
from . import trace_visibility as table
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


@pytest.mark.parametrize("kind", PLANTED)
def test_the_table_names_every_bug_of_the_simulators(kind: str) -> None:
    assert list(SIMULATED[kind]) == list(PLANTED[kind][0])


@pytest.mark.parametrize(("kind", "bug", "found"), SEEN, ids=[f"{kind}: {bug}" for kind, bug, _ in SEEN])
def test_a_trace_shows_it(kind: str, bug: str, found: VisibleBug) -> None:
    illegal = verdict(kind, bug, found.seed).illegal
    assert any(found.rule in rule for step in illegal for rule in step.rules), illegal


@pytest.mark.long
@pytest.mark.parametrize(("kind", "bug"), UNSEEN, ids=[f"{kind}: {bug}" for kind, bug in UNSEEN])
def test_a_trace_does_not_show_it_and_raises_no_false_alarm(kind: str, bug: str) -> None:
    for seed in range(HUNTED[kind]):
        assert not verdict(kind, bug, seed).illegal, f"seed {seed}: the table is behind"


def test_the_table_names_every_mutant_of_the_models() -> None:
    """The tests of the mutants pin what each breaks first; the rules that judge traces are named T, P3, P5, and in `BROKEN`."""
    by_rule = {name for name, (prop, _) in SHARDS.items() if prop in ("T", "P3", "P5")}
    assert {prop for name, (prop, _) in SHARDS.items() if name not in by_rule} == set(table.SHARD_PROPERTIES)
    assert set(SHARDS) >= table.SHARDS_DONE
    models = (test_lease_protocol, test_lease_resizing, test_remote_leases)
    unseen = {name for model in models for name in model.STEPS if name not in model.BROKEN}
    assert unseen == set(table.LEASES)
    assert set(test_turn_protocol.STEPS) - set(test_turn_protocol.BROKEN) == set(table.TURNS)


def test_the_page_says_how_many_of_the_planted_bugs_a_trace_shows() -> None:
    models = (test_lease_protocol, test_lease_resizing, test_remote_leases, test_turn_protocol)
    planted = len(SEEN) + len(UNSEEN) + len(SHARDS) + sum(len(model.STEPS) for model in models)
    shown = len(SEEN) + len(table.SHARDS_DONE) + sum(prop in ("T", "P3", "P5") for prop, _ in SHARDS.values())
    shown += sum(len(model.BROKEN) for model in models)
    page = (ROOT / "docs" / "explain" / "scheduler.md").read_text()
    assert f"Of {planted} planted bugs, {shown} change a row" in page
