"""The model of the service decides as production does, and keeps the main targets on a few platforms."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bench.flex.loads import FAR, LOADS, NEAR, bulk
from bench.flex.platform import Platform
from bench.flex.run import run
from bench.flex.service import Service, Shard
from shared.core.clock import SettableClock
from shared.engine.async_runner import AsyncRunner
from shared.scheduler.keys import HOME, index_key, index_partition, shard_key
from shared.scheduler.mirror.unmirrored import Mirror
from shared.scheduler.protocol.dispatch import parse_messages
from shared.scheduler.shard.gate import GATE, Counts, Gate
from shared.scheduler.sweeps.index import Sweeps
from shared.scheduler.wakes.rules import LOOK_FAR
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import ALL_QUEUES, ALL_TABLES, EVENTS, QUEUE_SHARDS, SHARDS
from shared.storage.ports import Insert

START = 1_800_000_000_000
DAY = 86_400.0


@pytest.mark.parametrize("wakes", ["auto", "off"])
async def test_a_look_of_the_model_sends_what_a_look_of_production_sends(wakes: str) -> None:
    random = Random(7)
    service = Service(Platform(row=0.0), wakes, DAY, 1)
    service.line.now = START
    clock = SettableClock(START)
    tables, queues = MemoryTables(clock), MemoryQueues(clock)
    await tables.ensure(ALL_TABLES)
    await queues.ensure(ALL_QUEUES)
    for number in range(400):
        wake, events, state = (
            START + random.randrange(-100_000, 500_000),
            random.choice((1, 2, 40, 990)),
            random.choice(("pending", "sent")),
        )
        service._shards[number] = Shard(number, wake, [wake] * events, wake // 60_000, state, written=wake)
        shard = shard_key("t", f"{HOME}{number:x}")
        props = {"state": state, "wake": wake, "bucket": "", "tenant": "t"}
        await tables.write(SHARDS, index_partition(shard), (Insert(index_key(shard, wake), props),))
        await tables.write(EVENTS, shard, (Insert(GATE, Gate("open", "", index=index_key(shard, wake), counts=Counts(events)).props()),))
    sent: list[tuple[int, int]] = []
    service.fire.send = lambda text, at: sent.append((max(at, START), 1 + text.count(",")))  # type: ignore[method-assign]

    runner = AsyncRunner(tables, clock, queues=queues)
    found = await Sweeps(runner, 100, Mirror(runner)).look(START, service.horizons, LOOK_FAR)
    steps = service._dispatch(LOOK_FAR, service.horizons)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        messages, unsent, near = end.value

    real = [(each.visible, len(parse_messages(each.text))) for each in queues._queues[QUEUE_SHARDS].messages.values()]
    assert sorted((-(-at // 1000) * 1000, shards) for at, shards in sent) == sorted(real)
    assert (sorted(messages), sorted(unsent), len(near)) == (sorted(found.messages), sorted(found.unsent), len(found.near))


@pytest.mark.parametrize("load", ["hour", "ten", "minute", "four"])
@pytest.mark.parametrize(("poll", "cold", "timers"), [(10, 6, "ahead"), (30, 15, "late"), (30, 10, "dead"), (5, 15, "stopped")])
def test_events_that_are_stored_two_minutes_ahead_are_punctual_from_zero(load: str, poll: float, cold: float, timers: str) -> None:
    platform = Platform(poll=poll, cold=cold, timers=timers)  # type: ignore[arg-type]
    found = run(load, platform, seconds={"hour": DAY, "ten": DAY / 2, "minute": DAY / 16, "four": DAY / 32}[load])
    assert found.events >= 20
    assert (found.late, found.undelivered) == (0.0, 0)
    assert found.p99 <= 20


@pytest.mark.parametrize("seed", [1, 3])
def test_four_events_a_minute_are_punctual_where_instances_go_after_20_seconds(seed: int) -> None:
    """No wake meets a cold process there, so the pause between messages stays as it is."""
    assert run("four", Platform(idle=20), seed=seed).late <= 0.001


@pytest.mark.parametrize(("load", "seconds", "usd"), [("idle", DAY, 1.5), ("hour", DAY, 1.5), ("ten", DAY / 2, 1.6)])
def test_the_bill_of_a_small_installation_keeps_its_target(load: str, seconds: float, usd: float) -> None:
    assert run(load, Platform(), seconds=seconds).usd <= usd


def test_without_wakes_the_model_has_late_events_from_zero() -> None:
    found = run("ten", Platform(), "off", seconds=DAY / 2)
    assert found.late > 0.9
    assert found.p50 > 5_000


@pytest.mark.parametrize("timers", ["dead", "stopped"])
def test_sweeps_go_on_without_the_timer(timers: str) -> None:
    found = run("ten", Platform(timers=timers), seconds=DAY / 2)  # type: ignore[arg-type]
    assert 0.8 <= found.sweeps_a_minute <= 1.1


def test_wakes_come_closer_together_where_instances_go_early() -> None:
    found = run("minute", Platform(idle=20), seconds=DAY / 4, stage=1)
    assert found.closed > 100
    assert found.late == 0.0


def test_messages_come_earlier_where_no_wake_keeps_an_instance() -> None:
    found = run("minute", Platform(votes=3), seconds=DAY / 8, stage=2)
    assert found.events > 80
    assert found.late == 0.0


@pytest.mark.parametrize(("load", "seconds", "usd"), [("minute", DAY / 8, 3.0), ("four", DAY / 16, 8.2)])
def test_the_bill_of_events_each_minute_keeps_its_target(load: str, seconds: float, usd: float) -> None:
    assert run(load, Platform(), seconds=seconds).usd <= usd


def test_events_that_are_stored_seconds_ahead_wait_for_a_cold_start() -> None:
    far, near = (run("ten", Platform(poll=30, cold=15), ahead=ahead, seconds=DAY / 2) for ahead in (FAR, NEAR))
    assert far.late == 0.0 < near.late


def test_a_bulk_gets_as_many_instances_as_without_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOADS, "bulk", replace(LOADS["bulk"], make=bulk(200_000)))
    wanted = [run("bulk", Platform(), mode).first_instances for mode in ("off", "auto")]
    assert 1 < wanted[0] <= wanted[1]


def test_the_events_of_a_herd_all_come() -> None:
    found = run("herd", Platform())
    assert (found.events, found.undelivered) == (5_000, 0)
