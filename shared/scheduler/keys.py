"""The keys of shards, index rows and events, and how to find a row by them.

A shard's partition is `{2 hex}-{name}-{tenant}`. The hash comes first, so that neighbours in time do not share a server of the store; the
tenant is inside, so that an id of one tenant never resolves to another tenant's rows. The index row is `{wake-up minute}:{tenant}:{name}`
in one of 16 partitions of the shard's place.

A name's first letter is the shard's **place**: `0` to `f` is the number of a storage account, `m` the mirrored pair. Ids made by the
service contain the name, and pointers contain the shard: whatever names an event also says where it is, so a longer list of accounts moves
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple

from ..core.clock import Millis, to_datetime, to_millis
from ..storage import names
from ..storage.ports import Props

MINUTE: Millis = 60_000
GATE = "gate"
FIRST_EVENT, END_EVENTS = "e", "f"
"""Event rows sort between these two; the gate does not."""
INDEX_PARTITIONS = tuple(f"{digit:02x}" for digit in range(16))
"""The index partitions of the home account; `index_partitions` lists those of several places."""
HOME, MIRRORED = names.HOME, names.MIRRORED
PLACES = "0123456789abcdef" + MIRRORED
NEWS = "~"
"""First character of the row keys of ledger rows that are not yet in the totals: copies, sorted after every minute. The ledger proper ends
before them."""
_LETTERS = "0123456789abcdefghijklmnopqrstuv"


class Address(NamedTuple):
    """The place of an event row: its shard and its row key."""

    shard: str
    row: str

    @property
    def text(self) -> str:
        """Return the address as one string, for pointers in rows."""
        return f"{self.shard}/{self.row}"


def parse_address(text: str) -> Address:
    """Parse `Address.text`."""
    shard, _, row = text.partition("/")
    return Address(shard, row)


def digest(*parts: str) -> bytes:
    """Return a stable hash of the parts: 16 bytes."""
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()


def shard_key(tenant: str, name: str) -> str:
    """Return the partition of the shard `name` of `tenant`."""
    return f"{digest(tenant, name)[0]:02x}-{name}-{tenant}"


def shard_name(shard: str) -> str:
    return shard.split("-", 2)[1]


def is_shard(text: str) -> bool:
    """Return True for the partition of a shard, as far as its form shows it."""
    return len(text) > 3 and text[2] == "-" and text[3] in PLACES and text.count("-") > 1


def shard_tenant(shard: str) -> str:
    return shard.split("-", 2)[2]


def placed(name: str, place: str) -> str:
    """Return the shard name `name` at `place`."""
    return place + name[1:]


def place_of(shard: str) -> str:
    """Return the place of a shard: the first letter of its name."""
    return shard[3]


def derived_name(*parts: str) -> str:
    """Return a shard name that follows from `parts` alone, so that every process that finishes a move uses the same place."""
    number = int.from_bytes(digest(*parts)[:10])
    return "".join(_LETTERS[(number >> (5 * place)) & 31] for place in reversed(range(16)))


def event_row(number: int) -> str:
    """Return the row key of the shard's event `number` (0 to 999)."""
    return f"{FIRST_EVENT}{number:03d}"


def server_id(shard: str, row: str) -> str:
    """Return the id of an event for which the client chose none: `{name}.{number}`. The dot keeps it apart from every client id."""
    return f"{shard_name(shard)}.{row[1:]}"


def parse_server_id(tenant: str, event_id: str) -> Address | None:
    """Return the address where the event of a server-made id was first stored, or None if the id is not server-made."""
    name, dot, number = event_id.partition(".")
    if not dot or len(name) != 16 or not set(name) <= set(_LETTERS) or len(number) != 3 or not (number.isascii() and number.isdigit()):
        return None
    return Address(shard_key(tenant, name), FIRST_EVENT + number)


def minute_text(at: Millis) -> str:
    """Return `yyyymmddHHMM` of the UTC minute of `at`. The texts sort as time does."""
    return to_datetime(max(at, 0)).strftime("%Y%m%d%H%M")


def minute_of(text: str) -> Millis:
    """Return the start of the minute that begins `text`: the inverse of `minute_text`, also for the key of an index row."""
    return to_millis(datetime.strptime(text[:12], "%Y%m%d%H%M").replace(tzinfo=UTC))


def minute_start(at: Millis) -> Millis:
    return at - at % MINUTE


def index_partition(shard: str) -> str:
    """Return the index partition of a shard: one of 16 of its place, by the shard's hash."""
    return f"{shard[3]}{shard[0]}"


def index_partitions(places: Iterable[str]) -> list[str]:
    """Return all index partitions of some places, in an order that a longer list of accounts does not change."""
    return [f"{place}{digit:x}" for place in sorted(places, key=PLACES.index) for digit in range(16)]


def index_number(partition: str) -> int:
    """Return the number of an index partition in the order of `index_partitions` of all places."""
    return 16 * PLACES.index(partition[0]) + int(partition[1], 16)


def index_key(shard: str, wake: Millis) -> str:
    """Return the row key under which an unfinished shard is filed for its wake-up."""
    return f"{minute_text(wake)}:{shard_tenant(shard)}:{shard_name(shard)}"


def index_name(key: str) -> str:
    """Return the name of an index row's shard."""
    return key.rpartition(":")[2]


def index_shard(key: str) -> str:
    """Return the shard of an index row's key."""
    _, tenant, name = key.split(":", 2)
    return shard_key(tenant, name)


def id_partition(tenant: str, event_id: str) -> str:
    """Return the partition of a client id's row: the tenant and two hex digits of the id's hash."""
    return f"{tenant}-{digest(event_id)[0]:02x}"


def id_row_key(event_id: str) -> str:
    """Return the row key of a client id. Client ids contain no character that a row key may not."""
    return event_id


class RowBesideId(NamedTuple):
    """The keys of a row in `TocsinIds` that a part of the service keeps beside the row of an event's id.

    The scheduler does not know what the row says. It copies it with the row of the id, and removes it with the event that it ends with.
    ends: returns True for a row with these properties if it is removed together with the event."""

    partition: str
    key: str
    ends: Callable[[Props], bool]


type BesideId = Callable[[str, str], Sequence[RowBesideId]]
"""Returns the rows that may exist beside the id of a tenant's event."""


def nothing_beside(tenant: str, event_id: str) -> tuple[RowBesideId, ...]:
    """Return no rows."""
    return ()
