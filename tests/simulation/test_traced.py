"""Traces of simulated histories: no false alarm whatever goes wrong, and planted bugs are found by what was logged alone."""

from __future__ import annotations

import pytest

from shared.ops.verification.verify import Verdict, verify

from .checkpoints.history import simulate as simulate_turns
from .history import simulate
from .leases.history import simulate as simulate_leases
from .leases.planted import planted as planted_lease
from .planted import planted
from .traced import traced_checkpoints, traced_leases, traced_scheduler


def broken(verdict: Verdict) -> str:
    return "\n".join(f"{step.partition}: {'; '.join(step.rules)}: {step.step}" for step in verdict.illegal)


def test_histories_of_shards_verify_with_crashes_lost_answers_and_lost_lines() -> None:
    steps = bridged = 0
    for seed in range(25):
        with traced_scheduler() as traces:
            simulate(seed)
        verdict = verify(traces.lines())
        assert not verdict.illegal, f"seed {seed}: {broken(verdict)}"
        # The log loses every fifth line: gaps, and no violation.
        left = verify([line for number, line in enumerate(traces.lines()) if number % 5])
        assert not left.illegal, f"seed {seed}, with lines lost: {broken(left)}"
        steps, bridged = steps + verdict.steps["gate"], bridged + verdict.bridged
    assert steps > 500 and bridged


def test_histories_of_leases_and_turns_verify() -> None:
    steps = 0
    for seed in range(8):
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


@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        ("retries are forgotten at the finish", "open events"),
        ("what is being delivered may be cancelled", "without the gate"),
        ("the gate is written unconditionally", "whatever its ETag"),
    ],
)
def test_planted_bugs_of_shards_are_found(bug: str, rule: str) -> None:
    for seed in range(40):
        with planted(bug), traced_scheduler() as traces:
            simulate(seed)
        if (verdict := verify(traces.lines())).illegal:
            assert rule in verdict.illegal[0].rules[0] and verdict.illegal[0].before
            return
    pytest.fail(f"{bug} was not found")


def test_a_planted_bug_of_leases_is_found() -> None:
    for seed in range(40):
        with planted_lease("a beat without its ETag"), traced_leases() as traces:
            simulate_leases(seed)
        if (verdict := verify(traces.lines())).illegal:
            assert "whatever its ETag" in verdict.illegal[0].rules[0]
            return
    pytest.fail("it was not found")
