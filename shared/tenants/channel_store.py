"""Channels of tenants: where deliveries go, with which secret, and whether they are paused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ..core.clock import Clock, Millis
from ..delivery.channels.model import Channel, HttpChannel
from ..delivery.channels.ports import Target
from ..delivery.egress_guard import Egress
from ..delivery.flow import circuit_breaker
from ..delivery.flow.circuit_breaker import CLOSED, Breaker
from ..delivery.flow.rules import Block, block
from ..storage.names import TENANTS
from ..storage.ports import ANY, Applied, Delete, Insert, Props, Replace, Row, Tables
from ..web.etag import check_if_match, etag_of
from ..web.problem import conflict, invalid_all, not_found
from . import rows, rules
from .model import ChannelOut, SecretOut
from .rows import Home
from .rules import Generations, Spec

_SPEC: TypeAdapter[Spec] = TypeAdapter(Channel)
_OUT: TypeAdapter[Any] = TypeAdapter(ChannelOut)


class StoredChannel(NamedTuple):
    """A channel as stored."""

    name: str
    uid: str
    spec: Spec
    created: Millis
    generations: Generations
    paused: bool
    reason: str
    paused_at: Millis = 0
    breaker: Breaker = CLOSED
    etag: str = ""

    def props(self) -> Props:
        """What is written."""
        out: Props = {
            "body": self.spec.model_dump_json(),
            "uid": self.uid,
            "created": self.created,
            "generation": self.generations.current,
            "paused": self.paused,
            "reason": self.reason,
            "paused_at": self.paused_at,
            "breaker": self.breaker.text(),
        }
        for name in ("rotated_at", "previous", "previous_until"):
            if (value := getattr(self.generations, name)) is not None:
                out[name] = value
        return out


class Channels:
    """The verbs of channels. `home` reads a tenant as stored or raises 404; `drop` forgets a cached target."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        home: Callable[[str], Awaitable[Home]],
        drop: Callable[[str, str], None],
        signing_key: str,
        egress: Egress,
    ) -> None:
        self._tables, self._clock, self._home, self._drop = tables, clock, home, drop
        self._signing_key, self._egress = signing_key, egress

    async def read_target(self, home: Home, name: str) -> Target | None:
        """The channel as senders want it, read now."""
        stored = await self._read(home, name)
        if stored is None:
            return None
        valid = rules.in_use(stored.generations, self._clock.now())
        secrets = tuple(rules.secret_of(self._signing_key, home.name, name, generation) for generation in valid)
        return Target(home.name, name, stored.spec, secrets, stored.paused, stored.reason, stored.paused_at, stored.breaker)

    async def get(self, tenant: str, name: str) -> tuple[Any, str]:
        """The channel's representation and entity tag; raises 404."""
        stored = await self._expect(await self._home(tenant), name)
        return self._shown(stored), etag_of(stored.etag)

    async def list(self, tenant: str, limit: int, after: str = "") -> tuple[list[Any], str | None]:
        """Channels by name beyond `after`, and the name to go on after; raises 404."""
        home = await self._home(tenant)
        found, more = await rows.listed(self._tables, rows.of_tenant(tenant), rows.PREFIX_CHANNEL, after, limit)
        return [self._shown(stored) for row in found if (stored := _stored(row)).uid == home.uid], more

    async def blocks(self, tenant: str) -> dict[str, Block | None]:
        """Every channel of the tenant as stored now, and what keeps deliveries to it; raises 404."""
        home = await self._home(tenant)
        found: list[Row] = []
        after: str | None = ""
        while after is not None:
            page, after = await rows.listed(self._tables, rows.of_tenant(tenant), rows.PREFIX_CHANNEL, after, 1000)
            found += page
        return {each.name: block(each.paused, each.breaker) for row in found if (each := _stored(row)).uid == home.uid}

    async def put(self, tenant: str, name: str, spec: Spec, headers: Mapping[str, str] | None = None) -> tuple[Any, str, bool]:
        """Create or replace a channel; the third value is True when it is new. Honours `If-Match` in `headers`.

        The representation holds the secret only when this call made it. Raises 404, 412, 422.
        """
        home = await self._home(tenant)

        def change(old: StoredChannel | None) -> StoredChannel:
            check_if_match(headers or {}, etag_of(old.etag) if old else None)
            wanted = rules.unmasked(spec, old.spec if old else None)
            if found := rules.faults(wanted, self._egress):
                raise invalid_all(found)
            now = self._clock.now()
            if old is None:
                made = rules.first_generation(now) if isinstance(spec, HttpChannel) else Generations()
                return StoredChannel(name, home.uid, wanted, now, made, False, "")
            generations = old.generations
            if isinstance(spec, HttpChannel) and not generations.current:
                generations = rules.first_generation(now)
            # Another address, or other settings, may be what was wanting: what was learnt of the old ones counts no more.
            learnt = old.breaker if wanted == old.spec else CLOSED
            return old._replace(spec=wanted, generations=generations, breaker=learnt)

        old, new = await self._change(home, name, change)
        secret = None
        if new.generations.current and (old is None or not old.generations.current):
            secret = rules.secret_of(self._signing_key, tenant, name, new.generations.current)
        return self._shown(new, secret), etag_of(new.etag), old is None

    async def plant(self, tenant: str, name: str, spec: Spec) -> None:
        """Make the channel unless it is there, whatever its address: for the local default only."""
        home = await self._home(tenant)
        if await self._read(home, name) is None:
            now = self._clock.now()
            made = StoredChannel(name, home.uid, spec, now, rules.first_generation(now), False, "")
            await self._change(home, name, lambda old: old or made)

    async def delete(self, tenant: str, name: str, headers: Mapping[str, str] | None = None) -> None:
        """Remove a channel; raises 404 or 412. Its events that are still open end as dead letters."""
        home = await self._home(tenant)
        for _ in range(rows.ATTEMPTS):
            stored = await self._expect(home, name)
            check_if_match(headers or {}, etag_of(stored.etag))
            gone = await self._tables.write(TENANTS, rows.of_tenant(tenant), [Delete(rows.PREFIX_CHANNEL + name, stored.etag)])
            self._drop(tenant, name)
            if isinstance(gone, Applied):
                return
        raise conflict("changed-meanwhile", "others keep changing this channel; read it again and decide")

    async def rotate(self, tenant: str, name: str) -> SecretOut:
        """A new webhook secret. Raises 404, and 409 `not-signed` for a channel that is not http."""

        def change(old: StoredChannel | None) -> StoredChannel:
            if old is None:
                raise not_found("channel")
            if not isinstance(old.spec, HttpChannel):
                raise conflict("not-signed", "only http channels have a secret")
            return old._replace(generations=rules.rotate(old.generations, self._clock.now()))

        _, new = await self._change(await self._home(tenant), name, change)
        secret = rules.secret_of(self._signing_key, tenant, name, new.generations.current)
        return SecretOut(secret=secret, previous_until=new.generations.previous_until)

    async def pause(self, tenant: str, name: str, paused: bool, reason: str = "") -> tuple[Any, str]:
        """Start or end a pause; the representation and entity tag. Raises 404. Deliveries stop everywhere within a second.

        Ending one also closes the breaker: a person says that deliveries are to go on.
        """

        def change(old: StoredChannel | None) -> StoredChannel:
            if old is None:
                raise not_found("channel")
            if not paused:
                return old._replace(paused=False, reason="", paused_at=0, breaker=CLOSED)
            if old.paused:
                # Said again without a reason it stays as it was.
                return old._replace(reason=reason or old.reason)
            return old._replace(paused=True, reason=reason, paused_at=self._clock.now())

        _, new = await self._change(await self._home(tenant), name, change)
        return self._shown(new), etag_of(new.etag)

    async def hold(self, target: Target, reason: str) -> bool:
        """Pause the channel for its receiver, which wants no more deliveries there; False if it is paused, gone, or has changed since."""

        def change(old: StoredChannel | None) -> StoredChannel:
            if old is None:
                raise not_found("channel")
            if old.paused or old.spec != target.spec:
                return old
            return old._replace(paused=True, reason=reason, paused_at=self._clock.now())

        old, new = await self._change(await self._home(target.tenant), target.name, change)
        return new is not old

    async def turn(self, target: Target, change: circuit_breaker.BreakerChange) -> Breaker | None:
        """Change the breaker; as it is then, or None when there was nothing to change. Raises 404, 409 `changed-meanwhile`."""

        def turned(old: StoredChannel | None) -> StoredChannel:
            if old is None:
                raise not_found("channel")
            new = change(old.breaker) if old.spec == target.spec else None
            return old if new is None else old._replace(breaker=new)

        old, new = await self._change(await self._home(target.tenant), target.name, turned)
        return None if new is old else new.breaker

    async def delete_all(self, home: Home) -> None:
        """Remove every channel of a tenant that is being deleted."""
        while True:
            found, more = await rows.listed(self._tables, rows.of_tenant(home.name), rows.PREFIX_CHANNEL, "", 100)
            for row in found:
                await self._tables.write(TENANTS, row.pk, [Delete(row.rk, ANY)])
                self._drop(home.name, row.rk.removeprefix(rows.PREFIX_CHANNEL))
            if more is None:
                return

    async def _change(
        self, home: Home, name: str, change: Callable[[StoredChannel | None], StoredChannel]
    ) -> tuple[StoredChannel | None, StoredChannel]:
        """Write what `change` makes of the stored channel, anew whenever somebody else was quicker; before and after.

        Nothing is written when `change` answers what it was given.
        """
        pk, rk = rows.of_tenant(home.name), rows.PREFIX_CHANNEL + name
        for _ in range(rows.ATTEMPTS):
            row = await self._tables.get(TENANTS, pk, rk)
            old = _stored(row) if row is not None else None
            if old is not None and old.uid != home.uid:
                # Left over from a deleted tenant of this name.
                old = None
            new = change(old)
            if new is old:
                # What is cached is older than what was just read.
                self._drop(home.name, name)
                return old, new
            op = Insert(rk, new.props()) if row is None else Replace(rk, new.props(), row.etag)
            written = await rows.write_one(self._tables, pk, op)
            self._drop(home.name, name)
            if isinstance(written, Applied):
                return old, new._replace(etag=written.etags[0])
        raise conflict("changed-meanwhile", "others keep changing this channel; read it again and decide")

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
        return _OUT.validate_python({**rules.masked(stored.spec).model_dump(mode="json"), **state})


def _flow(found: Breaker) -> dict[str, Any]:
    if found.state == "closed":
        return {"breaker": "closed"}
    return {"breaker": found.state, "since": found.since, "until": found.until, "failures": found.failures, "error": found.error or None}


def _stored(row: Row) -> StoredChannel:
    generations = Generations(
        int(row.props["generation"]), rows.number(row, "rotated_at"), rows.number(row, "previous"), rows.number(row, "previous_until")
    )
    return StoredChannel(
        row.rk.removeprefix(rows.PREFIX_CHANNEL),
        str(row.props["uid"]),
        _SPEC.validate_json(str(row.props["body"])),
        int(row.props["created"]),
        generations,
        bool(row.props["paused"]),
        str(row.props["reason"]),
        int(row.props.get("paused_at", 0)),
        circuit_breaker.parse(str(row.props.get("breaker", ""))),
        row.etag,
    )
