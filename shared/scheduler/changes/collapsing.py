"""Events with `collapse`: the last one under an id replaces those before it that no owner has claimed.

Posts to one id take turns in a process, and those that wait for their turn are merged: only the one that was received last is written.

A post whose id belongs to a run that has ended without a delivery schedules nothing, unless the caller asks for more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...core.clock import Millis
from ...core.errors import Problem, StorageError
from ...delivery.channels.content import CONTENT_TYPE
from ...delivery.channels.event_target import EVENT_TARGET
from ...storage.ports import Props
from ...web.arrivals import Arrival
from ...web.problem import conflict, not_found
from ..facets.finding import MARK
from ..ingest.admission import ENDED_UNDELIVERED, Admitted, Ingest
from ..model import EventIn, OnConflict
from ..properties.owed import CALLBACKS
from ..properties.receipts import Received
from ..queries.lookup import EventLookup
from ..rows import COLLAPSE, FIRST, TIMEOUT, EventToStore, etag_of_row
from ..rules import NEVER, is_over, may_change
from .verbs import FIRING, ChangeRequest, Changes

TRIES = 20
REPLACED: Mapping[str, Any] = {
    "expires": NEVER,
    "flex": 0,
    "shift": 0,
    "retry": "",
    "pauses": "",
    TIMEOUT: 0,
    CALLBACKS: "",
    EVENT_TARGET: "",
    CONTENT_TYPE: "",
}
"""The properties of the former event that the last one replaces even if it has none; a merge cannot remove a property."""
KEPT = frozenset({"id", "state", "created", "due", "labels", MARK, "durability", "key", "trace", FIRST})
"""The properties that stay those of the first event."""
_CHANGED = frozenset({"already-firing", "already-final", "precondition-failed", "not-found"})
_CANCELLED = (
    "The event was cancelled at about the time at which this request was received. Repeat the request if the event is still wanted."
)


@dataclass(slots=True, eq=False)
class Post:
    """A checked event that waits for its turn, and what became of it."""

    ready: EventToStore
    received: Received
    outcome: Admitted | Problem | StorageError | None = None


@dataclass(slots=True, eq=False)
class Line:
    """The posts to one id in this process."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[Post] = field(default_factory=list)
    posts: int = 0
    """Those that wait, and those whose turn it is."""


class Collapsing:
    """Stores an event, or puts it into the place of one that waits under the same id. One per process."""

    def __init__(self, ingest: Ingest, lookup: EventLookup, changes: Changes) -> None:
        self._ingest, self._lookup, self._changes = ingest, lookup, changes
        self._lines: dict[tuple[str, str], Line] = {}

    async def post(self, tenant: str, event: EventIn, body: bytes | None, arrival: Arrival) -> Admitted:
        """Store or replace. If a later request was faster, return the event as that one left it.

        Raises `Problem` as `Ingest.one` does; 409 `already-firing` while the former event is being delivered, and `changed-meanwhile` if
        others keep changing it, or it was cancelled at about that time; 503 `call-expired`.
        """
        return await self.store(tenant, await self._ingest.collapsing(tenant, event, body), arrival)

    async def store(self, tenant: str, ready: EventToStore, arrival: Arrival) -> Admitted:
        """Store a checked event, or let it replace the one that waits. Raises as `post` does."""
        mine = Post(ready, Received(arrival))
        key = tenant, str(ready.id)
        line = self._lines.setdefault(key, Line())
        line.waiting.append(mine)
        line.posts += 1
        try:
            async with line.turn:
                while mine.outcome is None:
                    await self._serve(tenant, line)
        finally:
            line.posts -= 1
            if mine in line.waiting:
                line.waiting.remove(mine)
            if not line.posts:
                del self._lines[key]
        if isinstance(mine.outcome, Admitted):
            return mine.outcome
        raise mine.outcome

    async def _serve(self, tenant: str, line: Line) -> None:
        """Carry out the last of the posts that wait, for all of them. If it fails, the others go on without it."""
        posts = line.waiting.copy()
        last = max(posts, key=lambda post: post.received.arrival.number)
        try:
            done = await self._one(tenant, merged([post.ready for post in posts], last.ready), last.received)
        except (Problem, StorageError) as failure:
            last.outcome, posts = failure, [last]
        else:
            for post in posts:
                post.outcome = done if post is last else done._replace(new=False)
        line.waiting = [post for post in line.waiting if post not in posts]

    async def _one(self, tenant: str, ready: EventToStore, received: Received) -> Admitted:
        event_id = str(ready.id)
        ready = replace(ready, reuses=lambda props: standing(received, props) == "over")
        for _ in range(TRIES):
            found = await self._lookup.event(tenant, event_id)
            now = standing(received, found.props) if found is not None else "over"
            if found is not None and now == "stands":
                await self._changes.settled(tenant, event_id)
                return Admitted(event_id, found, False)
            if now == "cancelled":
                raise Problem(409, "changed-meanwhile", _CANCELLED, headers={"retry-after": "1"})
            received.check_age()
            # As it is known now: perhaps this process had not seen storage's time before.
            ready.props |= received.noted()
            if found is None or now == "over":
                stored = await self._ingest.store_new(tenant, ready)
                if isinstance(stored, StorageError) or stored.existing is None:
                    return self._ingest.admitted(ready, stored)
                if stored.existing.props["id"] != event_id:
                    raise conflict("id-conflict", "an event with the id of this fan-out exists")
                if standing(received, stored.existing.props) == "stands":
                    # Perhaps an ended one, although the id names an event that was never stored.
                    return Admitted(event_id, stored.existing, False)
                # Another event has got the id meanwhile.
                continue
            if may_change(found.props) == "already-firing":
                raise Problem(409, "already-firing", FIRING, headers={"retry-after": "1"})
            due, change = replacement(found.props, ready.props, ready.due)
            request = ChangeRequest(tenant, {"if-match": etag_of_row(found)}, received, found)
            try:
                stays = due == int(found.props["due"]) and found.props["state"] == "scheduled"
                row = await self._changes.put(request, event_id, None if stays else due, change)
            except Problem as problem:
                if problem.code not in _CHANGED:
                    raise
                continue
            return Admitted(event_id, row, False)
        raise conflict("changed-meanwhile", "Other calls changed the event several times meanwhile. Repeat the request.")


def standing(received: Received, props: Mapping[str, Any]) -> Literal["waits", "over", "cancelled", "stands"]:
    """Return how an event of the id stands to a post.

    waits: the post may replace it. over: it has ended, and the post begins a new one. cancelled: nobody knows if the post was received
    before the cancel. stands: a later request has changed it, or the post itself.
    """
    if received.is_in(props) or received.overtaken_in(props):
        return "stands"
    if not is_over(props):
        return "waits"
    return "cancelled" if received.may_be_cancelled_by(props) else "over"


def merged(events: Sequence[EventToStore], last: EventToStore) -> EventToStore:
    """Return the last of several events that wait together for their turn. Its longest delay counts from the first of them."""
    first = min(int(event.props[FIRST]) for event in events)
    due = min(last.due, first + int(last.props[COLLAPSE]))
    return replace(last, props={**last.props, "due": due, FIRST: first}, due=due)


def replacement(former: Mapping[str, Any], last: Mapping[str, Any], due: Millis) -> tuple[Millis, Props]:
    """Return the due time and the changed properties of a waiting event that the last one replaces. due: of the last one.

    The longest delay is the last event's and counts from the first event.
    """
    first = int(former.get(FIRST, former.get("asked", former["created"])))
    change: Props = {name: value for name, value in REPLACED.items() if name in former}
    change |= {"failed": 0} if former.get("failed") else {}
    change |= {"chunks": 1, FIRST: first, **{name: value for name, value in last.items() if name not in KEPT}}
    return min(due, first + int(last[COLLAPSE])), change


class EndedIds:
    """Carries out `on_conflict`. One per process."""

    def __init__(self, changes: Changes, lookup: EventLookup) -> None:
        self._changes, self._lookup = changes, lookup

    async def answered(self, tenant: str, made: Sequence[Admitted], wanted: OnConflict) -> list[Admitted]:
        """Return the events of a post, those that are dead redriven if `wanted`.

        Raises 409 `already-final` before it redrives any, if one has ended without a delivery and that is not accepted.
        """
        for each in made:
            if each.ended and (wanted == "error" or (wanted == "redrive" and each.ended != "dead")):
                raise _ended(each.id, each.ended)
        if wanted != "redrive":
            return list(made)
        return [await self._redriven(tenant, each) if each.ended else each for each in made]

    async def _redriven(self, tenant: str, dead: Admitted) -> Admitted:
        mine = True
        try:
            await self._changes.redrive_one(ChangeRequest(tenant), dead.id)
        except Problem as refused:
            # Another call has redriven it.
            if refused.code != "not-dead":
                raise
            mine = False
        row = await self._lookup.event(tenant, dead.id)
        if row is None:
            raise not_found("event")
        state = str(row.props["state"])
        if not mine and state in ENDED_UNDELIVERED and state != "dead":
            # The event was cancelled or has lapsed since the other call redrove it.
            raise _ended(dead.id, state)
        return Admitted(dead.id, row, False, state if state in ENDED_UNDELIVERED else "")


def _ended(event_id: str, state: str) -> Problem:
    return conflict("already-final", f"the event {event_id} exists and is {state}: this request schedules nothing; use a new id")
