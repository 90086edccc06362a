"""BigBen's verbs, carried out by the scheduler.

An UPSERT first tries to store a new event under the id's present generation; the id row decides. If the id is taken, the event is changed
where it may be, and where it is over already the next generation begins: one conditional write in `TocsinIds`, row `!{base id}`.
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
from ...engine.conflicts import CONFLICT, Conflict, retry_on_conflict
from ...scheduler.ingest.admission import YIELD_EVERY, Admitted
from ...scheduler.ingest.queued_ids import Queued
from ...scheduler.keys import id_partition, use_row_key
from ...scheduler.model import EventPatch
from ...scheduler.rows import body_of, etag_of_row, representation
from ...scheduler.rules import FINAL
from ...scheduler.service import Scheduler
from ...storage.names import IDS
from ...storage.ports import Insert, Merge, Props, Row, Tables
from ...web import problem
from ...web.parsing import load_json, member, parse_json
from . import rules
from .model import EventRequest
from .rules import Refused, Remove, Upsert

_PATCH: TypeAdapter[EventPatch] = TypeAdapter(EventPatch)
TRIES = 8
"""Times an id's next use is tried while others use it too."""
IN_FLIGHT = 32

type Known = Callable[[str], Awaitable[bool]]
"""Whether a tenant is there and the caller's."""
type BigBenReply = dict[str, Any]


def _contended() -> Problem:
    return problem.conflict("changed-meanwhile", "others keep using this id; try again")


class BigBen:
    """One per process; belongs to one event loop."""

    def __init__(self, scheduler: Scheduler, tables: Tables) -> None:
        self._scheduler, self._tables = scheduler, tables
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def schedule(self, elements: Sequence[bytes], known: Known) -> list[BigBenReply]:
        """What became of each request, in the order sent. Requests for one id are carried out one after the other."""
        replies: list[BigBenReply] = [{}] * len(elements)
        rounds: list[list[tuple[int, Upsert | Remove]]] = []
        uses: Counter[tuple[str, str]] = Counter()
        for number, raw in enumerate(elements):
            if number % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
            request, wanted = await self._understand(raw, known)
            if isinstance(wanted, Refused):
                replies[number] = _echo(request, eventStatus="REJECTED", error=wanted._asdict())
                continue
            turn = uses[wanted.tenant, wanted.id]
            uses[wanted.tenant, wanted.id] += 1
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append((number, wanted))
        for now in rounds:
            for (number, _), reply in zip(now, await self._carry_out([wanted for _, wanted in now]), strict=True):
                replies[number] = reply
        return replies

    async def find(self, tenant: str, bigben_id: str) -> BigBenReply | None:
        """How the event stands, or None."""
        row = await self._row(tenant, bigben_id)
        return _shown(row) if row is not None else None

    async def dry_run(self, tenant: str, bigben_id: str) -> BigBenReply | None:
        """Deliver a copy of the event now, under an id of its own; the event itself stays as it is. How it stands, or None."""
        row = await self._row(tenant, bigben_id)
        shown = _shown(row) if row is not None else None
        if row is None or shown is None:
            return None
        raw = b'{"delay":"PT0S","channel":%b,"payload":%b}' % (orjson.dumps(row.props["channel"]), body_of(row.props))
        [taken] = await self._scheduler.ingest.batch(tenant, b"[" + raw + b"]", lines=False)
        if isinstance(taken, Problem):
            raise taken
        return shown

    async def _understand(self, raw: bytes, known: Known) -> tuple[EventRequest, Upsert | Remove | Refused]:
        document = load_json(raw)
        if not isinstance(document, dict):
            return EventRequest(), Refused(400, "not an event")
        try:
            request = EventRequest.model_validate(document, strict=True)
        except ValidationError as failure:
            where = ", ".join(sorted({str(error["loc"][0]) for error in failure.errors(include_input=False, include_url=False)}))
            sound = {name: value for name, value in document.items() if name in ("id", "tenant", "eventTime") and isinstance(value, str)}
            return EventRequest(**sound), Refused(400, f"can not be read: {where}")
        theirs = request.tenant is not None and await known(request.tenant)
        return request, rules.understand(request, member(raw, "payload"), theirs)

    async def _carry_out(self, wanted: Sequence[Upsert | Remove]) -> list[BigBenReply]:
        """One round: no id twice. New events of a tenant go in together."""
        replies: dict[int, BigBenReply] = {}
        tenants: dict[str, list[int]] = {}
        for place, each in enumerate(wanted):
            if isinstance(each, Upsert):
                tenants.setdefault(each.tenant, []).append(place)

        async def remove(place: int, each: Remove) -> None:
            replies[place] = await self._bounded(self._remove(each))

        async def upsert(places: list[int]) -> None:
            some = [each for place in places if isinstance(each := wanted[place], Upsert)]
            replies.update(zip(places, await self._upsert(some), strict=True))

        removes = [remove(place, each) for place, each in enumerate(wanted) if isinstance(each, Remove)]
        await asyncio.gather(*removes, *(upsert(places) for places in tenants.values()))
        return [replies[place] for place in range(len(wanted))]

    async def _upsert(self, wanted: Sequence[Upsert]) -> list[BigBenReply]:
        """Upserts of one tenant, no id twice."""
        tenant = wanted[0].tenant
        generations = await asyncio.gather(*(self._bounded(self._generation(tenant, each.id)) for each in wanted))
        events = [rules.event_id(each.id, generation) for each, generation in zip(wanted, generations, strict=True)]
        documents = [rules.document(each, event) for each, event in zip(wanted, events, strict=True)]
        taken = await self._store(tenant, documents)
        rest = (
            self._settle(each, event, generation, result)
            for each, event, generation, result in zip(wanted, events, generations, taken, strict=True)
        )
        return await asyncio.gather(*map(self._bounded, rest))

    async def _store(self, tenant: str, documents: Sequence[bytes]) -> list[Admitted | Problem]:
        try:
            taken = await self._scheduler.ingest.batch(tenant, b"[" + b",".join(documents) + b"]", lines=False)
        except (Problem, StorageError) as failure:
            return [problem.of(failure, where="bigben_schedule")] * len(documents)
        # The documents ask for durability standard at least, so none is queued.
        return [result for result in taken if not isinstance(result, Queued)]

    async def _bounded[T](self, work: Awaitable[T]) -> T:
        async with self._in_flight:
            return await work

    async def _settle(self, wanted: Upsert, event: str, generation: int, taken: Admitted | Problem) -> BigBenReply:
        """The reply to an upsert, given what the store said to a new event under its id."""
        if isinstance(taken, Admitted):
            if taken.new:
                past = wanted.due <= int(taken.row.props["created"])
                return self._reply(wanted, event, "TRIGGERED" if past else "ACCEPTED")
            stands = _shown(taken.row)
            # The very request once more: what it asked for may have happened since.
            return self._reply(wanted, event, "UPDATED" if stands is None or stands["eventStatus"] == "ACCEPTED" else stands["eventStatus"])
        if taken.code != "id-conflict":
            return _failed(wanted, taken)
        try:
            return await self._change(wanted, event, generation)
        except (Problem, StorageError) as failure:
            return _failed(wanted, problem.of(failure, where="bigben_schedule"))

    async def _change(self, wanted: Upsert, event: str, generation: int) -> BigBenReply:
        """Change the event that has the id; when it is over, begin the id's next use."""
        scheduler, tenant = self._scheduler, wanted.tenant

        async def attempt() -> BigBenReply | Conflict:
            nonlocal generation, event
            row = await scheduler.lookup.event(tenant, event)
            if row is not None and row.props["state"] not in FINAL:
                if _shown(row) is None:
                    return _failed(wanted, problem.conflict("id-conflict", "the id names an event that was not made here"))
                if await self._changed(wanted, event, row):
                    return self._reply(wanted, event, "UPDATED")
                return CONFLICT
            if row is not None:
                generation = await self._next_use(tenant, wanted.id, generation)
                event = rules.event_id(wanted.id, generation)
            [taken] = await self._store(tenant, [rules.document(wanted, event)])
            if isinstance(taken, Admitted) or taken.code != "id-conflict":
                return await self._settle(wanted, event, generation, taken)
            return CONFLICT

        return await retry_on_conflict(attempt, TRIES, _contended)

    async def _changed(self, wanted: Upsert, event: str, row: Row) -> bool:
        """Make the event what is wanted, if it is still as `row` tells; False when it is not.

        Time and payload are one request's: of two that come at once, none may keep the one and lose the other.
        """
        raw = rules.patch(wanted, event, int(row.props["due"]))
        due, change = await self._scheduler.ingest.patch(wanted.tenant, parse_json(_PATCH, raw), raw, row.props)
        change["labels"] = orjson.dumps(rules.labels(wanted)).decode()
        unchanged = {"if-match": etag_of_row(row)}
        try:
            if due is None:
                await self._scheduler.changes.edit(wanted.tenant, event, change, unchanged)
            else:
                await self._scheduler.changes.move(wanted.tenant, event, due, change, unchanged)
        except Problem as refused:
            if refused.status != 412:
                raise
            return False
        return True

    async def _remove(self, wanted: Remove) -> BigBenReply:
        echo: BigBenReply = {"id": wanted.id, "tenant": wanted.tenant, "mode": "REMOVE"}
        try:
            event = rules.event_id(wanted.id, await self._generation(wanted.tenant, wanted.id))
            row = await self._scheduler.lookup.event(wanted.tenant, event)
            stands = _shown(row) if row is not None else None
            if row is None or stands is None:
                return echo | {"error": {"code": 404, "message": "event not found"}}
            if row.props["state"] in FINAL:
                return echo | {"eventId": event, "eventStatus": stands["eventStatus"]}
            await self._scheduler.changes.cancel(wanted.tenant, event, {})
            return echo | {"eventId": event, "eventStatus": "DELETED"}
        except (Problem, StorageError) as failure:
            found = problem.of(failure, where="bigben_schedule")
            return echo | {"eventStatus": "ERROR", "error": {"code": found.status, "message": found.detail}}

    async def _row(self, tenant: str, bigben_id: str) -> Row | None:
        return await self._scheduler.lookup.event(tenant, rules.event_id(bigben_id, await self._generation(tenant, bigben_id)))

    async def _generation(self, tenant: str, bigben_id: str) -> int:
        """Which use of the id is the present one."""
        row = await self._tables.get(IDS, *_place(tenant, bigben_id))
        return int(row.props["generation"]) if row is not None else 0

    async def _next_use(self, tenant: str, bigben_id: str, generation: int) -> int:
        """Begin the use after `generation`, unless somebody has; the present one."""
        pk, rk = _place(tenant, bigben_id)
        row = await self._tables.get(IDS, pk, rk)
        if row is not None and int(row.props["generation"]) > generation:
            return int(row.props["generation"])
        following: Props = {"generation": generation + 1}
        await self._tables.write(IDS, pk, (Insert(rk, following) if row is None else Merge(rk, following, row.etag),))
        # Refused: somebody was quicker, and what they wrote counts.
        return await self._generation(tenant, bigben_id)

    def _reply(self, wanted: Upsert, event: str, status: str) -> BigBenReply:
        reply = _answered(wanted) | {"eventId": event, "eventStatus": status}
        if status == "TRIGGERED":
            reply["triggeredAt"] = to_text(self._scheduler.clock.now())
        return reply


def _place(tenant: str, bigben_id: str) -> tuple[str, str]:
    """The row that counts an id's uses."""
    base = rules.base_id(bigben_id)
    return id_partition(tenant, base), use_row_key(base)


def _shown(row: Row) -> BigBenReply | None:
    return rules.shown(representation(row), orjson.loads(str(row.props.get("labels", "{}"))), body_of(row.props))


def _answered(wanted: Upsert) -> BigBenReply:
    out: BigBenReply = {"id": wanted.id, "eventTime": wanted.time, "tenant": wanted.tenant, "mode": "UPSERT"}
    out["deliveryOption"] = wanted.option
    if wanted.payload is not None:
        out["payload"] = orjson.Fragment(wanted.payload)
    return out


def _failed(wanted: Upsert, found: Problem) -> BigBenReply:
    """A request that was understood and could not be carried out: what is wrong with it is a rejection, all else an error."""
    ours = found.status in (413, 422)
    detail = found.errors[0]["detail"] if found.errors else found.detail
    return _answered(wanted) | {
        "eventStatus": "REJECTED" if ours else "ERROR",
        "error": {"code": 400 if ours else found.status, "message": detail},
    }


def _echo(request: EventRequest, **more: Any) -> BigBenReply:
    return request.model_dump(exclude_none=True) | more
