"""Firing follows storage's time where a machine's clock is proven wrong, and the machine's clock in every other case."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from shared.core.clock import Millis, SettableClock, to_text
from shared.delivery.channels.fake import DELIVERED
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.scheduler.shard.event_clock import EventClock
from shared.storage import Storage, memory_storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.ports import Applied
from shared.storage.server_time import ServerTimeEstimator, etag_time, time_etag
from tests.faults import Faults, Perform, Request
from tests.unit.scheduler.harness import START, World

FAST: Millis = 119_000


class WrongClock(SettableClock):
    """A machine's clock that is `error` milliseconds ahead of storage's clock, which moves with it."""

    def __init__(self, error: Millis = FAST) -> None:
        super().__init__(START)
        self.error = error

    def now(self) -> Millis:
        return super().now() + self.error

    @property
    def true(self) -> Millis:
        return super().now()


class TrueTime:
    """Storage's clock: it moves with the machine's and has no error."""

    def __init__(self, machine: WrongClock) -> None:
        self._machine = machine

    def now(self) -> Millis:
        return self._machine.true

    def monotonic(self) -> float:
        return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._machine.sleep(seconds)


async def wrong_world(error: Millis) -> tuple[World, WrongClock, list[tuple[str, Millis]]]:
    """An application on a machine with a wrong clock, and its deliveries by the true time at which they arrived."""
    clock = WrongClock(error)
    world = World(clock=clock)
    world.storage = memory_storage(TrueTime(clock), clock)
    await world.open()
    return world, clock, recorded(world, clock)


def recorded(world: World, clock: WrongClock) -> list[tuple[str, Millis]]:
    arrived: list[tuple[str, Millis]] = []

    def answer(target: Target, delivery: OutgoingDelivery) -> Verdict:
        arrived.append((delivery.id, clock.true))
        return DELIVERED

    world.receiver.otherwise = answer
    return arrived


@pytest.mark.parametrize("error", [FAST, 5_000, -5_000, -FAST])
async def test_a_wrong_clock_delivers_nothing_early_and_nothing_late(error: Millis) -> None:
    world, _, arrived = await wrong_world(error)
    dues = {f"e{number}": START + 20_000 + number * 7_000 for number in range(20)}
    for event_id, due in dues.items():
        await world.demo.create(id=event_id, due=to_text(due))
    await world.run(181)
    assert {event_id for event_id, _ in arrived} == set(dues)
    for event_id, at in arrived:
        assert dues[event_id] <= at <= dues[event_id] + 50, f"{event_id} came {at - dues[event_id]} ms after its due time"
    await world.close()


async def test_a_delay_counts_from_storages_time() -> None:
    world, clock, arrived = await wrong_world(FAST)
    asked = clock.true
    await world.demo.create(delay="PT30S")
    await world.run(61)
    [(_, at)] = arrived
    assert asked + 30_000 <= at <= asked + 30_100
    await world.close()


async def test_the_occurrences_of_a_schedule_are_not_early() -> None:
    world, _, arrived = await wrong_world(FAST)
    schedule = {"every": "PT20S", "start": to_text(START + 20_000), "payload": 1}
    assert (await world.demo.put("/api/v1/schedules/s", schedule)).status == 201
    await world.run(121)
    assert len(arrived) >= 4
    for _, at in arrived:
        assert (at - START) % 20_000 <= 50
    await world.close()


def slow_tables(clock: TrueTime, times: ServerTimeEstimator) -> Faults:
    """Storage whose writes take three seconds: the request half of it, and the answer the other half."""

    async def plan(request: Request, perform: Perform) -> object:
        if request.kind != "write":
            return await perform()
        sent = times.elapsed()
        await clock.sleep(1.5)
        answer = await perform()
        await clock.sleep(1.5)
        if isinstance(answer, Applied):
            times.note(sent, times.elapsed(), answer.etags)
        return answer

    return Faults(MemoryTables(clock), plan)


@pytest.mark.parametrize("error", [0, FAST])
async def test_slow_storage_never_stops_deliveries(error: Millis, caplog: pytest.LogCaptureFixture) -> None:
    clock = WrongClock(error)
    world = World(clock=clock)
    times = ServerTimeEstimator(clock)
    tables = slow_tables(TrueTime(clock), times)
    world.storage = Storage(tables, MemoryQueues(TrueTime(clock)), server_times=(times,))
    await world.do(world.open())
    arrived = recorded(world, clock)
    for number in range(5):
        await world.demo.create(id=f"e{number}", due=to_text(clock.true + 40_000))
    with caplog.at_level(logging.WARNING):
        await world.run(121)
    assert len(arrived) == 5
    # Nothing is proven, so the clock is followed as it is, and a person is warned.
    assert world.app.scheduler.clock.finding().state == "wide" and world.app.scheduler.counters["clock_wide"]
    assert [record.action for record in caplog.records if record.action.startswith("clock")] == ["clock_unproved"]  # type: ignore[attr-defined]
    await world.close()


@pytest.mark.parametrize("error", [0, FAST])
async def test_an_instance_that_was_idle_for_an_hour_delivers_on_time(error: Millis) -> None:
    world, clock, arrived = await wrong_world(error)
    due = START + 3_600_000 + 60_000
    await world.demo.create(id="late", due=to_text(due))
    await clock.advance(3_600)
    await world.run(91)
    [(_, at)] = arrived
    assert due <= at <= due + 50
    await world.close()


async def test_hours_without_a_write_correct_nothing_until_the_next_one() -> None:
    clock = WrongClock()
    times = ServerTimeEstimator(clock)
    events = EventClock(clock, (times,), Counter())
    assert (events.finding().state, events.now()) == ("missing", clock.now())
    moment = times.elapsed()
    times.note(moment, moment, [time_etag(to_text(clock.true), 1)])
    assert events.finding().state == "wrong" and 0 <= clock.true - events.now() <= 3
    await clock.advance(2 * 3_600)
    assert (events.finding().state, events.now()) == ("wide", clock.now())
    moment = times.elapsed()
    times.note(moment, moment, [time_etag(to_text(clock.true), 2)])
    assert events.finding().state == "wrong" and 0 <= clock.true - events.now() <= 3


async def test_a_good_clock_is_not_touched() -> None:
    clock = WrongClock(0)
    times = ServerTimeEstimator(clock)
    events = EventClock(clock, (times,), Counter())
    for version in range(100):
        sent = times.elapsed()
        await clock.advance(0.004)
        written = to_text(clock.true)
        await clock.advance(0.003)
        times.note(sent, times.elapsed(), ["", time_etag(written, version)])
        assert events.now() == clock.now()
    assert events.finding().state == "good" and times.samples == 100


@pytest.mark.parametrize("error", [FAST, -FAST])
@pytest.mark.parametrize("paused_for", [90, 5_500, 9_000])
async def test_a_process_that_was_paused_for_longer_than_its_bounds_hold_delivers_nothing_early(error: Millis, paused_for: int) -> None:
    world, clock, arrived = await wrong_world(error)
    resumes = START + (15 + paused_for) * 1_000
    dues = {f"b{number}": START + 20_000 + number * 1_000 for number in range(20)}
    dues |= {f"a{number}": resumes + 5_000 + number * 9_000 for number in range(20)}
    for event_id, due in dues.items():
        await world.demo.create(id=event_id, due=to_text(due))
    await world.run(START / 1000 + 15 - clock.true / 1000)
    # The owner of the first minute has claims by now. Nothing of the process runs during the pause.
    clock._elapsed += paused_for
    await world.run(260)
    assert {event_id for event_id, _ in arrived} == set(dues)
    assert [event_id for event_id, at in arrived if at < dues[event_id]] == []
    await world.close()


class PausedClock(WrongClock):
    """A clock whose process is paused after readings of the wall clock. pauses: their lengths in seconds, the next one first."""

    def __init__(self, error: Millis) -> None:
        super().__init__(error)
        self.pauses: list[float] = []

    def now(self) -> Millis:
        found = super().now()
        if self.pauses:
            self._elapsed += self.pauses.pop(0)
        return found


@pytest.mark.parametrize("error", [FAST, 300, -300, -FAST])
@pytest.mark.parametrize("pauses", [[200.0], [200.0, 0.5], [300.0, 200.0, 0.4], [0.25, 0.2, 0.2]])
async def test_a_pause_of_the_process_during_a_reading_does_not_leave_a_wrong_clock_as_it_is(error: Millis, pauses: list[float]) -> None:
    clock = PausedClock(error)
    times = ServerTimeEstimator(clock)
    events = EventClock(clock, (times,), Counter())
    moment = times.elapsed()
    times.note(moment, moment, [time_etag(to_text(clock.true), 1)])
    clock.pauses = list(pauses)
    found = events.now()
    # 200 ppm of these pauses on both sides, and the shortest reading.
    assert clock.true - 1_000 <= found <= clock.true
    clock.pauses = list(pauses)
    assert events.finding().state == "wrong"


async def test_a_process_that_is_paused_in_every_reading_still_decides() -> None:
    clock = PausedClock(FAST)
    times = ServerTimeEstimator(clock)
    events = EventClock(clock, (times,), Counter())
    moment = times.elapsed()
    times.note(moment, moment, [time_etag(to_text(clock.true), 1)])
    clock.pauses = [200.0] * 1_000
    before = clock.true
    assert before <= events.now() <= clock.true + FAST
    assert len(clock.pauses) == 1_000 - 4


async def test_the_next_account_judges_where_the_home_account_gives_no_bounds() -> None:
    clock = WrongClock()
    home, other = ServerTimeEstimator(clock), ServerTimeEstimator(clock)
    events = EventClock(clock, (home, other), Counter())
    moment = other.elapsed()
    other.note(moment, moment, [time_etag(to_text(clock.true), 1)])
    assert events.finding().state == "wrong" and events.now() <= clock.true


async def test_the_next_account_judges_where_the_bounds_of_the_home_account_are_too_old() -> None:
    clock = WrongClock()
    home, other = ServerTimeEstimator(clock), ServerTimeEstimator(clock)
    events = EventClock(clock, (home, other), Counter())
    home.note(home.elapsed() - 1_500.0, home.elapsed(), [time_etag(to_text(clock.now()), 1)])
    assert events.now() == clock.now()
    await clock.advance(7_200)
    moment = other.elapsed()
    other.note(moment, moment, [time_etag(to_text(clock.true), 1)])
    assert events.finding().state == "wrong" and events.now() <= clock.true


async def test_a_proven_offset_is_logged_once_in_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    clock = WrongClock()
    times = ServerTimeEstimator(clock)
    counters: Counter[str] = Counter()
    events = EventClock(clock, (times,), counters)
    moment = times.elapsed()
    times.note(moment, moment, [time_etag(to_text(clock.true), 1)])
    for _ in range(20):
        events.check()
        await clock.advance(60)
    assert counters["clock_wrong"] == 20
    assert [record.action for record in caplog.records] == ["clock_wrong"] * 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("etag", "at"),
    [
        ("W/\"datetime'2026-11-22T20%3A52%3A57.1234567Z'\"", "2026-11-22T20:52:57.123Z"),
        ("W/\"datetime'2026-11-22T20:52:57.12Z'\"", "2026-11-22T20:52:57.120Z"),
        ("W/\"datetime'2026-11-22T20%3A52%3A57Z'\"", "2026-11-22T20:52:57.000Z"),
        ("W/\"datetime'2026-13-22T20%3A52%3A57Z'\"", None),
        ('W/"0x8D4"', None),
        ("", None),
    ],
)
def test_the_time_in_an_etag(etag: str, at: str | None) -> None:
    found = etag_time(etag)
    assert (None if found is None else to_text(found)) == at
