"""A post of an event whose id belongs to a run that has ended without a delivery: it schedules nothing, unless the caller asks for more."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import Problem
from ...web.problem import conflict, not_found
from ..ingest.admission import ENDED_UNDELIVERED, Admitted
from ..model import OnConflict
from ..queries.lookup import EventLookup
from .verbs import ChangeRequest, Changes


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
