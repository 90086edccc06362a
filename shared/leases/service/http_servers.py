"""Heartbeats, claims and releases of servers that speak HTTP."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from yarl import URL

from ...core.clock import Clock
from ...core.errors import Problem
from ...delivery.egress_guard import Egress
from ...engine.async_runner import AsyncRunner
from ...tenants.model import Limits, no_limits
from ...tenants.store import contended
from ...web.problem import conflict, invalid, not_found
from .. import rules
from ..model import BeatIn, ReleaseIn
from ..protocol import http_servers
from ..protocol.http_servers import ClaimResult, HeartbeatAccepted, NameOccupied, OutOfRange, ServerHeartbeat
from ..rows import Server, fleet_key
from .views import out_of_range

log = logging.getLogger(__name__)

type OnHeartbeat = Callable[[str, str, float], object]

_OVER = "this incarnation is over: stop acting on all partitions, and register a new incarnation with seq 1"
_WHY = {
    "fenced": _OVER,
    "evicted": f"the server released none of the partitions that it was ordered to release, so it is evicted; {_OVER}",
    "stale": "a later heartbeat of this incarnation has been applied; send the next one with a higher seq",
}


class HttpServers:
    """Serves requests of servers that speak HTTP. One per process, without state.

    nudge: called at each heartbeat with tenant, fleet and heartbeat interval (seconds); must return at once. tenant_limits: returns the
    limits of a tenant; called when a server registers.
    """

    def __init__(
        self,
        runner: AsyncRunner,
        clock: Clock,
        nudge: OnHeartbeat = lambda tenant, fleet, beat: None,
        tenant_limits: Callable[[str], Awaitable[Limits]] = no_limits,
        egress: Egress | None = None,
    ) -> None:
        """egress: the rules for endpoints, by default without an allow-list."""
        self._runner, self._clock, self._nudge, self._tenant_limits = runner, clock, nudge, tenant_limits
        self._egress = egress or Egress()

    async def beat(self, tenant: str, fleet: str, node: str, request: BeatIn) -> dict[str, Any]:
        """Apply a heartbeat and return its answer.

        Raises 404, 409 `fenced`, `stale-seq`, `name-in-use`, `too-many-servers`, `changed-meanwhile`, 422 for an endpoint that the egress
        rules refuse, `StorageError`.
        """
        if request.endpoint and (problem := self._egress.problem(URL(request.endpoint))):
            raise invalid("/endpoint", problem.replace("the url", "the endpoint"))
        incarnation = str(request.incarnation)
        heartbeat = ServerHeartbeat(
            incarnation,
            request.seq,
            request.fault_domain,
            request.capacity,
            request.load,
            request.keep,
            request.loads,
            request.endpoint,
        )
        own = (await self._tenant_limits(tenant)).servers if request.seq == 1 else None
        done = await self._runner.run(http_servers.beat(fleet_key(tenant, fleet), node, heartbeat, self._clock.now(), most=own))
        if isinstance(done, HeartbeatAccepted):
            h, v = http_servers.parse_terms(done.server.http.terms)
            self._nudge(tenant, fleet, h)
            return _answer(done.server, request.seq, h, v)
        if isinstance(done, NameOccupied):
            wait = {"retry-after": str(max(1, -int(-done.wait // 1)))}
            text = f"another incarnation of {node} is live; wait until it is fenced, or register under another name"
            raise Problem(409, "name-in-use", text, headers=wait)
        if done.why == "evicted":
            extra = {"action": "lease_evicted", "fleet": fleet_key(tenant, fleet), "server": node}
            log.warning("Server %s of fleet %s has released none of its pending partitions and is evicted", node, fleet, extra=extra)
        if done.why == "full":
            most = http_servers.MAX_SERVERS if own is None else own
            detail = f"the fleet has as many live servers as the tenant's limit allows, {most:,}"
            raise conflict("too-many-servers", f"{detail}; an operator can raise limits.servers", "servers")
        raise _refused(done.why)

    async def claim(
        self, tenant: str, fleet: str, node: str, incarnation: str, partitions: Sequence[int], generation: int = 1
    ) -> dict[str, Any]:
        """Claim partitions and return the answer.

        Raises 404, 409 `fenced`, `changed-meanwhile`, 422 for a partition out of range, `StorageError`.
        """
        key, now = fleet_key(tenant, fleet), self._clock.now()
        done = await self._runner.run(http_servers.claim(key, node, incarnation, partitions, now, generation))
        if isinstance(done, OutOfRange):
            at = next(at for at, number in enumerate(partitions) if number >= done.partitions)
            raise invalid(f"/partitions/{at}", f"must be 0 to {done.partitions - 1:,}, the partitions of the fleet")
        if not isinstance(done, ClaimResult):
            raise _refused(done.why)
        return {
            "claimed": [{"partition": number, "epoch": epoch} for number, epoch in done.claimed],
            "refused": [{"partition": number, "reason": reason} for number, reason in done.refused],
        }

    async def release(self, tenant: str, fleet: str, partition: int, request: ReleaseIn) -> None:
        """Release a partition. Raises 404, 409 `stale-epoch`, `fenced`, `changed-meanwhile`, `StorageError`."""
        key, now = fleet_key(tenant, fleet), self._clock.now()
        done = await self._runner.run(http_servers.release(key, request.node, str(request.incarnation), partition, request.epoch, now))
        if done == "stale":
            raise conflict("stale-epoch", "the node does not own the partition under this epoch")
        if isinstance(done, OutOfRange):
            raise out_of_range(done.partitions)
        if done != "released":
            raise _refused(done.why)


def _answer(server: Server, seq: int, h: float, v: float) -> dict[str, Any]:
    held = dict(server.http.held)
    generation, partitions = http_servers.parse_spread(server.http.spread)
    # The orders belong to a generation that the server does not use yet: it must release all that it has first.
    over = server.generation > server.http.mapped_generation
    answer: dict[str, Any] = {
        "seq": seq,
        "validity_ms": round(v * 1000),
        "beat_ms": round(h * 1000),
        "state": "draining" if server.state == "draining" or server.tell else "live",
        "held": {str(number): epoch for number, epoch in held.items()},
        # A bumped partition is in both lists: the server claims it after it has released it.
        "assign": [number for number in server.take if number not in held] if not over and not server.kept else [],
        "release": list(rules.pending_releases(server)) if not server.kept else [],
        "generation": generation,
        "partitions": partitions,
    }
    return answer | ({"exit": True} if server.tell == "exit" else {}) | ({"kept": True} if server.kept else {})


def _refused(why: str) -> Problem:
    if why == "missing":
        return not_found("fleet")
    if why == "contended":
        return contended()
    return conflict({"stale": "stale-seq", "evicted": "fenced"}.get(why, why), _WHY[why])
