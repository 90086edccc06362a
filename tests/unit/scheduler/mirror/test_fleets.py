"""Fleets live in the first account, whichever side of a mirrored pair serves."""

from __future__ import annotations

from .pair import PairWorld


async def test_fleets_stay_in_the_first_account_through_a_failover() -> None:
    world = PairWorld()
    await world.open()
    try:
        put = await world.admin.put("/api/v1/fleets/web?tenant=demo", {"partitions": 4})
        assert put.status == 201
        await world.fail_over()
        away = await world.admin.get("/api/v1/fleets/web?tenant=demo")
        assert away.status == 503
        world.find_first()
        await world.run(5)
        found = await world.admin.get("/api/v1/fleets/web?tenant=demo")
        assert (found.status, found.json()["partitions"]) == (200, 4)
        assert (await world.storage_status())["mirror"]["active"] == "second"
    finally:
        await world.close()
