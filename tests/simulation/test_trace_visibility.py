"""The table of what a trace shows names every planted bug and every mutant. `prove_trace_visibility` proves that it is true."""

from __future__ import annotations

import pytest

from tests.model.leases import prove_leases, prove_remote_leases, prove_resizing
from tests.model.shards.prove_mutants import EXPECTED as SHARDS
from tests.model.turns import prove_turns
from tests.paths import ROOT

from . import trace_visibility as table
from .prove_trace_visibility import PLANTED, SEEN, UNSEEN
from .trace_visibility import SIMULATED


@pytest.mark.parametrize("kind", PLANTED)
def test_the_table_names_every_bug_of_the_simulators(kind: str) -> None:
    assert list(SIMULATED[kind]) == list(PLANTED[kind][0])


def test_the_table_names_every_mutant_of_the_models() -> None:
    """The tests of the mutants pin what each breaks first; the rules that judge traces are named T, P3, P5, and in `BROKEN`."""
    by_rule = {name for name, (prop, _) in SHARDS.items() if prop in ("T", "P3", "P5")}
    assert {prop for name, (prop, _) in SHARDS.items() if name not in by_rule} == set(table.SHARD_PROPERTIES)
    assert set(SHARDS) >= table.SHARDS_DONE
    models = (prove_leases, prove_resizing, prove_remote_leases)
    unseen = {name for model in models for name in model.STEPS if name not in model.BROKEN}
    assert unseen == set(table.LEASES)
    assert set(prove_turns.STEPS) - set(prove_turns.BROKEN) == set(table.TURNS)


def test_the_page_says_how_many_of_the_planted_bugs_a_trace_shows() -> None:
    models = (prove_leases, prove_resizing, prove_remote_leases, prove_turns)
    planted = len(SEEN) + len(UNSEEN) + len(SHARDS) + sum(len(model.STEPS) for model in models)
    shown = len(SEEN) + len(table.SHARDS_DONE) + sum(prop in ("T", "P3", "P5") for prop, _ in SHARDS.values())
    shown += sum(len(model.BROKEN) for model in models)
    page = (ROOT / "docs" / "explain" / "scheduler.md").read_text()
    assert f"Of {planted} planted bugs, {shown} change a row" in page
