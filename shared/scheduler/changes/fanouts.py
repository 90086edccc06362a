"""Fan-outs as callers see them: one request whose event goes to several channels, shown and changed by one id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import Field

from ...core.errors import Problem, StorageError
from ...storage.ports import Row
from ...web import problem
from ...web.arrivals import Arrival
from ...web.etag import check_if_match, etag_of
from ...web.fields.types import Maybe, Strict
from ...web.problem import conflict, invalid, not_found
from ..facets.fanouts import channels_of, member_id
from ..ingest.admission import Admitted, Ingest
from ..ingest.writer import Writer
from ..keys import shard_tenant
from ..model import EventIn, EventOut, EventPatch, EventState, ProblemLine
from ..protocol.ingest import known_id
from ..queries.views import EventViews
from ..rows import CHANNELS, FANOUT, EventToStore, etag_of_row, shown_state, withdrawn
from ..rules import is_over
from ..shard_services import ShardServices
from .collapsing import Collapsing
from .table import CANCEL, Verb
from .verbs import ChangeRequest, Changes


class FanoutOut(Strict):
    """A fan-out: an event for each of its channels."""

    id: str
    tenant: str
    channels: list[str]
    events: list[EventOut] = Field(description="In the order of the channels. An event is missing after its retention.")


class FanoutLine(Strict):
    """The result of a change for one event of a fan-out."""

    id: str
    channel: str
    status: int = Field(description="As the same call by the event's own id answers.")
    state: Maybe[EventState] = Field(None, description="The event's state after the call. Missing if the event is not stored.")
    problem: Maybe[ProblemLine] = None


class FanoutReport(Strict):
    """The results of a change, one for each event of a fan-out."""

    id: str
    changed: int
    results: list[FanoutLine]


class Member(NamedTuple):
    """One event of a fan-out. row: None if it is not stored yet, or not any more."""

    channel: str
    id: str
    row: Row | None


def etag_of_members(members: Sequence[Member]) -> str:
    """Return the entity tag of a fan-out: it changes with each of its events."""
    return etag_of(*(etag_of_row(each.row) if each.row is not None else "" for each in members))


class ShownFanout(NamedTuple):
    """A fan-out, or a report of a change, with the fan-out's entity tag."""

    body: dict[str, Any]
    etag: str


class Fanouts:
    """Stores, shows and changes fan-outs. One per process."""

    def __init__(
        self,
        services: ShardServices,
        ingest: Ingest,
        collapsing: Collapsing,
        writer: Writer,
        changes: Changes,
        views: EventViews,
    ) -> None:
        self._runner, self._clock, self._ids = services.runner, services.clock, services.ids
        self._ingest, self._collapsing, self._writer, self._lookup, self._changes = ingest, collapsing, writer, changes.lookup, changes
        self._views = views

    async def post(self, tenant: str, event: EventIn, body: bytes | None, arrival: Arrival) -> list[Admitted]:
        """Store an event for each channel; return them in the order of the channels. Raises as `Ingest.one` and `Collapsing.post` do.

        After a failure some of them may be stored. The same request with the same id stores the others.
        """
        if event.collapse is None:
            return await self._ingest.fan_out(tenant, event, body)
        events = await self._ingest.collapsing_fan_out(tenant, event, body)
        waiting = await self._lookup.named(tenant, str(event.id))
        if waiting is not None and waiting.props.get(CHANNELS) != events[0].props[CHANNELS] and await self._waits(tenant, waiting):
            raise conflict("id-conflict", "an event with this id, or a fan-out to other channels, waits; only the same channels replace it")
        first = await self._collapsing.store(tenant, events[0], arrival)
        return [first, *await asyncio.gather(*(self._collapsing.store(tenant, each, arrival) for each in events[1:]))]

    async def _waits(self, tenant: str, named: Row) -> bool:
        """Return True if the event, or one of the fan-out whose first event it is, has not ended."""
        members = await self.members(tenant, str(named.props.get(FANOUT, "")))
        rows = [named] if members is None else [each.row for each in members]
        return any(row is not None and not is_over(row.props) for row in rows)

    async def members(self, tenant: str, fanout: str) -> list[Member] | None:
        """Return the events of a fan-out; None if there is none with this id, or its first event is not kept any more."""
        first = await self._lookup.named(tenant, fanout)
        if first is None or first.props.get(FANOUT) != fanout or CHANNELS not in first.props:
            return None
        names = channels_of(first.props)
        ids = [member_id(fanout, channel) for channel in names]
        rows = [first, *await asyncio.gather(*(self._lookup.event(tenant, each) for each in ids[1:]))]
        return [Member(*each) for each in zip(names, ids, rows, strict=True)]

    async def shown(self, fanout: str, members: Sequence[Member]) -> ShownFanout:
        """Return the representation of a fan-out. Raises `StorageError`."""
        rows = [each.row for each in members if each.row is not None]
        answers = await asyncio.gather(*(self._lookup.answers(row) for row in rows))
        events = await asyncio.gather(*(self._views.one(row, heads) for row, heads in zip(rows, answers, strict=True)))
        names = [each.channel for each in members]
        body = {"id": fanout, "tenant": shard_tenant(rows[0].pk), "channels": names, "events": events}
        return ShownFanout(body, etag_of_members(members))

    async def admitted(self, made: Sequence[Admitted]) -> ShownFanout:
        """Return the representation of a fan-out whose events were just stored, or found, in the order of its channels."""
        fanout, channels = str(made[0].row.props[FANOUT]), channels_of(made[0].row.props)
        return await self.shown(fanout, [Member(channel, each.id, each.row) for channel, each in zip(channels, made, strict=True)])

    async def carry_out(self, verb: Verb, request: ChangeRequest, fanout: str) -> ShownFanout:
        """Carry a verb out on each event. Return what became of each. Raises 404, 412, 422."""
        members = await self.members(request.tenant, fanout)
        if members is None:
            raise not_found("event")
        if request.patch is not None:
            request = request._replace(patch=self._of_all(request.patch))
        check_if_match(request.headers, etag_of_members(members))

        async def line(member: Member) -> dict[str, Any]:
            shown: dict[str, Any] = {"id": member.id, "channel": member.channel}
            try:
                row = None
                if verb is not CANCEL or member.row is not None or not await self._withdraw(request, fanout, member):
                    row = await verb.one(self._changes, request._replace(headers={}, seen=member.row), member.id)
                return shown | {"status": verb.status, "state": verb.state if row is None else shown_state(row.props)}
            except (Problem, StorageError) as failure:
                found = problem.of(failure, where="events_fanout")
                return shown | {"status": found.status, "problem": found.body()}

        lines = await asyncio.gather(*map(line, members))
        try:
            now = await self.members(request.tenant, fanout) or []
        except StorageError:
            # The changes are made; their report is more important than the states of the others.
            now = []
        for each, member in zip(lines, now, strict=False):
            if "state" not in each and member.row is not None:
                each["state"] = shown_state(member.row.props)
        report = {"id": fanout, "changed": sum(each["status"] == verb.status for each in lines), "results": lines}
        return ShownFanout(report, etag_of_members(now))

    def _of_all(self, patch: EventPatch) -> EventPatch:
        """Return a patch of a fan-out for each of its events. Raises 422."""
        if patch.channel is not None:
            raise invalid("/channel", "each event of a fan-out has its own channel; change one event by its own id")
        # From one instant on: the events stay due at the same time.
        return patch if patch.delay is None else patch.model_copy(update={"due": self._clock.now() + patch.delay, "delay": None})

    async def _withdraw(self, request: ChangeRequest, fanout: str, member: Member) -> bool:
        """Store a cancelled event under the id of one that is not stored yet; return False if that one was stored first.

        The request that was to store it, or repeats it, finds the id in use. Raises 404 if the fan-out is gone, and `StorageError`.
        """
        first = await self._runner.run(known_id(request.tenant, fanout))
        if first is None:
            raise not_found("event")
        gone = cancelled_member(first.row, first.hash, member, int(self._clock.now()), self._ids.name())
        if request.by is not None:
            gone.props |= request.by.noted()
        [stored] = await self._writer.store(request.tenant, [gone])
        if isinstance(stored, StorageError):
            raise stored
        return stored.existing is None


def cancelled_member(first: Row, content: str, member: Member, now: int, nonce: str) -> EventToStore:
    """Return a cancelled event in place of one that is missing. content: the hash of the fan-out's content."""
    event = withdrawn(member.id, now, int(first.props["due"]), now, nonce)
    del event.props["asked"], event.props["durability"]
    event.durability, event.hash, event.term = "standard", content, None
    if first.props.get("durability") == "mirrored":
        event.durability = event.props["durability"] = "mirrored"
    event.props[FANOUT] = first.props[FANOUT]
    return event
