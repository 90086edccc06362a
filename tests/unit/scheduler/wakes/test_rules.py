"""The decisions about wakes, on random plans and indexes: W2, W4 and W5 of tests/model/wakes at the gaps that production uses."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.clock import Millis
from shared.scheduler.timings import ANNOUNCE_TOGETHER, DISPATCH_AHEAD, MINUTE, SEND_AHEAD, SEND_ALONE, WAKE_EARLY
from shared.scheduler.wakes.rules import (
    APART,
    CLOSE_FOR,
    COMES_AFTER,
    DISPATCHED_WITHIN,
    FOUND_BEFORE,
    GAP,
    GAP_CLOSE,
    GAP_MARGIN,
    GAP_NONE,
    KEPT,
    LOOK_BEFORE,
    LOOK_EVERY,
    LOOK_EVERY_ALONE,
    LOOK_FAR,
    LOOKS_MISSING,
    MOST_COLD,
    MOST_WAKES,
    OWNER_STAYS,
    PLAN,
    TAKEN_LATE,
    Plan,
    after_wake,
    is_covered,
    planned_wakes,
    wakes_for,
)
from shared.storage.ports import MAX_STRING_UNITS

NOW: Millis = 1_700_000_000_000
GAPS = st.sampled_from((5_000, GAP_CLOSE, GAP, 60_000))
WHOLE_SECOND: Millis = 1_000
"""A queue shows a message up to this much later."""
ROUNDED: Millis = 1
"""Times are rounded to milliseconds."""


class Seen(NamedTuple):
    """The findings of a look, and the plan."""

    plan: Plan
    messages: list[Millis]
    unsent: list[Millis]
    gap: Millis
    alive: bool
    alone: bool

    def planned(self, now: Millis = NOW) -> list[Millis]:
        return planned_wakes(self.plan, self.messages, self.unsent, now, self.gap, alive=self.alive, alone=self.alone)

    def queued(self) -> list[Millis]:
        """The wakes that are in the queue after the look."""
        return sorted([*(wake for wake in self.plan.wakes if wake > NOW + COMES_AFTER), *self.planned()])


def times(least: Millis, most: Millis, size: int = 6) -> st.SearchStrategy[list[Millis]]:
    return st.lists(st.integers(least, most), max_size=size).map(lambda found: sorted(NOW + each for each in found))


PLANS = st.builds(
    lambda wakes, woke: Plan(NOW - 1, NOW - woke, tuple(sorted(set(wakes)))),
    times(-KEPT, 3 * LOOK_EVERY, 8),
    st.sampled_from((0, 1_000, 30_000, NOW)),
)


@st.composite
def seen(draw: st.DrawFn) -> Seen:
    sent = draw(times(-MINUTE, SEND_AHEAD))
    unsent = draw(times(-MINUTE, LOOK_FAR))
    return Seen(draw(PLANS), sorted([*sent, *unsent]), unsent, draw(GAPS), draw(st.booleans()), draw(st.booleans()))


@given(seen())
def test_planned_wakes_are_in_order_and_to_come(found: Seen) -> None:
    new = found.planned()

    assert new == sorted(new)
    assert all(each > NOW for each in new)


@given(seen())
def test_a_wake_finds_each_shard_in_time(found: Seen) -> None:
    """Two minutes before its message, or, where wakes are planned, before the message itself."""
    for message in found.unsent:
        if message > NOW:
            before = FOUND_BEFORE - WHOLE_SECOND if message <= NOW + DISPATCH_AHEAD else LOOK_BEFORE
            assert found.queued()[0] <= max(NOW + APART + WHOLE_SECOND, message - before)


@given(seen())
def test_two_wakes_are_queued_so_that_the_loss_of_one_costs_no_more_than_the_time_between_two_looks(found: Seen) -> None:
    every = LOOK_EVERY_ALONE if found.alone else LOOK_EVERY
    first, second, *_ = found.queued()

    assert first <= NOW + every + 1_000
    assert second <= max(first + APART, NOW + every)


@given(seen())
def test_no_pause_is_longer_than_the_gap_in_the_last_two_minutes_before_a_message(found: Seen) -> None:
    near = [each for each in found.messages if NOW < each <= NOW + DISPATCH_AHEAD]
    for message in near:
        since = max(NOW, message - LOOK_BEFORE)
        points = sorted({since, *(each for each in [*near, *found.queued()] if since < each <= message)})
        # An owner works for a while after its shard's message.
        free = accumulate((each + OWNER_STAYS * (each in near) for each in points), max)
        longest = max(after - before for before, after in zip(free, points[1:], strict=False))
        # Before the first of them nobody need be alive, and a wake takes a moment to come.
        assert longest <= found.gap + COMES_AFTER + ROUNDED
        if found.alive:
            assert longest <= found.gap + (COMES_AFTER if since == NOW else 0) + ROUNDED


@given(seen())
def test_a_pause_before_a_shards_message_is_shorter_because_no_wake_watches_it(found: Seen) -> None:
    points = sorted({*(each for each in found.messages if each > NOW), *found.queued()})
    for message in found.messages:
        if NOW < message <= NOW + DISPATCH_AHEAD:
            before = max((each for each in points if each < message), default=NOW)
            assert message - before <= found.gap - GAP_MARGIN + (COMES_AFTER if before < NOW + COMES_AFTER else 0)


@given(seen())
def test_without_a_pause_that_is_short_enough_wakes_find_shards_and_fill_nothing(found: Seen) -> None:
    found = found._replace(gap=GAP_NONE)

    assert len(found.planned()) <= 2
    for message in found.unsent:
        if message > NOW:
            assert found.queued()[0] <= max(NOW + APART + COMES_AFTER, message - LOOK_BEFORE)


@given(seen())
def test_the_number_of_wakes_does_not_grow_with_the_number_of_shards(found: Seen) -> None:
    assert len(found.planned()) <= DISPATCH_AHEAD // found.gap + 3


@given(seen())
def test_a_look_right_after_another_one_sends_nothing(found: Seen) -> None:
    plan = found.plan.with_wakes(found.planned(), NOW)._replace(woke=NOW if found.alive else found.plan.woke)

    assert found._replace(plan=plan, unsent=[]).planned() == []


@given(PLANS, st.integers(-MINUTE, LOOK_EVERY), GAPS, st.booleans(), st.booleans())
def test_the_wakes_of_a_filer_find_its_shard_in_time(plan: Plan, ahead: Millis, gap: Millis, sent: bool, warm: bool) -> None:
    message = NOW + ahead
    if is_covered(plan, message, NOW, gap, sent=sent, warm=warm):
        return
    new = wakes_for(message, NOW, gap, sent=sent, warm=warm)

    assert len(new) in ((1, 2) if sent else (2,))
    assert all(each >= NOW for each in new)
    assert new[0] <= max(NOW + gap if warm else NOW, message - LOOK_BEFORE)
    assert all(each <= max(NOW, message - DISPATCHED_WITHIN) for each in new)


@given(PLANS, st.integers(0, LOOK_EVERY), GAPS, st.booleans(), st.booleans())
def test_a_shard_is_covered_once_its_wakes_are_in_the_plan(plan: Plan, ahead: Millis, gap: Millis, sent: bool, warm: bool) -> None:
    """Otherwise each further shard of that time would add wakes until a look has run."""
    # What wakes sooner than a queue shows it comes too late in any case.
    message = NOW + COMES_AFTER + DISPATCHED_WITHIN + 1 + ahead
    new = () if is_covered(plan, message, NOW, gap, sent=sent, warm=warm) else wakes_for(message, NOW, gap, sent=sent, warm=warm)

    assert is_covered(plan.with_wakes(new, NOW), message, NOW, gap, sent=sent, warm=warm)


@given(PLANS, st.integers(-MINUTE, LOOK_EVERY), GAPS)
def test_a_message_that_nobody_sends_is_covered_by_a_wake_to_come_only(plan: Plan, ahead: Millis, gap: Millis) -> None:
    if is_covered(plan, NOW + ahead, NOW, gap, sent=False):
        first = min(wake for wake in plan.wakes if wake > NOW + COMES_AFTER)
        assert first <= NOW + ahead - DISPATCHED_WITHIN


@given(st.lists(st.integers(-2 * KEPT, LOOK_EVERY), max_size=3 * MOST_WAKES))
def test_the_plan_names_the_nearest_wakes_and_fits_its_row(offsets: list[Millis]) -> None:
    wakes = [NOW + each for each in offsets]
    plan = Plan().with_wakes(wakes, NOW)

    assert [each for each in plan.wakes if each > NOW] == sorted({each for each in wakes if each > NOW})[:MOST_WAKES]
    assert all(each > NOW - KEPT for each in plan.wakes)
    assert PLAN.decode(PLAN.encode(plan)) == plan
    assert len(str(PLAN.encode(plan)["wakes"])) < MAX_STRING_UNITS


@pytest.mark.parametrize(("alone", "every"), [(False, LOOK_EVERY), (True, LOOK_EVERY_ALONE)])
def test_an_idle_installation_has_two_wakes_in_the_time_between_two_looks(alone: bool, every: Millis) -> None:
    plan, queue, looks = Plan(), [NOW], Counter[Millis]()
    while queue and queue[0] < NOW + 20 * every:
        now = queue.pop(0)
        looks[(now - NOW) // every] += 1
        new = planned_wakes(plan, [], [], now, GAP, alive=True, alone=alone)
        plan = plan.with_wakes(new, now)._replace(looked=now, woke=now)
        queue = sorted([*queue, *new])
        assert len(queue) <= 2

    assert set(looks.values()) == {1, 2}


@pytest.mark.parametrize("seed", range(5))
def test_wakes_that_the_plan_does_not_name_are_not_replaced(seed: int) -> None:
    """Extra messages of writers with cold caches, of doubled messages and of lost plans go away by themselves."""
    random = Random(seed)
    queue = sorted(NOW + random.randrange(LOOK_EVERY) for _ in range(100))
    plan = Plan()
    while (now := queue.pop(0)) < NOW + 4 * LOOK_EVERY:
        new = planned_wakes(plan, [], [], now, GAP, alive=True, alone=False)
        plan = plan.with_wakes(new, now)._replace(looked=now, woke=now)
        queue = sorted([*queue, *new])

    assert len(queue) <= 2


def test_far_wakes_do_not_hide_the_near_ones() -> None:
    hour = NOW + 60 * MINUTE
    plan = Plan(wakes=tuple(hour + 1_000 * each for each in range(MOST_WAKES)))
    queue = [NOW]
    for _ in range(20):
        now = queue.pop(0)
        new = planned_wakes(plan, [], [], now, GAP, alive=True, alone=False)
        plan = plan.with_wakes(new, now)._replace(woke=now)
        queue = sorted([*queue, *new])
        assert len(queue) <= 2


def test_wakes_of_the_plan_count_as_lost_once_nobody_has_looked_for_two_minutes() -> None:
    plan = Plan(looked=NOW, wakes=(NOW + 100_000, NOW + 300_000))

    assert plan.trusted(NOW + LOOKS_MISSING - 1, NOW + LOOKS_MISSING) == plan
    assert plan.trusted(NOW + LOOKS_MISSING, NOW + LOOKS_MISSING).wakes == (NOW + 100_000,)


def test_wakes_that_meet_cold_processes_come_closer_together_for_a_day() -> None:
    plan, now = Plan(woke=NOW), NOW
    for _ in range(MOST_COLD + 1):
        assert plan.gap(now) == GAP
        # The controller sees the message, and a process starts for it.
        at, now = now + GAP, now + GAP + 12_000
        plan = after_wake(plan, at, now, started=now - 1_000)._replace(woke=now)

    assert plan.gap(now) == GAP_CLOSE
    assert plan.gap(now + CLOSE_FOR) == GAP


def test_messages_come_earlier_if_wakes_meet_cold_processes_however_close_they_come() -> None:
    plan, now = Plan(woke=NOW, close_until=NOW + CLOSE_FOR), NOW
    for _ in range(MOST_COLD + 1):
        assert plan.gap(now) == GAP_CLOSE
        at, now = now + GAP_CLOSE, now + GAP_CLOSE + 12_000
        plan = after_wake(plan, at, now, started=now - 1_000)._replace(woke=now)

    assert plan.gap(now) == plan.gap(now + CLOSE_FOR - 1) == GAP_NONE
    assert plan.gap(now + CLOSE_FOR) == GAP, "it is tried again"
    assert after_wake(plan, now + 500, now + 1_000, started=now + 600) == plan, "no pause is promised"


def test_processes_that_live_leave_the_gap_as_it_is() -> None:
    plan, now = Plan(woke=NOW), NOW
    for _ in range(100):
        now += GAP
        plan = after_wake(plan, now, now, started=NOW - 1)._replace(woke=now)

    assert plan.gap(now) == GAP


def test_further_processes_that_the_platform_starts_leave_the_gap_as_it_is() -> None:
    plan, now = Plan(woke=NOW), NOW
    for _ in range(100):
        before, now = now, now + GAP
        plan = after_wake(plan, now, now + 1_000, started=before + 1)._replace(woke=now)

    assert plan.gap(now) == GAP


def test_a_shards_message_leaves_room_for_the_queue_the_poll_and_the_owner() -> None:
    poll, owner = TAKEN_LATE, 400

    assert WHOLE_SECOND + poll + owner == WAKE_EARLY


def test_the_pause_between_two_messages_ends_before_an_idle_instance_is_taken_away() -> None:
    idle, poll = 30_000, TAKEN_LATE

    assert GAP + WHOLE_SECOND + poll + ANNOUNCE_TOGETHER < idle
    assert SEND_ALONE > DISPATCHED_WITHIN + TAKEN_LATE
