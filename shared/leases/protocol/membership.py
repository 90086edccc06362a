"""A server's own row: register, send heartbeats, leave. Claims and releases are part of a heartbeat's transaction.

A server writes its row from one place, one write at a time. Each attempt has its own beat number, so the row shows which attempt was
applied. A write with a lost answer is not repeated. The next heartbeat is conditional on the same ETag: if it is applied, the lost write
never can be; if it is refused, the row shows the outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...core.clock import Millis
from ...engine.effects import LOST, Steps, get, receiving, sending, write
from ...engine.validity import SentAt
from ...storage.names import FLEETS
from ...storage.ports import Applied, Insert, Merge, Op, Props, Replace, Row, WriteRefused
from .. import rules, unreadable_rows
from ..rows import (
    Partition,
    Server,
    ServerState,
    join_expected,
    join_holds,
    join_numbers,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
)
from ..rules import BeatAttempt, Claim, Holding, ServerObservation, ServerSession

MAX_RIDERS = 99
"""Claims and releases in the transaction of one heartbeat."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """A server's report about itself. capacity: partitions it can own, 0 for no limit. load: a measure that all servers share. avoid:
    partitions that it prefers not to own. loads: of partitions, as `loads.join_loads` encodes them. refused: percent of its requests that
    storage refuses, or 0 if these are few. endpoint: see `Server`; it stays the same for an incarnation."""

    domain: str = ""
    capacity: int = 0
    load: float = 0.0
    avoid: tuple[int, ...] = ()
    loads: str = ""
    refused: int = 0
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """The row shows the session's incarnation."""


@dataclass(frozen=True, slots=True)
class AwaitingTakeover:
    """Another incarnation's row has not been silent for T: try again with this observation."""

    sight: ServerObservation


@dataclass(frozen=True, slots=True)
class IncarnationFenced:
    """The incarnation has ended."""


@dataclass(frozen=True, slots=True)
class LiveNamesake:
    """Another incarnation of the same name sends heartbeats."""


def register(
    session: ServerSession, publish: ServerReport, before: ServerObservation | None, proven: Collection[str], takeover: float
) -> Steps[Registered | AwaitingTakeover | LiveNamesake | IncarnationFenced | None]:
    """Try once to register the session's incarnation. None: an answer or a race was lost; try again with the same session.

    proven: incarnations that have certainly ended. before: the observation of an earlier `AwaitingTakeover`. takeover: T, seconds.
    """
    key = server_key(session.server)
    row = yield from get(FLEETS, session.key, key)
    at = yield from receiving()
    found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
    if row is not None and found is not None:
        if found.incarnation == session.incarnation:
            if found.state == "dead":
                session.fenced = True
                return IncarnationFenced()
            return Registered() if rules.read_back(session, found, row.etag, row.timestamp) == "mine" else None
        if not rules.may_replace(found, proven):
            sight = rules.observe(before, found, at)
            if before is not None and (sight.incarnation, sight.beat) != (before.incarnation, before.beat):
                return LiveNamesake()
            if not rules.is_silent(sight, at, takeover):
                return AwaitingTakeover(sight)
        session.resumed, session.replaced = found.state != "dead", found.incarnation
        session.loads = found.loads or ""
    beat = session.beat + 1
    mine = Server(session.server, "live", session.incarnation, beat, publish.domain, publish.capacity, publish.load)
    props = replace(mine, generation=session.generation, holds=join_holds(()), loads=session.loads, endpoint=publish.endpoint).props()
    sent = yield from sending()
    session.beat, session.open[beat] = beat, BeatAttempt(sent)
    answer = yield from write(FLEETS, session.key, Insert(key, props) if row is None else Replace(key, props, row.etag))
    if not isinstance(answer, Applied):
        return None
    rules.record_applied(session, beat, answer.etags[0], sent)
    return Registered()


@dataclass(frozen=True, slots=True)
class BeatApplied:
    """The heartbeat was applied, with these claims and releases. refused: partitions that another server claimed first."""

    claimed: tuple[Claim, ...] = ()
    released: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BeatNotApplied:
    """The heartbeat was not applied, or its outcome is unknown: send another one. told: the row contained new orders."""

    told: bool = False
    refused: tuple[int, ...] = ()


def beat(
    session: ServerSession,
    publish: ServerReport,
    state: ServerState,
    claims: Sequence[Claim] = (),
    releases: Sequence[int] = (),
    now: Millis = 0,
) -> Steps[BeatApplied | BeatNotApplied | IncarnationFenced]:
    """Send one heartbeat. `claims` and `releases` (partitions in `leaving`; at most `MAX_RIDERS`) are applied with it or not at all.

    now: wall time, for people to read.
    """
    number = session.beat + 1
    take = tuple(p for p in session.take if p not in {claim.partition for claim in claims})
    drop = tuple(p for p in session.drop if p not in releases)
    mine: Props = {
        "beat": number,
        "state": state,
        "domain": publish.domain,
        "capacity": publish.capacity,
        "load": float(publish.load),
        "refused": publish.refused,
        "take": join_numbers(take),
        "drop": join_numbers(drop),
        "avoid": join_numbers(publish.avoid),
        "expect": join_expected(session.expect),
        "loads": publish.loads,
        # Applied with the claims and releases, so the list and the partitions' rows always agree.
        "holds": join_holds((session.epochs.keys() | {claim.partition for claim in claims}) - set(releases)),
    }
    ops: list[Op] = [Merge(server_key(session.server), mine, session.etag)]
    for claim in claims:
        ops.append(Replace(partition_key(claim.partition), _owned(session, claim, now).props(), claim.etag))
    for partition in releases:
        ops.append(Replace(partition_key(partition), rules.released_row(session, partition, now).props(), session.leaving[partition].etag))
    sent = yield from sending()
    session.beat, session.open[number] = number, BeatAttempt(sent, tuple(claims), tuple(releases))
    answer = yield from write(FLEETS, session.key, *ops)
    if isinstance(answer, Applied):
        rules.record_applied(session, number, answer.etags[0], sent)
        session.take, session.drop = take, drop
        for claim, etag in zip(claims, answer.etags[1:], strict=False):
            session.held[claim.partition] = Holding(claim.epoch, etag, claim.generation)
        for partition in releases:
            del session.leaving[partition]
        return BeatApplied(tuple(claims), tuple(releases))
    if isinstance(answer, WriteRefused):
        del session.open[number]
        if answer.at > len(claims):
            # Only this incarnation writes rows of its partitions until it is fenced, so the row was not as expected.
            partition = releases[answer.at - 1 - len(claims)]
            yield from _recheck(session, partition)
            return BeatNotApplied()
        if answer.at > 0:
            return BeatNotApplied(refused=(claims[answer.at - 1].partition,))
    return (yield from settle(session, sent))


def settle(session: ServerSession, sent: SentAt | None = None) -> Steps[BeatNotApplied | IncarnationFenced]:
    """Read the own row after a refusal or a lost answer, and the rows of claims that were applied. sent: SEND of the heartbeat."""
    row = yield from get(FLEETS, session.key, server_key(session.server))
    found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
    standing = rules.read_back(session, found, row.etag if row is not None else "", row.timestamp if row is not None else 0, sent)
    if standing == "fenced":
        return IncarnationFenced()
    yield from collect(session)
    return BeatNotApplied(told=standing == "told")


def collect(session: ServerSession) -> Steps[None]:
    """Move claims in `won` to `held` if their rows show this incarnation, with the ETags of the rows."""
    for partition, epoch in sorted(session.won.items()):
        if partition in session.held or partition in session.leaving:
            del session.won[partition]
            continue
        row = yield from get(FLEETS, session.key, partition_key(partition))
        found, unreadable = _look(row)
        if unreadable:
            # The partition may be the server's own; its row shows that after a repair.
            continue
        del session.won[partition]
        if row is not None and found is not None and _is_mine(session, found, epoch):
            session.held[partition] = Holding(epoch, row.etag, found.generation)


def _recheck(session: ServerSession, partition: int) -> Steps[None]:
    row = yield from get(FLEETS, session.key, partition_key(partition))
    left = session.leaving.pop(partition, None)
    found, unreadable = _look(row)
    if left is not None and unreadable:
        # A partition that cannot be released must not prevent heartbeats.
        session.won[partition] = left.epoch
    elif row is not None and found is not None and left is not None and _is_mine(session, found, left.epoch):
        session.leaving[partition] = Holding(left.epoch, row.etag, left.generation)


def _look(row: Row | None) -> tuple[Partition | None, bool]:
    """Return the parsed row, and whether it exists and cannot be read."""
    found, unreadable = unreadable_rows.parse_rows([row] if row is not None else [], parse_partition)
    return found[0][1] if found else None, bool(unreadable)


def _is_mine(session: ServerSession, found: Partition, epoch: int) -> bool:
    return (found.owner, found.incarnation, found.epoch) == (session.server, session.incarnation, epoch)


def _owned(session: ServerSession, claim: Claim, now: Millis) -> Partition:
    return Partition(claim.partition, session.server, session.incarnation, claim.epoch, now, claim.generation)


def leave(session: ServerSession, *, keep: bool = False) -> Steps[Literal["left", "again", "fenced"]]:
    """End this incarnation after it has stopped serving, so that other servers need not wait T.

    Its remaining partitions can be claimed from then on. keep: only the same server may claim them, as another incarnation, until T is
    over; for the others it is silent from now on.
    """
    session.held, session.valid = {}, None
    ended: Props = {"kept": True, "beat": session.beat + 1} if keep else {"state": "dead"}
    answer = yield from write(FLEETS, session.key, Merge(server_key(session.server), ended, session.etag))
    if isinstance(answer, Applied):
        session.fenced = True
        return "left"
    if answer is LOST:
        return "again"
    standing = yield from settle(session)
    session.held, session.valid = {}, None
    return "fenced" if isinstance(standing, IncarnationFenced) else "again"
