"""A stored schedule, as a value and as rows of table `TocsinSchedules`.

    partition     row                            content
    00 .. 0f      d:{tenant}:{id}                the definition and the progress of its chain
    (by hash)     n:{minute}:{tenant}:{id}       the pointer: when a sweep must read it next; at most one, named in the definition

Both rows are in one partition, so each step of the chain is one transaction, conditional on the definition's ETag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from ...core.clock import Millis, to_datetime
from ...engine.row_codec import Format, RowCodec, Spread
from ...storage.ports import Props, Row
from ..keys import INDEX_PARTITIONS, digest, minute_text
from ..rows import body_of, body_props
from .model import Recurrence
from .timing import Timing, days_text, parse_days

PARTITIONS = INDEX_PARTITIONS
DEFINITION, POINTER = "d:", "n:"


class RevisionUndo(NamedTuple):
    """The occurrences of the former revision that a change must cancel before the new revision goes on.

    replay: the rule is unchanged, so cancelled occurrences are created again. channels: of the former revision's fan-outs.
    """

    revision: int
    burnt: Millis
    instants: tuple[Millis, ...]
    replay: bool
    channels: tuple[str, ...] = ()


class MadeBy(NamedTuple):
    """The API that makes a schedule.

    name: '' for the service's own, otherwise the name of a compatible one. stamps: members that each occurrence adds to its payload, which
    is a JSON object as `orjson.dumps` writes it: name and text; in the text, `{at}` stands for the occurrence's time (`stamped`).
    """

    name: str = ""
    stamps: tuple[tuple[str, str], ...] = ()


def stamped(body: bytes, stamps: Sequence[tuple[str, str]], at: Millis) -> bytes:
    """Return the payload of an occurrence at `at`: the schedule's, with the stamps.

    The time is written in ISO 8601 in UTC as `java.time` does it, with seconds only if there are any: `2027-01-15T08:01Z`.
    """
    if not stamps:
        return body
    when = to_datetime(at)
    text = f"{when:%Y-%m-%dT%H:%M:%SZ}" if when.second else f"{when:%Y-%m-%dT%H:%MZ}"
    return body[:-1] + b"," + orjson.dumps({name: value.replace("{at}", text) for name, value in stamps})[1:]


@dataclass(slots=True, frozen=True)
class Definition:
    """A schedule and its chain.

    revision: number of the content and pause.
    burnt: time up to which events of former revisions may hold ids.
    done: every occurrence up to here has its event, or was dropped.
    ahead: occurrences that are, or may be, events of this revision; each is listed before its event is stored.
    taken: occurrences of former revisions that have fired or that a user cancelled; they must not fire again if a change sets `done` back.
    last: the latest past occurrence of those no longer in the two lists.
    following: the first occurrence later than `done` that is to fire; None if there is none. Every step computes it, and nothing else does.
    zone_data: release of the zone data by which `following` was computed, or '' if it follows from none.
    pointer: key of the pointer row, or ''.
    api: the API that made the schedule: '' for the service's own, otherwise the name of a compatible one.
    stamps: see `MadeBy`.
    paused_at: while paused, the time of the pause. Occurrences up to it that have no event yet are still owed under `catch_up: all`.
    calendar_days: the days of the calendars that the content names, as they were when the revision began.
    gaps: pauses, after whose first and up to whose second time no occurrence fires, while occurrences before them are owed.
    """

    tenant: str
    id: str
    uid: str
    spec: Recurrence
    body: bytes
    created: Millis
    by: str
    done: Millis
    revision: int = 1
    paused: bool = False
    deleted: bool = False
    burnt: Millis = 0
    ahead: tuple[Millis, ...] = ()
    taken: tuple[Millis, ...] = ()
    last: Millis | None = None
    undo: RevisionUndo | None = None
    following: Millis | None = None
    zone_data: str = ""
    pointer: str = ""
    api: str = ""
    stamps: tuple[tuple[str, str], ...] = ()
    paused_at: Millis | None = None
    gaps: tuple[tuple[Millis, Millis], ...] = ()
    calendar_days: tuple[int, ...] = ()
    etag: str = field(default="", compare=False)

    @property
    def timing(self) -> Timing:
        """The rule of its occurrences."""
        return self.spec.timing(self.created, self.calendar_days)

    @property
    def partition(self) -> str:
        return partition_of(self.tenant, self.id)

    @property
    def key(self) -> str:
        return definition_key(self.tenant, self.id)

    @property
    def content(self) -> tuple[object, ...]:
        """The part that steps of the chain never change."""
        return self.spec, self.body, self.uid, self.created, self.api, self.stamps, self.calendar_days

    def pointer_at(self, at: Millis) -> str:
        """Return the key of a pointer that a sweep meets at `at`."""
        return f"{POINTER}{minute_text(at)}:{self.tenant}:{self.id}"

    def props(self) -> Props:
        """Return the whole row."""
        return _DEFINITION.encode(self)

    def chain_props(self) -> Props:
        """Return the part that steps of the chain change."""
        return _CHAIN.encode(self)


def definition_of(row: Row) -> Definition:
    """Parse a row written by `Definition.props`."""
    _, tenant, schedule = row.rk.split(":", 2)
    found = _DEFINITION.decode(row.props, tenant, schedule, row.etag)
    if found.paused_at is None and not found.gaps:
        return found
    # Steps of the chain do not remove a stale value: the first counts during a pause only, the second is over at `done`.
    paused_at = found.paused_at if found.paused else None
    return replace(found, paused_at=paused_at, gaps=tuple((begin, end) for begin, end in found.gaps if end > found.done))


def partition_of(tenant: str, schedule: str) -> str:
    """Return the schedule's partition: one of 16, by hash."""
    return f"0{digest(tenant, schedule).hex()[0]}"


def definition_key(tenant: str, schedule: str) -> str:
    return f"{DEFINITION}{tenant}:{schedule}"


def parse_pointer_key(key: str) -> tuple[str, str]:
    """Return tenant and schedule of a pointer's row key."""
    _, _, tenant, schedule = key.split(":", 3)
    return tenant, schedule


def event_ids(schedule: str, at: Millis, revision: int, burnt: Millis) -> tuple[str, ...]:
    """Return the ids that the event of an occurrence may have, the first choice first.

    The first choice is the plain id, unless a former revision may have used it. The second choice is for the case that a client gave the
    plain id to an event of its own.
    """
    plain = f"{schedule}:{to_datetime(at):%Y%m%dT%H%M%SZ}"
    marked = f"{plain}~{revision}"
    return (marked,) if at <= burnt else (plain, marked)


def backfill_id(schedule: str, at: Millis, name: str) -> str:
    """Return the id of an occurrence's event in a backfill. No revision has such a mark: theirs are numbers."""
    return f"{schedule}:{to_datetime(at):%Y%m%dT%H%M%SZ}~b-{name}"


def offset(tenant: str, schedule: str, at: Millis, jitter: Millis | None) -> Millis:
    """Return the delay of an occurrence's due time after `at`: in [0, jitter), the same on every instance."""
    return int.from_bytes(digest(tenant, schedule, str(at))[:8]) % jitter if jitter else 0


@lru_cache(maxsize=4096)
def parse_spec(text: str) -> Recurrence:
    """Parse the stored content of a schedule."""
    return Recurrence.model_validate_json(text)


def _pack_spec(spec: Recurrence) -> str:
    # A process refuses content with a field that it does not know, so that no rule is left out of account. A field that is not set must not
    # keep the schedule from the processes of a version that lacks it.
    return spec.model_dump_json(exclude={"payload"}, exclude_none=True)


def _pack(instants: tuple[Millis, ...]) -> str:
    # Ten digits each instead of thirteen: a property holds about 2,900 of them.
    return orjson.dumps(_seconds(instants)).decode()


def _unpack(text: object) -> tuple[Millis, ...]:
    return _millis(orjson.loads(str(text)))


def _pack_undo(undo: RevisionUndo | None) -> str:
    if undo is None:
        return ""
    return orjson.dumps([undo.revision, undo.burnt, _seconds(undo.instants), undo.replay, undo.channels]).decode()


def _unpack_undo(text: object) -> RevisionUndo | None:
    if not text:
        return None
    revision, burnt, instants, replay, channels = orjson.loads(str(text))
    return RevisionUndo(revision, burnt, _millis(instants), replay, tuple(channels))


def _unpack_gaps(text: object) -> tuple[tuple[Millis, Millis], ...]:
    return tuple((begin, end) for begin, end in orjson.loads(str(text)))


def _unpack_stamps(text: object) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in orjson.loads(str(text)))


def _seconds(instants: tuple[Millis, ...]) -> list[int]:
    return [at // 1000 for at in instants]


def _millis(seconds: list[Any]) -> tuple[Millis, ...]:
    return tuple(each * 1000 for each in seconds)


_INSTANT: Final = Format(lambda at: -1 if at is None else at, lambda at: None if int(at) < 0 else int(at), takes_none=True)


def _codec(*given: str) -> RowCodec[Definition]:
    return RowCodec(
        Definition,
        formats={
            "spec": Format(_pack_spec, lambda text: parse_spec(str(text))),
            "body": Spread(body_props, body_of),
            "ahead": Format(_pack, _unpack),
            "taken": Format(_pack, _unpack),
            "last": _INSTANT,
            "following": _INSTANT,
            "undo": Format(_pack_undo, _unpack_undo, takes_none=True),
            "calendar_days": Format(days_text, lambda text: parse_days(str(text))),
            "stamps": Format(lambda stamps: orjson.dumps(stamps).decode(), _unpack_stamps),
            "gaps": Format(lambda gaps: orjson.dumps(gaps).decode(), _unpack_gaps),
        },
        names={"api": "door"},
        # Most schedules have none of these.
        sparse=("api", "stamps", "gaps", "calendar_days"),
        given=given,
    )


_DEFINITION: Final = _codec("tenant", "id", "etag")
_CHAIN: Final = _codec("tenant", "id", "etag", "uid", "spec", "body", "created", "api", "stamps", "calendar_days")
