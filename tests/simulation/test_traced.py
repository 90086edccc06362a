"""Traces of simulated histories raise no false alarm, whatever goes wrong. `test_trace_visibility` says which bugs they show."""

from __future__ import annotations

import pytest

from shared.extras.verification.verify import TraceVerdict, verify

from .__main__ import KINDS
from .checkpoints.history import simulate as simulate_turns
from .history import simulate
from .leases.history import ROLLBACK
from .leases.history import simulate as simulate_leases
from .leases.resizing import simulate_resizes
from .traced import traced_checkpoints, traced_leases, traced_scheduler
from .world.keyed_histories import simulate_keys


def broken(verdict: TraceVerdict) -> str:
    return "\n".join(f"{step.partition}: {'; '.join(step.rules)}: {step.step}" for step in verdict.illegal)


def test_histories_of_shards_verify_with_crashes_lost_answers_and_lost_lines() -> None:
    steps = inferred = 0
    for seed in range(3, 28):
        with traced_scheduler() as traces:
            simulate(seed)
        verdict = verify(traces.lines())
        assert not verdict.illegal, f"seed {seed}: {broken(verdict)}"
        # The log loses every fifth line: gaps, and no violation.
        left = verify([line for number, line in enumerate(traces.lines()) if number % 5])
        assert not left.illegal, f"seed {seed}, with lines lost: {broken(left)}"
        steps, inferred = steps + verdict.steps["gate"], inferred + verdict.inferred
    assert steps > 500 and inferred


def test_histories_of_leases_and_turns_verify() -> None:
    steps = 0
    for seed in range(8, 16):
        with traced_leases() as traces:
            simulate_leases(seed)
        verdict = verify(traces.lines())
        assert not verdict.illegal, f"seed {seed}: {broken(verdict)}"
        steps += verdict.steps["lease"]
    with traced_checkpoints() as traces:
        simulate_turns(3, hours=0.5)
    verdict = verify(traces.lines())
    assert not verdict.illegal, broken(verdict)
    assert steps > 100 and verdict.steps["turn"] > 50


@pytest.mark.parametrize("kind", KINDS)
def test_other_histories_of_shards_verify(kind: str) -> None:
    for seed in range(2):
        with traced_scheduler() as traces:
            KINDS[kind](seed, None)
        lines = traces.lines()
        for found in (verify(lines), verify([line for number, line in enumerate(lines) if number % 7])):
            assert not found.illegal, f"seed {seed}: {broken(found)}"


def test_a_line_that_is_lost_beside_a_lost_answer_is_no_violation() -> None:
    with traced_scheduler() as traces:
        simulate_keys(25)
    lost = verify([line for number, line in enumerate(traces.lines()) if number % 7])
    assert not lost.illegal, broken(lost)


def test_resizes_verify_and_storage_that_loses_writes_is_named() -> None:
    for seed in range(10):
        with traced_leases() as traces:
            simulate_resizes(seed)
        verdict = verify(traces.lines())
        assert not verdict.illegal, f"seed {seed}: {broken(verdict)}"
        with traced_leases() as traces:
            simulate_leases(seed, ROLLBACK)
        # Such a step breaks other rules, too: storage has forgotten who owns what.
        rules = [step.rules[0] for step in verify(traces.lines()).illegal]
        assert all("storage has lost a write" in rule for rule in rules), rules
