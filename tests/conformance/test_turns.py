"""Turns on each store: several coordinators at once, and what storage has to keep."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from shared.checkpoints.model import PublishIn, TurnReportIn
from shared.checkpoints.rows import INDEX, MAX_REPLICAS, TURN, Group, ReplicaRow, Share, TurnRow, parse_group, replica_key
from shared.checkpoints.service.service import CheckpointService, nothing_pending
from shared.core.clock import SystemClock
from shared.core.errors import Problem
from shared.core.ids import SystemIds
from shared.engine.async_runner import AsyncRunner
from shared.fleets.definition import fleet_of
from shared.fleets.model import FleetIn
from shared.leases.rows import FLEET, fleet_key
from shared.storage.names import FLEETS, SWEEPS, TURNS
from shared.storage.ports import Insert, RowQuery

from .conftest import Store

TENANT = "demo"


async def coordinators(store: Store, fleet: str) -> list[CheckpointService]:
    """Three instances of the app, and a fleet."""
    await store.tables.ensure([FLEETS, TURNS, SWEEPS])
    await store.tables.write(FLEETS, fleet_key(TENANT, fleet), [Insert(FLEET, fleet_of(FleetIn(partitions=1), 0).props())])
    clock = store.clock or SystemClock()
    return [CheckpointService(store.tables, AsyncRunner(store.tables, clock), clock, SystemIds(), nothing_pending) for _ in range(3)]


def report(seq: int, **more: Any) -> TurnReportIn:
    body = {"seq": seq, "role": "secondary", "term": 7, "applied": 5, "last_checkpoint": 0, "taking": None, "mono_ms": 1000 + seq}
    return TurnReportIn.model_validate(body | more)


async def test_coordinators_at_once_hand_out_one_turn_and_take_one_publish(store: Store) -> None:
    fleet = store.fleet
    apps = await coordinators(store, fleet)
    nodes = [f"n{number}" for number in range(8)]
    handed: list[tuple[str, int]] = []
    for seq in (1, 2, 3):
        calls = [apps[(number + seq) % 3].report(TENANT, fleet, node, report(seq)) for number, node in enumerate(nodes)]
        answers = await asyncio.gather(*calls, *(app.run_once(0) for app in apps))
        handed += [(node, answer["turn"]["epoch"]) for node, answer in zip(nodes, answers, strict=False) if answer["turn"]]
    # Its holder takes nothing so far: it may get the turn once more.
    assert handed and len(set(handed)) == 1
    [(holder, epoch)] = set(handed)
    seen = await apps[0].look(fleet_key(TENANT, fleet))
    assert seen is not None and len({each.life for each in seen.view.replicas.values()}) == 8, "each has a life of its own"
    made = PublishIn(node=holder, sequence=500, location="https://backups.example/500", bytes=2**40)
    assert await asyncio.gather(*(app.publish(TENANT, fleet, epoch, made) for app in apps)) == [True] * 3
    assert (await apps[1].latest(TENANT, fleet))["bytes"] == 2**40
    found, more = await apps[2].turns(TENANT, fleet, 10)
    assert ([turn["state"] for turn in found], more) == (["done"], None)


async def test_of_two_that_claim_one_term_at_once_one_is_primary(store: Store) -> None:
    fleet = store.fleet
    apps = await coordinators(store, fleet)

    async def claim(number: int) -> str:
        try:
            await apps[number % 3].report(TENANT, fleet, f"n{number}", report(1, role="primary"))
        except Problem as problem:
            return problem.code
        return "primary"

    found = await asyncio.gather(*map(claim, range(6)))
    assert sorted(found) == ["primary", *["term-conflict"] * 5]


async def test_a_fleet_that_ends_leaves_its_last_turn_alone(store: Store) -> None:
    fleet = store.fleet
    key = fleet_key(TENANT, fleet)
    apps = await coordinators(store, fleet)
    await apps[0].report(TENANT, fleet, "n0", report(1))
    # More than one transaction removes.
    many = [ReplicaRow(f"n{number}", number + 1, 1, "secondary", 7, 0, 5, 5) for number in range(1, 101)]
    await store.tables.write(TURNS, key, [Insert(replica_key(each.node), each.props()) for each in many])
    await asyncio.gather(*(app.end(key) for app in apps))
    assert (await store.tables.query(RowQuery(TURNS, key))).rows == []
    assert (await store.tables.query(RowQuery(TURNS, INDEX, first=key, end=key + "!"))).rows == []
    # The row of the fleet is still there when it is created again.
    answer = await apps[1].report(TENANT, fleet, "m", report(1))
    assert answer["turn"] is None, "who took the last turn may still be at it"
    seen = await apps[2].look(key)
    assert seen is not None and (seen.view.group.turn.epoch, seen.view.group.turn.state, seen.view.group.lives) == (1, "revoked", 2)


async def test_the_turns_row_of_the_largest_fleet_fits(store: Store) -> None:
    shares = tuple(Share(f"{number:03d}" + "n" * 61, -0.123456, 399) for number in range(MAX_REPLICAS))
    turn = TurnRow(10**14, "n" * 64, "revoked", note="x" * 200, author="y" * 12, granted=1_800_000_000_000)
    group = Group(turn, "p" * 64, 2**53 - 1, 10**6, 604_800_000, (604_800_000,) * 32, shares, 3, 1_800_000_000_000)
    await store.tables.write(store.table, "p", [Insert(TURN, group.props())])
    row = await store.tables.get(store.table, "p", TURN)
    assert row is not None and parse_group(row.props) == group
    assert replace(parse_group(row.props), shares=()) != group
