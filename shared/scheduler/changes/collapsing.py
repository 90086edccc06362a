"""Events with `collapse`: the last one under an id replaces those before it that no owner has claimed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.clock import Millis
from ...core.errors import Problem, StorageError
from ...delivery.channels.event_target import STORED
from ...storage.ports import Props
from ...web.problem import conflict
from ..ingest.admission import Admitted, Ingest
from ..ingest.writer import Writer
from ..model import EventIn
from ..protocol.label_rows import MARK
from ..queries.lookup import EventLookup
from ..rows import COLLAPSE, FIRST, EventToStore, etag_of_row
from ..rules import NEVER, is_over, may_change
from ..shard.owed import CALLBACKS
from .verbs import FIRING, Changes

TRIES = 20
REPLACED: Mapping[str, Any] = {"expires": NEVER, "flex": 0, "shift": 0, "retry": "", "pauses": "", CALLBACKS: "", STORED: ""}
"""The properties of the former event that the last one replaces even if it has none; a merge cannot remove a property."""
KEPT = frozenset({"id", "state", "created", "due", "labels", MARK, "durability", "key", "trace", FIRST})
"""The properties that stay those of the first event."""
_CHANGED = frozenset({"already-firing", "already-final", "precondition-failed", "not-found"})


class Collapsing:
    """Stores an event, or puts it into the place of one that waits under the same id. One per process."""

    def __init__(self, ingest: Ingest, writer: Writer, lookup: EventLookup, changes: Changes) -> None:
        self._ingest, self._writer, self._lookup, self._changes = ingest, writer, lookup, changes

    async def post(self, tenant: str, event: EventIn, body: bytes | None) -> Admitted:
        """Store or replace. Raises `Problem` as `Ingest.one` does, and 409 `already-firing` while the former event is being delivered."""
        return await self.store(tenant, await self._ingest.collapsing(tenant, event, body))

    async def store(self, tenant: str, ready: EventToStore) -> Admitted:
        """Store a checked event, or let it replace the one that waits. Raises as `post` does."""
        event_id = str(ready.id)
        for _ in range(TRIES):
            found = await self._lookup.event(tenant, event_id)
            if found is None or is_over(found.props):
                [stored] = await self._writer.store(tenant, [ready], posted=True)
                if isinstance(stored, StorageError) or stored.existing is None:
                    return self._ingest.admitted(ready, stored)
                if stored.existing.props["id"] != event_id:
                    raise conflict("id-conflict", "an event with the id of this fan-out exists")
                # Another event has got the id meanwhile.
                continue
            if may_change(found.props) == "already-firing":
                raise Problem(409, "already-firing", FIRING, headers={"retry-after": "1"})
            due, change = replacement(found.props, ready.props, ready.due)
            seen = {"if-match": etag_of_row(found)}
            try:
                stays = due == int(found.props["due"]) and found.props["state"] == "scheduled"
                row = await self._changes.put(tenant, found, None if stays else due, change, seen)
            except Problem as problem:
                if problem.code not in _CHANGED:
                    raise
                continue
            return Admitted(event_id, row, False)
        raise conflict("changed-meanwhile", "Other calls changed the event several times meanwhile. Repeat the request.")


def replacement(former: Mapping[str, Any], last: Mapping[str, Any], due: Millis) -> tuple[Millis, Props]:
    """Return the due time and the changed properties of a waiting event that the last one replaces. due: of the last one.

    The longest delay is the last event's and counts from the first event.
    """
    first = int(former.get(FIRST, former.get("asked", former["created"])))
    change: Props = {name: value for name, value in REPLACED.items() if name in former}
    change |= {"failed": 0} if former.get("failed") else {}
    change |= {"chunks": 1, FIRST: first, **{name: value for name, value in last.items() if name not in KEPT}}
    return min(due, first + int(last[COLLAPSE])), change
