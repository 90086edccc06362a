"""shared.web.callers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class KeyRecord:
    """A key as the store knows it; never the key itself. `tenant` is '' for the bootstrap admin key."""

    tenant: str
    prefix: str
    scopes: frozenset[str]
    fleet: str | None = None
    node: str | None = None


ANONYMOUS = KeyRecord("", "", frozenset())
"""Who calls where no key is asked for."""


BOOTSTRAP = KeyRecord("", "bootstrap", frozenset({"admin"}))
"""The holder of the key in the settings."""
