"""The stored channels of tenants: the target of deliveries, the secrets, the pause and the circuit breaker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from pydantic import ConfigDict, TypeAdapter

from ..core.clock import Clock, Millis
from ..core.errors import Problem
from ..delivery import circuit_breaker
from ..delivery.channels.model import Channel, ChannelSpec, HttpChannel
from ..delivery.channels.ports import EndedHold, Target
from ..delivery.circuit_breaker import CLOSED, Breaker
from ..delivery.egress_guard import Egress
from ..delivery.flow.rules import Block, block
from ..delivery.listed_tenants import TenantIdentity
from ..engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ..engine.row_codec import Format, RowCodec
from ..storage.names import TENANTS
from ..storage.ports import Applied, Delete, Insert, Props, Replace, Row, Tables
from ..web.etag import check_if_match, etag_of
from ..web.problem import conflict, invalid_all, not_found
from . import rows, rules
from .cache import ChangeMarks
from .model import SecretOut
from .rows import Home
from .rules import Generations

_SPEC: TypeAdapter[ChannelSpec] = TypeAdapter(Channel, config=ConfigDict(defer_build=True))


class StoredChannel(NamedTuple):
    """A channel as stored."""

    name: str
    uid: str
    spec: ChannelSpec
    created: Millis
    generations: Generations
    paused: bool
    reason: str
    paused_at: Millis = 0
    breaker: Breaker = CLOSED
    ended_holds: tuple[EndedHold, ...] = ()
    etag: str = ""

    def props(self) -> Props:
        """Return the properties of the row."""
        return _CHANNEL.encode(self)


def _spec_of(text: object) -> ChannelSpec:
    # Fields that a later version has added are passed over: a channel must be readable while two versions work on one storage.
    return _SPEC.validate_json(str(text), extra="ignore")


def _holds_text(holds: tuple[EndedHold, ...]) -> str:
    return orjson.dumps([list(hold) for hold in holds]).decode()


def _holds_of(text: Any) -> tuple[EndedHold, ...]:
    return tuple(EndedHold(*hold) for hold in orjson.loads(str(text)))


_CHANNEL: Final = RowCodec(
    StoredChannel,
    formats={
        "spec": Format(lambda spec: spec.model_dump_json(), _spec_of),
        "generations": RowCodec(Generations, names={"current": "generation"}, sparse=("rotation",)),
        "ended_holds": Format(_holds_text, _holds_of),
        "breaker": Format(Breaker.text, lambda text: circuit_breaker.parse(str(text))),
    },
    names={"spec": "body"},
    sparse=("ended_holds",),
    given=("name", "etag"),
)


class ChannelCaches(NamedTuple):
    """The caches of channels that a change of a channel invalidates: those of this process and of all others."""

    marks: ChangeMarks
    """For all processes: marked before the change."""
    drop: Callable[[str, str], None]
    """For this one: forgets the cached target of a tenant and a channel."""


type FindAbsent = Callable[[ChannelSpec], Awaitable[Sequence[tuple[str, str]]]]


async def nothing_absent(spec: ChannelSpec) -> Sequence[tuple[str, str]]:
    """Return no fault: nobody is asked."""
    return ()


class ChannelChecks(NamedTuple):
    """The permissions of the service for channels."""

    egress: Egress
    own_accounts: frozenset[str] | None
    """The names of the service's storage accounts, whose own queues no channel may write; None if they are not known."""
    has_identity: bool
    """True if the service has an identity for tokens of Entra that channels carry."""
    certificates: Container[tuple[str, str]]
    """The client certificates that the operator has listed, as `parse_certificates` returns them."""
    find_absent: FindAbsent = nothing_absent
    """Returns the faults, as (pointer, detail), of a channel whose target is certainly not there."""


class Channels:
    """Creates, changes and deletes channels.

    `home` reads a tenant as stored or raises 404.
    """

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        home: Callable[[str], Awaitable[Home]],
        caches: ChannelCaches,
        signing_key: str,
        checks: ChannelChecks,
    ) -> None:
        self._tables, self._clock, self._home, self._caches = tables, clock, home, caches
        self._signing_key, self._checks = signing_key, checks

    async def read_target(self, home: Home, name: str) -> Target | None:
        """Return the channel as senders use it, read now."""
        stored = await self._read(home, name)
        if stored is None:
            return None
        valid = rules.in_use(stored.generations, self._clock.now())
        secrets = tuple(rules.secret_of(self._signing_key, home.name, name, generation) for generation in valid)
        held = (stored.paused, stored.reason, stored.paused_at, stored.breaker, stored.ended_holds)
        return Target(home.name, name, stored.spec, secrets, *held, audiences=tuple(home.spec.entra_audiences), uid=home.uid)

    async def get(self, tenant: str, name: str) -> tuple[Any, str]:
        """Return the channel's representation and entity tag; raise 404."""
        out, etag, _ = await self.get_with_masked(tenant, name)
        return out, etag

    async def get_with_masked(self, tenant: str, name: str) -> tuple[Any, str, Mapping[str, str]]:
        """Return the channel's representation, its entity tag, and the values that the representation masks, by path; raise 404."""
        from ..delivery.channels.validation import masked_values

        stored = await self._expect(await self._home(tenant), name)
        return self._shown(stored), etag_of(stored.etag), masked_values(stored.spec)

    async def list(self, tenant: str, limit: int, after: str = "") -> tuple[list[Any], str | None]:
        """Return channels by name after `after`, and the name to continue after; raise 404."""
        home = await self._home(tenant)
        found, more = await rows.listed(self._tables, rows.of_tenant(tenant), rows.PREFIX_CHANNEL, after, limit)
        return [self._shown(stored) for row in found if (stored := _stored(row)).uid == home.uid], more

    async def blocks(self, tenant: str) -> dict[str, Block | None]:
        """Return every channel of the tenant as stored now, with the reason that holds its deliveries, or None; raise 404."""
        return {each.name: block(each.paused, each.breaker) for each in await self._all(tenant)}

    async def allow_long_work(self, tenant: str) -> bool:
        """Return True if a channel of the tenant allows long work, as stored now; raise 404."""
        return any(isinstance(each.spec, HttpChannel) and each.spec.long_work is not None for each in await self._all(tenant))

    async def _all(self, tenant: str) -> Sequence[StoredChannel]:
        home = await self._home(tenant)
        found: list[Row] = []
        after: str | None = ""
        while after is not None:
            page, after = await rows.listed(self._tables, rows.of_tenant(tenant), rows.PREFIX_CHANNEL, after, 1000)
            found += page
        return [each for row in found if (each := _stored(row)).uid == home.uid]

    async def put(
        self, tenant: str, name: str, spec: ChannelSpec, headers: Mapping[str, str] | None = None, *, dry_run: bool = False
    ) -> tuple[Any, str, bool]:
        """Create or replace a channel; the third value is True if it is new. Honours `If-Match` in `headers`.

        The representation contains the secret only if this call created it. The same settings again change nothing. dry_run: store
        nothing; the entity tag is empty if something would be stored. Raises 404, 412, 422; of a dry run in a tenant that does not exist,
        422 before 404.
        """
        # Imported here, because deliveries read channels and never check them.
        from ..delivery.channels.validation import find_faults, find_grant_faults, is_signed, restore_secrets, without_grants

        try:
            home = await self._home(tenant)
        except Problem as refused:
            if dry_run and refused.status == 404:
                # What it would be refused for once the tenant exists, as far as that is known, is said first.
                plain = without_grants(spec)
                if found := find_faults(plain, self._checks.egress, self._checks.own_accounts) or await self._checks.find_absent(plain):
                    raise invalid_all(found) from None
            raise
        identity = TenantIdentity(tenant, home.uid)

        def change(old: StoredChannel | None) -> StoredChannel:
            check_if_match(headers or {}, etag_of(old.etag) if old else None)
            wanted = restore_secrets(spec, old.spec if old else None)
            found = find_faults(wanted, self._checks.egress, self._checks.own_accounts, identity, self._checks.certificates)
            if found := found or find_grant_faults(wanted, home.spec.entra_audiences, has_identity=self._checks.has_identity):
                raise invalid_all(found)
            now = self._clock.now()
            if old is None:
                made = rules.first_generation(now) if is_signed(spec) else Generations()
                return StoredChannel(name, home.uid, wanted, now, made, False, "")
            generations = old.generations
            if is_signed(spec) and not generations.current:
                generations = rules.first_generation(now)
            # The failures belong to the old settings: changed settings close the breaker.
            breaker = old.breaker if wanted == old.spec else CLOSED
            new = old._replace(spec=wanted, generations=generations, breaker=breaker)
            return old if new == old else new

        if absent := await self._checks.find_absent(spec):
            there = await self._read(home, name)
            if change(there) is not there:
                raise invalid_all(absent)
        if dry_run:
            there = await self._read(home, name)
            planned = change(there)
            return self._shown(planned), etag_of(there.etag) if there is planned else "", there is None
        old, new = await self._change(home, name, change)
        secret = None
        if new.generations.current and (old is None or not old.generations.current):
            secret = rules.secret_of(self._signing_key, tenant, name, new.generations.current)
        return self._shown(new, secret), etag_of(new.etag), old is None

    async def plant(self, tenant: str, name: str, spec: ChannelSpec) -> None:
        """Create the channel unless it exists, whatever its address; only for the local default."""
        home = await self._home(tenant)
        if await self._read(home, name) is None:
            now = self._clock.now()
            made = StoredChannel(name, home.uid, spec, now, rules.first_generation(now), False, "")
            await self._change(home, name, lambda old: old or made)

    async def delete(self, tenant: str, name: str, headers: Mapping[str, str] | None = None) -> None:
        """Delete a channel; raise 404 or 412. Its open events become dead letters."""
        home = await self._home(tenant)

        async def attempt() -> WriteConflict | None:
            stored = await self._expect(home, name)
            check_if_match(headers or {}, etag_of(stored.etag))
            async with self._caches.marks.changing(tenant):
                gone = await self._tables.write(TENANTS, rows.of_tenant(tenant), [Delete(rows.PREFIX_CHANNEL + name, stored.etag)])
            self._caches.drop(tenant, name)
            if isinstance(gone, Applied):
                return None
            return CONFLICT

        await retry_on_conflict(attempt, rows.ATTEMPTS, _contended)

    async def rotate(self, tenant: str, name: str, rotation: str = "") -> SecretOut:
        """Create a webhook secret. Raises 404, and 409 `not-signed` for a channel that is not http.

        rotation: a name of this rotation, or ''. The same name again, before another rotation, returns the secret that the first call has
        created.
        """
        from ..delivery.channels.validation import is_signed

        def change(old: StoredChannel | None) -> StoredChannel:
            if old is None:
                raise not_found("channel")
            if not is_signed(old.spec):
                raise conflict("not-signed", f"Channel {name} has the type {old.spec.type}. Only http and fleet channels have a secret.")
            rotated = rules.rotate(old.generations, self._clock.now(), rotation)
            return old if rotated == old.generations else old._replace(generations=rotated)

        _, new = await self._change(await self._home(tenant), name, change)
        secret = rules.secret_of(self._signing_key, tenant, name, new.generations.current)
        return SecretOut(secret=secret, previous_until=new.generations.previous_until)

    async def pause(self, tenant: str, name: str, paused: bool, reason: str = "") -> tuple[Any, str]:
        """Start or end a pause; return the representation and entity tag. Raises 404. All instances stop deliveries within a second.

        Ending a pause also closes the breaker, because a person wants deliveries to continue.
        """

        def change(old: StoredChannel | None) -> StoredChannel:
            if old is None:
                raise not_found("channel")
            if not paused:
                return old._replace(paused=False, reason="", paused_at=0, breaker=CLOSED)
            if old.paused:
                # A repeated pause without a reason keeps the old reason.
                return old._replace(reason=reason or old.reason)
            return old._replace(paused=True, reason=reason, paused_at=self._clock.now())

        _, new = await self._change(await self._home(tenant), name, change)
        return self._shown(new), etag_of(new.etag)

    async def hold(self, target: Target, reason: str) -> bool:
        """Pause the channel because its receiver refuses further deliveries; return False if it is paused, deleted or changed meanwhile."""

        def change(old: StoredChannel | None) -> StoredChannel:
            if old is None:
                raise not_found("channel")
            if old.paused or old.spec != target.spec:
                return old
            return old._replace(paused=True, reason=reason, paused_at=self._clock.now())

        old, new = await self._change(await self._home(target.tenant), target.name, change)
        return new is not old

    async def turn(self, target: Target, change: circuit_breaker.BreakerChange) -> Breaker | None:
        """Change the breaker and return it, or None if there was nothing to change. Raises 404, 409 `changed-meanwhile`."""

        def turned(old: StoredChannel | None) -> StoredChannel:
            if old is None:
                raise not_found("channel")
            new = change(old.breaker) if old.spec == target.spec else None
            return old if new is None else old._replace(breaker=new)

        old, new = await self._change(await self._home(target.tenant), target.name, turned)
        return None if new is old else new.breaker

    async def delete_all(self, home: Home) -> None:
        """Delete every channel of a tenant that is being deleted, and none of a later tenant of this name: another process may have
        finished this deletion meanwhile."""
        after: str | None = ""
        while after is not None:
            first, kept = after, False
            found, after = await rows.listed(self._tables, rows.of_tenant(home.name), rows.PREFIX_CHANNEL, first, 100)
            for row in found:
                if _stored(row).uid == home.uid:
                    kept |= not isinstance(await self._tables.write(TENANTS, row.pk, [Delete(row.rk, row.etag)]), Applied)
                    self._caches.drop(home.name, row.rk.removeprefix(rows.PREFIX_CHANNEL))
            if kept:
                # The row has changed since it was listed, or another process has deleted it.
                after = first

    async def _change(
        self, home: Home, name: str, change: Callable[[StoredChannel | None], StoredChannel]
    ) -> tuple[StoredChannel | None, StoredChannel]:
        """Apply `change` to the stored channel, again after each conflict; return the channel before and after.

        Nothing is written if `change` returns its argument.
        """
        pk, rk = rows.of_tenant(home.name), rows.PREFIX_CHANNEL + name

        async def attempt() -> tuple[StoredChannel | None, StoredChannel] | WriteConflict:
            row = await self._tables.get(TENANTS, pk, rk)
            old = _stored(row) if row is not None else None
            if old is not None and old.uid != home.uid:
                # A row of a deleted tenant of this name.
                old = None
            new = change(old)
            if new is old:
                # The cached channel is older than the one just read.
                self._caches.drop(home.name, name)
                return old, new
            if old is not None:
                new = new._replace(ended_holds=_ended_holds(old, new, self._clock.now()))
            if row is None:
                written = await rows.write_one(self._tables, pk, Insert(rk, new.props()))
            else:
                async with self._caches.marks.changing(home.name):
                    written = await rows.write_one(self._tables, pk, Replace(rk, new.props(), row.etag))
            self._caches.drop(home.name, name)
            if isinstance(written, Applied):
                return old, new._replace(etag=written.etags[0])
            return CONFLICT

        return await retry_on_conflict(attempt, rows.ATTEMPTS, _contended)

    async def _read(self, home: Home, name: str) -> StoredChannel | None:
        row = await self._tables.get(TENANTS, rows.of_tenant(home.name), rows.PREFIX_CHANNEL + name)
        stored = _stored(row) if row is not None else None
        return stored if stored is not None and stored.uid == home.uid else None

    async def _expect(self, home: Home, name: str) -> StoredChannel:
        stored = await self._read(home, name)
        if stored is None:
            raise not_found("channel")
        return stored

    def _shown(self, stored: StoredChannel, secret: str | None = None) -> Any:
        from ..delivery.channels.model import CHANNEL_OUT
        from ..delivery.channels.validation import mask_secrets

        generations = stored.generations
        state = {
            "name": stored.name,
            "created": stored.created,
            "paused": stored.paused,
            "reason": stored.reason or None,
            "paused_at": stored.paused_at or None,
            "flow": _flow(stored.breaker),
            "rotated_at": generations.rotated_at,
            "previous_until": generations.previous_until if len(rules.in_use(generations, self._clock.now())) > 1 else None,
            "secret": secret,
        }
        return CHANNEL_OUT.validate_python({**mask_secrets(stored.spec).model_dump(mode="json"), **state})


MOST_ENDED_HOLDS = 5


def _ended_holds(old: StoredChannel, new: StoredChannel, now: Millis) -> tuple[EndedHold, ...]:
    """Return the channel's ended holds after a change, the latest last."""
    ended = list(old.ended_holds)
    if old.paused and not new.paused:
        ended.append(EndedHold("paused", old.paused_at, now))
    if old.breaker.state != "closed" and new.breaker.state == "closed":
        ended.append(EndedHold("breaker", old.breaker.since, now))
    return tuple(ended[-MOST_ENDED_HOLDS:])


def _flow(found: Breaker) -> dict[str, Any]:
    if found.state == "closed":
        return {"breaker": "closed"}
    return {"breaker": found.state, "since": found.since, "until": found.until, "failures": found.failures, "error": found.error or None}


def _contended() -> Problem:
    return conflict("changed-meanwhile", "Other calls changed the channel several times meanwhile. Read it again and repeat the change.")


def _stored(row: Row) -> StoredChannel:
    return _CHANNEL.decode(row.props, row.rk.removeprefix(rows.PREFIX_CHANNEL), row.etag)
