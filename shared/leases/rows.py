"""The stored rows of a fleet. All are in one partition of `TocsinFleets`, so that one transaction spans server and partition rows.

    fleet            partition count, profile, generation, limits
    i:{...}          a manual control or maintenance drain
    p:{00042}        the owner of partition 42: owner, incarnation, epoch
    s:{server}       a server's heartbeat row: incarnation, beat, state, orders

In key order partitions come before servers: a scan reads the row of a partition's owner after the partition's row (docs/explain/leases.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ..core.clock import Millis
from ..engine.row_codec import Format, RowCodec
from ..storage.ports import Props, Row
from .profiles import PROFILES, Profile

FLEET: Final = "fleet"
SERVERS: Final = ("s:", "s;")
PARTITIONS: Final = ("p:", "p;")
INTENTS: Final = ("i:", "i;")
"""First key of the kind, and the first key after it."""

MAX_PARTITIONS: Final = 10_000
MAX_ORDERS: Final = 1000
"""Partitions in one order to one server. The next plan orders the rest."""
NO_PARTITION: Final = -1

_SHORT: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"), "1 to 40 of a-z, 0-9 and inner hyphens"
_LONG: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"), "1 to 64 of A-Z a-z 0-9 and inner . _ -"
_NAMES: Final = {"tenant": _SHORT, "fleet": _SHORT, "server": _LONG}
"""Names, as over HTTP (`tenants.model`)."""

type ServerState = Literal["live", "draining", "dead"]
type Expected = tuple[tuple[str, tuple[int, ...]], ...]
"""Servers that have probably ended, and their partitions to claim once they are fenced."""
MAINTENANCE_NOTE: Final = "maintenance is near"
_NOTED_EVENTS: Final = 5
_LOGGED_EVENTS: Final = 50
type Verb = Literal["offline", "prohibit", "pin", "drain", "bump", "maintain"]


def fleet_key(tenant: str, fleet: str) -> str:
    """Return the partition key of a fleet. Raises ValueError for an invalid name."""
    for kind, name in (("tenant", tenant), ("fleet", fleet)):
        _check_name(kind, name)
    return f"{tenant}:{fleet}"


def server_key(server: str) -> str:
    """Return the row key of a server. Raises ValueError for an invalid name."""
    _check_name("server", server)
    return SERVERS[0] + server


def partition_key(partition: int) -> str:
    """Return the row key of a partition. Five digits make keys sort like numbers."""
    return f"{PARTITIONS[0]}{partition:05d}"


def _check_name(kind: str, name: str) -> None:
    pattern, rule = _NAMES[kind]
    if not pattern.fullmatch(name):
        raise ValueError(f"a {kind}'s name must be {rule}, not {name!r}")


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Limits of moves. max_per_server: None for the share of one of `minimum` servers. drain: maximum seconds of a hand-off."""

    max_per_server: int | None = None
    claims_per_cycle: int = 8
    moves_per_minute: int = 32
    drain: float = 10.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """A stored fleet.

    minimum: servers that the fleet needs. spare: additional servers. changes: number of writes by operators and the app. generation: of the
    partition count. rest: other parts of the definition, JSON, which leases do not read. former: the partition count before a resize that
    is under way, else 0. closed: servers that register now must leave again, because the profile changes or the fleet ends.
    """

    partitions: int
    profile: Profile = PROFILES["default"]
    limits: MoveLimits = field(default_factory=MoveLimits)
    minimum: int = 1
    generation: int = 1
    changes: int = 0
    spare: int = 0
    rest: str = "{}"
    former: int = 0
    closed: bool = False

    @property
    def most(self) -> int:
        """The maximum number of partitions of one server."""
        return self.limits.max_per_server if self.limits.max_per_server is not None else -(-self.partitions // max(1, self.minimum))

    def props(self) -> Props:
        """Return the row's properties."""
        return _FLEET.encode(self)


_FLEET: Final = RowCodec(
    Fleet,
    formats={
        "profile": RowCodec(Profile),
        "limits": RowCodec(MoveLimits, names={"max_per_server": "most", "claims_per_cycle": "claims", "moves_per_minute": "moves"}),
    },
)


def parse_fleet(props: Props) -> Fleet:
    """Return the fleet of a row's properties. Raises KeyError, TypeError, ValueError for a row that cannot be read."""
    return _FLEET.decode(props)


@dataclass(frozen=True, slots=True)
class HttpServerState:
    """The part of a server's row that only servers that speak HTTP have. Servers with the library keep this in memory.

    held: owned partitions with epochs, claimed under `spread`. terms: H and V in seconds at registration, `5:15`. spread: generation and
    partition count that the server maps keys by, `2:8`. release_by: deadline to release a partition, in storage's time; 0 for none.
    evicted: the deadline has passed, and the server's heartbeats are refused. released: wall time of the last release; 0 for none.
    """

    held: tuple[tuple[int, int], ...] = ()
    terms: str = ""
    spread: str = ""
    release_by: Millis = 0
    evicted: bool = False
    released: Millis = 0

    @property
    def mapped_generation(self) -> int:
        """The generation that the server maps keys by."""
        return int(self.spread.partition(":")[0] or 1)


@dataclass(frozen=True, slots=True)
class Server:
    """A server's heartbeat row. (incarnation, beat) is unique for each attempted write of its server, which makes it the write's nonce.

    take, drop: orders to claim and to hand off. capacity: 0 for no limit of its own. scans: the server runs the library, and can scan and
    plan; False for a server that speaks HTTP. tell: 'exit' or 'drain', a request of an operator. avoid: partitions that it prefers not to
    own. generation: the newest one that the server was informed of. expect: standby assignments. http: of a server that speaks HTTP.
    kept: this incarnation has ended, and its server will be back within T: only that server may replace the row until it is fenced.
    holds: the partitions that name this incarnation, as `join_holds` encodes them; '' if the server does not list them.
    loads: of partitions, as `loads.join_loads` encodes them; None in rows of servers of former releases.
    refused: percent of its requests that storage refuses, while these are so many that it scans less often; else 0.
    endpoint: the address at which it takes deliveries to the owner of a partition, `https://10.2.0.7:8443`; '' if it takes none.
    """

    name: str
    state: ServerState
    incarnation: str
    beat: int
    domain: str = ""
    capacity: int = 0
    load: float = 0.0
    take: tuple[int, ...] = ()
    drop: tuple[int, ...] = ()
    scans: bool = True
    tell: str = ""
    avoid: tuple[int, ...] = ()
    generation: int = 1
    expect: Expected = ()
    holds: str = ""
    kept: bool = False
    http: HttpServerState = field(default_factory=HttpServerState)
    loads: str | None = None
    refused: int = 0
    endpoint: str = ""

    @property
    def listed(self) -> frozenset[int] | None:
        """The partitions that the server lists as its own; None if it lists none or the list cannot be read."""
        if self.http.terms:
            return frozenset(number for number, _ in self.http.held)
        try:
            return split_holds(self.holds)
        except ValueError:
            return None

    def props(self) -> Props:
        """Return the row's properties."""
        return _SERVER.encode(self)


def parse_server(row: Row) -> Server:
    """Return the server of a row. Raises KeyError, TypeError, ValueError for a row that cannot be read."""
    return _SERVER.decode(row.props, row.rk[len(SERVERS[0]) :])


@dataclass(frozen=True, slots=True)
class Partition:
    """The owner of a partition. owner: '' if there is none. epoch: survives the owner and only grows. since: last claim or release.
    generation: the row can be claimed under this generation only; a closed row cannot be claimed yet."""

    number: int
    owner: str = ""
    incarnation: str = ""
    epoch: int = 0
    since: Millis = 0
    generation: int = 1
    closed: bool = False

    def props(self) -> Props:
        """Return the row's properties."""
        return _PARTITION.encode(self)


_PARTITION: Final = RowCodec(Partition, given=("number",))


def parse_partition(row: Row) -> Partition:
    """Return the partition of a row. Raises KeyError, TypeError, ValueError for a row that cannot be read."""
    return _PARTITION.decode(row.props, int(row.rk[len(PARTITIONS[0]) :]))


@dataclass(frozen=True, slots=True)
class Intent:
    """A manual control, or a maintenance drain. partition: or `NO_PARTITION`. server: or ''. expires: 0 for never. epoch: the one to bump.
    exit: a drained server must end. created: time of the request. to: the server that gets a drained server's partitions; None if the plan
    spreads them."""

    verb: Verb
    partition: int = NO_PARTITION
    server: str = ""
    note: str = ""
    author: str = ""
    expires: Millis = 0
    epoch: int = 0
    exit: bool = False
    created: Millis = 0
    to: str | None = None

    @property
    def key(self) -> str:
        """The row key: one row per verb and target."""
        what = "" if self.partition == NO_PARTITION else f"{self.partition:05d}"
        # A partition has at most one pin, so the server of a pin is inside the row.
        return f"{INTENTS[0]}{self.verb}:{what}:{'' if self.verb in ('pin', 'bump') else self.server}"

    @property
    def text(self) -> str:
        """The intent for a log line: `bump of partition 1`, `prohibit of partition 5 for s7`, `drain of s7`."""
        if self.partition == NO_PARTITION:
            return f"{self.verb} of {self.server}"
        return f"{self.verb} of partition {self.partition}" + (f" for {self.server}" if self.server else "")

    def props(self) -> Props:
        """Return the row's properties."""
        return _INTENT.encode(self)


_INTENT: Final = RowCodec(Intent)


def parse_intent(props: Props) -> Intent:
    """Return the intent of a row's properties. Raises KeyError, TypeError, ValueError for a row that cannot be read."""
    return _INTENT.decode(props)


@dataclass(frozen=True, slots=True)
class ActiveIntents:
    """The intents in force. prohibited: (partition, server) pairs. drained: servers that get no partitions, by drain, prohibition or
    maintenance. struck: servers with maintenance ahead. destinations: drained servers with the servers that get their partitions.
    maintenance: the struck servers with the notes of their intents."""

    offline: frozenset[int] = frozenset()
    prohibited: frozenset[tuple[int, str]] = frozenset()
    drained: frozenset[str] = frozenset()
    pins: tuple[tuple[int, str], ...] = ()
    bumps: tuple[tuple[int, int], ...] = ()
    struck: frozenset[str] = frozenset()
    destinations: tuple[tuple[str, str], ...] = ()
    maintenance: tuple[tuple[str, str], ...] = ()

    def events_on(self, server: str) -> tuple[str, ...]:
        """Return the Scheduled Events for which partitions leave a server."""
        return events_in_note(dict(self.maintenance).get(server, ""))


def active_intents(intents: Iterable[Intent], now: Millis) -> ActiveIntents:
    """Return the intents that have not expired at wall time `now`, by kind."""
    live = [intent for intent in intents if not intent.expires or now < intent.expires]
    return ActiveIntents(
        frozenset(i.partition for i in live if i.verb == "offline"),
        frozenset((i.partition, i.server) for i in live if i.verb == "prohibit" and i.partition != NO_PARTITION),
        frozenset(i.server for i in live if i.verb in ("drain", "maintain") or (i.verb == "prohibit" and i.partition == NO_PARTITION)),
        tuple(sorted((i.partition, i.server) for i in live if i.verb == "pin")),
        tuple(sorted((i.partition, i.epoch) for i in live if i.verb == "bump")),
        frozenset(i.server for i in live if i.verb == "maintain"),
        tuple(sorted((i.server, i.to) for i in live if i.verb == "drain" and i.to)),
        tuple(sorted((i.server, i.note) for i in live if i.verb == "maintain")),
    )


def maintenance_note(events: Sequence[str]) -> str:
    """Return the note of a maintenance drain: it names at most `_NOTED_EVENTS` Scheduled Events."""
    return f"{MAINTENANCE_NOTE}: {' '.join(events[:_NOTED_EVENTS])}" if events else MAINTENANCE_NOTE


def events_in_note(note: str) -> tuple[str, ...]:
    """Return the Scheduled Events that a note names; none for a note without events."""
    return tuple(note.removeprefix(f"{MAINTENANCE_NOTE}:").split()) if note.startswith(f"{MAINTENANCE_NOTE}:") else ()


def event_fields(events: Sequence[str]) -> dict[str, str]:
    """Return the fields of a log line about Scheduled Events: `event_id`, and if there are several, the first of them in `event_ids`."""
    found = {"event_id": events[0]} if events else {}
    return found | ({"event_ids": " ".join(events[:_LOGGED_EVENTS])} if len(events) > 1 else {})


def join_numbers(partitions: Iterable[int]) -> str:
    """Encode partitions as one property: `5,9,12`. About 5,000 fit; orders are cut to `MAX_ORDERS`."""
    return ",".join(map(str, partitions))


def split_numbers(text: str) -> tuple[int, ...]:
    """Decode `join_numbers`."""
    return tuple(map(int, text.split(","))) if text else ()


def join_held(held: Iterable[tuple[int, int]]) -> str:
    """Encode partitions with epochs as one property: `5:9,6:10`."""
    return ",".join(f"{partition}:{epoch}" for partition, epoch in held)


def split_held(text: str) -> tuple[tuple[int, int], ...]:
    """Decode `join_held`."""
    return tuple((int(partition), int(epoch)) for partition, _, epoch in (each.partition(":") for each in text.split(","))) if text else ()


def join_holds(partitions: Iterable[int]) -> str:
    """Encode the partitions that a server holds as a bit map in hexadecimal digits: `32` for 1, 4 and 5. `0` for none."""
    return f"{sum(1 << partition for partition in set(partitions)):x}"


def split_holds(text: str) -> frozenset[int] | None:
    """Decode `join_holds`. None for a server that does not list its partitions. Raises ValueError for other text."""
    if not text:
        return None
    bits = int(text, 16)
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)


def join_expected(expected: Expected) -> str:
    """Encode standby assignments as one property: `s7:5,9 s8:12`."""
    return " ".join(f"{server}:{join_numbers(partitions)}" for server, partitions in expected)


def split_expected(text: str) -> Expected:
    """Decode `join_expected`."""
    return tuple((server, split_numbers(partitions)) for server, _, partitions in (each.partition(":") for each in text.split()))


INDEX: Final = ":fleets"


_NUMBERS: Final = Format(join_numbers, lambda text: split_numbers(str(text)))
_SERVER: Final = RowCodec(
    Server,
    formats={
        "take": _NUMBERS,
        "drop": _NUMBERS,
        "avoid": _NUMBERS,
        "expect": Format(join_expected, lambda text: split_expected(str(text))),
        "http": RowCodec(
            HttpServerState,
            formats={"held": Format(join_held, lambda text: split_held(str(text)))},
            sparse=("released",),
        ),
    },
    sparse=("endpoint",),
    given=("name",),
)
