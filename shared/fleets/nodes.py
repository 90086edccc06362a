"""Nodes as the API shows them: as servers, as replicas, and with the reports of their maintenance agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from typing import Any

from ..checkpoints.protocol import look as look_at_turns
from ..checkpoints.service.service import PendingReader
from ..checkpoints.service.views import replicas_out
from ..checkpoints.settings import read_turn_settings
from ..core.clock import Clock
from ..engine.async_runner import AsyncRunner
from ..leases.loads import split_loads
from ..leases.rows import Server, fleet_key
from ..leases.service.snapshot import Versioned
from ..leases.service.views import IntentsByTarget, LeaseViews, beat_age_ms, owners_of
from ..web.problem import not_found

type AgentReports = Callable[[str], Awaitable[Mapping[str, dict[str, Any]]]]
"""Returns the last agent reports of a fleet, by node."""


class NodeViews:
    """Reads nodes for the API. One per process."""

    def __init__(self, leases: LeaseViews, runner: AsyncRunner, clock: Clock, agents: AgentReports, pending: PendingReader) -> None:
        self._leases, self._runner, self._clock, self._agents, self._pending = leases, runner, clock, agents, pending

    async def node(self, tenant: str, fleet: str, name: str) -> dict[str, Any]:
        """Return one node. Raises 404, `StorageError`."""
        items, _ = await self._nodes(tenant, fleet, lambda known: [name] if name in known else [], 1)
        if not items:
            raise not_found("node")
        return items[0]

    async def nodes(self, tenant: str, fleet: str, limit: int, after: str = "") -> tuple[list[dict[str, Any]], str | None]:
        """Return nodes by name after `after`, and the last name if there are more. Raises 404, `StorageError`."""
        return await self._nodes(tenant, fleet, lambda known: sorted(name for name in known if name > after), limit)

    async def _nodes(
        self, tenant: str, fleet: str, pick: Callable[[Set[str]], list[str]], limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return the first `limit` of the picked nodes. A node is known as a server, as a replica, or by its agent."""
        key = fleet_key(tenant, fleet)
        seen = await self._leases.snapshot(key)
        turns = await self._runner.run(look_at_turns(key))
        replicas = replicas_out(turns, read_turn_settings(seen.summary.fleet), await self._pending(key))
        owners, intents, servers = owners_of(seen), IntentsByTarget(seen.summary, self._clock.now()), seen.summary.servers
        agents = await self._agents(key)
        names = pick(servers.keys() | replicas.keys() | agents.keys())
        items = [
            node_out(name, servers.get(name), owners.get(name, {}), intents, replicas.get(name), agents.get(name)) for name in names[:limit]
        ]
        return items, names[limit - 1] if len(names) > limit else None


def node_out(
    name: str,
    one: Versioned[Server] | None,
    held: dict[int, int],
    intents: IntentsByTarget,
    replica: dict[str, Any] | None = None,
    agent: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a node as the API shows it. one, held: as a server. replica: as a replica. agent: its agent's last report."""
    return {
        "node": name,
        "beat": _beat_out(one) if one is not None else None,
        "partitions": {str(number): epoch for number, epoch in sorted(held.items())},
        "assign": list(one.value.take) if one is not None else [],
        "release": list(one.value.drop) if one is not None else [],
        "loads": _loads_out(one.value, held) if one is not None else {},
        "intents": intents.about(name),
        "turn": replica,
        "maintenance": agent,
    }


def _loads_out(server: Server, held: Collection[int]) -> dict[str, float]:
    """Return the published loads of the partitions that the server owns, with four digits."""
    _, loads = split_loads(server.loads or "")
    return {str(number): float(f"{load:.4g}") for number, load in loads.items() if number in held}


def _beat_out(one: Versioned[Server]) -> dict[str, Any]:
    server = one.value
    return {
        "seq": server.beat,
        "age_ms": beat_age_ms(one),
        "state": server.state,
        "incarnation": server.incarnation,
        "fault_domain": server.domain,
        "capacity": server.capacity,
        "load": server.load,
        "scans": server.scans,
    } | ({"endpoint": server.endpoint} if server.endpoint else {})
