"""Servers that speak HTTP: the app reads and writes the rows for them, and keeps nothing in between.

A request can come late, twice, and to two instances of the app at once. What keeps that harmless: every write is conditional on the ETag of
the server's own row, each beat has a number of its server's own, and a number that is not higher than the row's renews nothing. The
server counts its validity from its SEND of the first try of a number, so from a moment before the write.

`held` in the row is what the server has. Only claims add to it, and only releases take from it.

A server that beats on and releases nothing of what others wait for is evicted: its row takes no more beats, so it grows as old as that of
a server which is gone, and is fenced then, and no sooner. To evict is to lose all further beats, which may happen at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ...core.clock import Millis
from ...core.errors import OutcomeUnknown
from ...engine.effects import LOST, Steps, get, load, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Delete, Insert, Merge, Op, Props, Replace, Row
from .. import rules, unreadable_rows
from ..rows import (
    FLEET,
    INTENTS,
    SERVERS,
    ActiveIntents,
    Fleet,
    Intent,
    Server,
    active_intents,
    join_held,
    join_numbers,
    parse_fleet,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
)
from ..rules import Refusal
from .takeover import read_owners

GRACE: Final = 5.0
"""Seconds beyond T before the app calls a row silent: its ages are differences of the storage service's own times, cut to a second."""
TRIES: Final = 8
"""Times a write is tried when others come in between."""
MAX_SERVERS: Final = 1000
"""Living servers that a fleet takes over HTTP, and as many rows of dead ones: names cost nothing, rows do."""
MAX_REMOVED: Final = 50
"""Rows of dead servers that make room at a time."""


@dataclass(frozen=True, slots=True)
class ServerHeartbeat:
    """A beat. seq: 1 registers. None: as told before."""

    incarnation: str
    seq: int
    domain: str | None = None
    capacity: int | None = None
    load: float | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAccepted:
    """The beat is applied. server: the row, as it is now or was when the beat was found applied."""

    server: Server


@dataclass(frozen=True, slots=True)
class ServerRejected:
    """Nothing was renewed. fenced: the incarnation is over. stale: a later beat is applied. missing: there is no such fleet. contended:
    others kept coming in between. full: the fleet has as many servers as it takes. evicted: with this beat the incarnation is over, since
    it releases nothing."""

    why: Literal["fenced", "stale", "missing", "contended", "full", "evicted"]


@dataclass(frozen=True, slots=True)
class NameOccupied:
    """Another incarnation of the name lives; if it is silent from now on, it no longer does in so many seconds."""

    wait: float


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What the server has of what it asked for, with the epochs, and why not the others."""

    claimed: tuple[tuple[int, int], ...]
    refused: tuple[tuple[int, Refusal], ...]


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The fleet has partitions 0 to `partitions` - 1."""

    partitions: int


def terms(fleet: Fleet) -> str:
    """H and V as a server that registers now has them."""
    return f"{fleet.profile.beat:g}:{fleet.profile.validity:g}"


def spread(fleet: Fleet) -> str:
    """What a server that goes over to the fleet's generation now maps keys by."""
    return f"{fleet.generation}:{fleet.partitions}"


def parse_spread(text: str) -> tuple[int, int]:
    """Generation and partition count."""
    generation, _, partitions = text.partition(":")
    return int(generation), int(partitions)


def parse_terms(text: str) -> tuple[float, float]:
    """H and V in seconds."""
    beat, _, validity = text.partition(":")
    return float(beat), float(validity)


def beat(
    key: str, name: str, told: ServerHeartbeat, now: Millis, grace: float = GRACE
) -> Steps[HeartbeatAccepted | ServerRejected | NameOccupied]:
    """Renew a server's row, or make its incarnation the row's. One read and one write, as a rule. now: wall time, for expiries.

    Raises `OutcomeUnknown` when answers keep getting lost.
    """
    answer: object = None
    for _ in range(TRIES):
        row = yield from get(FLEETS, key, server_key(name))
        found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
        # A first beat counts only once it is sure that whoever closes the fleet has seen it (`closing`).
        fresh = told.seq == 1 or (found is not None and found.incarnation == told.incarnation and found.beat == 1)
        fleet: Fleet | None = None
        silent, age = False, 0.0
        if fresh:
            of_fleet = yield from get(FLEETS, key, FLEET)
            if of_fleet is None:
                return ServerRejected("missing")
            fleet = parse_fleet(of_fleet.props)
            if row is not None:
                age = (row.read_at - row.timestamp) / 1000
                silent = age >= fleet.profile.takeover + grace
        hearing = rules.judge_heartbeat(found, told.incarnation, told.seq, silent)
        if hearing == "fenced" or hearing == "stale":
            return ServerRejected(hearing) if row is not None else (yield from _unknown(key))
        if hearing == "in-use":
            assert fleet is not None
            return NameOccupied(max(0.0, fleet.profile.takeover + grace - age))
        if hearing == "register":
            assert fleet is not None
            if fleet.closed:
                return ServerRejected("contended")
            if row is None and not (yield from _room(key)):
                return ServerRejected("full")
            new = yield from _newcomer(key, name, told, fleet, now)
            entry = Insert(server_key(name), new) if row is None else Replace(server_key(name), new, row.etag)
            answer = yield from write(FLEETS, key, entry)
            continue
        assert row is not None and found is not None
        if fleet is not None and not _stands(found, fleet):
            yield from write(FLEETS, key, Merge(row.rk, {"state": "dead"}, row.etag))
            return ServerRejected("fenced")
        if hearing == "again":
            return HeartbeatAccepted(found)
        server = replace(
            found,
            beat=told.seq,
            domain=found.domain if told.domain is None else told.domain,
            capacity=found.capacity if told.capacity is None else told.capacity,
            load=found.load if told.load is None else told.load,
        )
        owes = yield from _owes(key, row, found, now)
        if owes == "overdue":
            answer = yield from write(FLEETS, key, Merge(row.rk, {"state": "draining", "evicted": True}, row.etag))
            if isinstance(answer, Applied):
                return ServerRejected("evicted")
            continue
        mine: Props = {"beat": server.beat, "domain": server.domain, "capacity": server.capacity, "load": float(server.load), **owes}
        if found.generation > found.works and not found.held:
            # It has nothing left of the former generation: with this beat it goes over.
            of_fleet = yield from get(FLEETS, key, FLEET)
            if of_fleet is None:
                return ServerRejected("missing")
            mine["spread"] = spread(parse_fleet(of_fleet.props))
            server = replace(server, spread=str(mine["spread"]))
        answer = yield from write(FLEETS, key, Merge(row.rk, mine, row.etag))
        if isinstance(answer, Applied):
            return HeartbeatAccepted(server)
    return _given_up(answer)


def claim(
    key: str, name: str, incarnation: str, partitions: Sequence[int], now: Millis, generation: int = 1
) -> Steps[ClaimResult | ServerRejected | OutOfRange]:
    """Claim what is free of `partitions`, at most 99. What the incarnation has already counts as claimed: a lost answer can be asked for
    again. generation: by which the server maps keys, as it believes; under another one the numbers stand for other keys. Raises
    `OutcomeUnknown`."""
    answer: object = None
    for _ in range(TRIES):
        row = yield from get(FLEETS, key, server_key(name))
        if row is None:
            return (yield from _unknown(key))
        found = unreadable_rows.parse_required(row, parse_server)
        if rules.is_fenced(incarnation, found):
            return ServerRejected("fenced")
        fleet, intents = yield from _standing(key, now)
        if fleet is None:
            return ServerRejected("missing")
        if not _stands(found, fleet):
            return ServerRejected("fenced")
        if generation != found.works:
            return ClaimResult((), tuple((number, "resizing") for number in partitions))
        if max(partitions) >= parse_spread(found.spread)[1]:
            return OutOfRange(parse_spread(found.spread)[1])
        rows, owners = yield from read_owners(key, partitions)
        there = {partition.number: (partition, etag) for partition, etag in rows}
        held = dict(found.held)
        bound = min(fleet.most, found.capacity or rules.MAX_HELD, rules.MAX_HELD)
        ops: list[Op] = []
        claimed: list[tuple[int, int]] = []
        refused: list[tuple[int, Refusal]] = []
        for number in partitions:
            partition, etag = there.get(number, (None, ""))
            if partition is not None and (partition.owner, partition.incarnation) == (name, incarnation):
                if held.get(number) == partition.epoch:
                    claimed.append((number, partition.epoch))
                    continue
                # It had it before it was replaced, and a first beat of then came in late: others may be about to claim it.
                partition = replace(partition, owner="", incarnation="")
            owner = owners.get(partition.owner) if partition is not None else None
            reason = rules.claim_refusal(partition, owner, found, intents, bound - len(held))
            if reason is not None or partition is None:
                refused.append((number, reason or "offline"))
                continue
            new = replace(partition, owner=name, incarnation=incarnation, epoch=partition.epoch + 1, since=now)
            ops.append(Replace(partition_key(number), new.props(), etag))
            held[number] = new.epoch
            claimed.append((number, new.epoch))
        done = ClaimResult(tuple(claimed), tuple(refused))
        if not ops:
            return done
        mine: Props = {"held": join_held(sorted(held.items())), "take": join_numbers(p for p in found.take if p not in held)}
        # The touch of its own row: a server that is no longer in claims nothing.
        answer = yield from write(FLEETS, key, Merge(row.rk, mine, row.etag), *ops)
        if isinstance(answer, Applied):
            return done
    return _given_up(answer)


def release(
    key: str, name: str, incarnation: str, number: int, epoch: int, now: Millis
) -> Steps[Literal["released", "stale"] | OutOfRange | ServerRejected]:
    """Give a partition back that the server no longer acts on. Safe to repeat. `stale`: it is not the server's under this epoch. Raises
    `OutcomeUnknown`."""
    answer: object = None
    for _ in range(TRIES):
        row = yield from get(FLEETS, key, server_key(name))
        if row is None:
            return (yield from _unknown(key))
        found = unreadable_rows.parse_required(row, parse_server)
        if rules.is_fenced(incarnation, found):
            return ServerRejected("fenced")
        of_partition = yield from get(FLEETS, key, partition_key(number))
        mine: Props = {
            "held": join_held(each for each in found.held if each[0] != number),
            "drop": join_numbers(p for p in found.drop if p != number),
            # It heeds its orders: the time for the rest begins anew.
            "release_by": 0,
        }
        if of_partition is None and (number, epoch) in found.held:
            # Its row got lost: when it comes back (`mending`), it is nobody's.
            answer = yield from write(FLEETS, key, Merge(row.rk, mine, row.etag))
            if isinstance(answer, Applied):
                return "released"
            continue
        if of_partition is None and answer is LOST:
            return "released"
        if of_partition is None:
            fleet, _ = yield from _standing(key, now)
            return OutOfRange(fleet.partitions) if fleet is not None and number >= max(fleet.partitions, fleet.former) else "stale"
        partition = unreadable_rows.parse_required(of_partition, parse_partition)
        if not partition.owner and partition.epoch == epoch:
            return "released"
        if (partition.owner, partition.incarnation, partition.epoch) != (name, incarnation, epoch):
            return "stale"
        # Under a newer generation that it has been told of, it is closed at once (`generations`).
        newer = max(partition.generation, found.generation)
        closed = partition.closed or partition.generation < newer
        free = replace(partition, owner="", incarnation="", since=now, generation=newer, closed=closed)
        answer = yield from write(FLEETS, key, Merge(row.rk, mine, row.etag), Replace(of_partition.rk, free.props(), of_partition.etag))
        if isinstance(answer, Applied):
            return "released"
    return _given_up(answer)


def _owes(key: str, row: Row, server: Server, now: Millis) -> Steps[Props | Literal["overdue"]]:
    """What a beat has to write about orders to release. Its time runs from the first beat at which somebody waits."""
    none: Props = {"release_by": 0} if server.release_by else {}
    if not rules.pending_releases(server):
        return none
    # Each time: what began with a word that is taken back must not count for the next one.
    fleet, intents = yield from _standing(key, now)
    if fleet is None or not rules.is_waited_for(server, intents):
        return none
    if not server.release_by:
        return {"release_by": row.read_at + round(1000 * rules.eviction_timeout(fleet))}
    return "overdue" if row.read_at >= server.release_by else {}


def _unknown(key: str) -> Steps[ServerRejected]:
    """The server has no row: nor may the fleet."""
    row = yield from get(FLEETS, key, FLEET)
    return ServerRejected("missing" if row is None else "fenced")


def _room(key: str) -> Steps[bool]:
    """Whether the fleet takes one server more. Of very many dead ones it forgets those that have been so for longest."""
    rows = yield from load(FLEETS, key, *SERVERS)
    known, _ = unreadable_rows.parse_rows(rows, parse_server)
    dead = sorted((row for row, server in known if server.state == "dead"), key=lambda row: row.timestamp)
    if len(rows) - len(dead) >= MAX_SERVERS:
        return False
    if len(dead) >= MAX_SERVERS:
        # Refused or lost: the next one tries again.
        yield from write(FLEETS, key, *(Delete(row.rk, row.etag) for row in dead[:MAX_REMOVED]))
    return True


def _newcomer(key: str, name: str, told: ServerHeartbeat, fleet: Fleet, now: Millis) -> Steps[Props]:
    """The row of a server that registers. One that operators have drained is told so from the start."""
    standing = list[Intent]()
    for intent in (Intent("drain", server=name), Intent("prohibit", server=name)):
        row = yield from get(FLEETS, key, intent.key)
        standing += unreadable_rows.parse_intents([row])[0] if row is not None else []
    drained = name in active_intents(standing, now).drained
    return Server(
        name,
        "live",
        told.incarnation,
        1,
        told.domain or "",
        told.capacity or 0,
        told.load or 0.0,
        scans=False,
        tell="drain" if drained else "",
        generation=fleet.generation,
        terms=terms(fleet),
        spread=spread(fleet),
    ).props()


def _standing(key: str, now: Millis) -> Steps[tuple[Fleet | None, ActiveIntents]]:
    rows = yield from load(FLEETS, key, FLEET, INTENTS[1])
    intents = active_intents(unreadable_rows.parse_intents(rows)[0], now)
    return next((parse_fleet(row.props) for row in rows if row.rk == FLEET), None), intents


def _stands(server: Server, fleet: Fleet) -> bool:
    """Whether the server runs under the fleet as it is."""
    return server.terms == terms(fleet) and not (fleet.closed and server.beat == 1)


def _given_up(answer: object) -> ServerRejected:
    if answer is LOST:
        raise OutcomeUnknown("answers of table storage keep getting lost")
    return ServerRejected("contended")
