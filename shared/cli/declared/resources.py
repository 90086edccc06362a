"""The kinds of things that a file declares, and how each is read from the app and sent to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ..session import CommandSession, api_path

KINDS: Final = ("tenant", "channel", "calendar", "fleet", "schedule")
"""In the order in which they are created: fleets name channels, and schedules also calendars. The opposite order is that of removal."""
SECTIONS: Final = {"channels": "channel", "calendars": "calendar", "fleets": "fleet", "schedules": "schedule"}
"""Members of a tenant in the file that declare something of their own; the other members are the tenant's settings."""


class Address(NamedTuple):
    """Names a resource. name: that of the tenant itself, for the kind tenant."""

    kind: str
    tenant: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.tenant}" if self.kind == "tenant" else f"{self.kind} {self.tenant}/{self.name}"

    @property
    def order(self) -> tuple[int, str, str]:
        return KINDS.index(self.kind), self.tenant, self.name

    @property
    def path(self) -> str:
        """The path in the API."""
        if self.kind == "tenant":
            return api_path("tenants", self.tenant)
        if self.kind == "channel":
            return api_path("tenants", self.tenant, "channels", self.name)
        return api_path(f"{self.kind}s", self.name)

    @property
    def query(self) -> dict[str, str]:
        """The query parameters of each call: an admin key acts for the tenant."""
        return {} if self.kind in ("tenant", "channel") else {"tenant": self.tenant}


def parse_declared(document: Any) -> dict[Address, dict[str, Any]]:
    """Return the definitions of a file, in the order in which they are created. Raises ValueError that names the place."""
    top = _object("the file", document)
    if unknown := sorted(top.keys() - {"tenants"}):
        raise ValueError(f"{unknown[0]} is unknown: the file has only the member tenants")
    found: dict[Address, dict[str, Any]] = {}
    for tenant, given in _object("tenants", top.get("tenants")).items():
        parts = _object(f"tenants.{tenant}", given)
        found[Address("tenant", tenant, tenant)] = {name: value for name, value in parts.items() if name not in SECTIONS}
        for section, kind in SECTIONS.items():
            for name, body in _object(f"tenants.{tenant}.{section}", parts.get(section)).items():
                found[Address(kind, tenant, name)] = _object(f"tenants.{tenant}.{section}.{name}", body)
    return dict(sorted(found.items(), key=lambda each: each[0].order))


def to_file(resources: Mapping[Address, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the document of a file that declares the resources."""
    tenants: dict[str, dict[str, Any]] = {}
    for address, body in sorted(resources.items(), key=lambda each: each[0].order):
        if address.kind == "tenant":
            tenants[address.tenant] = dict(body)
        else:
            tenants[address.tenant].setdefault(f"{address.kind}s", {})[address.name] = dict(body)
    return {"tenants": tenants}


def _object(where: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object of names and values")
    return value


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
