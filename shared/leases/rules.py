"""Decisions of safety: pure functions of what was stored, what was seen, and moments of the steady clock.

Production, the model checker and the simulations run these very functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from .rows import Partition, Server
from .stamps import Profile, ReceivedAt, SentAt

# -- the owner's side


class Claim(NamedTuple):
    """A partition found free: the epoch it would have, and the ETag of the row that says so ('' when there is no row to match yet)."""

    partition: int
    epoch: int
    etag: str


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition one has: its epoch, and its row's ETag as last written."""

    epoch: int
    etag: str


@dataclass(frozen=True, slots=True)
class Try:
    """A write of the own row whose fate is open: when it was first sent, and what rode along."""

    sent: SentAt
    claims: tuple[Claim, ...] = ()
    releases: tuple[int, ...] = ()


@dataclass(slots=True)
class Session:
    """One incarnation of a server, as it knows itself.

    etag, beat: of the own row as last seen. valid: the SEND of the last beat known to be applied. open: tries whose answer was lost,
    by beat. won: claims that turned out applied but whose rows have not been read back. leaving: no longer served, release not confirmed.
    """

    key: str
    server: str
    incarnation: str
    etag: str = ""
    beat: int = 0
    valid: SentAt | None = None
    open: dict[int, Try] = field(default_factory=dict)
    held: dict[int, Holding] = field(default_factory=dict)
    won: dict[int, int] = field(default_factory=dict)
    leaving: dict[int, Holding] = field(default_factory=dict)
    take: tuple[int, ...] = ()
    drop: tuple[int, ...] = ()
    fenced: bool = False


def expires(session: Session, profile: Profile) -> float:
    """Until when (steady seconds, exclusive) the session may act on what it holds."""
    if session.fenced or session.valid is None:
        return float("-inf")
    return session.valid.expires(profile.validity)


def renewed(before: SentAt | None, sent: SentAt) -> SentAt:
    """The later SEND of two applied beats."""
    return sent if before is None or sent.seconds > before.seconds else before


def applied(session: Session, beat: int, etag: str, sent: SentAt) -> None:
    """The write `beat` is known to be applied, and `etag` is the own row's. What was tried before it can no longer arrive: its ETag is
    stale."""
    session.etag, session.beat = etag, max(session.beat, beat)
    session.valid = renewed(session.valid, sent)
    session.open = {number: tried for number, tried in session.open.items() if number > beat}


type Standing = Literal["mine", "told", "fenced"]


def read_back(session: Session, server: Server | None, etag: str) -> Standing:
    """What the own row says after a refusal or a lost answer.

    `mine`: it shows one's own write, at whose SEND validity begins, however late this is learnt. `told`: another wrote orders into it.
    `fenced`: this incarnation is over, for good.
    """
    if server is None or server.incarnation != session.incarnation or server.state == "dead":
        session.fenced = True
        return "fenced"
    mine = session.open.get(server.beat)
    session.take, session.drop = server.take, server.drop
    if mine is None:
        session.etag = etag
        return "told"
    applied(session, server.beat, etag, mine.sent)
    session.won.update((claim.partition, claim.epoch) for claim in mine.claims)
    for partition in mine.releases:
        session.leaving.pop(partition, None)
    return "mine"


# -- the observer's side


class Sight(NamedTuple):
    """A server's row as it was first seen unchanged."""

    etag: str
    incarnation: str
    beat: int
    first: ReceivedAt


def look(before: Sight | None, server: Server, etag: str, at: ReceivedAt) -> Sight:
    """What is known after seeing the row once more. ETag and beat both count: ETags have repeated in emulators."""
    if before is not None and before.etag == etag and before.incarnation == server.incarnation and before.beat == server.beat:
        return before
    return Sight(etag, server.incarnation, server.beat, at)


def silent(sight: Sight, at: ReceivedAt, takeover: float) -> bool:
    """Whether the row, seen again unchanged at `at`, has been so for T."""
    return at.seconds >= sight.first.ripens(takeover)


def ended(incarnation: str, server: Server | None) -> bool:
    """Whether `incarnation` can never act again, judged by its server's row read AFTER the row that names it as an owner.

    Rows of servers are removed only when dead, so a missing one says the same. A row with another incarnation says it too: an incarnation
    is replaced only once the one before was fenced or proven gone.
    """
    return server is None or server.state == "dead" or server.incarnation != incarnation


def claimable(partition: Partition, server: Server | None, session: Session) -> bool:
    """Whether the partition may be claimed now. server: its owner's row, read after the partition's row."""
    if not partition.owner:
        return True
    if partition.owner == session.server and partition.incarnation == session.incarnation:
        return False
    return ended(partition.incarnation, server)


def resumes(server: Server, proven: Collection[str]) -> bool:
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
three looks at each beat row per H."""


def scan_every(server: str, live: Iterable[str], profile: Profile) -> float:
    """Seconds between a server's scans: H for the lowest-ranked live ones, and for the others so long that all of them together make one
    per H."""
    ranked = sorted(live)
    if server not in ranked or ranked.index(server) < SCANNERS:
        return profile.beat
    return profile.beat * (len(ranked) - SCANNERS)


type Duty = Literal["scan", "balance", "claim"]


def shed(failures: int) -> frozenset[Duty]:
    """What to leave out after so many failed requests in a row: scans first, then balancing, then claims; never beats."""
    order: tuple[Duty, ...] = ("scan", "balance", "claim")
    return frozenset(order[: max(0, min(failures, len(order)))])
