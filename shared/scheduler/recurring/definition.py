"""A stored schedule, as a value and as rows of table `TocsinSchedules`.

    partition     row                            what
    00 .. 0f      d:{tenant}:{id}                the definition and how far its chain has come
    (by hash)     n:{minute}:{tenant}:{id}       when a sweep must look at it next; sorts by time; at most one, named in the definition

Both lie in one partition, so each step of the chain is one transaction, conditional on the definition's ETag.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from ...core.clock import Millis, to_datetime
from ...storage.ports import Props, Row
from ..keys import INDEX_PARTITIONS, digest, minute_text
from ..rows import body_of, body_props
from .model import Recurrence
from .timing import Timing

PARTITIONS = INDEX_PARTITIONS
DEFINITION, POINTER = "d:", "n:"


class Undo(NamedTuple):
    """What a change must take back before the new revision goes on: the occurrences that the former one had made events of.

    replay: those that could be taken back are made anew, for the rule is the same.
    """

    revision: int
    burnt: Millis
    instants: tuple[Millis, ...]
    replay: bool


@dataclass(slots=True, frozen=True)
class Definition:
    """A schedule and its chain.

    revision: of the content and the pause.
    burnt: up to here ids may be held by events of former revisions.
    done: every occurrence up to here has its event, or was dropped.
    ahead: occurrences that are, or may be, events of this revision; each is here before its event is stored.
    taken: occurrences of former revisions that have fired, or that a user cancelled: not to fire again if a change sets `done` back.
    last: the latest occurrence that has come, of those no longer in the two lists.
    pointer: key of the pointer row, or ''.
    door: the API it was made through: '' for our own, else a compatible one's name.
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
    undo: Undo | None = None
    pointer: str = ""
    door: str = ""
    etag: str = field(default="", compare=False)

    @property
    def timing(self) -> Timing:
        """The rule it follows."""
        return self.spec.timing(self.created)

    @property
    def partition(self) -> str:
        return partition_of(self.tenant, self.id)

    @property
    def key(self) -> str:
        return definition_key(self.tenant, self.id)

    @property
    def content(self) -> tuple[object, ...]:
        """What the chain's steps never change."""
        return self.spec, self.body, self.uid, self.created, self.door

    def pointer_at(self, at: Millis) -> str:
        """The key of a pointer that a sweep meets at `at`."""
        return f"{POINTER}{minute_text(at)}:{self.tenant}:{self.id}"

    def props(self) -> Props:
        """The whole row."""
        content = self.spec.model_dump_json(exclude={"payload"})
        door = {"door": self.door} if self.door else {}
        return {"uid": self.uid, "created": self.created, "spec": content, **door, **body_props(self.body), **self.chain_props()}

    def chain_props(self) -> Props:
        """What the chain's steps change."""
        undo = self.undo
        return {
            "by": self.by,
            "revision": self.revision,
            "paused": self.paused,
            "deleted": self.deleted,
            "done": self.done,
            "burnt": self.burnt,
            "ahead": _packed(self.ahead),
            "taken": _packed(self.taken),
            "last": -1 if self.last is None else self.last,
            "undo": "" if undo is None else orjson.dumps([undo.revision, undo.burnt, _seconds(undo.instants), undo.replay]).decode(),
            "pointer": self.pointer,
        }


def definition_of(row: Row) -> Definition:
    """The inverse of `Definition.props`."""
    props = row.props
    _, tenant, schedule = row.rk.split(":", 2)
    undo = None
    if props["undo"]:
        revision, burnt, instants, replay = orjson.loads(str(props["undo"]))
        undo = Undo(revision, burnt, _millis(instants), replay)
    return Definition(
        tenant=tenant,
        id=schedule,
        uid=str(props["uid"]),
        spec=_spec(str(props["spec"])),
        body=body_of(props),
        created=int(props["created"]),
        by=str(props["by"]),
        revision=int(props["revision"]),
        paused=bool(props["paused"]),
        deleted=bool(props["deleted"]),
        done=int(props["done"]),
        burnt=int(props["burnt"]),
        ahead=_millis(orjson.loads(str(props["ahead"]))),
        taken=_millis(orjson.loads(str(props["taken"]))),
        last=None if int(props["last"]) < 0 else int(props["last"]),
        undo=undo,
        pointer=str(props["pointer"]),
        door=str(props.get("door", "")),
        etag=row.etag,
    )


def partition_of(tenant: str, schedule: str) -> str:
    """One of 16, by hash."""
    return f"0{digest(tenant, schedule).hex()[0]}"


def definition_key(tenant: str, schedule: str) -> str:
    return f"{DEFINITION}{tenant}:{schedule}"


def pointed(key: str) -> tuple[str, str]:
    """Tenant and schedule that a pointer row speaks of."""
    _, _, tenant, schedule = key.split(":", 3)
    return tenant, schedule


def event_ids(schedule: str, at: Millis, revision: int, burnt: Millis) -> tuple[str, ...]:
    """Ids that the event of an occurrence may have, the first choice first.

    The plain one, unless a former revision may have used it up. The second choice is for when a client has given the plain one to an
    event of its own.
    """
    plain = f"{schedule}:{to_datetime(at):%Y%m%dT%H%M%SZ}"
    marked = f"{plain}~{revision}"
    return (marked,) if at <= burnt else (plain, marked)


def offset(tenant: str, schedule: str, at: Millis, jitter: Millis | None) -> Millis:
    """How much later than `at` an occurrence is due: in [0, jitter), the same whoever works it out."""
    return int.from_bytes(digest(tenant, schedule, str(at))[:8]) % jitter if jitter else 0


@lru_cache(maxsize=4096)
def _spec(text: str) -> Recurrence:
    return Recurrence.model_validate_json(text)


def _packed(instants: tuple[Millis, ...]) -> str:
    # Ten digits each instead of thirteen: a property holds some 2,900 of them.
    return orjson.dumps(_seconds(instants)).decode()


def _seconds(instants: tuple[Millis, ...]) -> list[int]:
    return [at // 1000 for at in instants]


def _millis(seconds: list[Any]) -> tuple[Millis, ...]:
    return tuple(each * 1000 for each in seconds)
