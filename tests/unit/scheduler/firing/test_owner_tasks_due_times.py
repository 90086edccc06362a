"""The timer of an owner's events: each starts at its time, in order, and a large herd in portions."""

from __future__ import annotations

import asyncio

from shared.core.clock import SettableClock
from shared.scheduler.firing.owner_tasks import AT_ONCE, PREPARED_AHEAD, DueTimes

NOW = 1_800_000_000_000


class Starts:
    """Notes what was started, and when."""

    def __init__(self) -> None:
        self.clock = SettableClock(NOW)
        self.seen: list[tuple[str, int]] = []
        self.prepared: list[tuple[str, int]] = []
        self.due_times = DueTimes(
            self.clock,
            lambda name: self.seen.append((name, self.clock.now() - NOW)),
            lambda name: self.prepared.append((name, self.clock.now() - NOW)),
        )


async def test_events_start_at_their_times_in_any_order_of_adding() -> None:
    starts = Starts()
    starts.due_times.add(NOW + 3000, "c")
    await starts.clock.advance(1.0)
    starts.due_times.add(NOW + 2000, "b")
    starts.due_times.add(NOW - 5000, "overdue")
    await starts.clock.advance(0.5)
    starts.due_times.add(NOW + 2000, "b2")
    starts.due_times.add(NOW + 600_000, "far")
    await starts.clock.advance(10.0)
    assert starts.seen == [("overdue", 1000), ("b", 2000), ("b2", 2000), ("c", 3000)]
    await starts.clock.advance(600.0)
    assert starts.seen[-1] == ("far", 600_000)


async def test_a_clock_that_was_set_back_starts_nothing_early() -> None:
    starts = Starts()
    starts.due_times.add(NOW + 60_000, "a")
    await starts.clock.advance(30.0)
    starts.clock._start -= 20_000
    await starts.clock.advance(49.0)
    assert starts.seen == []
    await starts.clock.advance(1.1)
    assert starts.seen == [("a", 60_000)]


async def test_nothing_starts_after_the_end() -> None:
    starts = Starts()
    starts.due_times.add(NOW + 1000, "a")
    await starts.clock.advance(0.5)
    starts.due_times.close()
    await starts.clock.advance(5.0)
    assert starts.seen == []


async def test_other_work_gets_its_turn_while_a_herd_starts() -> None:
    starts, most = Starts(), 0
    for number in range(5 * AT_ONCE):
        starts.due_times.add(NOW, str(number))
    while len(starts.seen) < 5 * AT_ONCE:
        before = len(starts.seen)
        await asyncio.sleep(0)
        most = max(most, len(starts.seen) - before)
        if before == 0 and starts.seen:
            assert len(starts.seen) == 1
    assert most == AT_ONCE


async def test_the_first_event_after_a_pause_is_prepared_shortly_before_its_time() -> None:
    starts = Starts()
    for name, at in (("soon", 100), ("a", 1000), ("b", 1000 + PREPARED_AHEAD), ("c", 9000)):
        starts.due_times.add(NOW + at, name)
    await starts.clock.advance(10.0)
    assert [name for name, _ in starts.seen] == ["soon", "a", "b", "c"]
    assert starts.prepared == [("a", 1000 - PREPARED_AHEAD), ("c", 9000 - PREPARED_AHEAD)]
