"""Short simulated histories, a chunk of seeds in each test. `prove_histories` plays two thousand, and finds every planted bug.

A failure names its seed; `python -m tests.simulation --seed N --verbose` shows it.
"""

from __future__ import annotations

import gc

import pytest

from shared.scheduler import rules
from shared.scheduler.firing.invocations import Bursts
from shared.scheduler.protocol.dispatch import ShardMessage
from tests.simulation.history import simulate

CHUNK = 100


def play(first: int, count: int, style: str | None = None) -> None:
    broken = [report for seed in range(first, first + count) if (report := simulate(seed, style)).violation is not None]
    gc.collect()
    failures = [f"seed {report.seed}: {report.violation}" for report in broken]
    options = f"--seed {broken[0].seed}{f' --style {style}' if style else ''}" if broken else ""
    assert not broken, "\n".join([*failures, f"repeat it: python -m tests.simulation {options} --verbose"])


def test_promises_are_kept_whatever_goes_wrong() -> None:
    play(0, CHUNK)


def test_promises_are_kept_while_answers_of_storage_are_lost() -> None:
    play(3_000, CHUNK // 4, "lost")


@pytest.mark.parametrize("style", [None, "none", "crashes"])
def test_promises_are_kept_while_processes_leave_shards_to_each_other(style: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    left = []
    leave = Bursts.leave

    async def noted(self: Bursts, message: ShardMessage) -> bool:
        done = await leave(self, message)
        left.append(done)
        return done

    monkeypatch.setattr(Bursts, "leave", noted)
    # Every shard is a full one, and is left to others as often as possible.
    monkeypatch.setattr(rules, "MANY_EVENTS", 1)
    monkeypatch.setattr(rules, "BURST_SHARDS", 0)
    monkeypatch.setattr(rules, "BURST_FROM", 0)
    monkeypatch.setattr(rules, "WAKE_EARLY", 6_000)
    play(3_100, CHUNK // 10, style)
    assert sum(left) >= 10 and left.count(False) >= 10


def test_without_faults_everything_is_delivered_once_and_on_time() -> None:
    play(0, CHUNK // 4, "none")


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in (7, 23, 175):
        first, second = simulate(seed), simulate(seed)
        assert first.trace.digest() == second.trace.digest()
        assert first.counts == second.counts
