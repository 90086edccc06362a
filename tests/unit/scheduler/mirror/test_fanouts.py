"""Mirrored fan-outs: after a failover the other account knows the common id and all of the events."""

from __future__ import annotations

from shared.storage.names import IDS

from .pair import PairWorld
from .test_failover_way_back import back

URL = "/api/v1/events"
GIVEN = {"id": "x", "channels": ["a", "b"], "delay": "PT10M", "payload": 1, "durability": "mirrored"}


async def test_a_mirrored_fan_out_is_one_on_either_side(pair: PairWorld) -> None:
    for name in ("a", "b"):
        channel = {"type": "http", "url": "http://localhost:7072/x"}
        assert (await pair.admin.put(f"/api/v1/tenants/demo/channels/{name}", channel)).status == 201
    assert (await pair.demo.post(URL, GIVEN)).status == 201
    plain = {"id": "p", "channels": ["a", "b"], "delay": "PT10M", "payload": 2}
    assert (await pair.demo.post(URL, plain)).status == 201
    assert {row.rk for row in pair.rows_of(pair.second, IDS)} == {"x", "x@a", "x@b"}
    await pair.fail_over()
    assert {event["state"] for event in (await pair.demo.event("x"))["events"]} == {"scheduled"}
    assert (await pair.demo.post(URL, GIVEN)).status == 200
    assert (await pair.demo.post(URL, GIVEN | {"payload": 2})).code == "id-conflict"
    assert (await pair.demo.patch(f"{URL}/x", {"delay": "PT1S"})).json()["changed"] == 2
    late = GIVEN | {"id": "y", "delay": "PT2S"}
    assert (await pair.demo.post(URL, late)).status == 201
    await pair.run(20)
    assert pair.deliveries() == {"x@a": 1, "x@b": 1, "y@a": 1, "y@b": 1}
    await back(pair)
    assert {event["state"] for event in (await pair.demo.event("y"))["events"]} == {"delivered"}
    assert (await pair.demo.post(URL, late)).status == 200
