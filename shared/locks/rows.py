"""The stored row of a lock, in table `TocsinTurns`: one row per lock.

A tenant's locks are spread over 16 partitions `:locks:{tenant}:{0-f}`, because a partition of storage takes about 2,000 requests a second.
No fleet's key begins with a colon. The row key is the lock's name.

Times are the storage service's own, in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
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


@dataclass(frozen=True, slots=True)
class LockRow:
    """A lock. token: of the last grant. holder, nonce: who got it. validity: of the grant. renewed: when it was last renewed; 0 stands
    for the time of the write that stores this. granted: about when it began. note, author: of who revoked it. waiters: the first is the
    next holder."""

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


_LOCK: Final = RowCodec(LockRow, formats={"waiters": Format(_pack, _unpack)}, sparse=("waiters", "note", "author"))


def parse_lock(row: Row) -> LockRow:
    """Return the lock of a row. Its `renewed` is a time, never 0."""
    props = row.props if row.props["renewed"] else {**row.props, "renewed": row.timestamp}
    return _LOCK.decode(props)
