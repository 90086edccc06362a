"""The long measures of `--flex`: lone events at growing distances, a crowd, and events from zero."""

from __future__ import annotations

import itertools

from .plan import FlexPlan
from .run import Run
from .stage import Stage


def gap_kind(gap: float) -> str:
    """Return the kind of the events that follow another one after `gap` seconds."""
    return f"gap {gap:g}"


CROWD, ZERO, QUIET = "crowd", "zero", "quiet"


def measure(run: Run, stage: Stage, plan: FlexPlan) -> None:
    """Run the measures. They stand in the run's observations."""
    run.progress("storing the events of the long measures")
    due = plan.lead
    for _ in range(plan.passes):
        for gap in plan.gaps:
            due += gap
            run.post(stage, gap_kind(gap), due)
    due += plan.gaps[-1]
    step = plan.crowd_span / plan.crowd
    run.post_batch(stage, CROWD, [due + step * number for number in range(plan.crowd)])
    _listen_and_look(run, stage, due + plan.crowd_span, plan)
    kinds = (*map(gap_kind, plan.gaps), CROWD)
    run.await_all(stage, kinds, plan.patience, "events of the long measures")
    for number in range(plan.zeros):
        run.progress(f"{plan.silence:g} s without a request, {number + 1} of {plan.zeros}")
        run.listen(stage, plan.silence)
        run.post(stage, ZERO, plan.near)
        run.await_all(stage, (ZERO,), plan.patience, "an event from zero")
        run.post(stage, QUIET, 0)
        run.listen(stage, plan.silence / 5)
    run.look()
    run.read_missing(stage)


def _listen_and_look(run: Run, stage: Stage, seconds: float, plan: FlexPlan) -> None:
    """Read the queue for some seconds, and `readyz` from time to time."""
    ends_at = run.seconds + seconds
    for number in itertools.count(1):
        left = ends_at - run.seconds
        if left <= 0:
            return
        run.progress(f"{left:.0f} s left: lone events at distances of {plan.gaps[0]:g} to {plan.gaps[-1]:g} s")
        run.listen(stage, min(plan.look, left))
        if number * plan.look < seconds:
            run.look()
