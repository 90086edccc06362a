"""The directory of tenants: cached reads for calls and deliveries, and the operations of administrators.

`TenantDirectory.key`, `tenant` and `target` are cached reads; `put`, `get`, `delete` and `list` manage tenants; `keys` and `channels`
manage the rest. Every write is conditional.

On other instances than the one that made a change, an answer may be old: a key and a tenant by 5 s, a channel by 1 s, a missing one by 1 s.
So a revoked key works for at most 5 s. A cached answer of that age is not read again if nothing of its tenant has changed (`ChangeMarks`).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..core.clock import Clock, Millis, to_text
from ..core.errors import Problem, StorageError
from ..core.settings import LOCAL_DEMO_KEY, Settings
from ..delivery.channels.model import HttpChannel
from ..delivery.channels.ports import Target
from ..delivery.egress_guard import Egress
from ..delivery.entra.grants import rule_faults
from ..engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ..storage.names import TENANTS
from ..storage.ports import Applied, Delete, Insert, Merge, Replace, Tables
from ..web.auth import BOOTSTRAP, KeyRecord
from ..web.etag import check_if_match, etag_of
from ..web.fields.types import NAME
from ..web.problem import conflict, invalid, invalid_all, not_found
from . import rows, rules
from .cache import Cached, ChangeMarks, Found, make_room
from .channel_store import ChannelCaches, ChannelChecks, Channels, FindAbsent, nothing_absent
from .model import KeyIn, Tenant, TenantOut
from .rows import Home, KeyRow

if TYPE_CHECKING:
    from .keys import Keys

log = logging.getLogger(__name__)

KEY_TTL = 5.0
TENANT_TTL = 5.0
CHANNEL_TTL = 1.0
MISSING_TTL = 1.0
"""Seconds for which an answer is reused."""
REMEMBER: Millis = 3_600_000
"""Milliseconds for which a deleted tenant is remembered at least: by then, events are stored that were accepted before all instances knew
of the deletion, or that were in the ingest queue."""
_EVENTS_LEFT = (
    "Events of a deleted tenant of this name are still stored, and would belong to the new tenant. Use another name, or take them over "
    "with ?inherit=true."
)
DAY: Millis = 86_400_000
CACHE_SIZE = 10_000
"""Most entries per kind."""
EXPIRED_TOLD_EVERY = 3_600.0
"""Seconds in which a process tells once that an expired key is used."""


async def _nothing(*_: object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class OtherJobs:
    """The rest of the application as the directory calls it. By default there is nothing else.

    remains: returns True while events, or anything else that a tenant can look up, are stored for a deleted tenant. refuse_delete: raises
    409 while a part of the tenant cannot be deleted. on_delete: deletes the parts of a tenant beside keys and channels; raises 409 like
    `refuse_delete`; safe to repeat. on_searchable: is called with a tenant that has declared other labels searchable, and True if the
    tenant is new. on_expired_key: is called with the tenant and the prefix of a key that is used after its expiry, once an hour for each
    key. may_write: returns False while not even the day of a key's use may be noted. find_absent: see `ChannelChecks`.
    """

    remains: Callable[[str], Awaitable[bool]] = _nothing
    refuse_delete: Callable[[str], Awaitable[object]] = _nothing
    on_delete: Callable[[str], Awaitable[object]] = _nothing
    on_searchable: Callable[[str, bool], Awaitable[object]] = _nothing
    on_expired_key: Callable[[str, str], Awaitable[object]] = _nothing
    may_write: Callable[[], bool] = lambda: True
    find_absent: FindAbsent = nothing_absent


def _namespaces(settings: Settings) -> frozenset[tuple[str, str]]:
    """Return the Service Bus namespaces that get tokens of the app's identity. Raises `UnsafeSettings`."""
    if not settings.service_bus_names:
        return frozenset()
    from ..delivery.service_bus import parse_grants

    return parse_grants(settings)


def _certificates(settings: Settings) -> Mapping[tuple[str, str], str]:
    """Return where each client certificate is kept. Raises `UnsafeSettings`."""
    if not settings.client_certificates:
        return {}
    from ..delivery.client_certificates.sources import parse_certificates

    return parse_certificates(settings)


class _Checked(NamedTuple):
    """A valid key, and the cached answers from which its validity follows."""

    record: KeyRecord
    expires: Millis | None
    digest: str
    row: Found[KeyRow]
    home: Found[Home]


class TenantDirectory:
    """Tenants, their keys and channels. One per process; belongs to one event loop."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        settings: Settings,
        *,
        jobs: OtherJobs | None = None,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._jobs = OtherJobs() if jobs is None else jobs
        self._expired_uses: dict[str, float] = {}
        """Monotonic time of the last use that was told, by the digest of an expired key."""
        self._tables, self._clock, self._entropy = tables, clock, entropy
        self._mirrored = settings.mirrored
        admin = settings.admin_key
        self._admin = rules.digest_of(admin.get_secret_value()) if admin and admin.get_secret_value() else None
        self._marks = ChangeMarks(tables, clock, entropy)
        self._homes: Cached[str, Home] = Cached(
            self._read_home, clock, ttl=TENANT_TTL, missing_ttl=MISSING_TTL, size=CACHE_SIZE, still=self._still_home
        )
        self._keys: Cached[str, KeyRow] = Cached(
            self._read_key, clock, ttl=KEY_TTL, missing_ttl=MISSING_TTL, size=CACHE_SIZE, still=self._still_key
        )
        self._targets: Cached[tuple[str, str], Target] = Cached(
            self._read_target, clock, ttl=CHANNEL_TTL, missing_ttl=MISSING_TTL, size=CACHE_SIZE, still=self._still_target
        )
        self._checked: dict[str, _Checked] = {}
        """Valid keys by their texts. To keep a text adds no risk: each request of its caller brings it into the memory of this process."""
        self._uses: set[tuple[str, int]] = set()
        """Keys and days, counted from 1970, whose use is noted as far as this process knows."""
        self._tasks: set[asyncio.Task[None]] = set()
        egress = Egress(settings.egress_names, plain=settings.plain_http, namespaces=_namespaces(settings))
        listed = _certificates(settings)
        checks = ChannelChecks(egress, settings.own_accounts, settings.token_client_id is not None, listed, self._jobs.find_absent)
        caches = ChannelCaches(self._marks, self._drop_target)
        self.channels = Channels(tables, clock, self.home, caches, settings.master_key, checks)
        """Channels: put, get, list, delete, rotate, pause."""

    @cached_property
    def keys(self) -> Keys:
        """Keys: issue, list, revoke."""
        from .keys import Keys

        return Keys(self._tables, self._clock, self.home, self._keys.drop, self._entropy, self._marks)

    def checked(self, token: str) -> KeyRecord | None:
        """Return the record of a key if its last check by `key` still holds. None does not mean that the key is invalid."""
        kept = self._checked.get(token)
        # The check holds while both answers are in memory, young enough, and were not read again.
        if kept is None or self._keys.found(kept.digest) is not kept.row or self._homes.found(kept.record.tenant) is not kept.home:
            return None
        return kept.record if kept.expires is None or kept.expires > self._clock.now() else None

    async def key(self, token: str) -> KeyRecord | None:
        """Return the record of this key, or None if there is none or it has expired. Raises `StorageError`."""
        self._checked.pop(token, None)
        digest = rules.digest_of(token)
        if self._admin is not None and hmac.compare_digest(digest, self._admin):
            return BOOTSTRAP
        stored = await self._keys.get(digest)
        if stored is None:
            return None
        home = await self._homes.get(stored.tenant)
        now = self._clock.now()
        if home is None or home.uid != stored.uid or (stored.expires is not None and stored.expires <= now):
            return None
        if (digest, now // DAY) not in self._uses and self._jobs.may_write():
            self._note_use(stored, digest, now)
        record = stored.record
        row, found_home = self._keys.found(digest), self._homes.found(stored.tenant)
        # Each may have been dropped while the other one was read.
        if row is not None and found_home is not None and row.value is stored and found_home.value is home:
            make_room(self._checked, CACHE_SIZE)
            self._checked[token] = _Checked(record, stored.expires, digest, row, found_home)
        return record

    async def expired_at(self, token: str) -> Millis | None:
        """Return the time at which a key has expired; None for a valid key and for a text that is no key. Raises `StorageError`."""
        digest = rules.digest_of(token)
        stored = await self._keys.get(digest)
        if stored is None or stored.expires is None or stored.expires > self._clock.now():
            return None
        await self._tell_expired(stored, digest)
        return stored.expires

    async def _tell_expired(self, key: KeyRow, digest: str) -> None:
        """Have the tenant of an expired key told that it is still used, once an hour by this process."""
        now = self._clock.monotonic()
        home = await self._homes.get(key.tenant)
        if home is None or home.uid != key.uid or now < self._expired_uses.get(digest, -math.inf) + EXPIRED_TOLD_EVERY:
            return
        if len(self._expired_uses) >= CACHE_SIZE:
            self._expired_uses.clear()
        self._expired_uses[digest] = now
        try:
            await self._jobs.on_expired_key(key.tenant, key.prefix)
        except StorageError as error:
            del self._expired_uses[digest]
            log.debug("The use of an expired key could not be noted: %s", error, extra={"action": "notice_postponed", "tenant": key.tenant})

    def _note_use(self, key: KeyRow, digest: str, now: Millis) -> None:
        """Have the day of use written, once by this process: the call need not wait for it."""
        if len(self._uses) >= CACHE_SIZE:
            self._uses.clear()
        self._uses.add((digest, now // DAY))
        if key.used == to_text(now)[:10]:
            return
        task = asyncio.ensure_future(self._write_use(key, digest, now))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for the uses of keys that are being written."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write_use(self, key: KeyRow, digest: str, now: Millis) -> None:
        try:
            await self.keys.note_use(key, digest, to_text(now)[:10])
        except StorageError as error:
            # The next use on this day, after its row was read again, tries again.
            self._uses.discard((digest, now // DAY))
            log.debug("The use of key %s was not noted: %s", key.prefix, error, extra={"action": "key_use_unnoted", "tenant": key.tenant})

    async def tenant(self, name: str) -> Tenant | None:
        """Return the tenant's settings, at most 5 s old, or None. Raises `StorageError`."""
        # Without another coroutine, because every call asks.
        kept = self._homes.found(name)
        home = kept.value if kept is not None else await self._homes.get(name)
        return home.spec if home is not None else None

    async def declared(self, name: str) -> Mapping[str, Millis]:
        """Return when the tenant declared each of its searchable labels, at most 5 s old. Raises `StorageError`."""
        home = await self._homes.get(name)
        return rules.parse_declared(home.declared) if home is not None else {}

    async def uid(self, name: str) -> str | None:
        """Return the id of the tenant's incarnation, at most 5 s old, or None. Raises `StorageError`."""
        home = await self._homes.get(name)
        return home.uid if home is not None else None

    async def target(self, tenant: str, channel: str) -> Target | None:
        """Return the channel with its secrets and pause, at most 1 s old, or None. Raises `StorageError`."""
        kept = self._targets.found((tenant, channel))
        return kept.value if kept is not None else await self._targets.get((tenant, channel))

    async def target_now(self, tenant: str, channel: str) -> Target | None:
        """Return the channel as stored now, or None, and cache it. Raises `StorageError`."""
        self._drop_target(tenant, channel)
        return await self.target(tenant, channel)

    async def home(self, name: str) -> Home:
        """Return the tenant as stored now; raise 404."""
        home = await self._stored(name)
        if home is None or home.deleting:
            raise not_found("tenant")
        return home

    async def get(self, name: str) -> tuple[TenantOut, str]:
        """Return the tenant as stored now and its entity tag; raise 404."""
        home = await self.home(name)
        return shown(home), etag_of(home.etag)

    async def put(
        self, name: str, spec: Tenant, headers: Mapping[str, str] | None = None, *, inherit: bool = False, dry_run: bool = False
    ) -> tuple[TenantOut, str, bool]:
        """Create the tenant or replace its settings; the third value is True if it is new. Honours `If-Match` in `headers`.

        inherit: a new tenant may take over the events that a deleted tenant of this name left. dry_run: store nothing; the entity tag is
        empty if something would be stored. Raises 409 `events-left` without it, and 422
        for a durability that this installation does not offer.
        """
        if spec.durability == "mirrored" and not self._mirrored:
            raise invalid("/durability", "cannot be mirrored: no second storage account is configured; use fast or standard")
        if refused := [(f"/entra_audiences{pointer}", detail) for pointer, detail in rule_faults(spec.entra_audiences)]:
            raise invalid_all(refused)

        async def attempt() -> tuple[TenantOut, str, bool] | WriteConflict:
            home, former = await self._stored(name), None
            if home is not None and home.deleting:
                if not dry_run:
                    await self._end(home)
                former, home = await self._going(home), None
            check_if_match(headers or {}, etag_of(home.etag) if home else None)
            if former is not None and not inherit and await self._jobs.remains(name):
                raise conflict("events-left", _EVENTS_LEFT)
            new = replace(home, spec=spec) if home is not None else Home(name, self._entropy(8).hex(), spec, self._clock.now(), "")
            if home is not None and home.spec == spec:
                # The cached tenant may be older than the one just read.
                self._homes.drop(name)
                return shown(home), etag_of(home.etag), False
            if home is not None and (missing := await self._missing_channel(home, spec)):
                raise invalid("/notices/channel", f"the channel {missing} does not exist; create it first")
            if dry_run:
                return shown(new if home is not None else replace(new, uid="")), "", home is None
            new = replace(new, declared=rules.declared(home.declared if home is not None else "", spec.searchable, self._clock.now()))
            before = home or former
            if before is None:
                written = await rows.write_one(self._tables, rows.PK_TENANTS, Insert(name, new.props()))
            else:
                async with self._marks.changing(name):
                    written = await rows.write_one(self._tables, rows.PK_TENANTS, Replace(name, new.props(), before.etag))
            self._homes.drop(name)
            if isinstance(written, Applied):
                log_limits(name, home.spec if home is not None else Tenant(), spec)
                if new.declared and (home is None or new.declared != home.declared):
                    await self._jobs.on_searchable(name, before is None)
                return shown(new), etag_of(written.etags[0]), home is None
            return CONFLICT

        return await retry_on_conflict(attempt, rows.ATTEMPTS, contended)

    async def _missing_channel(self, home: Home, spec: Tenant) -> str:
        """Return the channel that is to get the notices from now on, if it does not exist; '' otherwise."""
        before, after = home.spec.notices, spec.notices
        if after is None or (before is not None and before.channel == after.channel):
            return ""
        return after.channel if await self.target_now(home.name, after.channel) is None else ""

    async def delete(self, name: str, headers: Mapping[str, str] | None = None) -> None:
        """Delete the tenant and everything that belongs to it; raise 404, and 409 if a part cannot be deleted yet.

        The tenant is marked first; from then on its keys are refused."""

        async def attempt() -> WriteConflict | None:
            home = await self._stored(name)
            if home is None or home.gone:
                raise not_found("tenant")
            if not home.deleting:
                check_if_match(headers or {}, etag_of(home.etag))
                await self._jobs.refuse_delete(name)
                async with self._marks.changing(name):
                    marked = await self._tables.write(TENANTS, rows.PK_TENANTS, [Merge(name, {"deleting": True}, home.etag)])
                self._homes.drop(name)
                if not isinstance(marked, Applied):
                    return CONFLICT
            # A deletion that was interrupted continues here.
            await self._end(home)
            return None

        await retry_on_conflict(attempt, rows.ATTEMPTS, contended)

    async def list(self, limit: int, after: str = "") -> tuple[list[TenantOut], str | None]:
        """Return tenants by name after `after`, and the name to continue after."""
        found, more = await rows.listed(self._tables, rows.PK_TENANTS, "", after, limit)
        homes = [rows.home_of(row) for row in found]
        return [shown(home) for home in homes if not home.deleting], more

    async def tidy(self) -> int:
        """Forget deleted tenants without any stored data; return their number."""
        forgotten, after = 0, ""
        while True:
            found, more = await rows.listed(self._tables, rows.PK_TENANTS, "", after, 1000)
            for row in found:
                home = rows.home_of(row)
                if home.deleting:
                    try:
                        await self._end(home)
                    except Problem as problem:
                        # A part of it cannot be deleted yet; the deletions of other tenants do not wait for it.
                        log.info(
                            "Tenant %s cannot be deleted yet: %s",
                            home.name,
                            problem,
                            extra={"action": "tenant_ends_later", "tenant": home.name},
                        )
                if home.gone and row.read_at - row.timestamp >= REMEMBER and not await self._jobs.remains(home.name):
                    written = await self._tables.write(TENANTS, rows.PK_TENANTS, [Delete(home.name, row.etag)])
                    forgotten += isinstance(written, Applied)
                    self._homes.drop(home.name)
            if more is None:
                return forgotten
            after = more

    async def _end(self, home: Home) -> None:
        """Delete the parts of a tenant that is being deleted, and mark it as gone."""
        if home.gone:
            return
        await self.keys.delete_all(home)
        await self.channels.delete_all(home)
        await self._jobs.on_delete(home.name)
        now = await self._going(home)
        if now is not None and not now.gone:
            await self._tables.write(TENANTS, rows.PK_TENANTS, [Merge(home.name, {"gone": True}, now.etag)])

    async def _going(self, home: Home) -> Home | None:
        """Return the tenant that is being deleted, as stored, or None if this incarnation is no longer stored: another instance may have
        finished, and the name may be in use again."""
        now = await self._stored(home.name)
        return now if now is not None and now.uid == home.uid and now.deleting else None

    async def _stored(self, name: str) -> Home | None:
        if not NAME.fullmatch(name):
            return None
        row = await self._tables.get(TENANTS, rows.PK_TENANTS, name)
        return rows.home_of(row) if row is not None else None

    async def _read_home(self, name: str) -> Home | None:
        home = await self._stored(name)
        return None if home is None or home.deleting else home

    async def _read_key(self, digest: str) -> KeyRow | None:
        row = await self._tables.get(TENANTS, rows.of_key(digest), digest)
        if row is None or not hmac.compare_digest(row.rk, digest):
            return None
        return rows.key_of(row)

    async def _read_target(self, at: tuple[str, str]) -> Target | None:
        home = await self._homes.get(at[0])
        return await self.channels.read_target(home, at[1]) if home is not None and NAME.fullmatch(at[1]) else None

    async def _still_home(self, home: Home, read_at: float) -> float | None:
        return await self._marks.unchanged(home.name, read_at, TENANT_TTL)

    async def _still_key(self, key: KeyRow, read_at: float) -> float | None:
        return await self._marks.unchanged(key.tenant, read_at, KEY_TTL)

    async def _still_target(self, target: Target, read_at: float) -> float | None:
        if len(target.secrets) > 1:
            # The former secret ends at a time that only the row shows.
            return None
        return await self._marks.unchanged(target.tenant, read_at, CHANNEL_TTL)

    def _drop_target(self, tenant: str, channel: str) -> None:
        self._targets.drop((tenant, channel))


def shown(home: Home) -> TenantOut:
    """Return the tenant as the API shows it."""
    # The settings are valid as they are: a duration is a text only outside.
    settings = home.spec.__dict__ | {"retry": home.spec.retry.filled()}
    return TenantOut.model_construct(name=home.name, uid=home.uid, created=home.created, **settings)


def log_limits(tenant: str, before: Tenant, after: Tenant) -> None:
    """Log a change of a tenant's limits."""
    old, new = (spec.limits.model_dump(exclude_none=True) for spec in (before, after))
    if old != new:
        extra = {"action": "tenant_limits_changed", "tenant": tenant, "before": old, "after": new}
        log.info("The limits of tenant %s are now %s; they were %s", tenant, new or "the defaults", old or "the defaults", extra=extra)


def contended() -> Problem:
    """Return 409: every attempt conflicted with another change."""
    return conflict("changed-meanwhile", "Other calls changed this several times meanwhile. Read it again and repeat the change.")


async def seed_local(directory: TenantDirectory, settings: Settings) -> None:
    """Create the local default: tenant `demo` with the public key, and channel `default` to the receiver. Safe to repeat."""
    if settings.local:
        await seed_demo(directory, LOCAL_DEMO_KEY, settings.receiver)


async def seed_demo(directory: TenantDirectory, key: str, receiver: str) -> None:
    """Create tenant `demo` with a key (events, fleets), and channel `default` to the receiver's URL. Safe to repeat."""
    if await directory.tenant("demo") is None:
        await directory.put("demo", Tenant(), inherit=True)
    await directory.keys.plant("demo", key, KeyIn(scopes=["events", "fleets"], note="the local default"))
    await directory.channels.plant("demo", "default", HttpChannel(type="http", url=receiver))
