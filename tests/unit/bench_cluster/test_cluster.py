"""The model of several instances: what a core and an account give, and what follows for events."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.cluster.chart import draw
from bench.cluster.instances import Load, Outcome, play
from shared.core.errors import OutcomeUnknown
from shared.scheduler import rules
from shared.storage.names import EVENTS
from shared.storage.ports import Applied, Insert
from shared.whatif.twin.cpu import Charges, SharedCores, VirtualProcessor
from shared.whatif.twin.loop import LoopClock, VirtualLoop
from shared.whatif.twin.storage import AccountConnection, LimitedAccount, LimitedTables, StorageLimits

FREE = Charges(0.0, 0.0, 0.0, 0.0)


def on_virtual_time[T](work: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def used(cores: SharedCores | None, processes: int) -> tuple[float, ...]:
    """Return when each of two pieces of a second of work ends, of one process or of two."""
    loop = VirtualLoop()
    process = [VirtualProcessor(cores or SharedCores()) for _ in range(processes)]

    async def work() -> tuple[float, ...]:
        async def piece(number: int) -> float:
            await process[number % processes].use(1.0)
            return loop.time()

        return tuple(await asyncio.gather(piece(0), piece(1)))

    return on_virtual_time(work(), loop)


def test_process_does_one_thing_at_a_time_even_on_two_cores() -> None:
    assert used(None, 1) == used(SharedCores(2), 1) == (1.0, 2.0)


def test_processes_share_the_cores_of_a_machine() -> None:
    assert used(None, 2) == used(SharedCores(2), 2) == (1.0, 1.0)
    assert used(SharedCores(1), 2) == (1.0, 2.0)
    # In turns, both end late.
    assert used(SharedCores(1, 0.25), 2) == (1.75, 2.0)


def writes(limits: StorageLimits, partitions: list[str], pause: float = 0.0) -> tuple[list[bool], LimitedAccount]:
    """Write a row into each partition, one after the other. Return for each whether it was accepted."""
    loop = VirtualLoop()
    clock = LoopClock(loop)
    account = LimitedAccount(clock, limits)
    tables = LimitedTables(AccountConnection(account, VirtualProcessor(), FREE, clock, Random(1)), clock)

    async def one(number: int, pk: str) -> bool:
        try:
            return isinstance(await tables.write(EVENTS, pk, [Insert(f"{number}", {"a": 1})]), Applied)
        except OutcomeUnknown:
            return False

    async def work() -> list[bool]:
        await tables.ensure([EVENTS])
        done = []
        for number, pk in enumerate(partitions):
            done.append(await one(number, pk))
            await asyncio.sleep(pause)
        return done

    return on_virtual_time(work(), loop), account


def test_account_refuses_more_than_its_limits_in_a_second() -> None:
    few = StorageLimits(account=5, partition=3, least=0.0, most=0.0)
    accepted, account = writes(few, ["a"] * 4 + ["b"] * 4)
    assert accepted == [True] * 3 + [False] + [True] * 2 + [False] * 2
    assert account.refused == {"partition": 1, "account": 2}
    assert account.entities == {0: 5}


def test_account_accepts_its_limit_all_the_time() -> None:
    accepted, account = writes(StorageLimits(account=5, partition=4, least=0.0, most=0.0), ["a"] * 40, pause=0.25)
    assert all(accepted) and not account.refused


def one_instance(fire: float, over: float = 1.0) -> Outcome:
    return play(Load(1980, over, 1, charges=replace(FREE, fire=fire)))


def test_every_event_is_delivered_once_and_on_time_while_there_is_cpu() -> None:
    found = one_instance(20e-6)
    assert len(found.late) == 1980 and found.repeated == found.failed == 0 and found.refused.total() == 0
    assert found.late[0] >= 0 and found.late[-1] < 0.1
    assert found.fired_in == pytest.approx(1.0, abs=0.05)


def test_throughput_falls_in_proportion_once_cpu_binds() -> None:
    once, twice = one_instance(2e-3), one_instance(4e-3)
    assert once.fired_rate == pytest.approx(500, rel=0.1)
    assert twice.fired_rate / once.fired_rate == pytest.approx(0.5, rel=0.1)
    assert twice.cpu_firing > 0.9


def test_burst_is_shared_by_instances_that_poll_at_different_times(monkeypatch: pytest.MonkeyPatch) -> None:
    # A hundred full shards of the same second, each in a slot of its own: without sharing, the first instance to poll fills its slots.
    monkeypatch.setattr(rules, "MANY_EVENTS", 40)
    monkeypatch.setattr(rules, "WAKE_EARLY_EACH", 80)
    found = play(Load(4000, 1.0, 2, 4, charges=FREE, shard=40, size=2000))
    assert len(found.late) == 4000 and found.repeated == found.failed == 0 and found.late[-1] < 0.5
    assert min(found.shares) >= 0.4 * 4000


def test_same_load_gives_the_same_outcome() -> None:
    load = Load(990, 0.5, 2, 2)
    one, other = play(load), play(load)
    assert (one.late, one.shares, one.stored_in) == (other.late, other.shares, other.stored_in)


def test_chart_shows_each_run_at_its_place() -> None:
    runs = [{"instances": count, "stored_per_second": 1000 * count, "fired_per_second": 250 * count} for count in (1, 2, 4)]
    drawn = ElementTree.fromstring(draw(runs))
    kept = {"{http://www.w3.org/2000/svg}polyline": "points"}
    stored, fired = (each.attrib[kept[each.tag]] for each in drawn if each.tag in kept)
    # Twice as many instances and events are twice as far from the corner, and 4,000 of 5,000 a second are four fifths up.
    assert stored == "214.0,257.6 348.0,203.2 616.0,94.4"
    assert fired == "214.0,298.4 348.0,284.8 616.0,257.6"
