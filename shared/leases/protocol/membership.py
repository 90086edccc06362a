"""A server's own row: register, beat, leave. Claims and releases ride on a beat, in its transaction.

One server writes its row from one place, one write at a time. Each try has a beat number of its own, so a row read back says which of one's
tries was applied. A write whose answer is lost is not sent again: the next beat, conditional on the same ETag, either is applied, and then
the lost one can never be, or is refused, and then the row tells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...core.clock import Millis
from ...engine.effects import LOST, Steps, get, receiving, sending, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Insert, Merge, Op, Props, Refused, Replace, Row
from .. import rules, unreadable_rows
from ..rows import Partition, Server, ServerState, join_expected, join_numbers, parse_partition, parse_server, partition_key, server_key
from ..rules import BeatAttempt, Claim, Holding, Observation, ServerSession

MAX_RIDERS = 99
"""Claims and releases in one beat's transaction."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What a server tells about itself. capacity: partitions it can have, 0 for no bound. load: any measure that is alike on all
    servers. avoid: partitions it would rather not have."""

    domain: str = ""
    capacity: int = 0
    load: float = 0.0
    avoid: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """The session's incarnation is the row's."""


@dataclass(frozen=True, slots=True)
class AwaitingTakeover:
    """A namesake's row is there, not yet silent for T: look again, with this sight."""

    sight: Observation


@dataclass(frozen=True, slots=True)
class IncarnationFenced:
    """The incarnation is over."""


@dataclass(frozen=True, slots=True)
class LiveNamesake:
    """A living namesake beats."""


def register(
    session: ServerSession, publish: ServerReport, before: Observation | None, proven: Collection[str], takeover: float
) -> Steps[Registered | AwaitingTakeover | LiveNamesake | IncarnationFenced | None]:
    """One try to make the session's incarnation the row's. None: an answer was lost or a race too; try again with the same session.

    proven: incarnations known to be gone. before: the sight of an earlier `AwaitingTakeover`. takeover: T, seconds.
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
            return Registered() if rules.read_back(session, found, row.etag) == "mine" else None
        if not rules.may_replace(found, proven):
            sight = rules.observe(before, found, at)
            if before is not None and (sight.incarnation, sight.beat) != (before.incarnation, before.beat):
                return LiveNamesake()
            if not rules.is_silent(sight, at, takeover):
                return AwaitingTakeover(sight)
    beat = session.beat + 1
    mine = Server(session.server, "live", session.incarnation, beat, publish.domain, publish.capacity, publish.load)
    props = replace(mine, generation=session.generation).props()
    sent = yield from sending()
    session.beat, session.open[beat] = beat, BeatAttempt(sent)
    answer = yield from write(FLEETS, session.key, Insert(key, props) if row is None else Replace(key, props, row.etag))
    if not isinstance(answer, Applied):
        return None
    rules.record_applied(session, beat, answer.etags[0], sent)
    return Registered()


@dataclass(frozen=True, slots=True)
class BeatApplied:
    """The beat was applied. claimed: of the claims, those that rode on it; refused: partitions another was faster at."""

    claimed: tuple[Claim, ...] = ()
    released: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BeatNotApplied:
    """Not applied, or nobody knows: beat again at once. told: the row carried new orders."""

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
    """Beat once; `claims` and `releases` (partitions in `leaving`) are applied with it or not at all. now: wall time, for people to read.

    At most `MAX_RIDERS` of both together.
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
        "take": join_numbers(take),
        "drop": join_numbers(drop),
        "avoid": join_numbers(publish.avoid),
        "expect": join_expected(session.expect),
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
    if isinstance(answer, Refused):
        del session.open[number]
        if answer.at > len(claims):
            # Nobody but this incarnation, unfenced, writes what it has; so the row is not what it was taken for.
            partition = releases[answer.at - 1 - len(claims)]
            yield from _recheck(session, partition)
            return BeatNotApplied()
        if answer.at > 0:
            return BeatNotApplied(refused=(claims[answer.at - 1].partition,))
    return (yield from settle(session))


def settle(session: ServerSession) -> Steps[BeatNotApplied | IncarnationFenced]:
    """Read the own row after a refusal or a lost answer, and the rows of claims that turn out applied."""
    row = yield from get(FLEETS, session.key, server_key(session.server))
    found = unreadable_rows.parse_required(row, parse_server) if row is not None else None
    standing = rules.read_back(session, found, row.etag if row is not None else "")
    if standing == "fenced":
        return IncarnationFenced()
    yield from collect(session)
    return BeatNotApplied(told=standing == "told")


def collect(session: ServerSession) -> Steps[None]:
    """Take into `held` what is in `won` and one's own by its row, with the ETag that the row has."""
    for partition, epoch in sorted(session.won.items()):
        if partition in session.held or partition in session.leaving:
            del session.won[partition]
            continue
        row = yield from get(FLEETS, session.key, partition_key(partition))
        found, unreadable = _look(row)
        if unreadable:
            # It may be its own: once it is mended, that shows.
            continue
        del session.won[partition]
        if row is not None and found is not None and _is_mine(session, found, epoch):
            session.held[partition] = Holding(epoch, row.etag, found.generation)


def _recheck(session: ServerSession, partition: int) -> Steps[None]:
    row = yield from get(FLEETS, session.key, partition_key(partition))
    left = session.leaving.pop(partition, None)
    found, unreadable = _look(row)
    if left is not None and unreadable:
        # What cannot be released must not keep it from beating.
        session.won[partition] = left.epoch
    elif row is not None and found is not None and left is not None and _is_mine(session, found, left.epoch):
        session.leaving[partition] = Holding(left.epoch, row.etag, left.generation)


def _look(row: Row | None) -> tuple[Partition | None, bool]:
    """What a partition's row says, and whether it is there and cannot be read."""
    found, unreadable = unreadable_rows.parse_rows([row] if row is not None else [], parse_partition)
    return found[0][1] if found else None, bool(unreadable)


def _is_mine(session: ServerSession, found: Partition, epoch: int) -> bool:
    return (found.owner, found.incarnation, found.epoch) == (session.server, session.incarnation, epoch)


def _owned(session: ServerSession, claim: Claim, now: Millis) -> Partition:
    return Partition(claim.partition, session.server, session.incarnation, claim.epoch, now, claim.generation)


def leave(session: ServerSession) -> Steps[Literal["left", "again", "fenced"]]:
    """End this incarnation by its own word, once it serves nothing any more: nobody has to wait for its silence.

    What it still has is claimable from then on.
    """
    session.held, session.valid = {}, None
    answer = yield from write(FLEETS, session.key, Merge(server_key(session.server), {"state": "dead"}, session.etag))
    if isinstance(answer, Applied):
        session.fenced = True
        return "left"
    if answer is LOST:
        return "again"
    standing = yield from settle(session)
    session.held, session.valid = {}, None
    return "fenced" if isinstance(standing, IncarnationFenced) else "again"
