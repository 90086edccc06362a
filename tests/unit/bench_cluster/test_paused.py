"""A process with a quarter of a core, which Linux stops for most of each tenth of a second."""

from __future__ import annotations

import pytest

from bench.cluster.instances import ClusterRun, Load, Outcome
from bench.cluster.paused import PausedLoop
from shared.whatif.twin.cpu import Charges

QUARTER = 0.25
CHARGES = Charges()


def test_process_is_stopped_once_it_has_used_its_share_of_a_period() -> None:
    loop = PausedLoop(QUARTER)
    loop.work(0.020)
    assert (loop.now, loop.stopped) == (pytest.approx(0.020), 0.0)
    loop.work(0.010)
    # 5 ms of it in the first period, and 5 in the next one.
    assert (loop.now, loop.stopped) == (pytest.approx(0.105), pytest.approx(0.075))
    loop.now = 0.3
    loop.work(0.025)
    assert (loop.now, loop.stopped) == (pytest.approx(0.325), pytest.approx(0.075))
    loop.close()


def test_whole_core_is_never_stopped() -> None:
    loop = PausedLoop(1.0)
    loop.work(0.5)
    assert (loop.now, loop.stopped) == (pytest.approx(0.5), 0.0)
    loop.close()


def herd(share: float, slower: float = 1.0) -> tuple[Outcome, float, int]:
    """Play 3,000 events that are due at one instant. Return the outcome, the seconds that the process was stopped, and the claims undone.

    slower: factor on all CPU.
    """
    charges = Charges(*(slower * getattr(CHARGES, name) for name in ("ingest", "fire", "request", "row")))
    run = ClusterRun(Load(3000, 0.0, 1, charges=charges, after=10.0, paused=share), lambda done, total: None)
    outcome = run.play()
    assert isinstance(run.loop, PausedLoop)
    return outcome, run.loop.stopped, run.instances[0].app.scheduler.counters["given_back"]


def test_pauses_are_taken_for_no_slow_receiver() -> None:
    """The window, claims and turns follow what the process measures, its own pauses included. They must cost no claim and little time."""
    paused, stopped, given_back = herd(QUARTER)
    slow, never, _ = herd(1.0, slower=1 / QUARTER)
    assert stopped > 0.5 and never == 0.0 and given_back == 0
    assert len(paused.late) == 3000 and paused.repeated == paused.failed == 0
    # A core that is slower by the same factor, and never stops, is hardly faster.
    assert paused.fired_rate > 0.85 * slow.fired_rate
    assert paused.cpu_firing > 0.85 * QUARTER
    assert paused.late[0] < 0.1


def test_same_herd_gives_the_same_outcome() -> None:
    assert herd(QUARTER)[0].late == herd(QUARTER)[0].late
