"""Planning from the app: the same planner as the servers' own, and the same orders in the servers' rows.

Servers that look at each other do this by themselves. The app does it right after an operator's word, so that it counts with the next
beat, and for fleets in which no server looks.
"""

from __future__ import annotations

import asyncio
from itertools import batched
from typing import NamedTuple

from ...core.clock import Millis
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Merge, Props
from ..planner import PartitionPlan
from ..protocol import takeover
from ..rows import MAX_ORDERS, join, server_key
from .snapshot import FleetSnapshot, read_snapshot

IN_FLIGHT = 16
"""Orders given side by side."""
TRIES = 4
"""Times an order is given to a server that beats in between."""
LATE_BEATS = 3
"""Beats after which a server that has not beaten is late."""
THREAD_ABOVE = 100_000
"""Partitions times servers from which on planning goes to a thread: the loop has other work to do."""


class ServerOrder(NamedTuple):
    """What a server is told: partitions to claim and to hand off under a generation, by its row as it was seen."""

    server: str
    take: tuple[int, ...]
    drop: tuple[int, ...]
    generation: int
    etag: str


class PlanResult(NamedTuple):
    """A plan, and the orders that lead to it. told: how many servers were given theirs."""

    plan: PartitionPlan
    orders: tuple[ServerOrder, ...] = ()
    told: int = 0

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to do."""
        return not self.plan.moves and not self.orders


def balance_budget(seen: FleetSnapshot) -> int:
    """Moves that only balance, at most. Pure.

    Where servers look, it is theirs to count a minute's. Else it is the part of them that falls on one beat, one at least where any are
    allowed: what was ordered and is not done yet is planned anew, and counts again, so that nothing has to be remembered.
    """
    fleet = seen.summary.fleet
    most = fleet.limits.moves_per_minute
    if any(server.scans for server in seen.summary.living):
        return most
    return min(most, max(1, round(most * fleet.profile.beat / 60)))


def orders_of(seen: FleetSnapshot, found: PartitionPlan, now: Millis) -> tuple[ServerOrder, ...]:
    """The orders that differ from those which the servers have. Pure.

    A server that is late gets none, nor one that is evicted: each write to its row puts off the moment at which it counts as silent.
    """
    facts, late = seen.facts(now), LATE_BEATS * seen.summary.fleet.profile.beat
    orders: list[ServerOrder] = []
    for member in facts.members:
        row = seen.summary.servers[member.name]
        if row.age >= late or row.value.evicted:
            continue
        take, drop = (tuple(each[:MAX_ORDERS]) for each in facts.orders(found, member.name))
        generation = max(seen.summary.fleet.generation, row.value.generation)
        if (take, drop, generation) != (row.value.take, row.value.drop, row.value.generation):
            orders.append(ServerOrder(member.name, take, drop, generation, row.etag))
    return tuple(orders)


def give_order(key: str, order: ServerOrder) -> Steps[bool]:
    """Give one order. False when the server beat in between each time, or is dead."""
    told: Props = {"take": join(order.take), "drop": join(order.drop), "generation": order.generation}
    answer = yield from write(FLEETS, key, Merge(server_key(order.server), told, order.etag))
    if isinstance(answer, Applied):
        return True
    for _ in range(TRIES - 1):
        if (yield from takeover.order(key, order.server, order.take, order.drop, order.generation)):
            return True
    return False


class Planning:
    """Plans and gives orders. One per process."""

    def __init__(self, runner: AsyncRunner) -> None:
        self._runner = runner

    async def look(self, key: str) -> FleetSnapshot | None:
        """The whole fleet. Raises `StorageError`."""
        return await self._runner.run(read_snapshot(key))

    async def plan(self, seen: FleetSnapshot, now: Millis) -> PlanResult:
        """What to do; nothing is done."""

        def think() -> PlanResult:
            found = seen.facts(now).plan(balance_budget(seen))
            return PlanResult(found, orders_of(seen, found, now))

        much = seen.summary.fleet.partitions * max(1, len(seen.summary.servers)) > THREAD_ABOVE
        return await asyncio.to_thread(think) if much else think()

    async def carry_out(self, key: str, planned: PlanResult) -> PlanResult:
        """Give the orders. Raises `StorageError`; then some are given."""
        told = 0
        for some in batched(planned.orders, IN_FLIGHT, strict=False):
            told += sum(await asyncio.gather(*(self._runner.run(give_order(key, order)) for order in some)))
        return planned._replace(told=told)
