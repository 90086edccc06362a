"""`GET /history`: what became of the events of each minute."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.clock import to_text
from shared.delivery.channels.ports import Verdict
from shared.scheduler.keys import MINUTE
from shared.storage.names import LEDGER
from shared.storage.ports import ANY, Merge
from tests.texts import assert_text
from tests.unit.scheduler.harness import START, World

HISTORY = "/api/v1/history"


async def history(world: World, query: str = "") -> dict[int, dict[str, Any]]:
    """Minutes counted from the start."""
    answer = await world.demo.get(HISTORY + query)
    assert answer.status == 200, answer
    by_minute = {item.pop("minute"): item for item in answer.json()["items"]}
    return {number: by_minute[at] for number in range(-60, 1500) if (at := to_text(START + number * MINUTE)) in by_minute}


def minute(**counts: Any) -> dict[str, Any]:
    ends = dict.fromkeys(("accepted", "open", "delivered", "dead", "lapsed", "cancelled", "moved", "gap"), 0)
    return {**ends, "late_ms": {"p50": None, "p99": None, "max": None}, **counts}


async def test_finished_minutes_show_ends_and_lateness_and_empty_ones_are_left_out(world: World) -> None:
    world.receiver.script("refused", Verdict("final", 400))
    await world.demo.create(due=to_text(START + 10_000))
    await world.demo.create(due=to_text(START + 2 * MINUTE), id="refused")
    await world.demo.create(due=to_text(START + 2 * MINUTE + 1_000))
    await world.run(200)
    found = await history(world)
    assert list(found) == [0, 2]
    assert all(found[number]["late_ms"].pop("p99") is not None for number in found)
    assert {number: {name: found[number][name] for name in ("accepted", "delivered", "dead", "open", "gap")} for number in found} == {
        0: {"accepted": 1, "delivered": 1, "dead": 0, "open": 0, "gap": 0},
        2: {"accepted": 2, "delivered": 1, "dead": 1, "open": 0, "gap": 0},
    }


async def test_events_that_wait_are_open_in_the_minute_they_were_planned_for(world: World) -> None:
    world.receiver.script("later", Verdict("retry", 503, retry_after=600.0))
    await world.demo.create(due=to_text(START + 10_000), id="later")
    await world.demo.create(due=to_text(START + 70_000))
    await world.run(30)
    assert await history(world, f"?to={to_text(START + 3 * MINUTE)}") == {0: minute(accepted=1, open=1), 1: minute(accepted=1, open=1)}


async def test_what_came_to_no_end_is_a_gap(world: World) -> None:
    await world.demo.create(due=to_text(START + 10_000))
    await world.run(60)
    for row in world.rows(LEDGER, "demo"):
        await world.tables.write(LEDGER, "demo", (Merge(row.rk, {"accepted": 3}, ANY),))
    assert {name: count for name, count in (await history(world))[0].items() if name in ("accepted", "delivered", "open", "gap")} == {
        "accepted": 3,
        "delivered": 1,
        "open": 0,
        "gap": 2,
    }


async def test_range_is_of_whole_minutes_of_this_tenant_only(world: World) -> None:
    other = await world.tenant("acme")
    for number in (4, 5, 6, 7):
        await world.demo.create(due=to_text(START + number * MINUTE + 59_999))
        await other.create(due=to_text(START + number * MINUTE))
    inside = await history(world, f"?from={to_text(START + 5 * MINUTE + 10_000)}&to={to_text(START + 6 * MINUTE + 1)}")
    assert {number: each["accepted"] for number, each in inside.items()} == {5: 1, 6: 1}


@pytest.mark.parametrize(
    ("query", "key"),
    [
        (f"?from={to_text(START)}&to={to_text(START)}", "history.empty-range"),
        (f"?from={to_text(START)}&to={to_text(START + 1_440 * MINUTE + 1)}", "history.long-range"),
    ],
)
async def test_ranges_that_are_empty_or_too_long_are_422(world: World, query: str, key: str) -> None:
    answer = await world.demo.get(HISTORY + query)
    assert (answer.status, answer.pointers) == (422, ["?to"])
    assert_text(key, answer.json()["errors"][0]["detail"])


async def test_the_first_and_the_last_possible_minute_are_listed(world: World) -> None:
    await world.demo.create(due="2037-01-22T08:00:00.000Z")
    items = (await world.demo.get(HISTORY + "?from=2037-01-22T08:00:00.000Z&to=2037-01-22T08:01:00.000Z")).json()["items"]
    assert [(item["minute"], item["accepted"]) for item in items] == [("2037-01-22T08:00:00.000Z", 1)]
    assert (await world.demo.get(HISTORY + "?from=9999-12-31T23:58:30Z&to=9999-12-31T23:59:59.999Z")).json()["items"] == []
    assert (await world.demo.get(HISTORY + "?to=1970-01-01T00:00:30Z")).json()["items"] == []
