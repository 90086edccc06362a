"""Admitting events: what the models cannot know (channels, limits, sizes), then the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from json import JSONDecoder
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ..channels.ports import Target
from ..clock import Clock, Millis, to_text
from ..errors import Problem, StorageError
from ..storage.ports import Props, Row
from ..tenants.limits import IngestLimiter
from ..tenants.model import Tenant
from ..tenants.store import TenantDirectory
from ..web import problem
from ..web.intake import load_json, member, parse_json
from ..web.problem import invalid, not_found, too_many
from .model import MAX_AHEAD, MAX_BATCH_EVENTS, MAX_PAYLOAD, MAX_SMALL_PAYLOAD, EventIn, EventPatch
from .rows import NewEvent, body_props, encoded_size, etag_of_row, new_event, representation
from .rules import NEVER
from .stats import Stats
from .writer import Stored, Writer

_EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)
_scan = JSONDecoder(parse_float=len, parse_int=len).scan_once  # type: ignore[attr-defined]
BREATH = 200
"""Events of a batch that are parsed before the loop may turn to other work."""
OPEN_RETRY = 10.0
"""Seconds after which to ask again when a tenant has too many open events."""


class Admitted(NamedTuple):
    """An event that is in the store: what it looks like, its ETag, and whether it is new."""

    id: str
    shown: dict[str, Any]
    etag: str
    new: bool


class Ingest:
    """Takes events in. One per process."""

    def __init__(self, directory: TenantDirectory, writer: Writer, stats: Stats, limiter: IngestLimiter, clock: Clock) -> None:
        self._directory, self._writer, self._stats, self._limiter, self._clock = directory, writer, stats, limiter, clock

    async def one(self, tenant: str, event: EventIn, raw: bytes) -> Admitted:
        """Store one event. Raises `Problem` (409, 413, 422, 429) and `StorageError`; then nothing was acknowledged."""
        settings = await self._tenant(tenant)
        ready = await self._checked(tenant, settings, event, raw)
        grant = await self._limiter.take(tenant, settings.limits.events_per_second)
        if not grant.granted:
            raise too_many(grant.retry_after, "over the tenant's events per second")
        await self._room(tenant, settings, 1)
        stored = (await self._writer.store(tenant, [ready]))[0]
        if isinstance(stored, StorageError):
            raise stored
        return self._admitted(ready, stored)

    async def batch(self, tenant: str, raw: bytes, *, lines: bool) -> list[Admitted | Problem]:
        """Store the events of a JSON array, or of JSON lines, each on its own terms, in the order sent.

        Raises `Problem` when the batch itself is wrong: not JSON, empty, too many events.
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
        grant = await self._limiter.take(tenant, settings.limits.events_per_second, len(ready))
        for number, _ in ready[grant.granted :]:
            results[number] = too_many(grant.retry_after, "over the tenant's events per second")
        ready = ready[: grant.granted]
        await self._room(tenant, settings, len(ready))
        for (number, event), stored in zip(ready, await self._writer.store(tenant, [event for _, event in ready]), strict=True):
            try:
                if isinstance(stored, StorageError):
                    raise stored
                results[number] = self._admitted(event, stored)
            except (Problem, StorageError) as failure:
                results[number] = problem.of(failure, where="events_batch")
        return [result for result in results if result is not None]

    async def patch(self, tenant: str, patch: EventPatch, raw: bytes) -> tuple[Millis | None, Props]:
        """What a patch changes: the new due time, if it moves the event, and properties. Raises `Problem` (422, 413)."""
        settings = await self._tenant(tenant)
        given = patch.model_fields_set
        change: Props = {}
        if "payload" in given:
            body = _body(raw)
            channel = patch.channel
            self._sized(settings, body, await self._channel(tenant, channel) if channel is not None else None)
            change.update({"chunks": 1, **body_props(body), "size": encoded_size(body)})
        if patch.channel is not None:
            await self._channel(tenant, patch.channel)
            change["channel"] = patch.channel
        if "expires" in given:
            change["expires"] = NEVER if patch.expires is None else patch.expires
        now = self._clock.now()
        due = patch.due if patch.due is not None else now + patch.delay if patch.delay is not None else None
        if due is not None:
            _in_reach(due, now, "/due" if patch.due is not None else "/delay")
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
        now = self._clock.now()
        ready = new_event(event, body, now)
        _in_reach(ready.due, now, "/due" if event.due is not None else "/delay")
        return ready

    @staticmethod
    def _sized(settings: Tenant, body: bytes, target: Target | None) -> None:
        limit = min(MAX_PAYLOAD, settings.limits.payload_bytes or MAX_PAYLOAD)
        if target is not None and target.spec.type == "queue":
            limit = min(limit, MAX_SMALL_PAYLOAD)
        if len(body) > limit:
            detail = f"the payload is over {limit:,} bytes"
            raise Problem(413, "payload-too-large", detail, errors=[{"pointer": "/payload", "detail": detail}])

    async def _room(self, tenant: str, settings: Tenant, count: int) -> None:
        limit = settings.limits.open_events
        if limit is None or not count:
            return
        if await self._stats.open_events(tenant) + count > limit:
            raise too_many(OPEN_RETRY, f"the tenant may have {limit:,} open events")
        self._stats.admitted(tenant, count)

    @staticmethod
    def _admitted(event: NewEvent, stored: Stored) -> Admitted:
        if stored.existing is None:
            row = Row(stored.address.shard, stored.address.row, event.props, stored.etag, 0, 0)
            return Admitted(stored.id, representation(row), etag_of_row(row), True)
        if not stored.same:
            raise problem.conflict("id-conflict", "the id names an event with other content")
        return Admitted(stored.id, representation(stored.existing), etag_of_row(stored.existing), False)


def _in_reach(due: Millis, now: Millis, pointer: str) -> None:
    if due > now + MAX_AHEAD:
        raise invalid(pointer, f"more than ten years ahead; the latest is {to_text(now + MAX_AHEAD)}")
    if due < 0:
        raise invalid(pointer, "before 1970")


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
    document = load_json(raw)
    if not isinstance(document, list):
        raise invalid("", "the batch is not an array of events")
    count = len(document)
    del document
    text = raw.decode()
    at = _skip(text, text.index("[") + 1)
    for _ in range(count):
        _, end = _scan(text, at)
        yield text[at:end].encode()
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at
