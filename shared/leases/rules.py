"""Decide what is safe: pure functions of stored rows, observations, and moments of the steady clock.

Production, the model checker and the simulations run these functions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis
from ..engine.validity import ReceivedAt, SentAt, outlasting
from .profiles import Profile
from .rows import ActiveIntents, Expected, Fleet, Partition, Server

# -- decisions of an owner


class Claim(NamedTuple):
    """A claimable partition. epoch: the one after the claim. etag: of the partition's row, '' if there is none. generation: of the row.
    released: when its owner released it, by that owner's wall clock; 0 if it has an owner or never had one. own: an ended incarnation of
    the same server has it."""

    partition: int
    epoch: int
    etag: str
    generation: int = 1
    released: Millis = 0
    own: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """An owned partition. etag: of its row as last written. generation: the one that it was claimed under."""

    epoch: int
    etag: str
    generation: int = 1


@dataclass(frozen=True, slots=True)
class BeatAttempt:
    """A write of the server's own row with an unknown outcome. sent: its SEND. claims, releases: the rest of its transaction."""

    sent: SentAt
    claims: tuple[Claim, ...] = ()
    releases: tuple[int, ...] = ()


@dataclass(slots=True)
class ServerSession:
    """One incarnation of a server, as the server knows it.

    etag, beat: of the own row as last seen. valid: SEND of the last heartbeat that was certainly applied. open: attempts with lost answers,
    by beat. won: claims that were or may have been applied, and whose rows have not been read back. leaving: partitions that are no longer
    served and not yet released. take, drop, tell, expect: orders in the row. generation: the one that the server works by. heard: the
    newest generation in its row. confirmed: the highest beat that was certainly applied. written: the newest time of the own row that was
    read, by the storage service's clock. rolled_back: the storage service has lost acknowledged writes. resumed: it
    replaced an incarnation that no other server had fenced, so its partitions still name this server. replaced: the incarnation that it
    replaced; '' if there was none. loads: of partitions, from the row that it replaced.
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
    confirmed: int = 0
    written: Millis = 0
    rolled_back: bool = False
    resumed: bool = False
    replaced: str = ""
    loads: str = ""

    @property
    def epochs(self) -> dict[int, int]:
        """The epochs of all partitions that name this incarnation, as far as the server knows."""
        mine = {number: holding.epoch for number, holding in (*self.held.items(), *self.leaving.items())}
        return {**self.won, **mine}


def valid_until(session: ServerSession, profile: Profile) -> float:
    """Return until when (steady seconds, exclusive) the session may act on its partitions."""
    if session.fenced or session.valid is None:
        return float("-inf")
    return session.valid.expires(profile.validity)


def later_send(before: SentAt | None, sent: SentAt) -> SentAt:
    """Return the later SEND of two applied heartbeats."""
    return sent if before is None or sent.seconds > before.seconds else before


def record_applied(session: ServerSession, beat: int, etag: str, sent: SentAt) -> None:
    """Record that the write `beat` was applied and that the own row has `etag`. Earlier attempts can no longer be applied: their ETag is
    stale."""
    session.etag, session.beat, session.confirmed = etag, max(session.beat, beat), max(session.confirmed, beat)
    session.valid = later_send(session.valid, sent)
    # If two writes got the same ETag, an earlier one may have been applied: the rows of its claims show it.
    session.won.update((claim.partition, claim.epoch) for number, tried in session.open.items() if number < beat for claim in tried.claims)
    session.open = {number: tried for number, tried in session.open.items() if number > beat}


type OwnRowStatus = Literal["mine", "told", "fenced"]


CLOCK_STEP: Final = 1000
"""Milliseconds by which clocks of the storage service may differ. An own row that is older than it was by more has been rolled back."""


def went_backwards(session: ServerSession, server: Server, written: Millis) -> bool:
    """Return True if the own row shows that the storage service has lost writes which it had acknowledged.

    Only the server's own writes change the beat, and nothing lowers it or the time of the row. written: the row's time.
    """
    return server.beat < session.confirmed or 0 < written < session.written - CLOCK_STEP


def quarantine_end(noticed: float, profile: Profile) -> float:
    """Return until when (steady seconds) a server that has noticed a rollback at `noticed` claims nothing.

    Servers that have not noticed it may act until the end of their validity on partitions that the stored rows no longer give them.
    """
    return noticed + outlasting(profile.validity)


ROW_KEPT: Final = 3600.0
"""Seconds for which the row of a server exists after its last heartbeat, at least: the watch removes dead ones after a day."""


def lacks_registration(session: ServerSession, server: Server | None, sent: SentAt | None) -> bool:
    """Return True if the own row shows that the storage service has lost the registration of this incarnation.

    The row is missing, too soon for the removal of a dead server's row; or it shows the incarnation that this one replaced.
    """
    if server is not None:
        return server.incarnation == session.replaced
    return session.valid is not None and sent is not None and sent.seconds < session.valid.expires(ROW_KEPT)


def read_back(session: ServerSession, server: Server | None, etag: str, written: Millis = 0, sent: SentAt | None = None) -> OwnRowStatus:
    """Return the status of the own row after a refusal or a lost answer, and update the session. written: the row's time. sent: SEND of the
    heartbeat.

    `mine`: the row shows the session's own write, and validity begins at its SEND, however late this is known. `told`: another server wrote
    orders. `fenced`: this incarnation has ended for good, because another server fenced it or the row went backwards.
    """
    if server is None or server.incarnation != session.incarnation:
        session.fenced, session.rolled_back = True, lacks_registration(session, server, sent)
        return "fenced"
    if went_backwards(session, server, written):
        session.fenced = session.rolled_back = True
        return "fenced"
    if server.state == "dead":
        session.fenced = True
        return "fenced"
    session.written = max(session.written, written)
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
    """Return the partitions that are held under another generation than the server works by and must be given up, lowest first."""
    return sorted(number for number, holding in session.held.items() if holding.generation != session.generation)


def released_row(session: ServerSession, partition: int, now: Millis) -> Partition:
    """Return the released row of a partition in `leaving`. If the server works by a newer generation, the row is closed at once."""
    left = session.leaving[partition]
    return Partition(
        partition,
        epoch=left.epoch,
        since=now,
        generation=max(left.generation, session.generation),
        closed=left.generation < session.generation,
    )


# -- decisions of an observer


class ServerObservation(NamedTuple):
    """A server's heartbeat, and when it was first seen."""

    incarnation: str
    beat: int
    first: ReceivedAt


def observe(before: ServerObservation | None, server: Server, at: ReceivedAt) -> ServerObservation:
    """Return the observation after reading the row again. Only the server's own writes count: orders that other servers write into the row
    of a server that has ended must not keep it alive, and ETags have repeated in emulators."""
    if before is not None and (before.incarnation, before.beat) == (server.incarnation, server.beat):
        return before
    return ServerObservation(server.incarnation, server.beat, at)


def is_silent(sight: ServerObservation, at: ReceivedAt, takeover: float) -> bool:
    """Return True if the row, read again unchanged at `at`, has been unchanged for T."""
    return at.seconds >= sight.first.ripens(takeover)


STANDBY_LEAD: Final = 1.25
"""Heartbeat intervals before T at which standby assignments are given: the standby servers read them by T, with their next heartbeats."""
MIN_MISSED: Final = 2.25
"""Heartbeat intervals of silence before which no server is expected to end. Two heartbeats have failed by then; one if T is short."""


def standby_after(profile: Profile) -> float:
    """Return the seconds of silence after which standby assignments are given; T for a profile that leaves no time for them."""
    return min(profile.takeover, max(profile.takeover - STANDBY_LEAD * profile.beat, MIN_MISSED * profile.beat))


def has_ended(incarnation: str, server: Server | None) -> bool:
    """Return True if `incarnation` can never act again. server: its server's row, read AFTER the row that names it as an owner.

    Only rows of dead servers are removed, so a missing row proves the end. A row with another incarnation proves it too: an incarnation is
    replaced only after it was fenced or has proven its end.
    """
    return server is None or server.state == "dead" or server.incarnation != incarnation


def is_claimable(partition: Partition, server: Server | None, session: ServerSession) -> bool:
    """Return True if the partition may be claimed now. server: its owner's row, read after the partition's row.

    The server must work by the partition's generation: under another one the same number stands for other keys.
    """
    if partition.closed or partition.generation != session.generation:
        return False
    if not partition.owner:
        return True
    if partition.owner == session.server and partition.incarnation == session.incarnation:
        return False
    return has_ended(partition.incarnation, server)


def is_handed_over(claim: Claim, now: Millis, profile: Profile) -> bool:
    """Return True if the owner has just released the partition, by two wall clocks, or was this server itself. This only affects how many
    claims are sent at once."""
    return claim.own or (bool(claim.released) and abs(now - claim.released) < 2000 * profile.beat)


def may_replace(server: Server, proven: Collection[str]) -> bool:
    """Return True if a server of the same name may replace this incarnation at once: it is dead, or has certainly ended."""
    return server.state == "dead" or server.kept or server.incarnation in proven


# -- hand-off


@dataclass(frozen=True, slots=True)
class HandOff:
    """A hand-off, which began at `since` and ends at `until` in any case; steady seconds. stopped: the callback has returned."""

    since: float
    until: float
    stopped: bool = False


def releasable(hand_offs: Mapping[int, HandOff], now: float) -> list[int]:
    """Return the partitions to release, lowest first: the application has stopped using them, or its time is up."""
    return sorted(number for number, hand_off in hand_offs.items() if hand_off.stopped or now >= hand_off.until)


# -- servers that speak HTTP: the app writes their rows for them

MAX_HELD: Final = 1000
"""Partitions that a server which speaks HTTP can own: their numbers and epochs are one property of its row."""


def is_fenced(incarnation: str, server: Server | None) -> bool:
    """Return True if requests of `incarnation` over HTTP are refused now and forever."""
    return server is None or has_ended(incarnation, server) or server.scans or server.kept or server.http.evicted


def pending_releases(server: Server) -> tuple[int, ...]:
    """Return the partitions that a server which speaks HTTP was ordered to release and still has, lowest first. In a resize these are all
    its partitions."""
    drop = {number for number, _ in server.http.held} if server.generation > server.http.mapped_generation else set(server.drop)
    return tuple(sorted(number for number, _ in server.http.held if number in drop))


def eviction_timeout(fleet: Fleet) -> float:
    """Return the seconds in which a server that speaks HTTP must release a pending partition: a hand-off and a takeover."""
    return fleet.limits.drain + fleet.profile.takeover


def is_waited_for(server: Server, intents: ActiveIntents) -> bool:
    """Return True if a resize or a manual control waits for the server's pending releases. A move that only balances does not count: an
    eviction for it would leave more partitions unserved than it improves."""
    if server.generation > server.http.mapped_generation:
        return bool(server.http.held)
    owes = set(pending_releases(server))
    return any(
        number in owes and (placement_refusal(number, server, intents) or (number, epoch) in intents.bumps)
        for number, epoch in server.http.held
    )


type HeartbeatVerdict = Literal["register", "renew", "again", "stale", "fenced", "in-use"]


def judge_heartbeat(server: Server | None, incarnation: str, seq: int, silent: bool, keep: bool = False) -> HeartbeatVerdict:
    """Decide a heartbeat `seq` of `incarnation` by the stored row. silent: the row has been unchanged for at least T. keep: the incarnation
    ends with this heartbeat, and its partitions stay its server's.

    `again`: the heartbeat was applied before, and the row is the answer. `stale`: a later one was applied, or this number was applied as
    another heartbeat. A late or repeated heartbeat renews nothing.
    """
    if server is not None and server.incarnation == incarnation:
        if keep and seq == server.beat and not server.scans and server.state != "dead":
            return "again" if server.kept else "stale"
        # Only a server with the library knows its partitions: no other process can send heartbeats for it.
        if is_fenced(incarnation, server):
            return "fenced"
        if seq == server.beat:
            return "again"
        return "renew" if seq > server.beat else "stale"
    if seq > 1:
        return "fenced"
    # A kept incarnation has said itself that it has ended.
    return "register" if server is None or server.state == "dead" or server.kept or silent else "in-use"


type Refusal = Literal["owned", "offline", "prohibited", "limit", "maintenance", "resizing"]


def placement_refusal(number: int, server: Server, intents: ActiveIntents) -> Refusal | None:
    """Return why operators or maintenance keep the server from owning the partition; None if they do not."""
    if number in intents.offline:
        return "offline"
    if server.name in intents.struck:
        return "maintenance"
    pinned = next((name for pin, name in intents.pins if pin == number), server.name)
    leaves = server.state == "draining" or server.tell or server.name in intents.drained
    return "prohibited" if leaves or pinned != server.name or (number, server.name) in intents.prohibited else None


def claim_refusal(partition: Partition | None, owner: Server | None, server: Server, intents: ActiveIntents, room: int) -> Refusal | None:
    """Return why `server` may not claim the partition; None if it may. owner: the row of the partition's owner, read after the partition's.
    room: how many more partitions it may own."""
    if partition is None:
        return "offline"
    if reason := placement_refusal(partition.number, server, intents):
        return reason
    if partition.closed or partition.generation != server.http.mapped_generation:
        return "resizing"
    if not is_claimable(partition, owner, ServerSession("", server.name, server.incarnation, generation=server.http.mapped_generation)):
        return "owned"
    return "limit" if room <= 0 else None
