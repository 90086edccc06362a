"""The verbs: each changes one event, all events of a fan-out, or those that a job has counted.

A route tries its verb on the event of the id, and then on the fan-out of this id. A job carries its verb out on the events of a shard
together, as far as that is possible, and on each of the others alone, if it still matches the job's filter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from ...core.clock import Millis
from ...core.durations import MAX_DURATION
from ...core.errors import Problem
from ...engine.effects import load_rows
from ...storage.names import EVENTS
from ...storage.ports import Props, Row, RowQuery
from ..facets import ORIGIN
from ..keys import MIRRORED, Address, place_of
from ..properties.overlap import KEY, OVERLAP, asked_props, has_line
from ..properties.receipts import MEMBERS, MOVED, RECEIVED
from ..protocol.changing import WINDOW, cancel_together
from ..queries.event_filter import EventFilter
from ..rules import asked_due, may_change
from .verbs import ChangeRequest, Changes

FIRE_IN: Millis = 4_000
"""An event that a job fires is due after this time, so that the fired events share shards."""
CHANGED: Final = "changed"
GONE: Final = "not-found"
"""Reasons for which a job skips an event."""
_CANCEL: Final = ("flag", "next", ORIGIN, KEY, OVERLAP, RECEIVED)
"""Properties of an event that its cancel depends on, besides those of every filter."""


class JobTimes(NamedTuple):
    """The times from which the new due time of an event that a job moves follows."""

    now: Millis
    due: Millis
    """The job's `due`: the new time itself; 0 if the job has none."""
    by: Millis
    """The job's `by`: time from the former due time to the new one, negative for an earlier one."""


class Verb(NamedTuple):
    """A change of events."""

    status: int
    """HTTP status of the answer, if it is carried out on one event."""
    one: Callable[[Changes, ChangeRequest, str], Awaitable[Row | None]]
    """Carry it out on the event of an id; return the event if it was read. Raises 404, 409, 412, 422, 503."""
    state: str = ""
    """State of an event on which it was carried out, if `one` does not return it."""
    members: frozenset[str] | None = None
    """Members of an event that it sets, as its receipt names them. None: it leaves no receipt, and `If-Match` says nothing to it."""
    acts_on: tuple[str, ...] = ("scheduled", "retrying")
    """States of events on which a job carries it out."""
    due: Callable[[Props, JobTimes], tuple[Millis, Props]] | None = None
    """Return the new due time and other changes of an event that a job moves."""
    together: Callable[[Changes, ChangeRequest, EventFilter, Sequence[Address]], Awaitable[dict[Address, str]]] | None = None
    """Carry it out on those of at most 100 events of a shard that match; return the result for those that need no more: the reason why an
    event is skipped, '' for done. Raises `StorageError`; repeat it then."""


def _moved(props: Props, times: JobTimes) -> tuple[Millis, Props]:
    new = times.due + int(props.get("shift", 0)) if times.due else int(props["due"]) + times.by
    if asked_due(props, new) > times.now + MAX_DURATION:
        raise Problem(422, "due-too-late", "the due time is more than 3660 days ahead")
    # It keeps its place in its window.
    return new, {name: props[name] for name in WINDOW} if "flex" in props else {}


def _fired(props: Props, times: JobTimes) -> tuple[Millis, Props]:
    return times.now + FIRE_IN, {**dict.fromkeys(WINDOW, 0), **asked_props(props)}


async def _cancel_together(
    changes: Changes, request: ChangeRequest, chosen: EventFilter, addresses: Sequence[Address]
) -> dict[Address, str]:
    """Cancel those that can be cancelled in one transaction: each of these cancels changes the event's own row alone."""
    runner, shard, wanted = changes.runner, addresses[0].shard, {address.row: address for address in addresses}
    if place_of(shard) == MIRRORED:
        return {}
    select = (*chosen.properties, *_CANCEL)
    rows = await load_rows(runner.tables, RowQuery(EVENTS, shard, min(wanted), max(wanted) + "\0", select=select))
    matching = [row for row in rows if row.rk in wanted and chosen.shows(row.props)]
    found = [row for row in matching if may_change(row.props) == "yes" and not has_line(row.props)]
    receipt = changes.received().noted()
    if len(found) < 2 or not await runner.run(cancel_together(found, runner.clock.now(), request.nonce, receipt)):
        return {}
    for row in found:
        changes.notes.ended(row, "cancelled")
    return {wanted[row.rk]: "" for row in found}


async def _redrive_together(
    changes: Changes, request: ChangeRequest, chosen: EventFilter, addresses: Sequence[Address]
) -> dict[Address, str]:
    results, rows = dict[Address, str](), dict[Address, Row]()
    for address in addresses:
        row = await changes.runner.tables.get(EVENTS, address.shard, address.row)
        if row is not None and chosen.shows(row.props):
            rows[address] = row
        else:
            results[address] = GONE if row is None else CHANGED
    done = await changes.redrive_found(request.tenant, rows.values())
    return results | {address: "" if row.props["id"] in done else CHANGED for address, row in rows.items()}


CANCEL: Final = Verb(204, Changes.cancel, "cancelled", MEMBERS, together=_cancel_together)
MOVE: Final = Verb(200, Changes.patch, members=MOVED, due=_moved)
FIRE: Final = Verb(202, Changes.fire, members=MOVED, due=_fired)
REDRIVE: Final = Verb(202, Changes.redrive_one, "scheduled", acts_on=("dead",), together=_redrive_together)
VERBS: Final = {"cancel": CANCEL, "move": MOVE, "redrive": REDRIVE, "fire": FIRE}
"""The verbs by the names that they have as actions of jobs."""
