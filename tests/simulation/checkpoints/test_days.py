"""Days of replica groups on virtual time. A failure names its seed; `python -m tests.simulation.checkpoints --seed N` shows it."""

from __future__ import annotations

import pytest

from .history import DAY, HOUR, LONG, SHORT, STYLES, History, Report, simulate


def kept(report: Report) -> Report:
    assert report.violation is None, f"seed {report.seed} ({report.style}): {report.violation}"
    return report


@pytest.mark.parametrize("style", STYLES)
def test_promises_are_kept(style: str) -> None:
    kept(simulate(0, style, hours=4))


def test_most_of_the_time_is_used_and_turns_are_fair() -> None:
    report = kept(History("use", "calm", every=5.0).play(2 * HOUR))
    assert report.utilisation > 0.9
    assert report.spread <= 2


def test_the_time_out_follows_what_checkpoints_take() -> None:
    report = kept(History("steps", "steps").play(DAY / 2))

    def at(part: float) -> float:
        """Seconds of the time-out of the last turn granted in the first `part` of the history."""
        until = report.timeouts[0][0] + part * report.seconds * 1000
        return next(timeout for granted, timeout in reversed(report.timeouts) if granted <= until)

    # The longest of them, on the slowest clock that is allowed, and not half as much again.
    for part, longest in ((0.33, 1.5 * SHORT), (0.66, 1.5 * LONG), (0.99, 1.5 * SHORT)):
        assert longest / 0.7 < at(part) < 1.6 * longest / 0.7 + 60
    assert report.ends["limit"] <= 12


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = simulate(7, "trouble", hours=2), simulate(7, "trouble", hours=2)
    assert first.order == second.order and list(first.world.trace) == list(second.world.trace)


def test_what_goes_wrong_does_go_wrong() -> None:
    counts = simulate(1, "trouble").world.counts
    assert all(counts[what] > 0 for what in ("lost", "unknown", "crashes", "promotions", "revocations", "published"))
