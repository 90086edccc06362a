"""Broken lease protocols. Each leaves out one rule of the protocol; the checker must find the two owners it leads to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from shared.engine.effects import LOST, RECEIVING, SENDING, Get, Write
from shared.engine.validity import SentAt
from shared.leases import rules
from shared.leases.profiles import Profile
from shared.leases.protocol import membership, takeover
from shared.leases.rows import Server, parse_partition, parse_server, partition_key, server_key
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Applied, Merge, Upsert
from tests.model.checking.checker import Report, explore
from tests.model.checking.mutants import Mutant, Patch, relay

from . import rollback
from .plays import PLAYS
from .world import Play, World


def hunt(mutant: Mutant, limit: int = 1_000_000) -> Report:
    """Explore the mutant's play with the hole in it."""
    if mutant.play in rollback.PLAYS:
        with mutant.applied():
            return explore(rollback.RollbackWorld(rollback.PLAYS[mutant.play](0)), limit=limit)
    with mutant.applied():
        return explore(World(mutant.change(PLAYS[mutant.play](0))), limit=limit)


def claim_without_fencing() -> list[Patch]:
    """Silence is noted elsewhere, and claims rest on the note."""
    plain_scout = takeover.scout

    def fence(key: str, server: str, sights: Any, takeover_after: float) -> Any:
        row = yield Get(FLEETS, key, server_key(server))
        at = yield RECEIVING
        if row is None:
            return "gone"
        found = parse_server(row)
        sight = sights[server] = rules.observe(sights.get(server), found, at)
        if not rules.is_silent(sight, at, takeover_after):
            return "lives"
        yield Write(FLEETS, key, (Upsert("x:silent", {"incarnation": found.incarnation}),))
        return "fenced"

    def scout(session: Any, partitions: Any, *living: Any) -> Any:
        note = yield Get(FLEETS, session.key, "x:silent")
        if note is None:
            return (yield from plain_scout(session, partitions))
        row = yield Get(FLEETS, session.key, partition_key(0))
        found = parse_partition(row)
        gone = found.incarnation in ("", note.props["incarnation"])
        return [rules.Claim(0, found.epoch + 1, row.etag)] if gone else []

    return [(takeover, "fence", fence), (takeover, "scout", scout)]


def deadline_from_ack() -> list[Patch]:
    plain = membership.beat

    def beat(session: Any, *options: Any) -> Any:
        inner = plain(session, *options)
        next(inner)
        answer = yield inner.send(SentAt(0))
        acknowledged = yield SENDING
        if isinstance(answer, Applied):
            try:
                inner.send(answer)
            except StopIteration as stop:
                session.valid = acknowledged
                return stop.value
        return (yield from relay(inner, answer=answer))

    return [(membership, "beat", beat)]


def age_from_request() -> list[Patch]:
    plain = takeover.fence

    def fence(key: str, server: str, sights: Any, takeover_after: float) -> Any:
        asked = yield RECEIVING
        inner = plain(key, server, sights, takeover_after)
        answer = yield next(inner)
        inner.send(answer)
        return (yield from relay(inner, answer=asked))

    return [(takeover, "fence", fence)]


def without_incarnation() -> list[Patch]:
    plain = rules.read_back

    def read_back(session: Any, server: Server | None, *row: Any) -> Any:
        same = dataclasses.replace(server, incarnation=session.incarnation) if server is not None else None
        return plain(session, same, *row)

    # The look for lost writes would notice another incarnation by its lower beat.
    return [(rules, "read_back", read_back), *rollback_not_noticed()]


def resume_without_proof() -> list[Patch]:
    return [(rules, "may_replace", lambda server, proven: True)]


def _beats(change: Callable[[Write], Write], answered: Callable[[Write, Any], Any]) -> list[Patch]:
    plain = membership.beat

    def beat(session: Any, *options: Any) -> Any:
        inner = plain(session, *options)
        sent = yield next(inner)
        effect = inner.send(sent)
        answer = yield change(effect)
        return (yield from relay(inner, answer=answered(effect, answer)))

    return [(membership, "beat", beat)]


def unconditional_beat() -> list[Patch]:
    def change(effect: Write) -> Write:
        touch = effect.ops[0]
        assert isinstance(touch, Merge)
        return effect._replace(ops=(touch._replace(etag=ANY), *effect.ops[1:]))

    return _beats(change, lambda effect, answer: answer)


def lost_claim_granted() -> list[Patch]:
    return _beats(lambda effect: effect, lambda effect, answer: Applied(["?"] * len(effect.ops)) if answer is LOST else answer)


def deadline_of_the_last_send() -> list[Patch]:
    """An own write read back is dated by the try that was refused, not by the one that was applied."""
    plain = rules.read_back
    plain_beat = membership.beat

    def read_back(session: Any, server: Server | None, *row: Any) -> Any:
        if session.latest is not None and server is not None and server.beat in session.open:
            tried = session.open[server.beat]
            session.open[server.beat] = dataclasses.replace(tried, sent=session.latest)
        return plain(session, server, *row)

    @dataclasses.dataclass(slots=True)
    class Session(rules.ServerSession):
        latest: SentAt | None = None

    def beat(session: Any, *options: Any) -> Any:
        inner = plain_beat(session, *options)
        session.latest = yield next(inner)
        return (yield from relay(inner, answer=session.latest))

    from . import world

    return [(rules, "read_back", read_back), (membership, "beat", beat), (world, "ServerSession", Session)]


def owner_read_first() -> list[Patch]:
    def scout(session: Any, partitions: Any, *living: Any) -> Any:
        owner = yield Get(FLEETS, session.key, server_key("a"))
        row = yield Get(FLEETS, session.key, partition_key(0))
        found = parse_partition(row)
        free = rules.is_claimable(found, parse_server(owner) if owner is not None else None, session)
        return [rules.Claim(0, found.epoch + 1, row.etag)] if free else []

    return [(takeover, "scout", scout)]


def rollback_not_noticed() -> list[Patch]:
    return [(rules, "went_backwards", lambda session, server, written: False)]


def lost_registration_not_noticed() -> list[Patch]:
    return [(rules, "lacks_registration", lambda session, server, sent: False)]


def claims_right_after_a_rollback() -> list[Patch]:
    return [(rules, "quarantine_end", lambda noticed, profile: noticed)]


def keeps_while_it_serves() -> list[Patch]:
    def leave(session: Any, *, keep: bool = False) -> Any:
        yield Write(FLEETS, session.key, (Merge(server_key(session.server), {"kept": True, "beat": session.beat + 1}, session.etag),))
        session.held, session.valid = {}, None
        return "left"

    return [(membership, "leave", leave)]


def _longer_validity(play: Play) -> Play:
    return dataclasses.replace(play, profile=Profile(0, 3, 2))


MUTANTS = [
    Mutant("claim without fencing first", "take over", claim_without_fencing),
    Mutant("validity from the answer instead of the send", "take over", deadline_from_ack),
    Mutant("age from the request instead of the receipt", "take over", age_from_request),
    Mutant("ownership without incarnation", "namesake", without_incarnation),
    Mutant("V above T", "take over", list, _longer_validity),
    Mutant("resume without proof", "namesake", resume_without_proof),
    Mutant("a beat without its ETag", "take over", unconditional_beat),
    Mutant("a lost claim taken for granted", "race", lost_claim_granted),
    Mutant("validity from the last send though an earlier write was stored", "slow beats", deadline_of_the_last_send),
    Mutant("the owner's row read before the partition's", "returns", owner_read_first),
    Mutant("partitions kept before the server has stopped", "keep", keeps_while_it_serves),
    Mutant("an own row that went backwards is taken as it is", "rollback", rollback_not_noticed),
    Mutant("claims right after a rollback", "noticed rollback", claims_right_after_a_rollback),
    Mutant("the loss of a registration is not noticed", "lost registration", lost_registration_not_noticed),
]
