"""How tenants, keys and channels lie in table `TocsinTenants`.

    partition          row               what
    tenant             {name}            the tenant: its settings, a `uid` of this incarnation, `deleting`, `gone`
    key:{2 hex}        {sha256 hex}      a key as calls look it up: tenant, uid, scopes, fleet, node
    t:{tenant}         key:{prefix}      the same key as admins see it
    t:{tenant}         channel:{name}    a channel: settings, secret generations, pause

Keys and channels carry the uid of the tenant they were made for and count only while the tenant still has it. So deleting the tenant's
row ends them all at once, and whatever a crash or a race leaves behind is dead even if the name is taken again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.clock import Millis
from ..core.errors import OutcomeUnknown
from ..storage.names import TENANTS
from ..storage.ports import Applied, Op, Props, Refused, Row, Tables
from ..web.callers import KeyRecord
from .model import Scope, Tenant

PK_TENANTS = "tenant"
PREFIX_KEY = "key:"
PREFIX_CHANNEL = "channel:"
ATTEMPTS = 5
"""Times a conditional write is tried when others change the row in between."""


def of_tenant(tenant: str) -> str:
    """Partition of a tenant's channels and key listings."""
    return f"t:{tenant}"


def of_key(digest: str) -> str:
    """Partition of a key's look-up row."""
    return f"key:{digest[:2]}"


@dataclass(slots=True, frozen=True)
class Home:
    """A tenant as stored."""

    name: str
    uid: str
    spec: Tenant
    created: Millis
    etag: str
    deleting: bool
    gone: bool = False
    """Deleted to the end: the row stays while events of the tenant are kept, so that nobody else gets to see them under its name."""


def home_of(row: Row) -> Home:
    """The tenant in its row."""
    props = row.props
    spec = Tenant.model_validate_json(str(props["body"]))
    deleting, gone = (bool(props.get(name, False)) for name in ("deleting", "gone"))
    return Home(row.rk, str(props["uid"]), spec, int(props["created"]), row.etag, deleting, gone)


@dataclass(slots=True, frozen=True)
class StoredKey:
    """A key's look-up row: the record and the incarnation of the tenant it is for."""

    record: KeyRecord
    uid: str


def key_of(row: Row) -> StoredKey:
    """The key in its look-up row, or in its listing row."""
    props = row.props
    scopes = frozenset(str(props["scopes"]).split(","))
    record = KeyRecord(str(props["tenant"]), str(props["prefix"]), scopes, _text(props, "fleet"), _text(props, "node"))
    return StoredKey(record, str(props["uid"]))


def scopes_of(row: Row) -> list[Scope]:
    """The scopes in the order they were given."""
    return str(row.props["scopes"]).split(",")  # type: ignore[return-value]


def _text(props: Props, name: str) -> str | None:
    value = props.get(name)
    return None if value is None else str(value)


def text(row: Row, name: str) -> str | None:
    """A text property, or None."""
    return _text(row.props, name)


def number(row: Row, name: str) -> int | None:
    """An integer property, or None."""
    value = row.props.get(name)
    return None if value is None else int(value)


async def write_one(tables: Tables, pk: str, op: Op) -> Applied | Refused:
    """Write one row with content. A lost answer is a success if the row is found as it was to be written; otherwise it is raised."""
    try:
        return await tables.write(TENANTS, pk, [op])
    except OutcomeUnknown:
        row = await tables.get(TENANTS, pk, op.rk)
        if row is not None and row.props == getattr(op, "props", None):
            return Applied([row.etag])
        raise


async def listed(tables: Tables, pk: str, prefix: str, after: str, limit: int) -> tuple[list[Row], str | None]:
    """Rows whose key starts with `prefix`, beyond the name `after`, and the name to go on after, or None at the end."""
    # `!` sorts before everything a name may hold, so this is the first key beyond `after`.
    first = f"{prefix}{after}!" if after else prefix
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None
    rows: list[Row] = []
    cursor: str | None = None
    while True:
        # One more than asked for tells whether there is more. A page may come short, even empty, and still not be the last.
        page = await tables.query(TENANTS, pk, first=first, end=end, limit=min(1000, limit + 1 - len(rows)), cursor=cursor)
        rows += page.rows
        cursor = page.next
        if len(rows) > limit:
            return rows[:limit], rows[limit - 1].rk.removeprefix(prefix)
        if cursor is None:
            return rows, None
