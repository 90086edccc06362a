"""The callers of the API: the holders of keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class KeyRecord:
    """A stored key, without the key itself. `tenant` is '' for the bootstrap admin key."""

    tenant: str
    prefix: str
    scopes: frozenset[str]
    fleet: str | None = None
    node: str | None = None


ANONYMOUS = KeyRecord("", "", frozenset())
"""The caller of a route that needs no key."""


BOOTSTRAP = KeyRecord("", "bootstrap", frozenset({"admin"}))
"""The holder of the key in the settings."""
