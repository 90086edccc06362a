"""Views of a fleet's leases: by partition, by server, and the routes for its clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ...core.clock import Clock, Millis, to_text
from ...core.errors import Problem
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps, get, load, load_rows
from ...storage.names import FLEETS
from ...storage.ports import RowQuery, Tables
from ...tenants.cache import Cached
from ...web.etag import encode, etag_of
from ...web.problem import not_found
from .. import rules
from ..loads import published_load
from ..rows import (
    FLEET,
    INTENTS,
    NO_PARTITION,
    SERVERS,
    Partition,
    Server,
    fleet_key,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
)
from ..unreadable_rows import parse_rows, unreadable_servers
from .control.model import intent_out
from .snapshot import FleetSnapshot, FleetSummary, Versioned, parse_summary, read_snapshot, row_age

ROUTES_MAX_AGE = 1.0
"""Seconds for which routes are answered from memory."""
MAX_CACHED_ROUTES = 1000
"""Fleets with routes in the memory of a process."""


type TurnTaker = Callable[[str], Awaitable[str | None]]
"""Returns the replica of a fleet that takes a checkpoint now, if any."""


class OwnerRoutes(NamedTuple):
    """The owners of a fleet's partitions as encoded JSON, and its entity tag."""

    body: bytes
    etag: str


class LeaseViews:
    """Reads leases for the API. One per process."""

    def __init__(self, tables: Tables, runner: AsyncRunner, clock: Clock, turn_taker: TurnTaker) -> None:
        self._tables, self._runner, self._clock, self._turn_taker = tables, runner, clock, turn_taker
        self._routes = Cached(self._read_routes, clock, ttl=ROUTES_MAX_AGE, missing_ttl=ROUTES_MAX_AGE, size=MAX_CACHED_ROUTES)

    async def lease(self, tenant: str, fleet: str, number: int) -> dict[str, Any]:
        """Return one partition. Raises 404, `StorageError`."""
        found = await self._runner.run(_read_lease(fleet_key(tenant, fleet), number))
        if found is None:
            raise not_found("fleet")
        if number >= found.seen.fleet.partitions:
            raise out_of_range(found.seen.fleet.partitions)
        if found.partition is None and found.unreadable:
            raise not_found("partition: its row was edited and cannot be read; repair it in the table")
        if found.partition is None:
            raise not_found("partition: its row is missing; repeat the PUT of the fleet to restore it")
        return lease_out(found.partition, found.owner, IntentsByTarget(found.seen, self._clock.now()), kept=bool(found.unreadable))

    async def leases(self, tenant: str, fleet: str, limit: int, after: int = -1) -> tuple[list[dict[str, Any]], int | None]:
        """Return partitions by number after `after`, and the last number if there are more. Raises 404, `StorageError`."""
        key = fleet_key(tenant, fleet)
        rows = await load_rows(self._tables, RowQuery(FLEETS, key, FLEET, INTENTS[1]))
        seen = parse_summary(key, rows)
        if seen is None:
            raise not_found("fleet")
        end = min(after + 1 + limit, seen.fleet.partitions)
        partitions = (
            await load_rows(self._tables, RowQuery(FLEETS, key, partition_key(after + 1), partition_key(end))) if after + 1 < end else []
        )
        of_servers, unreadable = parse_rows(await load_rows(self._tables, RowQuery(FLEETS, key, *SERVERS)), parse_server)
        servers = {server.name: Versioned(server, row.etag, row_age(row)) for row, server in of_servers}
        intents, unread = IntentsByTarget(seen, self._clock.now()), unreadable_servers(unreadable)
        found = (partition for _, partition in parse_rows(partitions, parse_partition)[0])
        items = [lease_out(each, servers.get(each.owner), intents, kept=each.owner in unread) for each in found]
        return items, end - 1 if end < seen.fleet.partitions else None

    async def by_server(self, tenant: str, fleet: str, limit: int, after: str = "") -> tuple[list[dict[str, Any]], str | None]:
        """Return servers by name after `after` with their partitions, and the last name if there are more. Raises 404, `StorageError`."""
        snapshot = await self.snapshot(fleet_key(tenant, fleet))
        owners = owners_of(snapshot)
        names = [name for name in sorted(snapshot.summary.servers) if name > after]
        items = []
        for name in names[:limit]:
            one = snapshot.summary.servers[name]
            partitions = sorted(owners.get(name, ()))
            load = published_load(one.value, partitions, snapshot.summary.fleet.generation)
            about = {"server": name, "state": one.value.state, "beat_age_ms": beat_age_ms(one), "load": load}
            items.append({**about, "partitions": partitions})
        return items, names[limit - 1] if len(names) > limit else None

    async def routes(self, tenant: str, fleet: str) -> OwnerRoutes:
        """Return the owner of each partition, at most a second old. Raises 404, `StorageError`."""
        found = await self._routes.get(fleet_key(tenant, fleet))
        if found is None:
            raise not_found("fleet")
        return found

    async def _read_routes(self, key: str) -> OwnerRoutes | None:
        snapshot = await self._runner.run(read_snapshot(key))
        if snapshot is None:
            return None
        owners = owners_of(snapshot, snapshot.summary.fleet.generation)
        taken = {number for numbers in owners.values() for number in numbers}
        body = {
            "generation": snapshot.summary.fleet.generation,
            "owners": {name: sorted(numbers) for name, numbers in sorted(owners.items())},
            "unowned": [number for number in range(snapshot.summary.fleet.partitions) if number not in taken],
            "taking": await self._turn_taker(key),
        }
        raw = encode(body)
        return OwnerRoutes(raw, etag_of(raw))

    async def snapshot(self, key: str) -> FleetSnapshot:
        """Read a whole fleet. Raises 404, `StorageError`."""
        snapshot = await self._runner.run(read_snapshot(key))
        if snapshot is None:
            raise not_found("fleet")
        return snapshot


class _LeaseRows(NamedTuple):
    """A partition's row and its owner's row, if they exist. unreadable: one of them cannot be read."""

    seen: FleetSummary
    partition: Partition | None = None
    owner: Versioned[Server] | None = None
    unreadable: bool = False


def _read_lease(key: str, number: int) -> Steps[_LeaseRows | None]:
    seen = parse_summary(key, (yield from load(FLEETS, key, FLEET, INTENTS[1])))
    if seen is None or number >= seen.fleet.partitions:
        return None if seen is None else _LeaseRows(seen)
    row = yield from get(FLEETS, key, partition_key(number))
    partitions, unreadable = parse_rows([row] if row is not None else [], parse_partition)
    if not partitions or not (name := partitions[0][1].owner):
        return _LeaseRows(seen, partitions[0][1] if partitions else None, unreadable=bool(unreadable))
    row = yield from get(FLEETS, key, server_key(name))
    owners, unreadable = parse_rows([row] if row is not None else [], parse_server)
    owner = next((Versioned(server, of.etag, row_age(of)) for of, server in owners), None)
    return _LeaseRows(seen, partitions[0][1], owner, bool(unreadable))


class IntentsByTarget:
    """The intents in force at wall time `now` as the API shows them, by target. A fleet can have thousands of intents and targets."""

    def __init__(self, seen: FleetSummary, now: Millis) -> None:
        self.offline = seen.in_force(now).offline
        self._about: defaultdict[int | str, list[dict[str, Any]]] = defaultdict(list)
        for intent in seen.intents:
            if not intent.expires or now < intent.expires:
                self._about[intent.server if intent.partition == NO_PARTITION else intent.partition].append(intent_out(intent))

    def about(self, target: int | str) -> list[dict[str, Any]]:
        """Return the intents for a partition (number) or a server (name)."""
        return self._about.get(target, [])


def lease_out(partition: Partition, owner: Versioned[Server] | None, intents: IntentsByTarget, *, kept: bool = False) -> dict[str, Any]:
    """Return a partition as the API shows it.

    owner: the row of the partition's owner, read after the partition's row. kept: the owner's row cannot be read, so the owner may be live.
    """
    owned = bool(partition.owner) and (kept or not rules.has_ended(partition.incarnation, owner.value if owner is not None else None))
    if owned:
        state = "owned"
    elif partition.number in intents.offline:
        state = "offline"
    else:
        state = "released" if partition.epoch and not partition.owner else "unowned"
    return {
        "partition": partition.number,
        "state": state,
        "owner": partition.owner if owned else None,
        "epoch": partition.epoch,
        "since": to_text(partition.since) if partition.since else None,
        "beat_age_ms": beat_age_ms(owner) if owned and owner is not None else None,
        "load": published_load(owner.value, (partition.number,), partition.generation) if owned and owner is not None else None,
        "intents": intents.about(partition.number),
    }


def owners_of(snapshot: FleetSnapshot, generation: int = 0) -> dict[str, dict[int, int]]:
    """Return the partitions of each server with their epochs.

    Partitions of incarnations that are over have no owner. Servers with unreadable rows keep theirs. generation: partitions of earlier
    generations are left out.
    """
    owners: defaultdict[str, dict[int, int]] = defaultdict(dict)
    kept = snapshot.kept
    for number, each in snapshot.partitions.items():
        owner = snapshot.summary.servers.get(each.value.owner)
        lives = owner is not None and not rules.has_ended(each.value.incarnation, owner.value)
        if each.value.generation >= generation and (lives or number in kept):
            owners[each.value.owner][number] = each.value.epoch
    return owners


def out_of_range(partitions: int) -> Problem:
    """Return a 404 for a partition that the fleet does not have."""
    return not_found(f"partition: the fleet has partitions 0 to {partitions - 1:,}")


def beat_age_ms(one: Versioned[Server]) -> int:
    """Return the milliseconds since a server's last heartbeat, by the storage service's clock."""
    return round(one.age * 1000)
