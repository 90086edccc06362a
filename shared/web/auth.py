"""Who calls: keys, scopes, and the tenant a call is for.

`Authorization: Bearer <key>`. A key belongs to a tenant and has scopes. Scope `admin` is the operator's: it may do everything, and acts
for any tenant with `?tenant=`. The bootstrap admin key has no tenant of its own, so it must name one on every tenant's route.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from ..core.errors import Problem
from .callers import KeyRecord
from .fields.types import NAME
from .problem import invalid, not_found

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{8,200}=*")
_CHALLENGE = 'Bearer realm="tocsin"'


class Directory(Protocol):
    """What the endpoint layer asks of the tenants' directory."""

    async def key(self, token: str) -> KeyRecord | None:
        """The key's record, or None for what is no key (any more)."""

    async def tenant(self, name: str) -> object | None:
        """The tenant's settings, or None."""


class Application(Protocol):
    """What the endpoint layer asks of the composed application; the lead's `App` has much more."""

    @property
    def directory(self) -> Directory:
        """Tenants and keys."""


async def authenticate(directory: Directory, headers: Mapping[str, str]) -> KeyRecord:
    """The key that a call carries; raises 401."""
    given = headers.get("authorization")
    if given is None:
        raise Problem(401, "unauthenticated", "send Authorization: Bearer <key>", headers={"www-authenticate": _CHALLENGE})
    scheme, _, token = given.partition(" ")
    if scheme.lower() == "bearer" and _TOKEN.fullmatch(token := token.strip()):
        found = await directory.key(token)
        if found is not None:
            return found
    raise Problem(401, "unauthenticated", "not a valid key", headers={"www-authenticate": f'{_CHALLENGE}, error="invalid_token"'})


def authorize(key: KeyRecord, scopes: frozenset[str]) -> None:
    """Raise 403 unless `key` has one of `scopes`, or is an admin's."""
    if not (key.scopes & scopes or "admin" in key.scopes):
        raise Problem(403, "missing-scope", f"the key lacks the scope {' or '.join(sorted(scopes))}")


async def acting_for(directory: Directory, key: KeyRecord, asked: str | None) -> str:
    """The tenant the call is for. `asked` is `?tenant=`. Raises 403, 404 or 422."""
    if asked is None:
        if not key.tenant:
            raise invalid("?tenant", "required: the bootstrap admin key has no tenant of its own")
        return key.tenant
    # The bootstrap key's tenant is '': an empty parameter must not find it.
    if asked and asked == key.tenant:
        return asked
    if "admin" not in key.scopes:
        raise Problem(403, "not-your-tenant", "only an admin key may act for another tenant")
    if not NAME.fullmatch(asked) or await directory.tenant(asked) is None:
        raise not_found("tenant")
    return asked


def bound_to(key: KeyRecord, fleet: str, node: str) -> None:
    """Raise 403 when `key` speaks only as an agent and not for this fleet and node; for routes open to scope `agent`."""
    if key.scopes & {"admin", "fleets"}:
        return
    if key.fleet != fleet or key.node != node:
        raise Problem(403, "not-your-node", "this key is bound to another fleet or node")
