"""Admitting events: what the models cannot know (channels, limits, sizes), then the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ..channels.ports import Target
from ..clock import Clock, Millis
from ..errors import Problem, StorageError
from ..storage.ports import Props, Row
from ..tenants.limits import IngestLimiter
from ..tenants.model import Tenant
from ..tenants.store import TenantDirectory
from ..web import problem
from ..web.intake import elements, load_json, member, parse_json
from ..web.problem import invalid, not_found, too_many
from .model import MAX_BATCH_EVENTS, MAX_PAYLOAD, MAX_SMALL_PAYLOAD, EventIn, EventPatch
from .rows import NewEvent, body_of, body_props, encoded_size, etag_of_row, new_event, representation
from .rules import NEVER
from .stats import Stats
from .writer import Stored, Writer

_EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)
BREATH = 200
"""Events of a batch that are parsed before the loop may turn to other work."""
OPEN_RETRY = 10.0
"""Seconds after which to ask again when a tenant has too many open events."""


class Admitted(NamedTuple):
    """An event that is in the store, and whether it is new."""

    id: str
    row: Row
    new: bool

    @property
    def shown(self) -> dict[str, Any]:
        """What it looks like; worked out when asked for, since a batch shows ids only."""
        return representation(self.row)

    @property
    def etag(self) -> str:
        """The ETag of what is shown."""
        return etag_of_row(self.row)


class Ingest:
    """Takes events in. One per process."""

    def __init__(self, directory: TenantDirectory, writer: Writer, stats: Stats, limiter: IngestLimiter, clock: Clock) -> None:
        self._directory, self._writer, self._stats, self._limiter, self._clock = directory, writer, stats, limiter, clock

    async def one(self, tenant: str, event: EventIn, raw: bytes) -> Admitted:
        """Store one event. Raises `Problem` (409, 413, 422, 429) and `StorageError`; then nothing was acknowledged."""
        settings = await self._tenant(tenant)
        ready = await self._checked(tenant, settings, event, raw)
        granted, refusal = await self._admit(tenant, settings, 1)
        if not granted:
            raise refusal
        stored = (await self._writer.store(tenant, [ready]))[0]
        if isinstance(stored, StorageError):
            raise stored
        return self._admitted(ready, stored)

    async def batch(self, tenant: str, raw: bytes, *, lines: bool) -> list[Admitted | Problem]:
        """Store the events of a JSON array, or of JSON lines, each on its own terms, in the order sent.

        Raises `Problem` when the batch itself is wrong: not JSON, empty, too many events; and 429 when the tenant's limits let none of
        its good events in.
        """
        settings = await self._tenant(tenant)
        results: list[Admitted | Problem | None] = []
        ready: list[tuple[int, NewEvent]] = []
        for number, element in enumerate(_elements(raw, lines=lines)):
            if number >= MAX_BATCH_EVENTS:
                raise Problem(413, "content-too-large", f"more than {MAX_BATCH_EVENTS:,} events; send several batches")
            if number % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            try:
                ready.append((number, await self._checked(tenant, settings, parse_json(_EVENT, element), element)))
                results.append(None)
            except Problem as wrong:
                results.append(wrong)
        if not results:
            raise invalid("", "the batch holds no event")
        granted, refusal = await self._admit(tenant, settings, len(ready))
        if ready and not granted:
            raise refusal
        for number, _ in ready[granted:]:
            results[number] = refusal
        ready = ready[:granted]
        for (number, event), stored in zip(ready, await self._writer.store(tenant, [event for _, event in ready]), strict=True):
            try:
                if isinstance(stored, StorageError):
                    raise stored
                results[number] = self._admitted(event, stored)
            except (Problem, StorageError) as failure:
                results[number] = problem.of(failure, where="events_batch")
        return [result for result in results if result is not None]

    async def patch(self, tenant: str, patch: EventPatch, raw: bytes, now: Props) -> tuple[Millis | None, Props]:
        """What a patch changes of the event as it is `now`: the new due time, if it moves the event, and properties.

        Raises `Problem` (422, 413).
        """
        settings = await self._tenant(tenant)
        given = patch.model_fields_set
        change: Props = {}
        if "payload" in given:
            body = _body(raw)
            # The channel it has may be gone by now; that is told when it is due.
            channel = patch.channel if patch.channel is not None else str(now["channel"])
            self._sized(settings, body, await self._directory.target(tenant, channel))
            change.update({"chunks": 1, **body_props(body), "size": encoded_size(body)})
        if patch.channel is not None:
            target = await self._channel(tenant, patch.channel)
            if "payload" not in given:
                _sized_for(body_of(now), MAX_SMALL_PAYLOAD if target.spec.type == "queue" else MAX_PAYLOAD)
            change["channel"] = patch.channel
        if "expires" in given:
            change["expires"] = NEVER if patch.expires is None else patch.expires
        due = patch.due if patch.due is not None else self._clock.now() + patch.delay if patch.delay is not None else None
        return due, change

    async def _tenant(self, tenant: str) -> Tenant:
        settings = await self._directory.tenant(tenant)
        if settings is None:
            raise not_found("tenant")
        return settings

    async def _channel(self, tenant: str, name: str) -> Target:
        target = await self._directory.target(tenant, name)
        if target is None:
            raise invalid("/channel", "the tenant has no channel of that name")
        return target

    async def _checked(self, tenant: str, settings: Tenant, event: EventIn, raw: bytes) -> NewEvent:
        body = _body(raw)
        target = await self._channel(tenant, event.channel)
        self._sized(settings, body, target)
        return new_event(event, body, self._clock.now())

    @staticmethod
    def _sized(settings: Tenant, body: bytes, target: Target | None) -> None:
        limit = min(MAX_PAYLOAD, settings.limits.payload_bytes or MAX_PAYLOAD)
        if target is not None and target.spec.type == "queue":
            limit = min(limit, MAX_SMALL_PAYLOAD)
        _sized_for(body, limit)

    async def _admit(self, tenant: str, settings: Tenant, count: int) -> tuple[int, Problem]:
        """How many of `count` events the tenant's limits let in now, and what to tell the rest."""
        limit = settings.limits.open_events
        fits = count
        if limit is not None and count:
            fits = min(count, max(0, limit - await self._stats.open_events(tenant)))
        grant = await self._limiter.take(tenant, settings.limits.events_per_second, fits)
        if limit is not None and grant.granted:
            self._stats.admitted(tenant, grant.granted)
        if grant.granted < fits:
            return grant.granted, too_many(grant.retry_after, "over the tenant's events per second")
        return grant.granted, too_many(OPEN_RETRY, f"the tenant may have {limit:,} open events" if limit is not None else "over a limit")

    @staticmethod
    def _admitted(event: NewEvent, stored: Stored) -> Admitted:
        if stored.existing is None:
            row = Row(stored.address.shard, stored.address.row, event.props, stored.etag, 0, 0)
            return Admitted(stored.id, row, True)
        if not stored.same:
            raise problem.conflict("id-conflict", "the id names an event with other content")
        return Admitted(stored.id, stored.existing, False)


def _sized_for(body: bytes, limit: int) -> None:
    if len(body) > limit:
        detail = f"the payload is over {limit:,} bytes"
        raise Problem(413, "payload-too-large", detail, errors=[{"pointer": "/payload", "detail": detail}])


def _body(raw: bytes) -> bytes:
    """The payload exactly as sent."""
    body = member(raw, "payload")
    assert body is not None  # the model has it
    return body


def _elements(raw: bytes, *, lines: bool) -> Iterator[bytes]:
    """The events of a batch as they were sent."""
    if lines:
        yield from (line for line in raw.split(b"\n") if line.strip())
        return
    try:
        yield from elements(raw.decode())
    except (ValueError, IndexError, RecursionError):
        # Something is wrong with the array as a whole: a real parser says what.
        if not isinstance(load_json(raw), list):
            raise invalid("", "the batch is not an array of events") from None
        raise invalid("", "the batch is not a plain array of events") from None
