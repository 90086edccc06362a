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


async def test_a_fleet_channel_waits_for_the_account_with_the_fleets() -> None:
    world = PairWorld()
    await world.open()
    try:
        assert (await world.admin.put("/api/v1/fleets/web?tenant=demo", {"partitions": 1})).status == 201
        channel = {"type": "fleet", "fleet": "web"}
        assert (await world.admin.put("/api/v1/tenants/demo/channels/owners", channel)).status == 201
        life = {"incarnation": "00000000-0000-4000-8000-000000000001"}
        beat = {**life, "seq": 1, "endpoint": "http://localhost:9001"}
        assert (await world.demo.post("/api/v1/fleets/web/nodes/a/beat", beat)).status == 200
        assert (await world.demo.post("/api/v1/fleets/web/leases/claim", {**life, "node": "a", "partitions": [0]})).status == 200
        event = {"delay": "PT1M", "channel": "owners", "ordering_key": "customer-7", "durability": "mirrored", "retry": {"attempts": 1}}
        made = await world.demo.create(**event)
        await world.fail_over()
        await world.run(90)
        found = await world.demo.get(f"/api/v1/events/{made['id']}")
        assert not world.receiver.received and found.status in (200, 503)
        world.find_first()
        await world.run(5)
        await world.demo.post("/api/v1/fleets/web/nodes/a/beat", {**beat, "seq": 2})
        await world.run(20)
        assert world.receiver.delivered() == [made["id"]]
        [got] = world.receiver.received
        assert got.delivery.owner is not None and got.delivery.owner.endpoint == "http://localhost:9001"
    finally:
        await world.close()
