"""Reads from the app what a file could declare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..session import CommandSession, api_path
from .resources import SECTIONS, Address


def read_tenants(session: CommandSession) -> dict[Address, dict[str, Any]]:
    """Return the tenants as the API shows them."""
    return {Address("tenant", each["name"], each["name"]): each for each in session.items("tenants")}


def read_parts(session: CommandSession, tenants: Iterable[str]) -> dict[Address, dict[str, Any]]:
    """Return the channels, calendars, fleets and schedules of these tenants as the API shows them."""
    found: dict[Address, dict[str, Any]] = {}
    for tenant in tenants:
        for section, kind in SECTIONS.items():
            path = api_path("tenants", tenant, section)
            items = session.items(path) if kind == "channel" else session.items(section, tenant=tenant)
            found |= {Address(kind, tenant, each["id" if kind == "schedule" else "name"]): each for each in items}
    return found
