"""Authentication and authorization: callers, their keys and scopes, and the tenant that a call acts for.

Calls carry `Authorization: Bearer <key>`. A key belongs to a tenant and has scopes. Scope `admin` belongs to operators: it permits every
call, for any tenant with `?tenant=`. The bootstrap admin key has no tenant, so it must name one on every route of a tenant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ..core.clock import Millis, to_text
from ..core.errors import Problem
from .fields.types import NAME
from .problem import invalid, not_found


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


_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{8,200}=*")
_BEARER = "Bearer "
_CHALLENGE = 'Bearer realm="tocsin"'
_NO_KEY = "The call carries no key. Send the header Authorization: Bearer <key>."
_BAD_KEY = "The key is not valid. Check that it is complete and was not revoked."


_READABLE = frozenset({"events", "fleets"})
"""Scopes: a key of scope `read` may make those of their calls that change nothing."""


class KeyDirectory(Protocol):
    """The part of the tenants' directory that authentication needs."""

    def checked(self, token: str) -> KeyRecord | None:
        """Return the record of a key if its last check still holds. None does not mean that the key is invalid."""

    async def key(self, token: str) -> KeyRecord | None:
        """Return the key's record, or None if the key does not exist or is revoked."""

    async def expired_at(self, token: str) -> Millis | None:
        """Return the time at which a key has expired; None for a valid key and for a text that is no key."""

    async def tenant(self, name: str) -> object | None:
        """Return the tenant's settings, or None."""


def known_caller(directory: KeyDirectory, headers: Mapping[str, str]) -> KeyRecord | None:
    """Return the key that a call carries if its last check still holds, as it does for nearly all calls.

    None does not mean that the key is invalid: `authenticate` checks it.
    """
    given = headers.get("authorization", "")
    return directory.checked(given[len(_BEARER) :]) if given.startswith(_BEARER) else None


async def authenticate(directory: KeyDirectory, headers: Mapping[str, str]) -> KeyRecord:
    """Return the key that a call carries; raise 401 without a valid one."""
    given = headers.get("authorization")
    if given is None:
        raise Problem(401, "unauthenticated", _NO_KEY, headers={"www-authenticate": _CHALLENGE})
    scheme, _, token = given.partition(" ")
    if scheme.lower() == "bearer" and _TOKEN.fullmatch(token := token.strip()):
        found = await directory.key(token)
        if found is not None:
            return found
        if (expired := await directory.expired_at(token)) is not None:
            detail = f"The key expired at {to_text(expired)}. Create a new key and use that."
            raise Problem(401, "unauthenticated", detail, headers={"www-authenticate": f'{_CHALLENGE}, error="invalid_token"'})
    raise Problem(401, "unauthenticated", _BAD_KEY, headers={"www-authenticate": f'{_CHALLENGE}, error="invalid_token"'})


def authorize(key: KeyRecord, scopes: frozenset[str], *, reads: bool = False) -> None:
    """Raise 403 unless `key` has one of `scopes`, or is an admin's. reads: the call changes nothing, so the scope `read` may permit it."""
    if key.scopes.isdisjoint(scopes) and not ("admin" in key.scopes or (reads and "read" in key.scopes and scopes & _READABLE)):
        raise Problem(403, "missing-scope", f"The key lacks the scope {' or '.join(sorted(scopes))}. Use a key with this scope.")


async def acting_for(directory: KeyDirectory, key: KeyRecord, asked: str | None) -> str:
    """Return the tenant that the call acts for. `asked` is `?tenant=`. Raises 403, 404 or 422."""
    if asked is None:
        if not key.tenant:
            raise invalid("?tenant", "is missing; an admin key needs ?tenant=NAME (command: --tenant NAME)")
        return key.tenant
    # The bootstrap key's tenant is '': an empty parameter must not find it.
    if asked and asked == key.tenant:
        return asked
    if "admin" not in key.scopes:
        raise Problem(403, "not-your-tenant", "Only an admin key may act for another tenant. Leave ?tenant= out, or use an admin key.")
    if not NAME.fullmatch(asked) or await directory.tenant(asked) is None:
        raise not_found("tenant")
    return asked


def bound_to(key: KeyRecord, fleet: str, node: str) -> None:
    """Raise 403 if `key` has only the scope `agent` and belongs to another fleet or node."""
    if key.scopes & {"admin", "fleets"}:
        return
    if key.fleet != fleet or key.node != node:
        detail = f"The key belongs to node {key.node} of fleet {key.fleet}. Use the key of node {node} of fleet {fleet}."
        raise Problem(403, "not-your-node", detail)
