"""Planning in the app, with the servers' own planner and the same orders in the servers' rows.

Scanners plan by themselves. The app plans right after a manual control, so that it takes effect with the next heartbeat, and for fleets
without scanners.
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
from ..rows import MAX_ORDERS, join_numbers, server_key
from .snapshot import FleetSnapshot, read_snapshot

IN_FLIGHT = 16
"""Orders that are written at the same time."""
TRIES = 4
"""Attempts to write an order while the server's heartbeats come in between."""
LATE_BEATS = 3
"""Heartbeat intervals after which a server counts as late."""
THREAD_ABOVE = 100_000
"""Partitions times servers above which planning runs in a thread, so that it does not block the event loop."""


class ServerOrder(NamedTuple):
    """An order for one server: partitions to claim and to release under a generation. etag: of the server's row as it was read."""

    server: str
    take: tuple[int, ...]
    drop: tuple[int, ...]
    generation: int
    etag: str


class PlanResult(NamedTuple):
    """A plan and its orders. ordered: number of servers that have received theirs."""

    plan: PartitionPlan
    orders: tuple[ServerOrder, ...] = ()
    ordered: int = 0

    @property
    def settled(self) -> bool:
        """Return True if nothing is left to do."""
        return not self.plan.moves and not self.orders


def balance_budget(snapshot: FleetSnapshot) -> int:
    """Return the maximum number of moves that only balance. Pure.

    If the fleet has scanners, they count the moves of a minute. Otherwise the result is the share of one heartbeat interval, at least
    one if moves are allowed: moves that are ordered and not done are planned and counted again, so no state is needed.
    """
    fleet = snapshot.summary.fleet
    most = fleet.limits.moves_per_minute
    if any(server.scans for server in snapshot.summary.living):
        return most
    return min(most, max(1, round(most * fleet.profile.beat / 60)))


def orders_of(snapshot: FleetSnapshot, found: PartitionPlan, now: Millis) -> tuple[ServerOrder, ...]:
    """Return the orders that differ from those in the servers' rows. Pure.

    Late, evicted and kept servers get none: each write to a server's row delays the moment at which the server counts as silent.
    """
    facts, late = snapshot.planner_input(now), LATE_BEATS * snapshot.summary.fleet.profile.beat
    orders: list[ServerOrder] = []
    for member in facts.members:
        row = snapshot.summary.servers[member.name]
        if row.age >= late or row.value.http.evicted or row.value.kept:
            continue
        take, drop = (tuple(each[:MAX_ORDERS]) for each in facts.orders(found, member.name))
        generation = max(snapshot.summary.fleet.generation, row.value.generation)
        if (take, drop, generation) != (row.value.take, row.value.drop, row.value.generation):
            orders.append(ServerOrder(member.name, take, drop, generation, row.etag))
    return tuple(orders)


def give_order(key: str, order: ServerOrder) -> Steps[bool]:
    """Write one order. Return False if the server is dead, or its heartbeats came in between `TRIES` times."""
    props: Props = {"take": join_numbers(order.take), "drop": join_numbers(order.drop), "generation": order.generation}
    answer = yield from write(FLEETS, key, Merge(server_key(order.server), props, order.etag))
    if isinstance(answer, Applied):
        return True
    # Not `retry_steps`: False also says that the server is dead, and one more read finds the same.
    for _ in range(TRIES - 1):
        if (yield from takeover.write_order(key, order.server, order.take, order.drop, order.generation)):
            return True
    return False


class Planning:
    """Plans and gives orders. One per process."""

    def __init__(self, runner: AsyncRunner) -> None:
        self._runner = runner

    async def look(self, key: str) -> FleetSnapshot | None:
        """Read the whole fleet; None if there is none. Raises `StorageError`."""
        return await self._runner.run(read_snapshot(key))

    async def plan(self, snapshot: FleetSnapshot, now: Millis) -> PlanResult:
        """Plan without giving orders."""

        def make_plan() -> PlanResult:
            found = snapshot.planner_input(now).plan(balance_budget(snapshot))
            return PlanResult(found, orders_of(snapshot, found, now))

        is_large = snapshot.summary.fleet.partitions * max(1, len(snapshot.summary.servers)) > THREAD_ABOVE
        return await asyncio.to_thread(make_plan) if is_large else make_plan()

    async def carry_out(self, key: str, planned: PlanResult) -> PlanResult:
        """Give the orders of a plan. Raises `StorageError`; some orders may have been given then."""
        ordered = 0
        for some in batched(planned.orders, IN_FLIGHT):
            ordered += sum(await asyncio.gather(*(self._runner.run(give_order(key, order)) for order in some)))
        return planned._replace(ordered=ordered)
