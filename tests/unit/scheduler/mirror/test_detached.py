"""The second account is gone for good: the first goes on alone, and a new second is filled before it may take over."""

from __future__ import annotations

import pytest

from shared.core.errors import UnsafeSettings
from shared.core.settings import Settings
from shared.storage.memory import MemoryTables
from tests.texts import has_text

from .pair import MIRROR, MortalQueues, MortalTables, PairWorld
from .test_pair import make


async def detach(world: PairWorld) -> None:
    """The second is gone, and given up."""
    world.second.away = world.second_queues.away = True
    await world.run(1)
    await world.start_again(mirror_detached="yes")


async def fresh_second(world: PairWorld) -> None:
    """Another account takes its place."""
    world.second, world.second_queues = MortalTables(MemoryTables(world.clock)), MortalQueues(world.clock)
    await world.start_again()


async def test_first_serves_mirrored_events_alone_and_takes_new_ones_once_the_second_is_given_up(pair: PairWorld) -> None:
    ids = await make(pair, 5, 120)
    await detach(pair)
    assert (await pair.demo.delete(f"/api/v1/events/{ids[0]}")).status == 204
    assert (await pair.demo.patch(f"/api/v1/events/{ids[1]}", {"delay": "PT60S"})).status == 200
    new = await pair.demo.create(delay="PT30S", durability="mirrored")
    assert (await pair.storage_status())["mirror"] is None
    await pair.run(200)
    assert pair.deliveries() == dict.fromkeys((*ids[1:], new["id"]), 1)


async def test_new_second_takes_over_only_once_it_has_a_copy_of_everything(pair: PairWorld) -> None:
    await make(pair, 20, 600)
    named = (await pair.demo.create(id="named", delay="PT600S", durability="mirrored"))["id"]
    await detach(pair)
    await fresh_second(pair)
    assert (await pair.storage_status())["mirror"]["state"] == "filling"
    refused = await pair.admin.post("/api/v1/storage/failover", {})
    assert (refused.status, refused.json()["type"].rpartition("/")[2]) == (409, "not-in-step")
    assert (await pair.storage_status())["mirror"]["active"] == "first"
    await pair.run(70)
    assert (await pair.storage_status())["mirror"]["state"] == "serving"
    assert pair.second.states() == pair.first.states() and len(pair.second.states()) == 21
    await pair.fail_over()
    assert (await pair.demo.delete(f"/api/v1/events/{named}")).status == 204
    await pair.run(700)
    assert len(pair.deliveries()) == 20 and set(pair.second.states().values()) == {"delivered", "cancelled"}


async def test_new_second_takes_over_with_what_it_has_when_the_first_is_lost_too(pair: PairWorld) -> None:
    await make(pair, 1, 600)
    await detach(pair)
    await fresh_second(pair)
    copied = (await make(pair, 1, 700))[0]
    pair.lose_first()
    assert (await pair.admin.post("/api/v1/storage/failover", {})).status == 409
    assert (await pair.admin.post("/api/v1/storage/failover", {"incomplete": True})).status == 202
    await pair.run(50)
    assert (await pair.storage_status())["mirror"]["state"] == "serving"
    assert pair.second.states() == {copied: "scheduled"}


async def test_old_second_is_not_taken_back_with_its_old_copies(pair: PairWorld) -> None:
    await make(pair, 1, 600)
    await detach(pair)
    pair.second.away = pair.second_queues.away = False
    with pytest.raises(UnsafeSettings, match="given up"):
        await pair.start_again()
    await pair.start_again(mirror_detached="yes")


async def test_first_that_was_overtaken_is_not_served_alone_by_mistake(pair: PairWorld) -> None:
    await make(pair, 1, 600)
    await pair.fail_over()
    pair.find_first()
    await pair.run(70)
    with pytest.raises(UnsafeSettings, match="the second account has taken over"):
        await pair.start_again(mirror_detached="yes")
    await pair.start_again()
    await pair.run(5)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(60)
    assert (await pair.storage_status())["mirror"]["active"] == "first"
    await pair.start_again(mirror_detached="yes")


def test_second_account_is_either_there_or_given_up() -> None:
    with pytest.raises(UnsafeSettings, check=has_text("settings.mirror-detached")):
        Settings(storage="UseDevelopmentStorage=true", mirror=MIRROR, mirror_detached="yes")  # type: ignore[arg-type]
