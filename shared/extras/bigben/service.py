"""BigBen's operations, run by the scheduler.

An UPSERT first tries to store a new event under the id's present use; the id row decides. If the id is taken, the event is changed if
its state allows it. If the event has ended, the next use begins: one conditional write in `TocsinIds`, row `!{base id}`. What a request
that was received later has stored, changed or removed stays as it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from ...core.clock import to_text
from ...core.errors import Problem, StorageError
from ...engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ...scheduler.changes.verbs import ChangeRequest
from ...scheduler.ingest.admission import STORE_FOR, Admitted
from ...scheduler.model import MAX_EVENT_BYTES, EventPatch
from ...scheduler.properties.receipts import OVERTAKEN, Received
from ...scheduler.rows import body_of, etag_of_row, representation
from ...scheduler.rules import FINAL
from ...scheduler.service import Scheduler
from ...scheduler.shard.queued_ids import Queued
from ...storage.names import IDS
from ...storage.ports import Insert, Merge, Props, Row, Tables
from ...web import problem
from ...web.arrivals import Arrival
from ...web.bodies import Pace, in_turns, parse_body
from ...web.json_spans import Span
from ...web.parsing import MAX_DEPTH, load_json, split
from ...web.problem import unreadable
from . import rules
from .model import MAX_OF_ONE_ID, EventRequest
from .rules import RejectedRequest, RemoveRequest, UpsertRequest
from .uses import use_row

_PATCH: TypeAdapter[EventPatch] = TypeAdapter(EventPatch)
MAX_TRIES = 8
"""Largest number of tries to change an event, or to begin an id's next use, while other requests use the id too."""
IN_FLIGHT = 32
_TERMS = ("channel", "payload", "content_type", "target", "retry", "timeout", "ordering_key")
"""The members of an event that decide what its receiver gets, and how. Some of them only the service's own API sets."""

_LATE = {
    "eventStatus": "ERROR",
    "error": {"code": 503, "message": "the call was not finished in time, and this request was not carried out; send it again"},
}

type IsKnownTenant = Callable[[str], Awaitable[bool]]
"""A function that returns True if the tenant exists and the caller may act for it."""
type BigBenReply = dict[str, Any]


def _contended() -> Problem:
    return problem.conflict("changed-meanwhile", "other requests change this id at the same time; try again")


class BigBen:
    """BigBen's operations on events. One per process; it belongs to one event loop."""

    def __init__(self, scheduler: Scheduler, tables: Tables) -> None:
        self._scheduler, self._tables = scheduler, tables
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def schedule(self, raw: bytes, spans: Sequence[Span], known: IsKnownTenant, arrival: Arrival) -> list[BigBenReply]:
        """Run the requests at the given places of `raw` and return their results in the order sent.

        Requests for one id run one after the other; of more than `MAX_OF_ONE_ID` none is run. Raises 422 if a request is not JSON, which
        makes the whole array invalid, as at BigBen.
        """
        replies: list[BigBenReply] = [{}] * len(spans)
        pace = Pace()
        rounds: list[list[tuple[int, UpsertRequest | RemoveRequest]]] = []
        uses: Counter[tuple[str, str]] = Counter()
        for number, span in enumerate(spans):
            size = span.end - span.start
            await pace.spend(min(size, MAX_EVENT_BYTES))
            if size > MAX_EVENT_BYTES or span.deep:
                fault = f"nested deeper than {MAX_DEPTH} levels" if span.deep else f"larger than {MAX_EVENT_BYTES:,} bytes"
                replies[number] = _echo(EventRequest(), None, RejectedRequest(400, f"the event is {fault}"))
                continue
            request, wanted, payload = await self._understand(raw[span.start : span.end], number, known)
            if isinstance(wanted, RejectedRequest):
                replies[number] = _echo(request, payload, wanted)
                continue
            turn = uses[wanted.tenant, wanted.id]
            uses[wanted.tenant, wanted.id] += 1
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append((number, wanted))
        by = Received(arrival)
        for now in rounds:
            few = []
            for number, wanted in now:
                if uses[wanted.tenant, wanted.id] > MAX_OF_ONE_ID:
                    replies[number] = _too_many_reply(wanted, uses[wanted.tenant, wanted.id])
                else:
                    few.append((number, wanted))
            for (number, _), reply in zip(few, await self._carry_out([wanted for _, wanted in few], by), strict=True):
                replies[number] = reply
        return replies

    async def find(self, tenant: str, bigben_id: str) -> BigBenReply | None:
        """Return the event, or None if it does not exist."""
        row = await self._row(tenant, bigben_id)
        return _reply_of_row(row) if row is not None and not _is_removed(row) else None

    async def dry_run(self, tenant: str, bigben_id: str) -> BigBenReply | None:
        """Deliver a copy of the event now, under its own id. Returns the event, which does not change, or None if it does not exist."""
        row = await self._row(tenant, bigben_id)
        shown = _reply_of_row(row) if row is not None and not _is_removed(row) else None
        if row is None or shown is None:
            return None
        [taken] = await self._scheduler.ingest.each(tenant, [_copy(row)])
        if isinstance(taken, Problem):
            raise taken
        return shown

    async def _understand(
        self, raw: bytes, number: int, known: IsKnownTenant
    ) -> tuple[EventRequest, UpsertRequest | RemoveRequest | RejectedRequest, bytes | None]:
        """Return a request as parsed and as understood, and its payload as sent."""
        try:
            rest, payload = await in_turns(split(raw, "payload"), len(raw))
            document = load_json(rest)
        except Problem as wrong:
            if wrong.code != "malformed-json":
                return EventRequest(), RejectedRequest(400, f"the event {wrong.errors[0]['detail']}"), None
            raise unreadable("malformed-json", f"Element {number} of the array cannot be read. {wrong.detail}") from None
        if not isinstance(document, dict):
            return EventRequest(), RejectedRequest(400, "not an event"), None
        try:
            request = EventRequest.model_validate(document, strict=True)
        except ValidationError as failure:
            where = ", ".join(sorted({str(error["loc"][0]) for error in failure.errors(include_input=False, include_url=False)}))
            sound = {name: value for name, value in document.items() if name in ("id", "tenant", "eventTime") and isinstance(value, str)}
            return EventRequest.model_validate(sound), RejectedRequest(400, f"can not be read: {where}"), None
        theirs = request.tenant is not None and await known(request.tenant)
        return request, rules.parse_request(request, payload, theirs), payload

    async def _carry_out(self, wanted: Sequence[UpsertRequest | RemoveRequest], by: Received) -> list[BigBenReply]:
        """Run requests with different ids. New events of a tenant are stored together."""
        replies: dict[int, BigBenReply] = {}
        tenants: dict[str, list[int]] = {}
        for place, each in enumerate(wanted):
            if isinstance(each, UpsertRequest):
                tenants.setdefault(each.tenant, []).append(place)

        async def remove(place: int, each: RemoveRequest) -> None:
            replies[place] = await self._bounded(self._remove(each, by))

        async def upsert(places: list[int]) -> None:
            some = [each for place in places if isinstance(each := wanted[place], UpsertRequest)]
            replies.update(zip(places, await self._upsert(some, by), strict=True))

        removes = [remove(place, each) for place, each in enumerate(wanted) if isinstance(each, RemoveRequest)]
        await asyncio.gather(*removes, *(upsert(places) for places in tenants.values()))
        return [replies[place] for place in range(len(wanted))]

    async def _upsert(self, wanted: Sequence[UpsertRequest], by: Received) -> list[BigBenReply]:
        """Run upserts of one tenant with different ids."""
        tenant = wanted[0].tenant
        generations = await asyncio.gather(*(self._bounded(self._generation(tenant, each.id)) for each in wanted))
        events = [rules.event_id(each.id, generation) for each, generation in zip(wanted, generations, strict=True)]
        documents = [self._document(each, event) for each, event in zip(wanted, events, strict=True)]
        taken = await self._store(tenant, documents, by)
        rest = (
            self._settle(each, event, generation, result, by)
            for each, event, generation, result in zip(wanted, events, generations, taken, strict=True)
        )
        return await asyncio.gather(*map(self._bounded, rest))

    async def _store(self, tenant: str, documents: Sequence[bytes], by: Received) -> list[Admitted | Problem]:
        try:
            ingest = self._scheduler.ingest
            taken = await ingest.each(tenant, documents, by.noted(), ingest.ends(by.arrival))
        except (Problem, StorageError) as failure:
            return [problem.of(failure, where="bigben_schedule")] * len(documents)
        # The documents ask for durability standard or better, so none is queued.
        return [result for result in taken if not isinstance(result, Queued)]

    async def _bounded[T](self, work: Awaitable[T]) -> T:
        async with self._in_flight:
            return await work

    async def _settle(self, wanted: UpsertRequest, event: str, generation: int, taken: Admitted | Problem, by: Received) -> BigBenReply:
        """Return the reply to an upsert, from the result of storing a new event under its id."""
        if isinstance(taken, Admitted):
            reply = self._stored(wanted, event, taken)
            if reply is not None:
                return reply
        elif taken.code != "id-conflict":
            return _failed_reply(wanted, taken)
        elif _is_late(by):
            return _accepted_reply(wanted) | _LATE
        try:
            return await self._change(wanted, event, generation, by)
        except (Problem, StorageError) as failure:
            return _failed_reply(wanted, problem.of(failure, where="bigben_schedule"))

    async def _change(self, wanted: UpsertRequest, event: str, generation: int, by: Received) -> BigBenReply:
        """Change the event that has the id. If it has ended, begin the id's next use."""
        scheduler, tenant = self._scheduler, wanted.tenant

        async def attempt() -> BigBenReply | WriteConflict:
            nonlocal generation, event
            row = await scheduler.lookup.event(tenant, event)
            if row is not None and row.props["state"] not in FINAL:
                if _reply_of_row(row) is None:
                    return _failed_reply(wanted, problem.conflict("id-conflict", "the id names an event that another API created"))
                same = self._unchanged(wanted, event, row)
                if same is not None:
                    return same
                _check_not_overtaken(by, row)
                if await self._changed(wanted, event, row, by):
                    return self._reply(wanted, event, "UPDATED")
                return CONFLICT
            if row is not None:
                same = self._unchanged(wanted, event, row)
                if same is not None:
                    return same
                _check_not_overtaken(by, row)
                generation = await self._next_use(tenant, wanted.id, generation)
                event = rules.event_id(wanted.id, generation)
            [taken] = await self._store(tenant, [self._document(wanted, event)], by)
            if isinstance(taken, Admitted):
                return self._stored(wanted, event, taken) or CONFLICT
            return CONFLICT if taken.code == "id-conflict" else _failed_reply(wanted, taken)

        return await retry_on_conflict(attempt, MAX_TRIES, _contended)

    async def _changed(self, wanted: UpsertRequest, event: str, row: Row, by: Received) -> bool:
        """Change the event to the requested one if it still equals `row`. Returns False if it does not.

        Time and payload change together: of two requests at once, the event must not get the time of one and the payload of the other.
        """
        raw = rules.patch(wanted, event, int(row.props["due"]), past=self._is_past(wanted))
        due, change = await self._scheduler.ingest.patch(wanted.tenant, *await parse_body(_PATCH, raw, "payload"), row.props)
        change["labels"] = orjson.dumps(rules.labels(wanted)).decode()
        unchanged = ChangeRequest(wanted.tenant, {"if-match": etag_of_row(row)}, by, row)
        try:
            await self._scheduler.changes.put(unchanged, event, due, change)
        except Problem as refused:
            if refused.status != 412:
                raise
            return False
        return True

    async def _remove(self, wanted: RemoveRequest, by: Received) -> BigBenReply:
        echo: BigBenReply = {"id": wanted.id, "tenant": wanted.tenant, "mode": "REMOVE"}
        if _is_late(by):
            return echo | _LATE
        try:
            event = rules.event_id(wanted.id, await self._generation(wanted.tenant, wanted.id))
            row = await self._scheduler.lookup.event(wanted.tenant, event)
            stands = _reply_of_row(row) if row is not None else None
            if row is None or stands is None:
                return echo | {"error": {"code": 404, "message": "event not found"}}
            if row.props["state"] in FINAL:
                return echo | {"eventId": event, "eventStatus": stands["eventStatus"]}
            await self._scheduler.changes.cancel(ChangeRequest(wanted.tenant, by=by), event)
            return echo | {"eventId": event, "eventStatus": "DELETED"}
        except (Problem, StorageError) as failure:
            found = problem.of(failure, where="bigben_schedule")
            return echo | {"eventStatus": "ERROR", "error": {"code": found.status, "message": found.detail}}

    async def _row(self, tenant: str, bigben_id: str) -> Row | None:
        return await self._scheduler.lookup.event(tenant, rules.event_id(bigben_id, await self._generation(tenant, bigben_id)))

    async def _generation(self, tenant: str, bigben_id: str) -> int:
        """Return the number of the id's present use, from 0."""
        row = await self._tables.get(IDS, *_use_row_keys(tenant, bigben_id))
        return int(row.props["generation"]) if row is not None else 0

    async def _next_use(self, tenant: str, bigben_id: str, generation: int) -> int:
        """Begin the use after `generation`, unless another request has, and return the present one."""
        pk, rk = _use_row_keys(tenant, bigben_id)
        row = await self._tables.get(IDS, pk, rk)
        if row is not None and int(row.props["generation"]) > generation:
            return int(row.props["generation"])
        following: Props = {"generation": generation + 1}
        await self._tables.write(IDS, pk, (Insert(rk, following) if row is None else Merge(rk, following, row.etag),))
        # If the write lost, another request was faster, and its row counts.
        return await self._generation(tenant, bigben_id)

    def _document(self, wanted: UpsertRequest, event: str) -> bytes:
        return rules.document(wanted, event, past=self._is_past(wanted))

    def _is_past(self, wanted: UpsertRequest) -> bool:
        return wanted.due <= self._scheduler.clock.now()

    def _stored(self, wanted: UpsertRequest, event: str, taken: Admitted) -> BigBenReply | None:
        """Return the reply if the event is new or is the requested one. None: it has been changed or removed since it had this content."""
        return self._reply(wanted, event, "ACCEPTED") if taken.new else self._unchanged(wanted, event, taken.row)

    def _unchanged(self, wanted: UpsertRequest, event: str, row: Row) -> BigBenReply | None:
        """Return the reply if the row's event is the requested one and was not removed, else None."""
        stands = _reply_of_row(row)
        if stands is None or _is_removed(row):
            return None
        if not rules.is_same(wanted, event, int(row.props["due"]), _labels(row), body_of(row.props)):
            return None
        status = stands["eventStatus"]
        if status == "UN_PROCESSED":
            return self._reply(wanted, event, "UPDATED")
        # It has been delivered, or has failed, or is being delivered, since it was first sent.
        result = {name: stands[name] for name in ("triggeredAt", "error") if name in stands}
        return _accepted_reply(wanted) | {"eventId": event, "eventStatus": status} | result

    def _reply(self, wanted: UpsertRequest, event: str, status: str) -> BigBenReply:
        """Return the reply to a request that took effect. An event of the past is triggered at once and has no `eventId`, as at BigBen."""
        if self._is_past(wanted):
            return _accepted_reply(wanted) | {"triggeredAt": to_text(self._scheduler.clock.now()), "eventStatus": "TRIGGERED"}
        return _accepted_reply(wanted) | {"eventId": event, "eventStatus": status}


def _use_row_keys(tenant: str, bigben_id: str) -> tuple[str, str]:
    """Return the keys of the row that counts an id's uses."""
    return use_row(tenant, rules.base_id(bigben_id))


def _copy(row: Row) -> bytes:
    """Return the document of an event that is delivered now, in the way in which this one will be delivered."""
    event = representation(row)
    terms = {name: event[name] for name in _TERMS if name in event}
    return orjson.dumps({"delay": "PT0S", **({} if "target" in event else {"payload": None}), **terms})


def _labels(row: Row) -> dict[str, str]:
    found: dict[str, str] = orjson.loads(str(row.props.get("labels", "{}")))
    return found


def _is_late(by: Received) -> bool:
    """Return True if the call has taken so long that it must not carry out further requests."""
    return by.arrival.age >= STORE_FOR


def _check_not_overtaken(by: Received, row: Row) -> None:
    """Raise 409 if a request that was received later has changed the event."""
    if by.overtaken_in(row.props):
        raise problem.conflict("changed-meanwhile", OVERTAKEN)


def _is_removed(row: Row) -> bool:
    return bool(row.props["state"] == "cancelled")


def _reply_of_row(row: Row) -> BigBenReply | None:
    return rules.shown(representation(row), _labels(row), body_of(row.props))


def _accepted_reply(wanted: UpsertRequest) -> BigBenReply:
    out: BigBenReply = {"id": wanted.id, "eventTime": wanted.time, "tenant": wanted.tenant, "mode": "UPSERT"}
    out["deliveryOption"] = wanted.option
    if wanted.payload is not None:
        out["payload"] = orjson.Fragment(wanted.payload)
    return out


def _too_many_reply(wanted: UpsertRequest | RemoveRequest, count: int) -> BigBenReply:
    echo: BigBenReply = {"id": wanted.id, "tenant": wanted.tenant, "mode": "REMOVE"}
    if isinstance(wanted, UpsertRequest):
        echo = _accepted_reply(wanted)
    rule = f"the call has {count:,} requests for this id, of which none was carried out: send at most {MAX_OF_ONE_ID} in one call"
    return echo | {"eventStatus": "REJECTED", "error": {"code": 400, "message": rule}}


def _failed_reply(wanted: UpsertRequest, found: Problem) -> BigBenReply:
    """Return the reply to a valid request that failed: REJECTED for a fault of the request, else ERROR."""
    ours = found.status in (413, 422)
    detail = found.errors[0]["detail"] if found.errors else found.detail
    return _accepted_reply(wanted) | {
        "eventStatus": "REJECTED" if ours else "ERROR",
        "error": {"code": 400 if ours else found.status, "message": detail},
    }


def _echo(request: EventRequest, payload: bytes | None, refusal: RejectedRequest) -> BigBenReply:
    out: BigBenReply = request.model_dump(exclude_none=True, exclude={"payload"})
    if payload is not None:
        out["payload"] = orjson.Fragment(payload)
    return out | {"eventStatus": "REJECTED", "error": refusal._asdict()}
