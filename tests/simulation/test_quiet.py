"""Little traffic costs little: functions run briefly for events that come one by one, and the events are punctual all the same."""

from __future__ import annotations

import pytest

from shared.delivery.channels.ports import Verdict
from tests.simulation.world.quiet import Figures, Traffic, play

SOON = Traffic(per_minute=4, minutes=30, lead=(6.0, 11.0), evenly=True, seed=3)
LATER = Traffic(per_minute=3, minutes=30, lead=(61.0, 119.0), evenly=True, seed=3)


@pytest.fixture(scope="module", params=[SOON, LATER], ids=["soon", "in a later minute"])
def lone(request: pytest.FixtureRequest) -> Figures:
    return play(request.param)


def test_owner_of_a_lone_event_runs_for_two_seconds_on_average(lone: Figures) -> None:
    assert lone.unfinished == 0 and len(lone.late) >= 90
    assert lone.per_event <= 1.0, "one execution serves it"
    assert lone.mean_run * lone.per_event <= 2.1 and lone.busy / len(lone.late) <= 2.3


def test_lone_event_is_punctual_and_never_early(lone: Figures) -> None:
    assert min(lone.late) >= 0 and lone.late_at(0.5) <= 20 and lone.late_at(0.99) <= 100


def test_owner_does_not_wait_for_an_event_that_is_due_much_later() -> None:
    found = play(Traffic(per_minute=4, minutes=10, lead=(90.0, 150.0)))
    assert max(each.took for each in found.executions) < 15 and found.busy < 0.17 * found.seconds
    assert found.late_at(0.9) <= 100 and min(found.late) >= 0


def test_no_function_runs_while_a_retry_waits() -> None:
    answers = iter([Verdict("retry", 503, "answered 503"), Verdict("delivered", 200)] * 20)
    found = play(Traffic(per_minute=4, minutes=5, lead=(6.0, 11.0), evenly=True, answers=lambda _: next(answers), retries=(5.0, 60.0)))
    assert found.unfinished == 0 and found.mean_run <= 2.0


def test_many_tenants_with_few_events_are_punctual_and_share_executions() -> None:
    found = play(Traffic(per_minute=1800, minutes=0.4, lead=(5.0, 30.0), tenants=300))
    assert found.unfinished == 0 and min(found.late) >= 0 and found.late_at(0.99) <= 50
    assert found.per_event < 0.4, "some 0.9 shards an event"


def test_steady_stream_shares_shards() -> None:
    found = play(Traffic(per_minute=300, minutes=0.6))
    assert found.per_event < 0.1 and found.requests.total() < 3.5 * len(found.late)
    assert found.late_at(0.99) <= 20 and min(found.late) >= 0
