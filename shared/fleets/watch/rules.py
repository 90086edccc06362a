"""The rules of a fleet's watch: find faults of a fleet, and raise and clear alarms about those that last.

Pure functions of one read of the fleet's rows and of the watch's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from ...core.clock import Millis
from ...leases.planner import PartitionPlan
from ...leases.profiles import Profile
from ...leases.rows import ActiveIntents, Intent, Partition, Server
from ...leases.rules import has_ended
from ...leases.service.snapshot import FleetSnapshot, FleetSummary, Versioned
from ...leases.service.takeover_rules import may_fence
from ...leases.timings import READ_DESERTED_EVERY, READ_PARTITIONS_EVERY, TAKEOVER_PERIOD
from . import orders
from .alarms import ALARMS, FORGOTTEN_AFTER, KINDS, LATE_BEATS, MAX_SUBJECTS, Alarm, Kind, allowed_outage

KEEP_DEAD: Final = 24 * 3600.0
"""Seconds for which the row of a dead server is kept."""


class UnservedPartition(NamedTuple):
    """A partition that has no owner and should have one.

    owner: the last owner. age: seconds without an owner, by the rows' times; 0.0 for a missing row.
    """

    partition: int
    reason: Literal["owner silent", "owner gone", "unowned", "missing"]
    owner: str
    age: float


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of one inspection.

    unserved: partitions without an owner. stale: those of them that exceed `allowed_outage`, and missing rows. silent: servers that should
    have been fenced by now. late: live servers with late heartbeats, if these are half of all servers: one late server has a problem of its
    own, many late servers mean that storage has one. live: usable servers. needed: minimum + spare. forgotten: old manual controls without
    an expiry.
    """

    unserved: tuple[UnservedPartition, ...] = ()
    stale: tuple[UnservedPartition, ...] = ()
    silent: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    live: int = 0
    needed: int = 0
    forgotten: tuple[Intent, ...] = ()
    oldest: float = 0.0
    """Seconds since the oldest last heartbeat of a live server."""
    turns: tuple[str, ...] = ()
    """Reasons why the fleet's checkpoint turns are stuck."""
    used: bool = True
    """A server has registered at least once. A fleet for turns or maintenance alone needs no servers."""
    unreadable: tuple[str, ...] = ()
    """Keys of rows that cannot be read."""
    unlisted: tuple[int, ...] = ()
    """Partitions that name a living owner which does not list them, or that a living server lists and that do not name it."""
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Orders that servers which speak HTTP have not followed, by server."""
    order_wait: float = float("inf")
    """Seconds in which an order must be followed."""
    lost_destinations: tuple[str, ...] = ()
    """Drains whose destination can take no partitions, as `s1 to s2`."""
    throttled: tuple[str, ...] = ()
    """The share of servers, or the app, whose requests storage refuses often: `7 of 8 servers (34 %)` or `the app (34 %)`. One subject."""

    def subjects(self) -> dict[Kind, tuple[str, ...]]:
        """Return the subjects of each kind of alarm. Kinds without a finding are left out."""
        found: dict[Kind, tuple[str, ...]] = {
            "silent": self.silent,
            "unserved": tuple(str(each.partition) for each in self.stale if each.reason != "missing") if self.used else (),
            "missing": tuple(str(each.partition) for each in self.stale if each.reason == "missing"),
            "servers": (f"{self.live} of {self.needed}",) if self.used and self.live < self.needed else (),
            "forgotten": tuple(intent.key for intent in self.forgotten),
            # Late heartbeats follow from refused requests: one alarm is enough.
            "late": () if self.throttled else self.late,
            "turns": self.turns,
            "unreadable": self.unreadable,
            "unlisted": tuple(map(str, self.unlisted)),
            "destination": self.lost_destinations,
            "throttled": self.throttled,
        }
        return {kind: subjects for kind, subjects in found.items() if subjects}


def usable_servers(servers: Iterable[Server], intents: ActiveIntents) -> list[str]:
    """Return the names of servers that may get partitions. Drained and prohibited servers are up, but may not."""
    return [server.name for server in servers if server.state == "live" and server.name not in intents.drained]


def lost_destinations(summary: FleetSummary, now: Millis) -> tuple[str, ...]:
    """Return the drains of living servers whose destination is gone or may own nothing, as `s1 to s2`."""
    intents, living = summary.in_force(now), {server.name for server in summary.living}
    usable = set(usable_servers(summary.living, intents))
    return tuple(f"{source} to {to}" for source, to in intents.destinations if source in living and to not in usable)


def throttled_servers(servers: Iterable[Server]) -> tuple[str, ...]:
    """Return the number of servers that report many refused requests, if they are half of those with the library.

    One server among many that is refused has a problem of its own, with its rights or its network.
    """
    judges = [server for server in servers if server.scans]
    shares = [server.refused for server in judges if server.refused]
    return (f"{len(shares)} of {len(judges)} servers ({max(shares)} %)",) if shares and 2 * len(shares) >= len(judges) else ()


def is_forgotten(intent: Intent, now: Millis) -> bool:
    """Return True if a manual control is older than `FORGOTTEN_AFTER` and has no expiry."""
    return not intent.expires and now - intent.created >= FORGOTTEN_AFTER * 1000


def findings_of_summary(summary: FleetSummary, now: Millis) -> Findings:
    """Return the findings that need no partition rows."""
    fleet, profile, intents = summary.fleet, summary.fleet.profile, summary.in_force(now)
    ages = {server.name: summary.servers[server.name].age for server in summary.living}
    late = tuple(name for name, age in ages.items() if age >= LATE_BEATS * profile.beat + 1 and not may_fence(profile, age))
    return Findings(
        silent=tuple(name for name, age in ages.items() if may_fence(profile, age - 2 * TAKEOVER_PERIOD)),
        late=late if len(late) >= max(2, len(ages) / 2) else (),
        live=len(usable_servers(summary.living, intents)),
        needed=fleet.minimum + fleet.spare,
        forgotten=tuple(intent for intent in summary.intents if is_forgotten(intent, now) and intent.key not in summary.unreadable),
        oldest=max(ages.values(), default=0.0),
        used=bool(summary.servers),
        unreadable=summary.unreadable,
        lost_destinations=lost_destinations(summary, now),
        throttled=throttled_servers(summary.living),
    )


def findings_of_snapshot(snapshot: FleetSnapshot, plan: PartitionPlan, now: Millis) -> Findings:
    """Return all findings. plan: the plan for the same snapshot; partitions that it cannot place for lack of servers or room are stale.

    Partitions that are offline, or that no server may have, are as operators want them. The state of partitions with unreadable rows is
    unknown, so they are left out.
    """
    summary = snapshot.summary
    intents, profile = summary.in_force(now), summary.fleet.profile
    # The outage of a partition counts from the expiry of its manual control. The row of the fleet is written at about that time.
    expired = {intent.partition: (now - intent.expires) / 1000 for intent in summary.intents if intent.expires and intent.expires <= now}
    found: list[UnservedPartition] = []
    kept = snapshot.kept
    for number in range(summary.fleet.partitions):
        if number in kept:
            continue
        row = snapshot.partitions.get(number)
        if row is None:
            found.append(UnservedPartition(number, "missing", "", 0.0))
            continue
        if number in intents.offline or plan.unplaced.get(number) == "prohibited":
            continue
        owner = summary.servers.get(row.value.owner)
        if not row.value.owner:
            found.append(UnservedPartition(number, "unowned", "", min(row.age, summary.age, expired.get(number, row.age))))
        elif has_ended(row.value.incarnation, owner.value if owner is not None else None):
            found.append(UnservedPartition(number, "owner gone", row.value.owner, min(row.age, _gone_for(row.value, owner, profile))))
        elif owner is not None and may_fence(profile, owner.age):
            found.append(UnservedPartition(number, "owner silent", row.value.owner, owner.age))
    stale = tuple(each for each in found if each.reason == "missing" or each.age >= allowed_outage(profile))
    # A dead server's row is removed after a day; the epochs stay.
    used = bool(summary.servers) or any(each.value.epoch for each in snapshot.partitions.values())
    return replace(
        findings_of_summary(summary, now),
        unserved=tuple(found),
        stale=stale,
        used=used,
        unlisted=_unlisted(snapshot),
        orders=orders.open_orders(snapshot),
        order_wait=orders.allowed_wait(profile),
    )


def _unlisted(snapshot: FleetSnapshot) -> tuple[int, ...]:
    """Return the partitions whose rows and servers' lists do not agree. One transaction writes both, so they differ only if the storage
    service has lost writes, or rows were edited."""
    lists = {server.name: (server.incarnation, server.listed) for server in snapshot.summary.living}
    found: set[int] = set()
    for number, row in snapshot.partitions.items():
        incarnation, listed = lists.get(row.value.owner, ("", None))
        if incarnation == row.value.incarnation and listed is not None and number not in listed:
            found.add(number)
    for name, (incarnation, listed) in lists.items():
        for number in listed or ():
            named = snapshot.partitions.get(number)
            if named is not None and (named.value.owner, named.value.incarnation) != (name, incarnation):
                found.add(number)
    return tuple(sorted(found - snapshot.kept))


def _gone_for(partition: Partition, owner: Versioned[Server] | None, profile: Profile) -> float:
    """Return an upper bound of the seconds since the partition's owner ended."""
    if owner is None:
        return float("inf")
    if owner.value.incarnation == partition.incarnation:
        return owner.age
    # The server has registered again as another incarnation: its heartbeats since then give the time.
    return owner.value.beat * profile.beat + owner.age


def removable_servers(snapshot: FleetSnapshot) -> list[str]:
    """Return servers that have been dead for `KEEP_DEAD` and whose incarnation no partition names."""
    named = {each.value.incarnation for each in snapshot.partitions.values()}
    return [
        name
        for name, each in sorted(snapshot.summary.servers.items())
        if each.value.state == "dead" and each.age >= KEEP_DEAD and each.value.incarnation not in named
    ]


# -- alarms


@dataclass(frozen=True, slots=True)
class WatchState:
    """The state of a fleet's watch between inspections.

    fingerprint: the fleet's fingerprint when its partitions were last read, at wall time `read_at`. pending: times of the first findings
    that are no alarms yet. orders: watched orders, by server. unserved: number of partitions without an owner at `read_at`. stale: number
    of those that exceeded `allowed_outage`; 0 if the fleet never had a server.
    """

    fingerprint: str = ""
    read_at: Millis = 0
    pending: Mapping[Kind, Millis] = field(default_factory=dict)
    alarms: Mapping[Kind, Alarm] = field(default_factory=dict)
    unserved: int = 0
    stale: int = 0
    orders: Mapping[str, orders.WatchedOrder] = field(default_factory=dict)

    def must_read_partitions(self, fingerprint: str, now: Millis, *, deserted: bool = False) -> bool:
        """Return True if the fleet has changed, was not in order, or was last read some minutes ago (a deserted one: some hours)."""
        in_order = not ((self.unserved and not deserted) or self.orders or self.pending.keys() & PARTITION_KINDS)
        every = READ_DESERTED_EVERY if deserted else READ_PARTITIONS_EVERY
        return fingerprint != self.fingerprint or not in_order or not 0 <= now - self.read_at < every

    def is_deserted(self, summary: FleetSummary) -> bool:
        """Return True if no server lives, and the fleet never had one or its partitions without an owner are reported already."""
        return not summary.living and ("unserved" in self.alarms or not summary.servers)

    @property
    def is_settled(self) -> bool:
        """Return True if the next inspection of an idle fleet would find and report what this state says."""
        quiet = all(alarm.notified and not alarm.cleared and kind in LASTING_KINDS for kind, alarm in self.alarms.items())
        return bool(self.fingerprint) and quiet and not self.pending and not self.orders


PARTITION_KINDS: Final[frozenset[Kind]] = frozenset({"unserved", "missing", "unreadable", "unlisted", "orders"})
"""Kinds that need the partition rows."""
LASTING_KINDS: Final[frozenset[Kind]] = frozenset({"unserved", "servers", "turns"})
"""Kinds that last as long as a fleet is idle, or whose end is known without a visit."""


def next_state(before: WatchState, found: Findings, now: Millis, fingerprint: str | None) -> WatchState:
    """Return the state after an inspection. fingerprint: None if the partitions were not read; then their part of the state stays.

    A new finding becomes pending. A pending finding that has lasted long enough becomes an alarm, once. An alarm without a finding is
    cleared, and stays until its end has been notified.
    """
    subjects = found.subjects()
    watched = orders.watch_orders(before.orders, found.orders, now)
    if late := orders.unanswered(watched, found.order_wait, now):
        subjects["orders"] = late
    pending: dict[Kind, Millis] = {}
    alarms: dict[Kind, Alarm] = {}
    for kind in KINDS:
        known = before.alarms.get(kind)
        if fingerprint is None and kind in PARTITION_KINDS:
            if kind in before.pending:
                pending[kind] = before.pending[kind]
            if known is not None:
                alarms[kind] = known
            continue
        if known is not None and known.cleared:
            # Only one alarm of a kind is notified at a time: a finding that returns meanwhile stays pending.
            if not known.notified:
                alarms[kind] = known
            if kind in subjects:
                pending[kind] = before.pending.get(kind, now)
            continue
        if kind not in subjects:
            if known is not None:
                alarms[kind] = replace(known, cleared=now, notified=False)
            continue
        if known is not None:
            alarms[kind] = known
            continue
        since = before.pending.get(kind, now)
        if now - since >= ALARMS[kind].lasts * 1000:
            alarms[kind] = Alarm(kind, since, subjects[kind][:MAX_SUBJECTS], len(subjects[kind]))
        else:
            pending[kind] = since
    if fingerprint is None:
        return replace(before, pending=pending, alarms=alarms)
    stale = len(subjects.get("unserved", ())) + len(subjects.get("missing", ()))
    return WatchState(fingerprint, now, pending, alarms, len(found.unserved), stale, watched)


def alarm_changes(before: WatchState, after: WatchState) -> tuple[list[Alarm], list[Alarm]]:
    """Return the alarms that were raised and those that were cleared since `before`."""
    raised = [alarm for kind, alarm in after.alarms.items() if not alarm.cleared and _since(before, kind) != alarm.since]
    cleared = [alarm for kind, alarm in after.alarms.items() if alarm.cleared and not before.alarms[kind].cleared]
    return raised, cleared


def _since(before: WatchState, kind: Kind) -> Millis | None:
    known = before.alarms.get(kind)
    return known.since if known is not None else None
