"""The chain: every occurrence becomes one event, whatever dies, is slow, or happens twice at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shared.core.clock import Millis
from shared.core.errors import Unavailable
from shared.scheduler import timings
from shared.scheduler.recurring import chain, rules
from shared.scheduler.recurring.definition import Definition, event_ids
from shared.storage.ports import Page, RowQuery
from shared.web.local_client import LocalReply
from tests.unit.scheduler.harness import START, World, drive

from .faults import MINUTE, URL, Frail, live, minutes, raced, sweep, sweeps

SCHEDULE = {"cron": "* * * * *", "payload": {"v": 1}}
LEAD, REST = 90, 31
"""Seconds of sweeps, and then without: two occurrences are past, one is an event already, and one is to become one."""
TAIL = 240

type Step = Callable[[World], Any]

CALLS: dict[str, tuple[str, str, Any]] = {
    "put": ("PUT", URL, {**SCHEDULE, "payload": {"v": 2}}),
    "put jittered": ("PUT", URL, {**SCHEDULE, "jitter": "PT40S"}),
    "put another rule": ("PUT", URL, {**SCHEDULE, "cron": "*/2 * * * *"}),
    "pause": ("POST", f"{URL}/pause", None),
    "resume": ("POST", f"{URL}/resume", None),
    "delete": ("DELETE", URL, None),
}


async def call(world: World, name: str) -> LocalReply:
    return await world.demo.without_time().call(CALLS[name][0], CALLS[name][1], CALLS[name][2])


async def prepared(name: str) -> tuple[World, Frail]:
    """A world whose schedule has run for a while, and is paused if it is to be resumed."""
    world = await World().open()
    frail = Frail(world)
    assert (await world.demo.put(URL, SCHEDULE)).status == 201
    await sweeps(world, LEAD)
    if name == "resume":
        await world.demo.post(f"{URL}/pause")
    await world.clock.advance(REST, settle=3)
    return world, frail


async def verify(world: World, name: str, acted: Millis, acknowledged: bool) -> None:
    """Each occurrence has one event, and what is paused or deleted has none."""
    end = world.now
    found = live(world)
    assert all(len(ids) == 1 for ids in found.values()), "fired twice"
    stands = await world.demo.get(URL)
    was, still = minutes(START, acted), minutes(acted, end)
    if name == "resume":
        was, never = minutes(START, START + LEAD * 1000), minutes(START + LEAD * 1000, acted)
        assert [at for at in never if at in found] == [], "fires what occurred while paused"
    if acknowledged:
        assert (stands.status == 404) == (name == "delete")
        assert name not in ("pause", "resume") or stands.json()["paused"] == (name == "pause")
    if stands.status == 404 or stands.json()["paused"]:
        assert [at for at in found if at > acted] == [], "fires although it is stopped"
        assert [at for at in was if at not in found] == []
        return
    if stands.json()["cron"] == "*/2 * * * *":
        still = [at for at in still if at // MINUTE % 2 == 0]
        assert [at for at in found if at > acted and at // MINUTE % 2] == [], "fires by the former rule"
    assert [at for at in (*was, *still) if at not in found] == [], "never fired"


async def settled(world: World) -> None:
    """A few minutes of sweeps: whatever was left half-way is finished."""
    await sweeps(world, TAIL)


# ---- a process dies


@pytest.mark.parametrize("name", ["sweep", "delete"])
async def test_death_at_any_write_neither_loses_nor_doubles_an_occurrence(name: str) -> None:
    """`prove_recurring` tries all calls."""
    await die_at_each_write(name)


async def die_at_each_write(name: str) -> int:
    """Cut the step off at its first write, its second, and so on, in four ways. Return the number of writes in all."""
    writes = 0
    for applied in (False, True):
        for again in (False, True):
            die_at = 1
            while await dies(name, die_at, applied, again):
                die_at += 1
            assert die_at > 3, "the process never died: nothing was tried"
            writes += die_at - 1
    return writes


async def dies(name: str, die_at: int, applied: bool, again: bool) -> bool:
    """One life: the step is cut off at a write, another process comes. False when the step has fewer writes."""
    world, frail = await prepared(name)
    try:
        frail.writes, frail.die_at, frail.applied = 0, die_at, applied
        acted, acknowledged = world.now, False
        if name == "sweep":
            await drive(world.clock, sweep(world))
        else:
            acknowledged = (await drive(world.clock, call(world, name))).status < 300
        died = frail.dead
        await frail.restart()
        if died and again and name != "sweep":
            # The client got 503 and repeats its request. A deletion that was applied answers 404 then.
            reply = await drive(world.clock, call(world, name))
            assert reply.status in ((204, 404) if name == "delete" else (200,))
            acknowledged = True
        await settled(world)
        await verify(world, name, acted, acknowledged)
        return died
    finally:
        await world.close()


@pytest.mark.parametrize("silence", [100, 119, 175])
async def test_silent_timer_loses_nothing_that_is_a_minute_late_at_most(world: World, silence: int) -> None:
    await world.demo.put(URL, SCHEDULE | {"catch_up": {"policy": "none"}})
    await world.clock.advance(silence, settle=3)
    await drive(world.clock, sweep(world))
    found = live(world)
    assert sorted(found) == minutes(START, world.now + timings.OCCURRENCES_AHEAD)
    assert all(len(ids) == 1 for ids in found.values())


# ---- partitions without work


async def test_partition_without_near_occurrences_is_read_by_every_other_sweep(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    query = world.tables.query

    async def counted(asked: RowQuery) -> Page:
        read.append(asked.pk)
        return await query(asked)

    monkeypatch.setattr(world.tables, "query", counted)
    chain, per_sweep = world.app.scheduler.recurring.chain, []
    for _ in range(4):
        read.clear()
        await drive(world.clock, chain.sweep(world.now))
        per_sweep.append(len(read))
        await world.clock.advance(60, settle=3)
    assert per_sweep == [16, 0, 16, 0]


async def test_schedule_whose_first_events_were_not_stored_waits_for_the_second_sweep_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = world.app.scheduler.recurring.chain
    await drive(world.clock, chain.sweep(world.now))

    async def silent(definition: Definition, now: Millis) -> Any:
        raise Unavailable("storage is silent")

    with monkeypatch.context() as patched:
        patched.setattr(chain, "carry_on", silent)
        assert (await world.demo.put(URL, SCHEDULE)).status == 201
    made = world.now
    for _ in range(2):
        await world.clock.advance(60, settle=3)
        await drive(world.clock, chain.sweep(world.now))
    assert sorted(live(world)) == minutes(made, world.now + timings.OCCURRENCES_AHEAD)


# ---- at the same time


async def together(name: str, seed: int) -> None:
    world, _ = await prepared(name)
    try:
        acted = world.now
        calls = [call(world, name), call(world, name)] if name != "sweep" else []
        for done in await raced(world, seed, calls):
            assert not isinstance(done, LocalReply) or done.status in ((204, 404) if name == "delete" else (200,)), done.body
        await settled(world)
        await verify(world, name, acted, True)
    finally:
        await world.close()


@pytest.mark.parametrize("name", ["sweep", *CALLS])
async def test_sweeps_and_changes_at_once_agree(name: str) -> None:
    for seed in range(8):
        await together(name, seed)


# ---- the tests can fail


async def _found(names: tuple[str, ...], seeds: int) -> str:
    """Return the fault that was found, or ''."""
    for name in names:
        try:
            for applied in (False, True):
                die_at = 1
                while await dies(name, die_at, applied, False):
                    die_at += 1
            for seed in range(seeds):
                await together(name, seed)
        except AssertionError as wrong:
            return str(wrong).splitlines()[0]
    return ""


def _plain_ids(schedule: str, at: Millis, revision: int, burnt: Millis) -> tuple[str, ...]:
    return event_ids(schedule, at, revision, 0)[:1]


def _unnamed(definition: Definition, planned: rules.OccurrencePlan, now: Millis) -> Definition:
    return definition


def _forgets(definition: Definition, now: Millis, by: str, **more: Any) -> Definition:
    more.pop("replay", None)
    new = _CHANGED(definition, now, by, **more)
    return rules.pointed_at(replace(new, undo=None), now)


def _goes_on(definition: Definition, cancelled: Any, taken: Any, now: Millis) -> Definition:
    new = _UNDONE(definition, [], taken, now)
    return rules.pointed_at(new, now)


_CHANGED, _UNDONE = rules.changed, rules.undone


@pytest.mark.parametrize(
    ("module", "function", "bug", "names"),
    [
        (rules, "claimed", _unnamed, ("pause",)),
        (rules, "changed", _forgets, ("pause",)),
        (rules, "changed", _forgets, ("put",)),
        (rules, "undone", _goes_on, ("put",)),
        (chain, "event_ids", _plain_ids, ("put",)),
    ],
    ids=["occurrences unnamed", "pause takes nothing back", "put takes nothing back", "put replays nothing", "ids used again"],
)
async def test_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, module: Any, function: str, bug: Any, names: tuple[str, ...]) -> None:
    monkeypatch.setattr(module, function, bug)
    assert await _found(names, 14)


async def test_occurrences_of_a_large_payload_are_stored_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await World().open()
    try:
        large = {"every": "PT1S", "payload": "x" * 200_000, "catch_up": {"policy": "all"}}
        assert (await world.demo.put(URL, large)).status == 201
        together: list[int] = []
        writer = world.app.scheduler.writer
        store = writer.store

        async def watched(tenant: str, events: Any) -> Any:
            together.append(sum(event.size for event in events))
            return await store(tenant, events)

        monkeypatch.setattr(writer, "store", watched)
        await world.clock.advance(60, settle=3)
        await drive(world.clock, sweep(world))
        assert len(world.events()) == 60 + timings.OCCURRENCES_AHEAD // 1000 and max(together) < 1.1 * chain.FIRE_BYTES
    finally:
        await world.close()
