"""The rows of tenants, keys and channels in table `TocsinTenants`.

    partition          row               content
    tenant             {name}            the tenant: its settings, a `uid` of this incarnation, `deleting`, `gone`
    key:{2 hex}        {sha256 hex}      a key, for the look-up of calls: tenant, uid, scopes, fleet, node
    t:{tenant}         key:{prefix}      the same key, for the list of keys
    t:{tenant}         channel:{name}    a channel: settings, secret generations, pause
    changes            marks             a mark for each group of tenants, replaced before a change (`cache.ChangeMarks`)

Keys and channels hold the uid of their tenant and are valid only while the tenant has this uid. So deleting the tenant's row invalidates
them all at once, and rows left by a crash or a race stay invalid even if the name is used again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ..core.clock import Millis
from ..core.errors import OutcomeUnknown
from ..engine.effects import first_rows
from ..engine.row_codec import Format, RowCodec
from ..storage.names import TENANTS
from ..storage.ports import Applied, Op, Props, Row, RowQuery, Tables, WriteRefused
from ..web.auth import KeyRecord
from .model import Scope, Tenant

PK_TENANTS = "tenant"
PREFIX_KEY = "key:"
PREFIX_CHANNEL = "channel:"
ATTEMPTS = 5
"""Most attempts of a conditional write that conflicts with other changes."""


def of_tenant(tenant: str) -> str:
    """Return the partition of a tenant's channels and key listings."""
    return f"t:{tenant}"


def of_key(digest: str) -> str:
    """Return the partition of a key's look-up row."""
    return f"key:{digest[:2]}"


@dataclass(slots=True, frozen=True)
class Home:
    """A tenant as stored."""

    name: str
    uid: str
    spec: Tenant
    created: Millis
    etag: str
    deleting: bool = False
    gone: bool = False
    """True once everything is deleted. The row stays while events of the tenant are stored, so that no other tenant of this name sees
    them."""
    declared: str = ""
    """Times at which labels were declared searchable, as `order=1800000000000,team=...` in milliseconds."""

    def props(self) -> Props:
        """Return the row's properties."""
        return _HOME.encode(self)


def _spec_of(text: object) -> Tenant:
    # Fields that a later version has added are passed over: a tenant must be readable while two versions work on one storage.
    return Tenant.model_validate_json(str(text), extra="ignore")


_HOME: Final = RowCodec(
    Home,
    formats={"spec": Format(Tenant.model_dump_json, _spec_of)},
    names={"spec": "body"},
    # A tenant that is made again under the name of a deleted one replaces the whole row.
    sparse=("gone", "declared"),
    given=("name", "etag"),
)


def home_of(row: Row) -> Home:
    """Return the tenant in its row."""
    return _HOME.decode(row.props, row.rk, row.etag)


class KeyRow(NamedTuple):
    """A key's look-up row or listing row. uid: of the incarnation of its tenant. digest, note: in the listing only."""

    tenant: str
    uid: str
    prefix: str
    scopes: tuple[Scope, ...]
    created: Millis = 0
    fleet: str | None = None
    node: str | None = None
    digest: str | None = None
    note: str | None = None
    expires: Millis | None = None
    used: str | None = None
    """The last day of use, such as 2026-11-23. Both rows have it."""

    @property
    def record(self) -> KeyRecord:
        """The key as calls use it."""
        return KeyRecord(self.tenant, self.prefix, frozenset(self.scopes), self.fleet, self.node)

    def props(self) -> Props:
        """Return the row's properties."""
        return _KEY.encode(self)


_KEY: Final = RowCodec(
    KeyRow,
    formats={"scopes": Format(",".join, lambda text: tuple(str(text).split(",")))},
)


def key_of(row: Row) -> KeyRow:
    """Return the key in its look-up row or listing row."""
    return _KEY.decode(row.props)


async def write_one(tables: Tables, pk: str, op: Op) -> Applied | WriteRefused:
    """Write one row with content. After a lost answer, return success if the row has this content; otherwise raise `OutcomeUnknown`."""
    try:
        return await tables.write(TENANTS, pk, [op])
    except OutcomeUnknown:
        row = await tables.get(TENANTS, pk, op.rk)
        if row is not None and row.props == getattr(op, "props", None):
            return Applied([row.etag])
        raise


async def listed(tables: Tables, pk: str, prefix: str, after: str, limit: int) -> tuple[list[Row], str | None]:
    """Return rows with keys that start with `prefix`, after the name `after`, and the name to continue after, or None at the end."""
    # `!` sorts before every character of a name, so this is the first key after `after`.
    first = f"{prefix}{after}!" if after else prefix
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None
    # One row more than requested shows that the list continues.
    rows, _ = await first_rows(tables, RowQuery(TENANTS, pk, first=first, end=end), limit + 1)
    return rows[:limit], rows[limit - 1].rk.removeprefix(prefix) if len(rows) > limit else None
