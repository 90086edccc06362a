"""Schedules with channels: each occurrence has one event for each channel, whatever dies or happens at once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from shared.core.clock import Millis
from shared.web.local_client import LocalReply
from tests.unit.scheduler.harness import START, World, drive

from ..changes.test_fanouts import channels
from .faults import DEAD, URL, Frail, instant_of, minutes, raced, sweep, sweeps

FANNED = {"cron": "* * * * *", "payload": {"v": 1}, "channels": ["b", "a"]}
CALLS: dict[str, tuple[str, str, Any]] = {
    "put": ("PUT", URL, {**FANNED, "payload": {"v": 2}}),
    "put others": ("PUT", URL, {**FANNED, "channels": ["b", "c"]}),
    "put one": ("PUT", URL, {"cron": "* * * * *", "payload": {"v": 1}}),
    "pause": ("POST", f"{URL}/pause", None),
    "delete": ("DELETE", URL, None),
}
SETS = {"put others": [["a", "b"], ["b", "c"]], "put one": [["a", "b"], [""]]}
LEAD, REST, TAIL = 90, 31, 120


def live(world: World) -> dict[Millis, list[str]]:
    """The channels to which each occurrence goes, or went."""
    found: dict[Millis, list[str]] = defaultdict(list)
    for row in world.events():
        name, _, channel = str(row.props["id"]).partition("@")
        if row.props["state"] not in DEAD:
            found[instant_of(name)].append(channel)
    return {at: sorted(names) for at, names in found.items()}


async def call(world: World, name: str) -> LocalReply:
    return await world.demo.without_time().call(*CALLS[name])


async def prepared() -> tuple[World, Frail]:
    world = await World().open()
    await channels(world, "a", "b", "c")
    frail = Frail(world)
    assert (await world.demo.put(URL, FANNED)).status == 201
    await sweeps(world, LEAD)
    await world.clock.advance(REST, settle=3)
    return world, frail


def verify(world: World, name: str, acted: Millis) -> None:
    """Every occurrence goes to all channels of one revision, once to each; none is missing, and none comes after a stop."""
    found = live(world)
    assert all(names in SETS.get(name, [["a", "b"]]) for names in found.values()), found
    if name in ("pause", "delete"):
        assert [at for at in found if at > acted] == [] and [at for at in minutes(START, acted) if at not in found] == []
    else:
        assert [at for at in minutes(START, world.now) if at not in found] == []


async def dies(name: str, die_at: int, applied: bool) -> bool:
    """Cut the step off at a write, and let another process go on. Return False if the step has fewer writes."""
    world, frail = await prepared()
    try:
        frail.writes, frail.die_at, frail.applied = 0, die_at, applied
        acted = world.now
        if name == "sweep":
            await drive(world.clock, sweep(world))
        else:
            await drive(world.clock, call(world, name))
        died = frail.dead
        await frail.restart()
        if died and name != "sweep":
            assert (await drive(world.clock, call(world, name))).status in (200, 204, 404)
        await sweeps(world, TAIL)
        verify(world, name, acted)
        return died
    finally:
        await world.close()


async def die_at_each_write(name: str, applied: bool) -> int:
    """Cut the step off at its first write, its second, and so on. Return the number of its writes."""
    die_at = 1
    while await dies(name, die_at, applied):
        die_at += 1
    assert die_at > 3, "the process never died: nothing was tried"
    return die_at - 1


SOME = ["sweep", "put others"]
"""Steps that are tried in every run; `prove_recurring` tries all."""


@pytest.mark.parametrize("name", SOME)
async def test_death_at_any_write_neither_loses_nor_doubles_an_event(name: str) -> None:
    await die_at_each_write(name, True)


@pytest.mark.parametrize("name", SOME)
async def test_sweeps_and_changes_at_once_agree(name: str) -> None:
    for seed in range(3):
        world, _ = await prepared()
        try:
            acted = world.now
            await raced(world, seed, [call(world, name), call(world, name)] if name != "sweep" else [])
            await sweeps(world, TAIL)
            verify(world, name, acted)
        finally:
            await world.close()


async def test_a_schedule_with_channels_is_shown_fired_and_delivered(world: World) -> None:
    await channels(world, "a", "b")
    made = await world.demo.put(URL, FANNED)
    assert (made.status, made.json()["channels"], "channel" in made.json()) == (201, ["a", "b"], False)
    fired = await world.demo.post(f"{URL}/trigger")
    assert (fired.status, fired.json()["channels"]) == (202, ["a", "b"])
    back = {"from": "2027-01-15T07:00:00Z", "to": "2027-01-15T07:02:00Z", "id": "lost"}
    assert (await world.demo.post(f"{URL}/backfill", back)).json() == {"id": "lost", "created": 2, "existing": 0}
    assert (await world.demo.post(f"{URL}/backfill", back)).json() == {"id": "lost", "created": 0, "existing": 2}
    await world.run(75)
    shown = await world.demo.event("tick:20270115T080100Z")
    assert [(event["id"], event["state"]) for event in shown["events"]] == [
        ("tick:20270115T080100Z@a", "delivered"), ("tick:20270115T080100Z@b", "delivered"),
    ]  # fmt: skip
    assert len(world.receiver.received) == 2 * 4
    assert (await world.demo.put(URL, {**FANNED, "channel": "a"})).status == 422
    assert (await world.demo.put(f"{URL}{'x' * 120}", FANNED)).json()["errors"][0]["pointer"] == "{id}"
    assert (await world.demo.put(URL, {**FANNED, "channels": ["nobody", "a"]})).json()["errors"][0]["pointer"] == "/channels/0"
