"""Express delivery: events that are due now are delivered by the process that stores them, without a queue in between.

One shard per tenant takes the events that arrive while its owner serves it. Its index row is the safety net: if this process ends, a later
owner takes the shard by the same rules as any other. Whatever express delivery does not take goes the usual way.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence

from ...core import tracing
from ...core.clock import Millis
from ...core.errors import StorageError, Unavailable
from ...delivery.flow.service import Flow
from ...engine.leaving import end_within
from ..facets import FACETS
from ..ingest.open_shards import AccountRotation
from ..ingest.writer import Stored
from ..keys import Address, event_row, place_of, placed, shard_key
from ..properties.overlap import has_line
from ..protocol import express, owning
from ..protocol.ingest import KnownId, file_shard, known_id, register_id
from ..rows import EventToStore
from ..shard_services import ShardServices
from ..timings import EXPRESS_AHEAD, EXPRESS_NAMED_APART
from .arrivals import Arrivals, ExpressLoad
from .dispatch import CLOSE_WITHIN, Firing

log = logging.getLogger(__name__)

SHARD_EVENTS = 100
"""Most events in a shard of express delivery: every transaction of its owner counts its rows."""
SHARDS = 1_000
"""Most shards of express delivery of a process."""
BYTES = 8 * 1024 * 1024
"""Most bytes in the shards of express delivery of a process."""
TENANT_SHARE = 0.5
"""One tenant's largest part of each of these bounds: a tenant whose receivers are slow does not send the others the usual way."""
_NO_LOAD = ExpressLoad()


class Express:
    """Express delivery of one process. Belongs to one event loop."""

    def __init__(self, services: ShardServices, firing: Firing, flow: Flow, fresh: Sequence[str]) -> None:
        """firing: serves the shards that are opened here. fresh: the places that take new shards."""
        self._runner, self._clock, self._ids, self._flow = services.runner, services.clock, services.ids, flow
        self._rota, settings = AccountRotation(fresh, services.clock), services.settings
        self._most, self._shard_events = settings.express_events, min(SHARD_EVENTS, settings.shard_events)
        self._firing = firing
        self._open: dict[str, Arrivals] = {}
        """The shard of each tenant that took its last event."""
        self._served: dict[Arrivals, asyncio.Task[None]] = {}
        self._load = ExpressLoad()
        self._tenant_loads: dict[str, ExpressLoad] = {}
        """The load of each tenant that has a shard."""
        self._last: dict[str, float] = {}
        """Monotonic time of each tenant's last event."""
        self._last_named: dict[str, float] = {}
        """The same of its last event with an id of the client."""
        self._leaving = False

    @property
    def in_flight(self) -> int:
        """Events of express delivery that are not delivered yet."""
        return self._load.events

    @property
    def shards(self) -> int:
        """Shards of express delivery that this process serves."""
        return len(self._served)

    def leave(self) -> None:
        """Take no more events, because the process is about to end."""
        self._leaving = True

    async def close(self) -> None:
        """Let the owners release their shards; what they do not manage within `CLOSE_WITHIN` is left to the safety net."""
        self.leave()
        await end_within(self._served.values(), CLOSE_WITHIN)

    async def store(self, tenant: str, events: Sequence[EventToStore]) -> list[Stored | StorageError | None]:
        """Store the events that this process can deliver itself at once.

        Return results in the order given. None: the event is not stored, and goes the usual way.
        """
        now = self._clock.now()
        if len(events) == 1 and events[0].id is not None:
            try:
                return [await self._store_named(tenant, events[0], now)]
            except StorageError as error:
                return [error]
        due = [event for event in events if event.id is None and _is_for_express(event, now)]
        if not due or not await self._has_room(tenant, due):
            return [None] * len(events)
        chosen = set(map(id, due))
        places = [self._join(tenant, event, now) if id(event) in chosen else None for event in events]
        results: list[Stored | StorageError | None] = []
        for event, place in zip(events, places, strict=True):
            etag = await place[1] if place is not None else None
            if isinstance(etag, str) and place is not None:
                results.append(Stored(place[0], str(event.props["id"]), etag))
            else:
                results.append(etag if isinstance(etag, StorageError) else None)
        return results

    async def _store_named(self, tenant: str, event: EventToStore, now: Millis) -> Stored | None:
        """Store an event with an id of the client, in a shard of its own. None: it goes the usual way. Raises `StorageError`."""
        moment = self._clock.monotonic()
        if event.reuses is not None or not _is_for_express(event, now):
            return None
        if moment - self._last_named.get(tenant, -math.inf) < EXPRESS_NAMED_APART:
            return None
        if not await self._has_room(tenant, [event]) or await self._runner.run(known_id(tenant, str(event.id))) is not None:
            # A repeated request must not open a shard that stays empty.
            return None
        _remember(self._last_named, tenant, moment)
        arrivals = self._begin(tenant, max(event.due, now))
        arrivals.named = event
        row, result = arrivals.join(event, moment, math.inf)
        etag = await result
        if isinstance(etag, StorageError):
            raise etag
        return None if etag is None else Stored(Address(arrivals.shard, row), str(event.id), etag)

    async def _has_room(self, tenant: str, events: Sequence[EventToStore]) -> bool:
        """Return True if the events can be delivered at once, within the bounds of this process."""
        size = sum(event.size for event in events)
        if not self._fits(tenant, len(events), size):
            return False
        wanted: dict[str, int] = {}
        for event in events:
            channel = str(event.props["channel"])
            wanted[channel] = wanted.get(channel, 0) + 1
        for channel, count in wanted.items():
            if not await self._flow.takes_now(tenant, channel, count):
                return False
        # Others may have joined while the channels were read.
        return self._fits(tenant, len(events), size)

    def _fits(self, tenant: str, count: int, size: int) -> bool:
        """Return True if `count` events of `size` bytes are within the bounds of this process, and of the tenant's part of them."""
        if self._leaving:
            return False
        own = self._tenant_loads.get(tenant, _NO_LOAD)
        return self._within(1.0, self._load, count, size) and self._within(TENANT_SHARE, own, count, size)

    def _within(self, part: float, load: ExpressLoad, count: int, size: int) -> bool:
        """Return True if the load may grow that much within this part of the bounds. One event always fits into an empty part."""
        if load.shards >= part * SHARDS or load.bytes + size > part * BYTES:
            return False
        return load.events + count <= max(1, part * self._most)

    def _join(self, tenant: str, event: EventToStore, now: Millis) -> tuple[Address, asyncio.Future[str | StorageError | None]]:
        """Add an event to the tenant's shard, or to a new one."""
        moment = self._clock.monotonic()
        gap = moment - self._last.get(tenant, -math.inf)
        _remember(self._last, tenant, moment)
        arrivals = self._open.get(tenant)
        if arrivals is None or not arrivals.accepts(event, now):
            arrivals = self._begin(tenant, max(event.due, now))
        row, result = arrivals.join(event, moment, gap)
        return Address(arrivals.shard, row), result

    def _begin(self, tenant: str, wake: Millis) -> Arrivals:
        """Open a shard for a tenant's events of the minute of `wake`."""
        shard = shard_key(tenant, placed(self._ids.name(), self._rota.next()))
        own = self._tenant_loads.setdefault(tenant, ExpressLoad())
        arrivals = Arrivals(shard, wake, self._shard_events, (self._load, own))
        self._open[tenant] = arrivals
        # The owner serves events of many requests: its work is no part of the first one's trace.
        with tracing.taking_in(None):
            self._served[arrivals] = asyncio.create_task(self._run(tenant, arrivals))
        return arrivals

    async def _run(self, tenant: str, arrivals: Arrivals) -> None:
        """Open the shard and serve it to its end."""
        try:
            await self._open_and_serve(tenant, arrivals)
        except StorageError as error:
            # Its index row makes a sweep look at the shard.
            log.debug("Shard %s is left to the sweep: %s", arrivals.shard, error, extra={"action": "express_left"})
            arrivals.fail(error)
            if isinstance(error, Unavailable):
                self._rota.avoid(place_of(arrivals.shard))
        except BaseException as error:
            arrivals.fail(error)
            if not isinstance(error, Exception):
                raise
            log.exception("Express delivery raised an unexpected error", extra={"action": "express_failed"})
        finally:
            arrivals.close()
            arrivals.leave()
            if not self._tenant_loads[tenant].shards:
                del self._tenant_loads[tenant]
            del self._served[arrivals]
            if self._open.get(tenant) is arrivals:
                del self._open[tenant]

    async def _open_and_serve(self, tenant: str, arrivals: Arrivals) -> None:
        session = express.begin(arrivals.shard, arrivals.wake, f"o{self._ids.name()}", FACETS, self._firing.process_name)
        # From then on no sweep can overlook what is stored in the shard. Events that arrive meanwhile go into its first transaction.
        await self._runner.run(file_shard(arrivals.shard, arrivals.wake, sent=True))
        if arrivals.named is not None:
            # Before the event is stored, so that the id names one place.
            event, here = arrivals.named, Address(arrivals.shard, event_row(0))
            if isinstance(await self._runner.run(register_id(tenant, str(event.id), event.hash, here)), KnownId):
                arrivals.leave_out_named()
        sent = self._clock.monotonic()
        entries = arrivals.take(owning.MAX_CHANGES)
        serving = await self._runner.run(express.store_first(session, entries))
        arrivals.settle(session.rows)
        if serving:
            await self._firing.serve_own(session, arrivals, sent)


def _is_for_express(event: EventToStore, now: Millis) -> bool:
    """Return True if the event is due now, and nothing else than its delivery is to be done about it."""
    if event.due > now + EXPRESS_AHEAD or event.props["state"] != "scheduled":
        return False
    # An event that stands in a line may have to wait for others; the first one of a fan-out has two ids.
    return event.durability == "standard" and not has_line(event.props) and event.fanout is None


def _remember(moments: dict[str, float], tenant: str, moment: float) -> None:
    """Note the moment of a tenant's last event; forget the tenants that were heard of longest ago."""
    moments.pop(tenant, None)
    moments[tenant] = moment
    while len(moments) > 2 * SHARDS:
        del moments[next(iter(moments))]
