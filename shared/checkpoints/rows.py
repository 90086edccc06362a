"""The stored rows of a fleet's turns: all in one partition of `TocsinTurns`, so that one transaction spans them.

    ended:{inverted epoch}   a turn that is over, newest first; written with the grant of the next
    latest                   the checkpoint that was published with the highest sequence
    replica:{node}           what a replica reported last
    turn                     the turn of now, who is primary, and all that granting needs

`:turns` is a partition of its own: an index row for each fleet that has replicas.
Moments are the storage service's own time, in milliseconds, as its `Date` header says it: in steps of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from ..core.clock import Millis
from ..engine.row_codec import Format, RowCodec
from ..storage.ports import Props, Row
from .selection import Share

INDEX: Final = ":turns"
"""A partition of its own: no tenant's name is empty."""
ENDED: Final = ("ended:", "ended;")
LATEST: Final = "latest"
REPLICAS: Final = ("replica:", "replica;")
TURN: Final = "turn"
STANDING: Final = (LATEST, TURN + "!")
"""Range of row keys (first, and first beyond) with all rows that a decision needs."""

MAX_REPLICAS: Final = 200
MAX_EPOCH: Final = 10**15

type Role = Literal["primary", "secondary"]
type State = Literal["granted", "taking", "done", "timed-out", "revoked"]
type EndReason = Literal["", "limit", "silent", "restarted", "promoted", "failed", "short"]
"""Reason of a timeout: the holder took too long, was silent, restarted, became primary, gave up, or fetched the turn too late."""
type ClockFault = Literal["", "fast", "slow"]
OPEN: Final = frozenset({"granted", "taking"})


def replica_key(node: str) -> str:
    """Return the row key of a replica."""
    return REPLICAS[0] + node


def ended_key(epoch: int) -> str:
    """Return the row key of a turn that is over. The newest sorts first."""
    return f"{ENDED[0]}{MAX_EPOCH - epoch:016d}"


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn; epoch 0 stands for none yet.

    granted: a moment before the granting write. timeout: milliseconds from then. attempt: how often it was handed out; the last time in
    the answer to report handed_seq of the holder's life handed_life, which said handed_mono and handed_last, with limit milliseconds from
    its SEND. sequence: of the checkpoint, 0 when none was published. ended: when that was seen. note, author: of who revoked it. late: a
    checkpoint came after its end.
    """

    epoch: int = 0
    holder: str = ""
    state: State = "done"
    reason: EndReason = ""
    granted: Millis = 0
    timeout: Millis = 0
    attempt: int = 0
    handed: Millis = 0
    handed_seq: int = 0
    handed_life: int = 0
    handed_mono: Millis = 0
    handed_last: int = 0
    limit: Millis = 0
    sequence: int = 0
    ended: Millis = 0
    note: str = ""
    author: str = ""
    late: bool = False

    @property
    def open(self) -> bool:
        """True while the turn has not ended."""
        return self.state in OPEN

    def props(self) -> Props:
        """Return the row's properties."""
        return _TURN.encode(self)


_TURN: Final = RowCodec(TurnRow, added=TurnRow.__dataclass_fields__, convert=False)


def parse_turn(props: Mapping[str, Any]) -> TurnRow:
    """Return the turn of a row's properties; other properties are left alone."""
    return _TURN.decode(props)


@dataclass(frozen=True, slots=True)
class Group:
    """A fleet's turns as they stand. primary, term: the highest claim. lives: counts registrations. next_timeout: of the next turn, 0:
    the fleet's initial one. durations: of late turns that were done, oldest first, milliseconds. misses: turns in a row that timed out.
    since: when the first replica came."""

    turn: TurnRow = field(default_factory=TurnRow)
    primary: str = ""
    term: int = 0
    lives: int = 0
    next_timeout: Millis = 0
    durations: tuple[Millis, ...] = ()
    shares: tuple[Share, ...] = ()
    misses: int = 0
    since: Millis = 0

    def props(self) -> Props:
        """Return the row's properties: the turn's own beside the others."""
        return _GROUP.encode(self)


def _join_durations(durations: tuple[Millis, ...]) -> str:
    return ",".join(map(str, durations))


def _split_durations(text: object) -> tuple[Millis, ...]:
    return tuple(map(int, str(text).split(","))) if str(text) else ()


def _pack_shares(shares: tuple[Share, ...]) -> str:
    return orjson.dumps([(share.node, round(share.debt, 6), share.waited) for share in shares]).decode()


def _unpack_shares(text: object) -> tuple[Share, ...]:
    return tuple(Share(node, debt, waited) for node, debt, waited in orjson.loads(str(text)))


_GROUP: Final = RowCodec(
    Group,
    formats={"turn": _TURN, "durations": Format(_join_durations, _split_durations), "shares": Format(_pack_shares, _unpack_shares)},
)


def parse_group(props: Mapping[str, Any]) -> Group:
    """Return the group of a row's properties."""
    return _GROUP.decode(props)


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """The last report of a replica.

    life: of its process, unique in the fleet. incarnation: what the process calls itself, '' when it does not. at: when the report came.
    mono: the process's own clock, milliseconds; born: at its seq 1. taking: the epoch it says it takes, 0 for none. ready: it would take a
    turn. first, second: (mono, at) of earlier reports, between which its clock's rate is judged; fault: what came out.
    """

    node: str
    life: int
    seq: int
    role: Role
    term: int
    at: Millis
    mono: Millis
    born: Millis
    incarnation: str = ""
    applied: int = 0
    lag: int = 0
    load: float = 0.0
    failures: int = 0
    last_checkpoint: int = 0
    taking: int = 0
    ready: bool = True
    first: tuple[Millis, Millis] = (0, 0)
    second: tuple[Millis, Millis] = (0, 0)
    fault: ClockFault = ""

    def props(self) -> Props:
        """Return the row's properties."""
        return _REPLICA.encode(self) | {"marks": ",".join(map(str, (*self.first, *self.second)))}


_REPLICA: Final = RowCodec(
    ReplicaRow,
    # A load is written as a float whatever its reporter sent.
    formats={"load": Format(float, None)},
    given=("node", "first", "second"),
    convert=False,
)


def parse_replica(row: Row) -> ReplicaRow:
    """Return the replica of a row."""
    marks = tuple(map(int, str(row.props["marks"]).split(",")))
    return _REPLICA.decode(row.props, row.rk[len(REPLICAS[0]) :], (marks[0], marks[1]), (marks[2], marks[3]))


@dataclass(frozen=True, slots=True)
class LatestCheckpoint:
    """The checkpoint with the highest sequence. size: bytes. at: when it was published."""

    epoch: int
    node: str
    sequence: int
    location: str
    size: int
    at: Millis

    def props(self) -> Props:
        """Return the row's properties."""
        return _LATEST.encode(self)


_LATEST: Final = RowCodec(LatestCheckpoint, convert=False)


def parse_latest(props: Mapping[str, Any]) -> LatestCheckpoint:
    """Return the checkpoint of a row's properties."""
    return _LATEST.decode(props)
