"""Keys of tenants: shown once, stored as SHA-256, listed by prefix, revoked at once.

A key has two rows (`rows`). Creating it writes the listing row first, and revoking it deletes the look-up row first, so that a crash in
between never leaves a key that works and is not listed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from ..core.clock import Clock
from ..core.errors import Problem
from ..engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ..storage.names import TENANTS
from ..storage.ports import ANY, Applied, Delete, Insert, Merge, Props, Tables, Upsert
from ..web.etag import check_if_match, etag_of
from ..web.problem import conflict, invalid, not_found
from . import rows, rules
from .cache import ChangeMarks
from .model import KeyIn, KeyMade, KeyOut
from .rows import Home, KeyRow


class Keys:
    """Creates, lists and revokes keys. `home` reads a tenant as stored or raises 404; `drop` forgets a cached look-up,
    and `marks` tells other processes to do so."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        home: Callable[[str], Awaitable[Home]],
        drop: Callable[[str], None],
        entropy: Callable[[int], bytes],
        marks: ChangeMarks,
    ) -> None:
        self._tables, self._clock, self._home, self._drop, self._entropy = tables, clock, home, drop, entropy
        self._marks = marks

    async def issue(self, tenant: str, spec: KeyIn) -> KeyMade:
        """Create a key. Raises 404 for the tenant, and 409 if the key is revoked or the tenant deleted meanwhile."""
        home = await self._home(tenant)
        if spec.expires is not None and spec.expires <= self._clock.now():
            raise invalid("/expires", "is not in the future; choose a later time, or none for a key without an end")

        async def attempt() -> KeyMade | WriteConflict:
            key = rules.make_key(self._entropy(25))
            if made := await self._write(home, key, spec):
                return KeyMade(key=key, **shown(made).__dict__)
            return CONFLICT

        return await retry_on_conflict(attempt, rows.ATTEMPTS, _no_free_prefix)

    async def plant(self, tenant: str, key: str, spec: KeyIn) -> None:
        """Create a key with a given text, unless it exists; only for the local default."""
        home = await self._home(tenant)
        digest = rules.digest_of(key)
        row = await self._tables.get(TENANTS, rows.of_key(digest), digest)
        if row is not None and rows.key_of(row).uid == home.uid:
            return
        lookup, listing = self._rows(home, key, spec)
        # Another instance would write the same rows, so no condition is needed.
        await self._tables.write(TENANTS, rows.of_tenant(tenant), [Upsert(rows.PREFIX_KEY + listing.prefix, listing.props())])
        await self._tables.write(TENANTS, rows.of_key(digest), [Upsert(digest, lookup.props())])
        self._drop(digest)

    async def list(self, tenant: str, limit: int, after: str = "") -> tuple[list[KeyOut], str | None]:
        """Return keys by prefix after `after`, and the prefix to continue after; raise 404."""
        home = await self._home(tenant)
        found, more = await rows.listed(self._tables, rows.of_tenant(tenant), rows.PREFIX_KEY, after, limit)
        return [shown(key) for row in found if (key := rows.key_of(row)).uid == home.uid], more

    async def revoke(self, tenant: str, prefix: str, headers: Mapping[str, str] | None = None) -> None:
        """Revoke a key: on this instance at once, elsewhere within the age limit of the directory's cache. Raises 404."""
        home = await self._home(tenant)
        row = await self._tables.get(TENANTS, rows.of_tenant(tenant), rows.PREFIX_KEY + prefix)
        key = rows.key_of(row) if row is not None else None
        if row is None or key is None or key.uid != home.uid:
            raise not_found("key")
        check_if_match(headers or {}, etag_of(row.etag))
        await self._remove(tenant, prefix, str(key.digest))

    async def note_use(self, key: KeyRow, digest: str, day: str) -> None:
        """Write the last day of use to both rows. A key that was revoked meanwhile stays revoked. Raises `StorageError`."""
        use: Props = {"used": day}
        await self._tables.write(TENANTS, rows.of_tenant(key.tenant), [Merge(rows.PREFIX_KEY + key.prefix, use, ANY)])
        await self._tables.write(TENANTS, rows.of_key(digest), [Merge(digest, use, ANY)])

    async def delete_all(self, home: Home) -> None:
        """Revoke every key of a tenant that is being deleted, and none of a later tenant of this name: another process may have finished
        this deletion meanwhile."""
        after: str | None = ""
        while after is not None:
            found, after = await rows.listed(self._tables, rows.of_tenant(home.name), rows.PREFIX_KEY, after, 100)
            for row in found:
                if (key := rows.key_of(row)).uid == home.uid:
                    await self._remove(home.name, row.rk.removeprefix(rows.PREFIX_KEY), str(key.digest))

    async def _write(self, home: Home, key: str, spec: KeyIn) -> KeyRow | None:
        """Write both rows of a key; return the listing row, or None if the prefix is taken."""
        lookup, listing = self._rows(home, key, spec)
        digest = str(listing.digest)
        pk, rk = rows.of_tenant(home.name), rows.PREFIX_KEY + listing.prefix
        written = await rows.write_one(self._tables, pk, Insert(rk, listing.props()))
        if not isinstance(written, Applied):
            return None
        await rows.write_one(self._tables, rows.of_key(digest), Insert(digest, lookup.props()))
        # Another call may have revoked the key from its listing before the look-up row existed; then that row must be deleted again.
        kept = await self._tables.write(TENANTS, pk, [Merge(rk, {"live": True}, written.etags[0])])
        self._drop(digest)
        if not isinstance(kept, Applied):
            await self._tables.write(TENANTS, rows.of_key(digest), [Delete(digest, ANY)])
            raise conflict("changed-meanwhile", "The key was revoked while it was created. Create another one.")
        return listing

    def _rows(self, home: Home, key: str, spec: KeyIn) -> tuple[KeyRow, KeyRow]:
        """Return the look-up row and the listing row."""
        fleet, node = (spec.fleet, spec.node) if spec.fleet is not None and spec.node is not None else (None, None)
        prefix, scopes = rules.prefix_of(key), tuple(spec.scopes)
        lookup = KeyRow(home.name, home.uid, prefix, scopes, self._clock.now(), fleet, node, expires=spec.expires)
        return lookup, lookup._replace(digest=rules.digest_of(key), note=spec.note)

    async def _remove(self, tenant: str, prefix: str, digest: str) -> None:
        """Delete both rows, the look-up row first. A missing row is no failure."""
        async with self._marks.changing(tenant):
            await self._tables.write(TENANTS, rows.of_key(digest), [Delete(digest, ANY)])
        self._drop(digest)
        await self._tables.write(TENANTS, rows.of_tenant(tenant), [Delete(rows.PREFIX_KEY + prefix, ANY)])


def _no_free_prefix() -> Problem:
    return Problem(503, "no-free-prefix", "No free prefix for the key was found. Repeat the call.", headers={"retry-after": "1"})


def shown(key: KeyRow) -> KeyOut:
    """Return a key as the list shows it."""
    return KeyOut(
        prefix=key.prefix,
        scopes=list(key.scopes),
        fleet=key.fleet,
        node=key.node,
        note=key.note,
        created=key.created,
        expires=key.expires,
        last_used=key.used,
    )
