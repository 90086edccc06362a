"""Creates, changes, lists and ends the fleets of tenants, and lists all fleets for the sweeps.

The rows of a fleet itself are in `leases/rows.py`, those of the index and of ended fleets in `index.py`.

The index entry is written first and deleted last. A fleet that is created again under the same name continues with higher epochs:
storage that was fenced with the old epochs would refuse lower ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from ..core.errors import Problem
from ..core.readable import count_of
from ..engine.async_runner import AsyncRunner
from ..engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ..engine.effects import load_rows
from ..leases.generations import resize_progress
from ..leases.protocol import repair, resizing, takeover
from ..leases.protocol.repair import OwnersUnknown
from ..leases.protocol.resizing import FleetClosed, ServersLive
from ..leases.rows import FLEET, INDEX, PARTITIONS, SERVERS, Fleet, fleet_key, parse_fleet, parse_partition, parse_server
from ..leases.service.resize import resizing_out
from ..leases.unreadable_rows import parse_rows, unreadable_servers
from ..storage.names import FLEETS
from ..storage.ports import Applied, Delete, Insert, Merge, Replace, Row, RowQuery, Upsert
from ..tenants.model import MOST_FLEETS, MOST_PARTITIONS, Limits
from ..tenants.rows import ATTEMPTS
from ..tenants.store import contended
from ..web.etag import check_if_match, etag_of
from ..web.fields.types import NAME
from ..web.problem import conflict, invalid, not_found
from .definition import created_of, fleet_of, fleet_out, guard_of, with_guard
from .index import GONE, EndedFleet, FleetEntry, entry_props, parse_ended, parse_entry
from .model import FleetIn, FleetOut

log = logging.getLogger(__name__)

READ_AT_ONCE: Final = 16
"""Fleets whose rows are read at the same time."""

type TenantLimits = Callable[[str], Awaitable[Limits]]
"""Returns the limits of a tenant; raises 404 if it has ended."""
type FleetHook = Callable[[str], Awaitable[None]]
"""Receives the partition key of a fleet that ends."""
type TenantHook = Callable[[str], Awaitable[None]]
"""Receives the name of a tenant that ends."""


class FleetDirectory:
    """Creates, changes, lists and ends fleets. One per process."""

    def __init__(
        self,
        runner: AsyncRunner,
        require_tenant: Callable[[str], Awaitable[object]],
        *,
        tenant_limits: TenantLimits | None = None,
        on_fleet_end: Sequence[FleetHook] = (),
        on_tenant_end: Sequence[TenantHook] = (),
    ) -> None:
        """Keep the parts; nothing is read yet.

        require_tenant: reads a tenant from storage; raises 404 if it is missing or ending. on_fleet_end: removes what other rooms keep of
        the fleet with a key. on_tenant_end: removes what other rooms keep of a tenant's ended fleets. Hooks raise `StorageError` and can be
        repeated. tenant_limits: returns a tenant's own limits; without it, the defaults apply.
        """
        self._tables, self._runner, self._clock, self._require_tenant = runner.tables, runner, runner.clock, require_tenant
        self._tenant_limits = tenant_limits
        self._growing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock per tenant, held while a call adds partitions."""
        self._on_fleet_end, self._on_tenant_end = tuple(on_fleet_end), tuple(on_tenant_end)

    async def read(self, tenant: str, name: str) -> tuple[Fleet, str]:
        """Return the fleet's stored row and its ETag. Raises 404, `StorageError`."""
        row = await self._tables.get(FLEETS, _key(tenant, name), FLEET)
        if row is None:
            raise not_found("fleet")
        return parse_fleet(row.props), row.etag

    async def get(self, tenant: str, name: str) -> tuple[FleetOut, str]:
        """Return the fleet as the API shows it, and its entity tag. Raises 404, `StorageError`."""
        fleet, _ = await self.read(tenant, name)
        out, etag = _tagged(fleet_out(name, fleet))
        return await self._with_progress(tenant, out, fleet), etag

    async def page(self, tenant: str, limit: int, after: str = "") -> tuple[list[FleetOut], str | None]:
        """Return a tenant's fleets by name after `after`, and the last name if there are more."""
        entries = [each for each in await self._entries(tenant) if each.name > after]
        there = await self._definitions(entries[:limit])
        items = [await self._with_progress(tenant, fleet_out(name, fleet), fleet) for name, fleet in there]
        return items, entries[limit - 1].name if len(entries) > limit else None

    async def _definitions(self, entries: Sequence[FleetEntry]) -> list[tuple[str, Fleet]]:
        """Return the fleets by name. A fleet without its own row is being created, or is ending; it is left out."""
        slots = asyncio.Semaphore(READ_AT_ONCE)

        async def read_one(entry: FleetEntry) -> Row | None:
            async with slots:
                return await self._tables.get(FLEETS, entry.key, FLEET)

        rows = await asyncio.gather(*map(read_one, entries))
        return [(entry.name, parse_fleet(row.props)) for entry, row in zip(entries, rows, strict=True) if row is not None]

    async def _limits(self, tenant: str) -> Limits:
        return await self._tenant_limits(tenant) if self._tenant_limits is not None else Limits()

    async def _with_progress(self, tenant: str, out: FleetOut, fleet: Fleet) -> FleetOut:
        """Return the fleet with the progress of its resize."""
        if not fleet.former:
            return out
        rows = await load_rows(self._tables, RowQuery(FLEETS, _key(tenant, out.name), *PARTITIONS))
        return out.model_copy(
            update={"resizing": resizing_out(resize_progress((row for _, row in parse_rows(rows, parse_partition)[0]), fleet))}
        )

    async def put(
        self, tenant: str, name: str, spec: FleetIn, headers: Mapping[str, str] | None = None, *, dry_run: bool = False
    ) -> tuple[FleetOut, str, bool]:
        """Create the fleet or change it. The third value is True if it is new. Honours `If-Match` in `headers`.

        dry_run: store nothing; the entity tag is empty if something would be stored. Raises 404 (the tenant has ended), 409 `servers-live`,
        `too-many-fleets`, `too-many-partitions`, `changed-meanwhile`, 412, 422, `StorageError`.
        """
        key = _key(tenant, name)
        if fault := spec.fault():
            raise invalid(*fault)
        if dry_run:
            return await self._plan(tenant, name, spec, headers or {})

        async def attempt() -> tuple[FleetOut, str, bool] | WriteConflict:
            row = await self._tables.get(FLEETS, key, FLEET)
            if row is None:
                check_if_match(headers or {}, None)
                made = await self._create(tenant, name, spec)
                new = made is not None
            else:
                made = await self._change(key, name, parse_fleet(row.props), row.etag, spec, headers or {})
                new = False
            if made is not None:
                return *_tagged(fleet_out(name, made)), new
            return CONFLICT

        return await retry_on_conflict(attempt, ATTEMPTS, contended)

    async def delete(self, tenant: str, name: str, headers: Mapping[str, str] | None = None) -> None:
        """End the fleet. If it is interrupted, the next call, or the creation of a fleet of that name, completes it.

        Raises 404, 409 `servers-live`, `changed-meanwhile`, 412, `StorageError`.
        """
        key = _key(tenant, name)

        async def attempt() -> WriteConflict | None:
            entry = await self._find(key)
            row = await self._tables.get(FLEETS, key, FLEET)
            if row is None:
                if entry is None:
                    raise not_found("fleet")
                check_if_match(headers or {}, None)
            else:
                fleet = parse_fleet(row.props)
                check_if_match(headers or {}, _tagged(fleet_out(name, fleet))[1])
                closed = await self._runner.run(resizing.close(key, fleet, row.etag))
                if isinstance(closed, ServersLive):
                    raise _servers_live(closed.servers, "the fleet")
                if not isinstance(closed, FleetClosed):
                    return CONFLICT
                if not isinstance(await self._mark(key, entry), Applied):
                    return CONFLICT
                gone = await self._tables.write(FLEETS, key, [Delete(FLEET, closed.etag)])
                if not isinstance(gone, Applied):
                    return CONFLICT
                log.info("Fleet %s is being removed", key, extra={"action": "fleet_ended", "fleet": key})
            if row is None and not isinstance(await self._mark(key, entry), Applied):
                return CONFLICT
            await self._finish(key)
            return None

        await retry_on_conflict(attempt, ATTEMPTS, contended)

    async def refuse_living(self, tenant: str) -> None:
        """Raise 409 `servers-live` while servers of the tenant's fleets live."""
        for entry in await self._entries(tenant):
            if found := await self._runner.run(resizing.live_servers(entry.key)):
                raise _servers_live(found, f"fleet {entry.name}")

    async def end_all(self, tenant: str) -> None:
        """End all of a tenant's fleets, and delete their epochs. Raises 409 `servers-live`, `StorageError`; can be repeated."""
        for entry in await self._entries(tenant):
            try:
                await self.delete(tenant, entry.name)
            except Problem as problem:
                # Another call was first.
                if problem.status != 404:
                    raise
        for row in await load_rows(self._tables, RowQuery(FLEETS, GONE, f"{tenant}:", f"{tenant};")):
            await self._tables.write(FLEETS, GONE, [Delete(row.rk, row.etag)])
        for hook in self._on_tenant_end:
            await hook(tenant)

    # -- creating

    async def _create(self, tenant: str, name: str, spec: FleetIn) -> Fleet | None:
        """Create the fleet; None if another call came in between."""
        key = _key(tenant, name)
        entry = await self._find(key)
        if entry is not None and entry.ending:
            await self._finish(key)
            entry = await self._find(key)
        async with self.room(tenant, name, spec.partitions):
            if entry is None:
                await self._require_fleet(tenant)
                made = await self._tables.write(FLEETS, INDEX, [Insert(key, entry_props(self._clock.now()))])
                if not isinstance(made, Applied):
                    return None
            fleet = fleet_of(with_guard(spec, "prepare"), self._clock.now())
            if not await self._runner.run(takeover.create_fleet(key, fleet, await self._highest_epoch(key))):
                return None
        try:
            await self._require_tenant(tenant)
        except Problem:
            # The tenant ended meanwhile, and its end may have missed this fleet.
            await self.delete(tenant, name)
            raise
        now = await self._find(key)
        if now is None or now.ending:
            # Another call ended the fleet before it was complete, and may have missed some of its rows.
            await self.delete(tenant, name)
            return None
        return fleet

    @asynccontextmanager
    async def room(self, tenant: str, name: str, partitions: int) -> AsyncIterator[None]:
        """Let the caller store `partitions` for this fleet. Raises 409 `too-many-partitions` if the tenant's fleets had too many.

        A fleet may always keep or reduce its count. In a process, one call of a tenant after the other counts and stores; calls in several
        processes at the same time count what was stored before them.
        """
        async with self._growing.setdefault(tenant, asyncio.Lock()):
            await self._require_room(tenant, name, partitions)
            yield

    async def _require_fleet(self, tenant: str) -> None:
        """Raise 409 `too-many-fleets` if the tenant may have no further fleet."""
        own = (await self._limits(tenant)).fleets
        limit = MOST_FLEETS if own is None else own
        if (count := len(await self._entries(tenant))) >= limit:
            detail = f"the tenant has {count_of(count, 'fleet')}, and its limit is {limit:,}"
            raise conflict("too-many-fleets", f"{detail}; an operator can raise limits.fleets", "fleets")

    async def _require_room(self, tenant: str, name: str, partitions: int) -> None:
        own = (await self._limits(tenant)).partitions
        limit = MOST_PARTITIONS if own is None else own
        counts = {name: fleet.partitions for name, fleet in await self._definitions(await self._entries(tenant))}
        before = counts.pop(name, 0)
        total = sum(counts.values()) + partitions
        if partitions > before and total > limit:
            detail = f"the tenant's fleets would have {count_of(total, 'partition')}, and its limit is {limit:,}"
            raise conflict("too-many-partitions", f"{detail}; an operator can raise limits.partitions", "partitions")

    # -- changing

    async def _plan(self, tenant: str, name: str, spec: FleetIn, headers: Mapping[str, str]) -> tuple[FleetOut, str, bool]:
        """Return what `put` would return, and store nothing. The entity tag is empty if something would be stored."""
        key = _key(tenant, name)
        row = await self._tables.get(FLEETS, key, FLEET)
        if row is None:
            check_if_match(headers, None)
            await self._require_tenant(tenant)
            await self._require_room(tenant, name, spec.partitions)
            if await self._find(key) is None:
                await self._require_fleet(tenant)
            return fleet_out(name, fleet_of(with_guard(spec, "prepare"), self._clock.now())), "", True
        old = parse_fleet(row.props)
        now, tag = _tagged(fleet_out(name, old))
        check_if_match(headers, tag)
        new = _changed(old, spec)
        if new.profile != old.profile and (found := await self._runner.run(resizing.live_servers(key))):
            raise _servers_live(found, "the profile")
        return (now, tag, False) if new == old else (fleet_out(name, new), "", False)

    async def _change(self, key: str, name: str, old: Fleet, etag: str, spec: FleetIn, headers: Mapping[str, str]) -> Fleet | None:
        """Change the fleet; None if another write came in between."""
        check_if_match(headers, _tagged(fleet_out(name, old))[1])
        new = _changed(old, spec)
        await self._refill(key, old)
        if new.profile != old.profile:
            closed = await self._runner.run(resizing.close(key, old, etag))
            if isinstance(closed, ServersLive):
                raise _servers_live(closed.servers, "the profile")
            if not isinstance(closed, FleetClosed):
                return None
            etag = closed.etag
        if new != old:
            new = replace(new, changes=old.changes + 1)
            written = await self._tables.write(FLEETS, key, [Replace(FLEET, new.props(), etag)])
            if not isinstance(written, Applied):
                return None
        if await self._find(key) is None:
            await self._tables.write(FLEETS, INDEX, [Insert(key, entry_props(self._clock.now()))])
        return new

    async def _refill(self, key: str, fleet: Fleet) -> None:
        # The epoch of a lost row is a count of claims, and therefore lower than this.
        missing = await self._runner.run(repair.refill(key, fleet, self._clock.now() // 1000))
        if isinstance(missing, OwnersUnknown):
            raise conflict(
                "servers-live",
                f"rows of partitions {name_first_five(map(str, missing.partitions))} are missing, and running servers may serve them: "
                f"{name_first_five(missing.servers)}. Stop these servers, then repeat the PUT.",
            )
        if missing:
            log.warning("The rows of %d partitions of fleet %s were restored", missing, key, extra={"action": "lease_rows_refilled"})

    # -- ending

    async def _mark(self, key: str, entry: FleetEntry | None) -> Applied | None:
        """Mark the entry as ending."""
        if entry is None:
            made = await self._tables.write(FLEETS, INDEX, [Insert(key, entry_props(self._clock.now(), ending=True))])
        elif entry.ending:
            return Applied([entry.etag])
        else:
            made = await self._tables.write(FLEETS, INDEX, [Merge(key, {"ending": True}, entry.etag)])
        return made if isinstance(made, Applied) else None

    async def _finish(self, key: str) -> None:
        """Remove the rest of a fleet that is ending: its rows first, its index entry last.

        Rows of a new fleet of the same name are not touched: rows are deleted as they were read while the entry said that the fleet is
        ending.
        """
        while True:
            rows = await load_rows(self._tables, RowQuery(FLEETS, key, "", "~"))
            entry = await self._find(key)
            if entry is None or not entry.ending:
                return
            servers, unreadable = parse_rows((row for row in rows if SERVERS[0] <= row.rk < SERVERS[1]), parse_server)
            if lives := [*(server.name for _, server in servers if server.state != "dead"), *unreadable_servers(unreadable)]:
                raise _servers_live(lives, "the fleet")
            partitions, unreadable = parse_rows((row for row in rows if PARTITIONS[0] <= row.rk < PARTITIONS[1]), parse_partition)
            # A row that cannot be read has a lower epoch than this (`_refill`).
            epochs = [*(partition.epoch for _, partition in partitions), *([self._clock.now() // 1000] if unreadable else ())]
            if any(epochs):
                gone = EndedFleet(max(*epochs, await self._highest_epoch(key)), self._clock.now())
                await self._tables.write(FLEETS, GONE, [Upsert(key, gone.props())])
            if not rows:
                for hook in self._on_fleet_end:
                    await hook(key)
                await self._tables.write(FLEETS, INDEX, [Delete(key, entry.etag)])
                return
            for start in range(0, len(rows), 100):
                await self._tables.write(FLEETS, key, [Delete(row.rk, row.etag) for row in rows[start : start + 100]])

    # -- the index

    async def _highest_epoch(self, key: str) -> int:
        """Return the highest epoch of the fleets of this name that have ended; 0 if there was none."""
        row = await self._tables.get(FLEETS, GONE, key)
        return parse_ended(row.props).epoch if row is not None else 0

    async def _find(self, key: str) -> FleetEntry | None:
        row = await self._tables.get(FLEETS, INDEX, key)
        return parse_entry(row) if row is not None else None

    async def _entries(self, tenant: str) -> list[FleetEntry]:
        return [parse_entry(row) for row in await load_rows(self._tables, RowQuery(FLEETS, INDEX, f"{tenant}:", f"{tenant};"))]


def _changed(old: Fleet, spec: FleetIn) -> Fleet:
    """Return the fleet with this definition, and its state as it is. Raises 422 for another number of partitions."""
    if spec.partitions != old.partitions:
        raise invalid("/partitions", f"must stay {old.partitions:,}; use POST leases/resize to change it while servers run")
    made = fleet_of(with_guard(spec, guard_of(old)), created_of(old))
    return replace(made, generation=old.generation, former=old.former, changes=old.changes)


def _tagged(out: FleetOut) -> tuple[FleetOut, str]:
    # The tag covers the definition alone: manual controls change the fleet's row too, and are not shown here.
    return out, etag_of(out.model_dump_json())


def _key(tenant: str, name: str) -> str:
    """Return the fleet's partition key. Raises 404 for an invalid name."""
    if not NAME.fullmatch(name):
        raise not_found("fleet")
    return fleet_key(tenant, name)


def _servers_live(servers: Sequence[str], what: str) -> Problem:
    return conflict(
        "servers-live", f"{what} cannot change while servers live: {name_first_five(sorted(servers))}; drain and stop them first"
    )


def name_first_five(subjects: Iterable[str]) -> str:
    """Return the first five subjects, and the number of the others."""
    found = list(subjects)
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
