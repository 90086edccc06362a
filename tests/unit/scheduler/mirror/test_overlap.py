"""Mirrored schedules that do not overlap: a failover forgets the line and delivers what waits; after the way back no line is stuck."""

from __future__ import annotations

import pytest

from shared.core.clock import to_text
from shared.storage.names import LIMITS
from tests.unit.scheduler.harness import START

from .pair import PairWorld
from .test_failover_way_back import back

PATH = "/api/v1/schedules/often"


@pytest.mark.parametrize("overlap", ["queue", "skip"])
async def test_a_schedule_goes_on_after_a_failover_and_after_the_way_back(pair: PairWorld, overlap: str) -> None:
    assert (await pair.admin.put("/api/v1/tenants/demo", {"durability": "mirrored"})).status == 200
    often = {"every": "PT20S", "start": to_text(START + 20_000), "end": to_text(START + 301_000), "payload": 1, "overlap": overlap}
    assert (await pair.demo.put(PATH, often)).status == 201
    pair.receiver.takes = 30.0
    await pair.run(75)
    await pair.fail_over()
    await pair.run(100)
    assert (await pair.demo.get(PATH)).json()["overlap"] == overlap
    await back(pair)
    pair.receiver.takes = 1.0
    await pair.run(600)
    final = {event: state for event, state in pair.first.states().items() if event.startswith("often:")}
    assert len(final) == 15
    assert set(final.values()) == ({"delivered"} if overlap == "queue" else {"delivered", "lapsed"})
    assert {event for event, state in final.items() if state == "delivered"} == set(pair.deliveries())
    assert not [row.rk for row in pair.rows_of(pair.first, LIMITS) if row.pk.startswith("key:") and ":" in row.rk]
