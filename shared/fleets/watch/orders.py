"""Find orders that servers which speak HTTP do not follow. Pure.

A server that takes or releases partitions one by one follows its orders. So one order per server is watched until it is followed, then the
next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ...core.clock import Millis
from ...leases.profiles import Profile
from ...leases.rows import Server
from ...leases.rules import has_ended, pending_releases
from ...leases.service.snapshot import FleetSnapshot, FleetSummary

MAX_WATCHED: Final = 200
"""Servers whose orders are watched: their state is one property of a row."""


class WatchedOrder(NamedTuple):
    """An order that a server has not followed yet, for example `release 5`, and when it was first found (wall time)."""

    order: str
    since: Millis


def allowed_wait(profile: Profile) -> float:
    """Return the seconds in which a server must follow an order: 2 T."""
    return 2 * profile.takeover


def has_orders(summary: FleetSummary) -> bool:
    """Return True if a living server that speaks HTTP has orders."""
    return any(bool(server.http.terms and (server.take or pending_releases(server))) for server in summary.living)


def open_orders(snapshot: FleetSnapshot) -> dict[str, tuple[str, ...]]:
    """Return the orders that servers could follow now and have not followed, by server: each free partition to take, each to release."""
    found: dict[str, tuple[str, ...]] = {}
    for server in snapshot.summary.living:
        if not server.http.terms or server.http.evicted or server.kept:
            continue
        held = {number for number, _ in server.http.held}
        orders = [f"release {number}" for number in pending_releases(server)]
        orders += [f"take {number}" for number in server.take if number not in held and _is_free(snapshot, number, server)]
        if orders:
            found[server.name] = tuple(orders)
    return found


def _is_free(snapshot: FleetSnapshot, number: int, server: Server) -> bool:
    row = snapshot.partitions.get(number)
    if row is None or row.value.closed or row.value.generation != server.http.mapped_generation:
        return False
    owner = snapshot.summary.servers.get(row.value.owner)
    return not row.value.owner or has_ended(row.value.incarnation, owner.value if owner is not None else None)


def watch_orders(before: Mapping[str, WatchedOrder], found: Mapping[str, tuple[str, ...]], now: Millis) -> dict[str, WatchedOrder]:
    """Return the watched orders after an inspection."""
    watched: dict[str, WatchedOrder] = {}
    for name, orders in sorted(found.items())[:MAX_WATCHED]:
        known = before.get(name)
        watched[name] = known if known is not None and known.order in orders else WatchedOrder(orders[0], now)
    return watched


def unanswered(watched: Mapping[str, WatchedOrder], wait: float, now: Millis) -> tuple[str, ...]:
    """Return the servers that have not followed their watched order for `wait` seconds."""
    return tuple(name for name, each in sorted(watched.items()) if now - each.since >= wait * 1000)
