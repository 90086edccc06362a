"""Applies decisions of `rules` to the store: generators without I/O, which a runner carries out. All of them are safe to abandon between
any two effects, and to repeat.

Every change is one transaction on the ETags of what it was decided from. A lost answer, like a lost race, leads to another look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis
from ..engine.conflicts import CONFLICT, WriteConflict, give_up, retry_steps, write_for
from ..engine.effects import LOST, Steps, get, load, write
from ..leases.rows import FLEET, Fleet, parse_fleet
from ..storage.names import FLEETS, TURNS
from ..storage.ports import Applied, Delete, Insert, Op, Replace, Upsert, WriteRefused
from . import rules
from .rows import (
    ENDED,
    INDEX,
    LATEST,
    REPLICAS,
    STANDING,
    TURN,
    Group,
    LatestCheckpoint,
    ReplicaRow,
    TurnRow,
    ended_key,
    parse_group,
    parse_latest,
    parse_replica,
    parse_turn,
    replica_key,
)
from .rules import AcceptedReport, FleetTurns, LatePublication, Publication, Published, ReplicaReport, ReportRefusal, Revoked
from .settings import read_turn_settings
from .timings import KEEP_SILENT, KEEP_TURNS
from .turns import NO_PENDING, PendingImpact, TurnSettings, TurnStep, is_free

GONE: Final = ":gone"
"""A partition with the last turn of each ended fleet. A new fleet of the same name continues from it."""
TRIES: Final = 10
TURN_OF_FLEET: Final = "the fleet's turn"
"""Name of the contended row in errors."""
_BATCH: Final = 100


class StoredTurns(NamedTuple):
    """A fleet's turns as they were read. etags: by row key. now: the storage service's time at that. closed: the fleet is ending."""

    view: FleetTurns
    etags: Mapping[str, str]
    now: Millis
    closed: bool


def look(key: str) -> Steps[StoredTurns | None]:
    """Read a fleet's turns, in one request. None when no replica ever reported."""
    rows = yield from load(TURNS, key, *STANDING)
    turn = next((row for row in rows if row.rk == TURN), None)
    if turn is None:
        return None
    latest = next((parse_latest(row.props) for row in rows if row.rk == LATEST), None)
    replicas = [parse_replica(row) for row in rows if REPLICAS[0] <= row.rk < REPLICAS[1]]
    view = FleetTurns(parse_group(turn.props), {each.node: each for each in replicas}, latest)
    return StoredTurns(view, {row.rk: row.etag for row in rows}, turn.read_at, bool(turn.props.get("closed", False)))


def report(
    key: str,
    node: str,
    replica_report: ReplicaReport,
    settings: TurnSettings,
    draw: float,
    pending: Mapping[str, PendingImpact] = NO_PENDING,
) -> Steps[AcceptedReport | ReportRefusal | Literal["missing"]]:
    """Apply a replica's report.

    settings: the fleet's, possibly some seconds old; for a replica that registers they are read again. draw: a random number in [0, 1) for
    the next grant. 'missing': there is no such fleet.
    Raises `OutcomeUnknown`, `Unavailable`.
    """

    def attempt() -> Steps[AcceptedReport | ReportRefusal | Literal["missing"] | WriteConflict]:
        nonlocal settings
        seen = yield from look(key)
        if seen is None or seen.closed or replica_report.seq == 1 or node not in seen.view.replicas:
            fleet, now = yield from read_fleet(key)
            if fleet is None:
                return "missing"
            settings = read_turn_settings(fleet)
            if seen is not None and seen.closed:
                # The fleet was created again before the former one of its name was removed.
                yield from end(key)
                return CONFLICT
            seen = seen or (yield from _fresh(key, now))
        accepted = rules.receive(seen.view, node, replica_report, seen.now, settings, draw, pending)
        if isinstance(accepted, str):
            return accepted
        ops = _stepped(seen, accepted.group, accepted.over)
        if accepted.replica is not seen.view.replicas.get(node):
            ops.append(_put(seen, replica_key(node), accepted.replica))
        if not ops:
            return accepted
        if accepted.group.lives != seen.view.group.lives:
            # The index row is written before the other rows, and removed after them.
            answer = yield from write(TURNS, INDEX, Upsert(key, {"at": seen.now}))
            if answer is LOST:
                return WriteConflict(answer)
        return (yield from write_for(accepted, TURNS, key, *ops))

    ended = yield from retry_steps(attempt, TRIES)
    return give_up(ended, TURN_OF_FLEET) if isinstance(ended, WriteConflict) else ended


def scan(key: str, draw: float, pending: Mapping[str, PendingImpact] = NO_PENDING) -> Steps[TurnStep | Literal["missing"] | None]:
    """Do what is due without a report. Returns the change, or None. 'missing': there is no such fleet."""
    seen = yield from look(key)
    fleet, _ = yield from read_fleet(key)
    if fleet is None:
        return "missing"
    if seen is None or seen.closed:
        return None
    stepped = rules.scan(seen.view, seen.now, read_turn_settings(fleet), draw, pending)
    ops = _stepped(seen, stepped.group, stepped.over)
    if not ops:
        return None
    answer = yield from write(TURNS, key, *ops)
    # Another write won, or the outcome is unknown: the next read shows it.
    return stepped if isinstance(answer, Applied) else None


def publish(
    key: str, epoch: int, publication: Publication, settings: TurnSettings
) -> Steps[Published | LatePublication | Literal["missing", "not-holder"]]:
    """Publish a finished checkpoint. Raises `OutcomeUnknown`, `Unavailable`."""

    def attempt() -> Steps[Published | LatePublication | Literal["missing", "not-holder"] | WriteConflict]:
        seen = yield from look(key)
        if seen is None or seen.closed:
            return "missing"
        past, past_etag = None, ""
        if 0 < epoch < seen.view.group.turn.epoch:
            row = yield from get(TURNS, key, ended_key(epoch))
            past, past_etag = (parse_turn(row.props), row.etag) if row is not None else (None, "")
        done = rules.publish(seen.view, epoch, past, publication, seen.now, settings)
        if isinstance(done, str):
            return done
        ops = _stepped(seen, done.group, None)
        if isinstance(done, Published) and done.latest is not None:
            ops.append(_put(seen, LATEST, done.latest))
        if isinstance(done, LatePublication) and done.past is not None:
            ops.append(Replace(ended_key(epoch), done.past.props(), past_etag))
        if not ops:
            return done
        return (yield from write_for(done, TURNS, key, *ops))

    ended = yield from retry_steps(attempt, TRIES)
    return give_up(ended, TURN_OF_FLEET) if isinstance(ended, WriteConflict) else ended


def revoke(key: str, epoch: int, note: str, author: str) -> Steps[Revoked | Literal["missing", "already-ended"]]:
    """Take a turn back. Raises `OutcomeUnknown`, `Unavailable`."""

    def attempt() -> Steps[Revoked | Literal["missing", "already-ended"] | WriteConflict]:
        seen = yield from look(key)
        if seen is None or seen.closed:
            return "missing"
        done = rules.revoke(seen.view, epoch, note, author, seen.now)
        if isinstance(done, str) or done.turn is None:
            return done
        return (yield from write_for(done, TURNS, key, _put(seen, TURN, replace(seen.view.group, turn=done.turn))))

    ended = yield from retry_steps(attempt, TRIES)
    return give_up(ended, TURN_OF_FLEET) if isinstance(ended, WriteConflict) else ended


def forget_claim(key: str) -> Steps[Group | None]:
    """Drop the highest claim to be primary. Returns the group before, or None when there was no claim.

    Raises `OutcomeUnknown`, `Unavailable`.
    """

    def attempt() -> Steps[Group | WriteConflict | None]:
        seen = yield from look(key)
        if seen is None or seen.closed:
            return None
        before = seen.view.group
        after = rules.forget_claim(before)
        if after is before:
            return None
        return (yield from write_for(before, TURNS, key, _put(seen, TURN, after)))

    ended = yield from retry_steps(attempt, TRIES)
    return give_up(ended, TURN_OF_FLEET) if isinstance(ended, WriteConflict) else ended


# -- ending and forgetting


def end(key: str) -> Steps[None]:
    """End the fleet's turns: revoke and keep the last turn, and remove all else. Raises `OutcomeUnknown`, `Unavailable`."""
    answer: object = None
    begun = False

    def attempt() -> Steps[WriteConflict | None]:
        nonlocal answer, begun
        seen = yield from look(key)
        if seen is None or (begun and not seen.closed and isinstance(answer, WriteRefused)):
            # Another process has ended it. These rows may belong to the next fleet of the name.
            return None
        group = seen.view.group
        if not seen.closed:
            turn = replace(group.turn, state="revoked", ended=seen.now, note="the fleet ended") if group.turn.open else group.turn
            group = replace(group, turn=turn)
            answer = yield from write(TURNS, key, Replace(TURN, {**group.props(), "closed": True}, seen.etags[TURN]))
            # Later reports find the turn's row closed.
            return WriteConflict(answer)
        begun = True
        yield from write(TURNS, GONE, Upsert(key, group.props()))
        while True:
            rows = yield from load(TURNS, key, "", TURN)
            if not rows:
                break
            for start in range(0, len(rows), _BATCH):
                yield from write(TURNS, key, *(Delete(row.rk, row.etag) for row in rows[start : start + _BATCH]))
        answer = yield from write(TURNS, key, Delete(TURN, seen.etags[TURN]))
        if isinstance(answer, Applied):
            row = yield from get(TURNS, INDEX, key)
            if row is not None:
                yield from write(TURNS, INDEX, Delete(key, row.etag))
            return None
        return WriteConflict(answer)

    ended = yield from retry_steps(attempt, TRIES)
    if ended is not None:
        give_up(ended, TURN_OF_FLEET)


def tidy(key: str) -> Steps[int]:
    """Remove old turns of a fleet, and replicas that have been silent for long. Returns the number of removed rows."""
    index = yield from get(TURNS, INDEX, key)
    seen = yield from look(key)
    if seen is None or seen.closed:
        return 0
    turn = seen.view.group.turn
    old = yield from load(TURNS, key, ended_key(max(0, turn.epoch - KEEP_TURNS - 1)), ENDED[1])
    gone = [
        each
        for each in seen.view.replicas.values()
        # A revoked turn may be waiting for a report of its holder.
        if seen.now - each.at >= KEEP_SILENT and (each.node != turn.holder or (not turn.open and is_free(turn, each, seen.now)))
    ]
    ops = [Delete(row.rk, row.etag) for row in old]
    ops += [Delete(replica_key(each.node), seen.etags[replica_key(each.node)]) for each in gone]
    for start in range(0, len(ops), _BATCH):
        yield from write(TURNS, key, *ops[start : start + _BATCH])
    if index is not None and len(gone) == len(seen.view.replicas):
        # On the earlier ETag: a replica that registered since has rewritten the row.
        yield from write(TURNS, INDEX, Delete(key, index.etag))
    return len(ops)


def read_fleet(key: str) -> Steps[tuple[Fleet | None, Millis]]:
    """Return the fleet, and the storage service's time."""
    row = yield from get(FLEETS, key, FLEET)
    return (parse_fleet(row.props), row.read_at) if row is not None else (None, 0)


def _fresh(key: str, now: Millis) -> Steps[StoredTurns]:
    """Return the initial turns of a fleet in which no replica has reported yet."""
    row = yield from get(TURNS, GONE, key)
    if row is None:
        return StoredTurns(FleetTurns(Group(), {}), {}, now, False)
    before = parse_group(row.props)
    # The holder of the former fleet's last turn may still be working. Numbers of lives must not repeat either.
    return StoredTurns(FleetTurns(Group(before.turn, lives=before.lives), {}), {}, max(now, row.read_at), False)


def _stepped(seen: StoredTurns, group: Group, over: TurnRow | None) -> list[Op]:
    ops: list[Op] = [] if group is seen.view.group else [_put(seen, TURN, group)]
    if over is not None:
        ops.append(Insert(ended_key(over.epoch), over.props()))
    return ops


def _put(seen: StoredTurns, key: str, value: Group | ReplicaRow | LatestCheckpoint) -> Op:
    etag = seen.etags.get(key)
    return Insert(key, value.props()) if etag is None else Replace(key, value.props(), etag)
