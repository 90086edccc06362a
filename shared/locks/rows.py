"""The stored row of a lock, in table `TocsinTurns`: one row per lock.

A tenant's locks are spread over 16 partitions `:locks:{tenant}:{0-f}`, because a partition of storage takes about 2,000 requests a second.
No fleet's key begins with a colon. The row key is the lock's name.

Times are the storage service's own, in milliseconds.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, Literal, NamedTuple
from zlib import crc32

import orjson

from ..core.clock import Millis
from ..engine.row_codec import Format, RowCodec
from ..storage.names import TURNS
from ..storage.ports import Props, Row

TABLE: Final = TURNS
PARTITIONS: Final = "0123456789abcdef"

type LockState = Literal["held", "free", "revoked"]


def partition_of(tenant: str, name: str) -> str:
    """Return the partition key of a lock's row."""
    return partition_at(tenant, crc32(name.encode()) % len(PARTITIONS))


def partition_at(tenant: str, number: int) -> str:
    """Return the key of a tenant's partition. number: 0 to 15."""
    return f":locks:{tenant}:{PARTITIONS[number]}"


@dataclass(frozen=True, slots=True)
class Waiter:
    """A caller that waits. timeout: it leaves unless it asks again within this time. asked: when it last did, as far as is stored. since:
    when it came."""

    holder: str
    nonce: str
    timeout: Millis
    asked: Millis
    since: Millis


class EndedAttempt(NamedTuple):
    """An attempt that gets no grant any more. mark: of its holder and nonce (`mark_of`). at: when it ended; 0 stands for the time of the
    write that stores this."""

    mark: str
    at: Millis


def mark_of(holder: str, nonce: str) -> str:
    """Return the short form in which a row remembers an attempt."""
    return b64encode(blake2b(orjson.dumps((holder, nonce)), digest_size=9).digest()).decode()


@dataclass(frozen=True, slots=True)
class LockRow:
    """A lock. token: of the last grant. holder, nonce: who got it. validity: of the grant. renewed: when it was last renewed; 0 stands
    for the time of the write that stores this. granted: about when it began. note, author: of who revoked it. waiters: the first is the
    next holder. ended: attempts that have ended, the latest last."""

    token: int
    state: LockState
    holder: str
    nonce: str
    validity: Millis
    granted: Millis
    renewed: Millis = 0
    waiters: tuple[Waiter, ...] = ()
    note: str = ""
    author: str = ""
    ended: tuple[EndedAttempt, ...] = ()

    def props(self) -> Props:
        """Return the row's properties."""
        return _LOCK.encode(self)


WITHOUT_WAITERS: Final = ("token", "state", "holder", "nonce", "validity", "granted", "renewed")
"""The properties of a lock that nobody waits for."""
RENEWED: Final[Props] = {"renewed": 0}
"""The properties that a renewal changes: the validity of the grant counts from this write."""


def _pack(waiters: tuple[Waiter, ...]) -> str:
    return orjson.dumps([(each.holder, each.nonce, each.timeout, each.asked, each.since) for each in waiters]).decode()


def _unpack(text: object) -> tuple[Waiter, ...]:
    return tuple(Waiter(*each) for each in orjson.loads(str(text)))


def _pack_ended(ended: tuple[EndedAttempt, ...]) -> str:
    return orjson.dumps([tuple(each) for each in ended]).decode()


def _unpack_ended(text: object) -> tuple[EndedAttempt, ...]:
    return tuple(EndedAttempt(*each) for each in orjson.loads(str(text)))


_FORMATS: Final = {"waiters": Format(_pack, _unpack), "ended": Format(_pack_ended, _unpack_ended)}
_LOCK: Final = RowCodec(LockRow, formats=_FORMATS, sparse=("waiters", "note", "author", "ended"))


def parse_lock(row: Row) -> LockRow:
    """Return the lock of a row. Its `renewed`, and the times of `ended`, are never 0."""
    props = row.props if row.props["renewed"] else {**row.props, "renewed": row.timestamp}
    lock = _LOCK.decode(props)
    if all(each.at for each in lock.ended):
        return lock
    return replace(lock, ended=tuple(each if each.at else each._replace(at=row.timestamp) for each in lock.ended))
