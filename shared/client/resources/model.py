"""Answers about channels, tenants, keys, calendars and fleets. Unknown members of a newer service are ignored.

`put` takes a `definition` again; its durations are text. The text of an object (`repr`) has no secrets.
"""

from __future__ import annotations

from dataclasses import field
from datetime import date, datetime

from ..reading import answer
from .fields import ChannelFields, FleetFields, TenantFields


@answer
class Breaker:
    """The circuit breaker of a channel. state: closed, open or half-open."""

    state: str
    since: datetime | None = None
    until: datetime | None = None
    """Time of the next probe."""
    failures: int = 0
    error: str | None = None


@answer
class Channel:
    """A channel of a tenant: where events are delivered, and the state of its deliveries."""

    name: str
    type: str
    """http, fleet, queue, eventgrid, kafka or servicebus."""
    created: datetime
    paused: bool
    breaker: Breaker
    definition: ChannelFields = field(repr=False)
    reason: str | None = None
    """The reason of the pause."""
    paused_at: datetime | None = None
    rotated_at: datetime | None = None
    previous_until: datetime | None = None
    """The time until which the previous webhook secret is valid."""
    secret: str | None = field(default=None, repr=False)
    """The webhook secret. Only the answer that creates the channel has it."""
    etag: str | None = None
    """The version, for `if_match`. Answers of `list` lack it."""


@answer
class RotatedSecret:
    """A channel's new webhook secret, which only this answer has. previous_until: the time until which the previous one is valid."""

    secret: str = field(repr=False)
    previous_until: datetime | None = None


@answer
class Tenant:
    """A tenant and its settings."""

    name: str
    uid: str
    created: datetime
    definition: TenantFields
    etag: str | None = None


@answer
class Key:
    """A key of a tenant, without the key itself. fleet, node: with the scope agent, what it may act for."""

    prefix: str
    scopes: tuple[str, ...]
    created: datetime
    fleet: str | None = None
    node: str | None = None
    note: str | None = None
    expires: datetime | None = None
    last_used: date | None = None


@answer
class NewKey(Key):
    """A key that was created. Only this answer has the key itself."""

    key: str = field(repr=False)


@answer
class OwnKey:
    """The permissions of the client's own key. tenant: None for the admin key of the app's settings."""

    prefix: str
    scopes: tuple[str, ...]
    tenant: str | None = None


@answer
class Calendar:
    """The days of a calendar, which schedules exclude."""

    name: str
    dates: tuple[date, ...]
    etag: str | None = None


@answer
class Resizing:
    """The progress of a resize. It is complete when `opened` is the fleet's number of partitions."""

    before: int
    """Partitions of the generation before."""
    closed: int
    """Partitions of the generation before that no server owns any more."""
    opened: int
    """Partitions of the new generation that can be claimed."""


@answer
class Fleet:
    """A fleet and its definition."""

    name: str
    partitions: int
    generation: int
    created: datetime
    definition: FleetFields
    resizing: Resizing | None = None
    etag: str | None = None
