"""The order of requests: exact in a process, and by the bounds of storage's time between two."""

from __future__ import annotations

from shared.core.clock import SettableClock, to_text
from shared.core.ids import SeededIds
from shared.storage.server_time import ServerTimeEstimator, time_etag
from shared.web.arrivals import Arrivals, Receipt

START = 1_800_000_000_000


def process(clock: SettableClock, name: str) -> tuple[Arrivals, ServerTimeEstimator]:
    """Return the arrivals of a process, and the bounds that it has of storage's time: none yet."""
    times = ServerTimeEstimator(clock)
    return Arrivals(clock, (times,), name), times


def see(times: ServerTimeEstimator, clock: SettableClock, took: float = 4.0) -> None:
    """Let a process write a row: the answer shows storage's time, and took this many milliseconds."""
    at = times.elapsed()
    times.note(at - took / 2, at + took / 2, [time_etag(to_text(clock.now()), 1)])


def test_one_process_knows_the_order_of_its_requests_without_storages_time() -> None:
    clock = SettableClock(START)
    arrivals, _ = process(clock, "a")
    first, second = (arrivals.next().receipt() for _ in range(2))
    assert second.is_after(first) and not first.is_after(second) and not first.is_known


async def test_a_request_that_waited_for_its_process_comes_before_a_later_one() -> None:
    clock = SettableClock(START)
    arrivals, _ = process(clock, "a")
    await clock.advance(30)
    late = arrivals.next(waited=1.0)
    early = arrivals.next(waited=20.0)
    assert late.receipt().is_after(early.receipt()) and round(early.age) == 20


async def test_two_processes_compare_storages_time_as_soon_as_each_has_written_anything() -> None:
    clock = SettableClock(START)
    (one, times), (other, others) = process(clock, "a"), process(clock, "b")
    old = one.next()
    await clock.advance(0.05)
    new = other.next()
    assert not new.receipt().is_after(old.receipt()), "nothing is known"
    see(times, clock)
    assert not new.receipt().is_after(old.receipt()), "the later one's time is not known"
    see(others, clock)
    # The bounds hold for moments before the write too.
    assert new.receipt().is_after(old.receipt()) and not old.receipt().is_after(new.receipt())
    assert old.receipt().low <= START <= old.receipt().high


async def test_nobody_knows_the_order_within_the_error() -> None:
    clock = SettableClock(START)
    (one, times), (other, others) = process(clock, "a"), process(clock, "b")
    see(times, clock, 40)
    see(others, clock, 40)
    old = one.next().receipt()
    await clock.advance(0.03)
    new = other.next().receipt()
    assert not new.is_after(old) and not old.is_after(new)
    await clock.advance(0.06)
    assert other.next().receipt().is_after(old)


async def test_the_error_grows_while_a_process_writes_nothing() -> None:
    clock = SettableClock(START)
    arrivals, times = process(clock, "a")
    see(times, clock)
    soon = arrivals.next().receipt()
    await clock.advance(3600)
    late = arrivals.next().receipt()
    assert soon.high - soon.low < 10 and 1_400 < late.high - late.low < 1_500
    assert late.low <= clock.now() <= late.high


def test_a_receipt_is_known_again_by_process_and_number() -> None:
    name = SeededIds(1).name()
    assert Receipt(1, 2, name, 7).is_same(Receipt(0, 9, name, 7)) and not Receipt(1, 2, name, 7).is_same(Receipt(1, 2, "b", 7))
