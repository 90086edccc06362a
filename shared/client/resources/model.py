"""Answers about channels, tenants, keys, calendars and fleets. Unknown members of a newer service are ignored.

A `definition` is what `put` takes again, with its durations as text. Secrets are not in the text of an object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, cast

from .definitions import definition
from .fields import ChannelFields, FleetFields, TenantFields


@dataclass(frozen=True, slots=True)
class Breaker:
    """The circuit breaker of a channel. state: closed, open or half-open."""

    state: str
    since: datetime | None = None
    until: datetime | None = None
    """Time of the next probe."""
    failures: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class RotatedSecret:
    """A channel's new webhook secret, which only this answer has. previous_until: until then the previous one is valid."""

    secret: str = field(repr=False)
    previous_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant and its settings."""

    name: str
    uid: str
    created: datetime
    definition: TenantFields
    etag: str | None = None


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class NewKey(Key):
    """A key that was created. Only this answer has the key itself."""

    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class OwnKey:
    """What the client's own key permits. tenant: None for the admin key of the app's settings."""

    prefix: str
    scopes: tuple[str, ...]
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Calendar:
    """The days of a calendar, which schedules exclude."""

    name: str
    dates: tuple[date, ...]
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Resizing:
    """The progress of a resize. It is complete when `opened` is the fleet's number of partitions."""

    before: int
    """Partitions of the generation before."""
    closed: int
    """Those of the generation before that no server owns any more."""
    opened: int
    """Those of the new generation that can be claimed."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet and its definition."""

    name: str
    partitions: int
    generation: int
    created: datetime
    definition: FleetFields
    resizing: Resizing | None = None
    etag: str | None = None


def to_channel(answer: dict[str, Any]) -> Channel:
    """Read a channel. Raises LookupError, TypeError or ValueError for another document."""
    tag, flow = answer.pop("etag", None), answer["flow"]
    breaker = Breaker(flow["breaker"], _time(flow, "since"), _time(flow, "until"), flow.get("failures") or 0, flow.get("error"))
    return Channel(
        answer["name"],
        answer["type"],
        datetime.fromisoformat(answer["created"]),
        answer["paused"],
        breaker,
        cast(ChannelFields, definition("channel", answer)),
        answer.get("reason"),
        _time(answer, "paused_at"),
        _time(answer, "rotated_at"),
        _time(answer, "previous_until"),
        answer.get("secret"),
        tag,
    )


def to_secret(answer: dict[str, Any]) -> RotatedSecret:
    """Read a new webhook secret. Raises as `to_channel`."""
    return RotatedSecret(answer["secret"], _time(answer, "previous_until"))


def to_tenant(answer: dict[str, Any]) -> Tenant:
    """Read a tenant. Raises as `to_channel`."""
    tag = answer.pop("etag", None)
    created = datetime.fromisoformat(answer["created"])
    return Tenant(answer["name"], answer["uid"], created, cast(TenantFields, definition("tenant", answer)), tag)


def to_key(answer: dict[str, Any]) -> Key:
    """Read a key. Raises as `to_channel`."""
    return Key(**_key(answer))


def to_new_key(answer: dict[str, Any]) -> NewKey:
    """Read a key that was created. Raises as `to_channel`."""
    return NewKey(**_key(answer), key=answer["key"])


def to_own_key(answer: dict[str, Any]) -> OwnKey:
    """Read what the own key permits. Raises as `to_channel`."""
    return OwnKey(answer["prefix"], tuple(answer["scopes"]), answer.get("tenant"))


def to_calendar(answer: dict[str, Any]) -> Calendar:
    """Read a calendar. Raises as `to_channel`."""
    return Calendar(answer["name"], tuple(date.fromisoformat(day) for day in answer["dates"]), answer.get("etag"))


def to_fleet(answer: dict[str, Any]) -> Fleet:
    """Read a fleet. Raises as `to_channel`."""
    tag, resizing = answer.pop("etag", None), answer.get("resizing")
    return Fleet(
        answer["name"],
        answer["partitions"],
        answer["generation"],
        datetime.fromisoformat(answer["created"]),
        cast(FleetFields, definition("fleet", answer)),
        Resizing(resizing["from"], resizing["closed"], resizing["opened"]) if resizing else None,
        tag,
    )


def _key(answer: dict[str, Any]) -> dict[str, Any]:
    used = answer.get("last_used")
    return {
        **{name: answer.get(name) for name in ("fleet", "node", "note")},
        "prefix": answer["prefix"],
        "scopes": tuple(answer["scopes"]),
        "created": datetime.fromisoformat(answer["created"]),
        "expires": _time(answer, "expires"),
        "last_used": date.fromisoformat(used) if used else None,
    }


def _time(answer: dict[str, Any], name: str) -> datetime | None:
    text = answer.get(name)
    return datetime.fromisoformat(text) if text is not None else None
