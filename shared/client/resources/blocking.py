"""Channels, tenants, keys, calendars and fleets, set up with a `Client`.

`make clients` writes this file from `concurrent.py`: edit that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Protocol, Unpack, cast

from ..exchange import ApiCall, CallSteps, RetrySettings
from ..model import AnswerPage
from . import calls
from .fields import ChannelFields, FleetFields, Scope, TenantFields
from .model import Calendar, Channel, Fleet, Key, NewKey, OwnKey, RotatedSecret, Tenant


class Caller(Protocol):
    """The part of `Client` that sends calls."""

    _tenant: str | None
    _retry_settings: RetrySettings

    def _do[T](self, call: ApiCall[T]) -> T: ...

    def _pages[T](self, page: Callable[[str | None], ApiCall[AnswerPage[T]]]) -> Iterator[T]: ...

    def _run[T](self, steps: CallSteps[T]) -> T: ...


class Channels:
    """Channels of the tenant that a `Client` acts for, with an admin key: `Client(url, key, tenant="shop")`.

    ::

        client.channels.put("default", type="http", url="https://shop.example/hook")
        client.channels.set("default", timeout=timedelta(seconds=20))
    """

    def __init__(self, client: Caller) -> None:
        self._do, self._pages, self._run = client._do, client._pages, client._run
        self._tenant, self._retry_settings = client._tenant, client._retry_settings

    def put(self, name: str, *, if_match: str | None = None, **fields: Unpack[ChannelFields]) -> Channel:
        """Create the channel, or replace it: fields that are not named are reset. The answer that creates it has its `secret`."""
        return cast(Channel, self._do(calls.put("channel", calls.channel_path(self._tenant, name), fields, if_match)))

    def set(self, name: str, **fields: Unpack[ChannelFields]) -> Channel:
        """Change the named fields and keep all others. None resets a field. `per_key` is replaced as a whole.

        Raises `Changed` if five times another call has changed the channel in between.
        """
        at = calls.channel_path(self._tenant, name)
        return cast(Channel, self._run(calls.change("channel", at, fields, self._retry_settings, random.random)))

    def get(self, name: str) -> Channel:
        """Return the channel."""
        return cast(Channel, self._do(calls.get("channel", calls.channel_path(self._tenant, name))))

    def list(self) -> Iterator[Channel]:
        """Yield the channels by name."""
        tenant = calls.one_of_tenant(self._tenant)
        return self._pages(lambda cursor: calls.channels(tenant, cursor))

    def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Delete the channel. Its open events become dead letters."""
        self._do(calls.delete(calls.channel_path(self._tenant, name), if_match))

    def pause(self, name: str, *, reason: str = "") -> Channel:
        """Pause all deliveries to the channel until `resume`. Its events are held."""
        return self._do(calls.pause_channel(self._tenant, name, reason))

    def resume(self, name: str) -> Channel:
        """Resume the deliveries, and close the circuit breaker. Events that are due are delivered at once."""
        return self._do(calls.resume_channel(self._tenant, name))

    def rotate(self, name: str) -> RotatedSecret:
        """Create a new webhook secret. The previous one stays valid for 24 hours. This call is never retried after a lost answer."""
        return self._do(calls.rotate_secret(self._tenant, name))


class Tenants:
    """The tenants of the app, for a `Client` with an admin key."""

    def __init__(self, client: Caller) -> None:
        self._do, self._pages, self._run, self._retry_settings = client._do, client._pages, client._run, client._retry_settings

    def put(self, name: str, *, inherit: bool = False, if_match: str | None = None, **fields: Unpack[TenantFields]) -> Tenant:
        """Create the tenant, or replace its settings: those that are not named are reset.

        inherit: a new tenant takes over the events that a deleted tenant of this name left.
        """
        query = {"inherit": "true"} if inherit else {}
        return cast(Tenant, self._do(calls.put("tenant", calls.path("tenants", name), fields, if_match, query)))

    def set(self, name: str, **fields: Unpack[TenantFields]) -> Tenant:
        """Change the named settings and keep all others. None resets a setting. `retry` is replaced as a whole.

        Raises `Changed` if five times another call has changed the tenant in between.
        """
        at = calls.path("tenants", name)
        return cast(Tenant, self._run(calls.change("tenant", at, fields, self._retry_settings, random.random)))

    def get(self, name: str) -> Tenant:
        """Return the tenant."""
        return cast(Tenant, self._do(calls.get("tenant", calls.path("tenants", name))))

    def list(self) -> Iterator[Tenant]:
        """Yield all tenants by name."""
        return self._pages(calls.tenants)

    def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Delete the tenant with its keys, channels and fleets. Its open events become dead letters."""
        self._do(calls.delete(calls.path("tenants", name), if_match))


class Keys:
    """Keys of the tenant that a `Client` acts for, with an admin key."""

    def __init__(self, client: Caller) -> None:
        self._do, self._pages, self._tenant = client._do, client._pages, client._tenant

    def create(
        self,
        scopes: Sequence[Scope],
        *,
        fleet: str | None = None,
        node: str | None = None,
        note: str | None = None,
        expires: datetime | None = None,
    ) -> NewKey:
        """Create a key. Only this answer has it, as `key`. This call is never retried after a lost answer.

        fleet, node: with the scope agent, what the key may act for. note: its purpose, for people.
        """
        return self._do(calls.create_key(self._tenant, scopes, fleet, node, note, expires))

    def list(self) -> Iterator[Key]:
        """Yield the keys by prefix."""
        tenant = calls.one_of_tenant(self._tenant)
        return self._pages(lambda cursor: calls.keys(tenant, cursor))

    def revoke(self, prefix: str) -> None:
        """Revoke the key. All instances refuse it within 5 seconds."""
        self._do(calls.delete(calls.key_path(self._tenant, prefix), None))

    def own(self) -> OwnKey:
        """Return what the client's own key permits. Any key may call this."""
        return self._do(calls.own_key())


class Calendars:
    """Calendars of a `Client`: named days that schedules exclude."""

    def __init__(self, client: Caller) -> None:
        self._do, self._pages = client._do, client._pages

    def put(self, name: str, dates: Iterable[date], *, if_match: str | None = None) -> Calendar:
        """Create the calendar, or replace its dates. The schedules that name it follow it."""
        return self._do(calls.put_calendar(name, dates, if_match))

    def get(self, name: str) -> Calendar:
        """Return the calendar."""
        return self._do(calls.get_calendar(name))

    def list(self) -> Iterator[Calendar]:
        """Yield the calendars of the tenant by name."""
        return self._pages(calls.calendars)

    def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Delete a calendar that no schedule names."""
        self._do(calls.delete(calls.path("calendars", name), if_match))


class Fleets:
    """Fleets of a `Client`: their definitions."""

    def __init__(self, client: Caller) -> None:
        self._do, self._pages, self._run, self._retry_settings = client._do, client._pages, client._run, client._retry_settings

    def put(self, name: str, *, if_match: str | None = None, **fields: Unpack[FleetFields]) -> Fleet:
        """Create the fleet, or replace its definition while it runs: fields that are not named are reset. `partitions` is needed."""
        return cast(Fleet, self._do(calls.put("fleet", calls.path("fleets", name), fields, if_match)))

    def set(self, name: str, **fields: Unpack[FleetFields]) -> Fleet:
        """Change the named fields and keep all others. None resets a field.

        Raises `Changed` if five times another call has changed the fleet in between.
        """
        at = calls.path("fleets", name)
        return cast(Fleet, self._run(calls.change("fleet", at, fields, self._retry_settings, random.random)))

    def get(self, name: str) -> Fleet:
        """Return the fleet."""
        return cast(Fleet, self._do(calls.get("fleet", calls.path("fleets", name))))

    def list(self) -> Iterator[Fleet]:
        """Yield the fleets of the tenant by name."""
        return self._pages(calls.fleets)

    def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Delete a fleet that has no live server."""
        self._do(calls.delete(calls.path("fleets", name), if_match))
