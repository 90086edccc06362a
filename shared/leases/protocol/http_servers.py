"""Servers that speak HTTP: the app reads and writes their rows for them, and keeps no state.

A request can arrive late, twice, and at two instances of the app at once. This is harmless: every write is conditional on the ETag of the
server's own row, the server numbers its heartbeats, and a number that is not higher than the row's renews nothing. The server counts its
validity from its SEND of the first attempt with a number, which is before the write.

`held` in the row lists the server's partitions. Only claims add to it, and only releases take from it.

A server that will be back soon ends its incarnation with a heartbeat that keeps its partitions: only the next incarnation of its name may
replace the row until it is fenced, and that one is ordered to claim the same partitions.

A server that sends heartbeats and releases none of its pending partitions is evicted: its row accepts no more heartbeats, so it ages like
the row of a server that has ended, and is fenced no sooner. An eviction equals the loss of all later heartbeats, which can happen at any
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ...core.clock import Millis
from ...core.errors import OutcomeUnknown
from ...engine.conflicts import WriteConflict, retry_steps, write_for
from ...engine.effects import LOST, Steps, get, load, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Delete, Insert, Merge, Op, Props, Replace, Row
from .. import rules, unreadable_rows
from ..loads import reported_loads
from ..rows import (
    FLEET,
    INTENTS,
    MAX_ORDERS,
    SERVERS,
    ActiveIntents,
    Fleet,
    HttpServerState,
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
from ..timings import FENCE_MARGIN
from .takeover import read_owners

TRIES: Final = 8
"""Attempts to write while other writes come in between."""
MAX_SERVERS: Final = 1000
"""Living servers that a fleet accepts over HTTP unless its tenant's limit says otherwise, and rows of dead ones that it keeps."""
MAX_REMOVED: Final = 50
"""Rows of dead servers that are removed at a time."""


@dataclass(frozen=True, slots=True)
class ServerHeartbeat:
    """A heartbeat. seq: 1 registers the server. None: the value stays as it is. keep: the server has stopped serving, and this heartbeat
    is its incarnation's last. loads: of partitions that it owns. endpoint: see `Server`."""

    incarnation: str
    seq: int
    domain: str | None = None
    capacity: int | None = None
    load: float | None = None
    keep: bool = False
    loads: Mapping[int, float] | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAccepted:
    """The heartbeat is applied. server: the row, as it is now or was when the heartbeat was found applied."""

    server: Server


@dataclass(frozen=True, slots=True)
class ServerRejected:
    """The request changed nothing. fenced: the incarnation has ended. stale: a later heartbeat is applied. missing: there is no such fleet.
    contended: other writes kept coming in between. full: the fleet has the maximum of servers. evicted: this heartbeat ended the
    incarnation, because it releases nothing."""

    why: Literal["fenced", "stale", "missing", "contended", "full", "evicted"]


@dataclass(frozen=True, slots=True)
class NameOccupied:
    """Another incarnation of the name is live. wait: seconds after which it is not, if it is silent from now on."""

    wait: float


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The claimed partitions with their epochs, and the refused ones with reasons."""

    claimed: tuple[tuple[int, int], ...]
    refused: tuple[tuple[int, Refusal], ...]


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The partition does not exist: the fleet has partitions 0 to `partitions` - 1."""

    partitions: int


def terms(fleet: Fleet) -> str:
    """Return H and V for a server that registers now, as stored."""
    return f"{fleet.profile.beat:g}:{fleet.profile.validity:g}"


def spread(fleet: Fleet) -> str:
    """Return the fleet's generation and partition count, as stored."""
    return f"{fleet.generation}:{fleet.partitions}"


def parse_spread(text: str) -> tuple[int, int]:
    """Return the generation and the partition count."""
    generation, _, partitions = text.partition(":")
    return int(generation), int(partitions)


def parse_terms(text: str) -> tuple[float, float]:
    """Return H and V in seconds."""
    beat, _, validity = text.partition(":")
    return float(beat), float(validity)


def beat(
    key: str, name: str, heartbeat: ServerHeartbeat, now: Millis, grace: float = FENCE_MARGIN, most: int | None = None
) -> Steps[HeartbeatAccepted | ServerRejected | NameOccupied]:
    """Renew a server's row, or register its incarnation. Usually one read and one write. now: wall time, for expiries.
    most: living servers that the fleet may have after one registers; None for `MAX_SERVERS`.

    Raises `OutcomeUnknown` if answers keep getting lost.
    """

    def attempt() -> Steps[HeartbeatAccepted | ServerRejected | NameOccupied | WriteConflict]:
        row = yield from get(FLEETS, key, server_key(name))
        found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
        # A first heartbeat counts only if a writer that closes the fleet has certainly seen the row (`resizing`).
        fresh = heartbeat.seq == 1 or (found is not None and found.incarnation == heartbeat.incarnation and found.beat == 1)
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
        hearing = rules.judge_heartbeat(found, heartbeat.incarnation, heartbeat.seq, silent, heartbeat.keep)
        if hearing == "fenced" or hearing == "stale":
            return ServerRejected(hearing) if row is not None else (yield from _unknown(key))
        if hearing == "in-use":
            assert fleet is not None
            return NameOccupied(max(0.0, fleet.profile.takeover + grace - age))
        if hearing == "register":
            assert fleet is not None
            if fleet.closed:
                return ServerRejected("contended")
            if row is None and not (yield from _room(key, MAX_SERVERS if most is None else most)):
                return ServerRejected("full")
            new = yield from _newcomer(key, name, heartbeat, fleet, found, now)
            entry = Insert(server_key(name), new) if row is None else Replace(server_key(name), new, row.etag)
            return WriteConflict((yield from write(FLEETS, key, entry)))
        assert row is not None and found is not None
        if fleet is not None and not _stands(found, fleet):
            yield from write(FLEETS, key, Merge(row.rk, {"state": "dead"}, row.etag))
            return ServerRejected("fenced")
        if hearing == "again":
            return HeartbeatAccepted(found)
        server = replace(
            found,
            beat=heartbeat.seq,
            domain=found.domain if heartbeat.domain is None else heartbeat.domain,
            capacity=found.capacity if heartbeat.capacity is None else heartbeat.capacity,
            load=found.load if heartbeat.load is None else heartbeat.load,
            kept=heartbeat.keep,
            endpoint=found.endpoint if heartbeat.endpoint is None else heartbeat.endpoint,
        )
        report: Props = {"beat": server.beat, "domain": server.domain, "capacity": server.capacity, "load": float(server.load)}
        if heartbeat.endpoint is not None:
            report["endpoint"] = heartbeat.endpoint
        if heartbeat.loads is not None:
            report["loads"] = reported_loads(found, heartbeat.loads, (row.read_at - row.timestamp) / 1000, now)
        if heartbeat.keep:
            return (yield from write_for(HeartbeatAccepted(server), FLEETS, key, Merge(row.rk, {**report, "kept": True}, row.etag)))
        owes = yield from _owes(key, row, found, now)
        if owes == "overdue":
            evicted: Props = {"state": "draining", "evicted": True}
            return (yield from write_for(ServerRejected("evicted"), FLEETS, key, Merge(row.rk, evicted, row.etag)))
        mine: Props = {**report, **owes}
        if found.generation > found.http.mapped_generation and not found.http.held:
            # Nothing is left of the former generation: this heartbeat switches to the new one.
            of_fleet = yield from get(FLEETS, key, FLEET)
            if of_fleet is None:
                return ServerRejected("missing")
            mine["spread"] = spread(parse_fleet(of_fleet.props))
            server = replace(server, http=replace(server.http, spread=str(mine["spread"])))
        return (yield from write_for(HeartbeatAccepted(server), FLEETS, key, Merge(row.rk, mine, row.etag)))

    ended = yield from retry_steps(attempt, TRIES)
    return _given_up(ended) if isinstance(ended, WriteConflict) else ended


def claim(
    key: str, name: str, incarnation: str, partitions: Sequence[int], now: Millis, generation: int = 1
) -> Steps[ClaimResult | ServerRejected | OutOfRange]:
    """Claim the free ones of `partitions`, at most 99. Partitions that the incarnation owns count as claimed, so a claim with a lost answer
    can be repeated. generation: the one that the server maps keys by; under another one the numbers stand for other keys.

    Raises `OutcomeUnknown`.
    """

    def attempt() -> Steps[ClaimResult | ServerRejected | OutOfRange | WriteConflict]:
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
        if generation != found.http.mapped_generation:
            return ClaimResult((), tuple((number, "resizing") for number in partitions))
        if max(partitions) >= parse_spread(found.http.spread)[1]:
            return OutOfRange(parse_spread(found.http.spread)[1])
        rows, owners = yield from read_owners(key, partitions)
        there = {partition.number: (partition, etag) for partition, etag in rows}
        held = dict(found.http.held)
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
                # It owned the partition before it was replaced, and its late first heartbeat returned: others may be about to claim it.
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
        # Writing its own row too makes the store refuse a server that has been fenced.
        return (yield from write_for(done, FLEETS, key, Merge(row.rk, mine, row.etag), *ops))

    ended = yield from retry_steps(attempt, TRIES)
    return _given_up(ended) if isinstance(ended, WriteConflict) else ended


def release(
    key: str, name: str, incarnation: str, number: int, epoch: int, now: Millis
) -> Steps[Literal["released", "stale"] | OutOfRange | ServerRejected]:
    """Release a partition that the server no longer acts on. Can be repeated. `stale`: the server does not own it under this epoch.

    Raises `OutcomeUnknown`.
    """
    answer: object = None

    def attempt() -> Steps[Literal["released", "stale"] | OutOfRange | ServerRejected | WriteConflict]:
        nonlocal answer
        row = yield from get(FLEETS, key, server_key(name))
        if row is None:
            return (yield from _unknown(key))
        found = unreadable_rows.parse_required(row, parse_server)
        if rules.is_fenced(incarnation, found):
            return ServerRejected("fenced")
        of_partition = yield from get(FLEETS, key, partition_key(number))
        mine: Props = {
            "held": join_held(each for each in found.http.held if each[0] != number),
            "drop": join_numbers(p for p in found.drop if p != number),
            # The server obeys its orders: the time for the rest starts again.
            "release_by": 0,
        }
        if found.loads:
            mine["released"] = now
        if of_partition is None and (number, epoch) in found.http.held:
            # The partition's row is missing: when it is restored (`repair`), it has no owner.
            answer = yield from write(FLEETS, key, Merge(row.rk, mine, row.etag))
            return "released" if isinstance(answer, Applied) else WriteConflict(answer)
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
        # If the server knows of a newer generation, the row is closed at once (`generations`).
        newer = max(partition.generation, found.generation)
        closed = partition.closed or partition.generation < newer
        free = replace(partition, owner="", incarnation="", since=now, generation=newer, closed=closed)
        answer = yield from write(FLEETS, key, Merge(row.rk, mine, row.etag), Replace(of_partition.rk, free.props(), of_partition.etag))
        return "released" if isinstance(answer, Applied) else WriteConflict(answer)

    ended = yield from retry_steps(attempt, TRIES)
    return _given_up(ended) if isinstance(ended, WriteConflict) else ended


def _owes(key: str, row: Row, server: Server, now: Millis) -> Steps[Props | Literal["overdue"]]:
    """Return what a heartbeat must write about pending releases. Their time runs from the first heartbeat at which something waits."""
    none: Props = {"release_by": 0} if server.http.release_by else {}
    if not rules.pending_releases(server):
        return none
        # Evaluated at each heartbeat: time under a control that was revoked must not count for the next one.
    fleet, intents = yield from _standing(key, now)
    if fleet is None or not rules.is_waited_for(server, intents):
        return none
    if not server.http.release_by:
        return {"release_by": row.read_at + round(1000 * rules.eviction_timeout(fleet))}
    return "overdue" if row.read_at >= server.http.release_by else {}


def _unknown(key: str) -> Steps[ServerRejected]:
    """Return the rejection of a server without a row: the fleet may be missing too."""
    row = yield from get(FLEETS, key, FLEET)
    return ServerRejected("missing" if row is None else "fenced")


def _room(key: str, most: int) -> Steps[bool]:
    """Return True if the fleet has fewer than `most` servers. If it keeps too many dead ones, remove those that died first."""
    rows = yield from load(FLEETS, key, *SERVERS)
    known, _ = unreadable_rows.parse_rows(rows, parse_server)
    dead = sorted((row for row, server in known if server.state == "dead"), key=lambda row: row.timestamp)
    if len(rows) - len(dead) >= most:
        return False
    if len(dead) >= MAX_SERVERS:
        # If the write is refused or its answer is lost, the next request tries again.
        yield from write(FLEETS, key, *(Delete(row.rk, row.etag) for row in dead[:MAX_REMOVED]))
    return True


def _newcomer(key: str, name: str, heartbeat: ServerHeartbeat, fleet: Fleet, former: Server | None, now: Millis) -> Steps[Props]:
    """Return the row of a server that registers. If it is drained, the row says so from the start. former: the row that it replaces; if its
    incarnation has kept its partitions, they are ordered at once."""
    standing = list[Intent]()
    for intent in (Intent("drain", server=name), Intent("prohibit", server=name)):
        row = yield from get(FLEETS, key, intent.key)
        standing += unreadable_rows.parse_intents([row])[0] if row is not None else []
    drained = name in active_intents(standing, now).drained
    return Server(
        name,
        "live",
        heartbeat.incarnation,
        1,
        heartbeat.domain or "",
        heartbeat.capacity or 0,
        heartbeat.load or 0.0,
        take=() if drained or former is None else _kept_partitions(former, fleet),
        scans=False,
        tell="drain" if drained else "",
        generation=fleet.generation,
        http=HttpServerState(terms=terms(fleet), spread=spread(fleet)),
        loads=former.loads if former is not None else None,
        endpoint=heartbeat.endpoint or "",
    ).props()


def _kept_partitions(former: Server, fleet: Fleet) -> tuple[int, ...]:
    """Return the partitions that the former incarnation has kept and was not ordered to release. None of another generation."""
    generation = former.http.mapped_generation if former.http.terms else former.generation
    if not former.kept or former.state == "dead" or fleet.former or generation != fleet.generation:
        return ()
    return tuple(sorted((former.listed or frozenset()) - set(former.drop)))[:MAX_ORDERS]


def _standing(key: str, now: Millis) -> Steps[tuple[Fleet | None, ActiveIntents]]:
    rows = yield from load(FLEETS, key, FLEET, INTENTS[1])
    intents = active_intents(unreadable_rows.parse_intents(rows)[0], now)
    return next((parse_fleet(row.props) for row in rows if row.rk == FLEET), None), intents


def _stands(server: Server, fleet: Fleet) -> bool:
    """Return True if the server runs under the fleet's current terms."""
    return server.http.terms == terms(fleet) and not (fleet.closed and server.beat == 1)


def _given_up(conflict: WriteConflict) -> ServerRejected:
    """Return the rejection of a request that has used up its attempts. Raises `OutcomeUnknown` if the last answer was lost."""
    if conflict.answer is LOST:
        raise OutcomeUnknown("the answers of table storage were lost repeatedly, so the outcome is unknown; repeat the request")
    return ServerRejected("contended")
