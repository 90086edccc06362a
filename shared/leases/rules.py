"""Decisions of safety: pure functions of what was stored, what was seen, and moments of the steady clock.

Production, the model checker and the simulations run these very functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis
from ..engine.moments import ReceivedAt, SentAt
from .profiles import Profile
from .rows import ActiveIntents, Expected, Fleet, Partition, Server

# -- the owner's side


class Claim(NamedTuple):
    """A partition found free: the epoch it would have, and the ETag of the row that says so ('' when there is no row to match yet).
    generation: the row's. released: when its owner gave it up, by that one's wall clock; 0 where it has an owner, or never had one."""

    partition: int
    epoch: int
    etag: str
    generation: int = 1
    released: Millis = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition one has: its epoch, its row's ETag as last written, and the generation that it was claimed under."""

    epoch: int
    etag: str
    generation: int = 1


@dataclass(frozen=True, slots=True)
class BeatAttempt:
    """A write of the own row whose fate is open: when it was first sent, and what rode along."""

    sent: SentAt
    claims: tuple[Claim, ...] = ()
    releases: tuple[int, ...] = ()


@dataclass(slots=True)
class ServerSession:
    """One incarnation of a server, as it knows itself.

    etag, beat: of the own row as last seen. valid: the SEND of the last beat known to be applied. open: tries whose answer was lost,
    by beat. won: claims that were, or may have been, applied and whose rows have not been read back. leaving: no longer served, release
    not confirmed. take, drop, tell, expect: the row's orders. generation: of the partition count that the server works by; heard:
    the newest one that its row has told of.
    """

    key: str
    server: str
    incarnation: str
    etag: str = ""
    beat: int = 0
    valid: SentAt | None = None
    open: dict[int, BeatAttempt] = field(default_factory=dict)
    held: dict[int, Holding] = field(default_factory=dict)
    won: dict[int, int] = field(default_factory=dict)
    leaving: dict[int, Holding] = field(default_factory=dict)
    take: tuple[int, ...] = ()
    drop: tuple[int, ...] = ()
    tell: str = ""
    expect: Expected = ()
    fenced: bool = False
    generation: int = 1
    heard: int = 1


def valid_until(session: ServerSession, profile: Profile) -> float:
    """Until when (steady seconds, exclusive) the session may act on what it holds."""
    if session.fenced or session.valid is None:
        return float("-inf")
    return session.valid.expires(profile.validity)


def later_send(before: SentAt | None, sent: SentAt) -> SentAt:
    """The later SEND of two applied beats."""
    return sent if before is None or sent.seconds > before.seconds else before


def record_applied(session: ServerSession, beat: int, etag: str, sent: SentAt) -> None:
    """The write `beat` is known to be applied, and `etag` is the own row's. What was tried before it can no longer arrive: its ETag is
    stale."""
    session.etag, session.beat = etag, max(session.beat, beat)
    session.valid = later_send(session.valid, sent)
    # Where two writes have got the same ETag an earlier one may have been applied all the same: the rows of its claims tell.
    session.won.update((claim.partition, claim.epoch) for number, tried in session.open.items() if number < beat for claim in tried.claims)
    session.open = {number: tried for number, tried in session.open.items() if number > beat}


type OwnRowStatus = Literal["mine", "told", "fenced"]


def read_back(session: ServerSession, server: Server | None, etag: str) -> OwnRowStatus:
    """What the own row says after a refusal or a lost answer.

    `mine`: it shows one's own write, at whose SEND validity begins, however late this is learnt. `told`: another wrote orders into it.
    `fenced`: this incarnation is over, for good.
    """
    if server is None or server.incarnation != session.incarnation or server.state == "dead":
        session.fenced = True
        return "fenced"
    mine = session.open.get(server.beat)
    session.take, session.drop, session.tell, session.expect = server.take, server.drop, server.tell, server.expect
    session.heard = max(session.heard, server.generation)
    if mine is None:
        session.etag = etag
        return "told"
    record_applied(session, server.beat, etag, mine.sent)
    session.won.update((claim.partition, claim.epoch) for claim in mine.claims)
    for partition in mine.releases:
        session.leaving.pop(partition, None)
    return "mine"


def outdated_holdings(session: ServerSession) -> list[int]:
    """What is held under another generation than the server works by: to be given up, lowest first."""
    return sorted(number for number, holding in session.held.items() if holding.generation != session.generation)


def released_row(session: ServerSession, partition: int, now: Millis) -> Partition:
    """The row of a partition in `leaving` once it is nobody's. Under a newer generation that the server knows of it is closed at once."""
    left = session.leaving[partition]
    return Partition(
        partition,
        epoch=left.epoch,
        since=now,
        generation=max(left.generation, session.generation),
        closed=left.generation < session.generation,
    )


# -- the observer's side


class Observation(NamedTuple):
    """A server's beat as it was first seen."""

    incarnation: str
    beat: int
    first: ReceivedAt


def observe(before: Observation | None, server: Server, at: ReceivedAt) -> Observation:
    """What is known after seeing the row once more. Only the server's own writes count: orders, which others write into the row of one
    that has ended, must not keep it alive; and ETags have repeated in emulators."""
    if before is not None and (before.incarnation, before.beat) == (server.incarnation, server.beat):
        return before
    return Observation(server.incarnation, server.beat, at)


def is_silent(sight: Observation, at: ReceivedAt, takeover: float) -> bool:
    """Whether the row, seen again unchanged at `at`, has been so for T."""
    return at.seconds >= sight.first.ripens(takeover)


STANDBY_LEAD: Final = 1.25
"""Beats before T at which a server's end is foreseen: by T its heirs have heard, with their next beats, what they are to claim."""
MIN_MISSED: Final = 2.25
"""Beats of silence before which nobody's end is: two beats have failed by then, or one, for a profile whose T is short."""


def standby_after(profile: Profile) -> float:
    """Seconds of silence after which others are told to expect a server's partitions; T for a profile that leaves no time to."""
    return min(profile.takeover, max(profile.takeover - STANDBY_LEAD * profile.beat, MIN_MISSED * profile.beat))


def has_ended(incarnation: str, server: Server | None) -> bool:
    """Whether `incarnation` can never act again, judged by its server's row read AFTER the row that names it as an owner.

    Rows of servers are removed only when dead, so a missing one says the same. A row with another incarnation says it too: an incarnation
    is replaced only once the one before was fenced or proven gone.
    """
    return server is None or server.state == "dead" or server.incarnation != incarnation


def is_claimable(partition: Partition, server: Server | None, session: ServerSession) -> bool:
    """Whether the partition may be claimed now. server: its owner's row, read after the partition's row.

    Only under the generation that the server works by: under another one the same number stands for other keys.
    """
    if partition.closed or partition.generation != session.generation:
        return False
    if not partition.owner:
        return True
    if partition.owner == session.server and partition.incarnation == session.incarnation:
        return False
    return has_ended(partition.incarnation, server)


def is_handed_over(claim: Claim, now: Millis, profile: Profile) -> bool:
    """Whether its owner has just given the partition up, by the two wall clocks: only how many claims go at once rests on it."""
    return bool(claim.released) and abs(now - claim.released) < 2000 * profile.beat


def may_replace(server: Server, proven: Collection[str]) -> bool:
    """Whether a server of the same name may replace this incarnation at once: it is dead, or proven to be gone."""
    return server.state == "dead" or server.incarnation in proven


# -- hand-off


@dataclass(frozen=True, slots=True)
class HandOff:
    """A partition on its way out: told to stop `since`, and gone by `until` in any case. Steady seconds. stopped: the callback returned."""

    since: float
    until: float
    stopped: bool = False


def releasable(hand_offs: Mapping[int, HandOff], now: float) -> list[int]:
    """The partitions to release: their user has stopped, or has had its time. Lowest first."""
    return sorted(number for number, hand_off in hand_offs.items() if hand_off.stopped or now >= hand_off.until)


# -- who looks, and what is left out under pressure


SCANNERS: Final = 2
"""Servers that look at all others every H. Two, so that the cost stays the same whatever the fleet's size: together with the fall-back,
three looks at each beat row per H at most."""
FALLBACK_SCANNERS: Final = 8
"""Servers beside the scanners up to which all of these together look once per H, and the most beats that they leave between two looks."""
OVERDUE_BEATS: Final = 1.3
"""Beats after which a row is so old, in the storage service's time, that who looks seldom keeps an eye on it."""


def scan_interval(server: str, live: Iterable[str], profile: Profile) -> float:
    """Seconds between a server's scans: H for the lowest-ranked live ones, and for the others so long that all of them together make one
    per H, or per several where there are very many: what they read would else be most of what a fleet costs."""
    ranked = sorted(live)
    if server not in ranked or ranked.index(server) < SCANNERS:
        return profile.beat
    others = len(ranked) - SCANNERS
    return profile.beat * others * min(max(1.0, others / FALLBACK_SCANNERS), FALLBACK_SCANNERS)


def suspects(
    server: str, looking: Collection[str], ages: Mapping[str, float], sights: Mapping[str, Observation], profile: Profile, now: float
) -> set[str]:
    """Whose rows a server reads once more when its sights of them are T old. looking: those who look at others. ages: seconds since each
    row was written, as storage counts them. sights: of those that are not dead, its own among them. now: steady seconds.

    All, for those that look every H: a row that lives shows another beat by then. The others look so seldom that all they saw is T old
    before they look again. They keep to rows that are overdue, and to those of the scanners, which nobody else may be watching.
    """
    others = sights.keys() - {server}
    if scan_interval(server, looking, profile) <= profile.beat:
        return others
    old = {
        name for name in others if ages.get(name, 0.0) > OVERDUE_BEATS * profile.beat or now >= sights[name].first.ripens(profile.takeover)
    }
    return old | (others & set(sorted(looking)[:SCANNERS]))


type ScanDuty = Literal["scan", "balance", "claim"]


def duties_to_skip(failures: int) -> frozenset[ScanDuty]:
    """What to leave out after so many failed requests in a row: scans first, then balancing, then claims; never beats."""
    order: tuple[ScanDuty, ...] = ("scan", "balance", "claim")
    return frozenset(order[: max(0, min(failures, len(order)))])


# -- servers that speak HTTP: the app writes their rows for them

MAX_HELD: Final = 1000
"""Partitions that a server which speaks HTTP can have: all of them with their epochs are one property of its row."""


def is_fenced(incarnation: str, server: Server | None) -> bool:
    """Whether nothing is taken from `incarnation` over HTTP any more, nor ever will be."""
    return server is None or has_ended(incarnation, server) or server.scans or server.evicted


def pending_releases(server: Server) -> tuple[int, ...]:
    """What a server that speaks HTTP has been told to release and has not, lowest first: all that it has once the partition count
    changes."""
    drop = {number for number, _ in server.held} if server.generation > server.works else set(server.drop)
    return tuple(sorted(number for number, _ in server.held if number in drop))


def eviction_timeout(fleet: Fleet) -> float:
    """Seconds that a server which speaks HTTP has to release something of what it owes: a hand-off's time, and a take-over's."""
    return fleet.limits.drain + fleet.profile.takeover


def is_waited_for(server: Server, intents: ActiveIntents) -> bool:
    """Whether a change of the partition count, or what operators want, waits for what the server owes. A move that only balances does
    not: to evict for it would leave more unserved than it mends."""
    if server.generation > server.works:
        return bool(server.held)
    owes = set(pending_releases(server))
    return any(
        number in owes and (placement_refusal(number, server, intents) or (number, epoch) in intents.bumps) for number, epoch in server.held
    )


type HeartbeatVerdict = Literal["register", "renew", "again", "stale", "fenced", "in-use"]


def judge_heartbeat(server: Server | None, incarnation: str, seq: int, silent: bool) -> HeartbeatVerdict:
    """What a beat `seq` of `incarnation` means for the row that is there. silent: the row has been unchanged for T and more.

    `again`: it is applied already, and the row is the answer. `stale`: a later one is. Whatever comes late, or twice, renews nothing.
    """
    if server is not None and server.incarnation == incarnation:
        # Of a server that looks for itself nobody else can speak: what it has is in its memory alone.
        if is_fenced(incarnation, server):
            return "fenced"
        if seq == server.beat:
            return "again"
        return "renew" if seq > server.beat else "stale"
    if seq > 1:
        return "fenced"
    return "register" if server is None or server.state == "dead" or silent else "in-use"


type Refusal = Literal["owned", "offline", "prohibited", "limit", "maintenance", "resizing"]


def placement_refusal(number: int, server: Server, intents: ActiveIntents) -> Refusal | None:
    """Why operators, or maintenance, do not want the server to have the partition; None if they do not mind."""
    if number in intents.offline:
        return "offline"
    if server.name in intents.struck:
        return "maintenance"
    pinned = next((name for pin, name in intents.pins if pin == number), server.name)
    leaves = server.state == "draining" or server.tell or server.name in intents.drained
    return "prohibited" if leaves or pinned != server.name or (number, server.name) in intents.prohibited else None


def claim_refusal(partition: Partition | None, owner: Server | None, server: Server, intents: ActiveIntents, room: int) -> Refusal | None:
    """Why `server` may not claim the partition, None if it may. owner: the row of the partition's owner, read after the partition's.
    room: how many more it may have."""
    if partition is None:
        return "offline"
    if reason := placement_refusal(partition.number, server, intents):
        return reason
    if partition.closed or partition.generation != server.works:
        return "resizing"
    if not is_claimable(partition, owner, ServerSession("", server.name, server.incarnation, generation=server.works)):
        return "owned"
    return "limit" if room <= 0 else None
