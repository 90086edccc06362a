"""What is wrong with a fleet, and since when: pure functions of one look at it, and of what was known before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from ...core.clock import Millis
from ...leases.planner import PartitionPlan
from ...leases.profiles import Profile
from ...leases.rows import Intent, Intents, Partition, Server
from ...leases.rules import ended
from ...leases.service.snapshot import FleetSnapshot, FleetSummary, Versioned
from ...leases.service.takeover_rules import READ_PARTITIONS_EVERY, TICK, may_fence

FORGOTTEN: Final = 24 * 3600.0
"""Seconds after which a control that never expires counts as forgotten."""
KEEP_DEAD: Final = 24 * 3600.0
"""Seconds for which the row of a dead server is kept."""

LATE_BEATS: Final = 2.5
"""Beats after which a server is late; one lost beat does not make it so."""

type Kind = Literal["silent", "unserved", "missing", "servers", "forgotten", "late", "turns", "unreadable"]
KINDS: Final[tuple[Kind, ...]] = ("silent", "unserved", "missing", "servers", "forgotten", "late", "turns", "unreadable")



def patience(kind: Kind) -> float:
    """Seconds that a finding must last before it is an alarm: what mends itself meanwhile nobody needs to know."""
    match kind:
        case "silent" | "unserved" | "forgotten" | "turns" | "unreadable":
            # Ages tell by themselves how long these have lasted; and no row mends itself.
            return 0.0
        case "missing" | "servers" | "late":
            return 60.0


def allowed_outage(profile: Profile) -> float:
    """Seconds that a partition may be without a server: a take-over by the app has happened by then, and a hand-off long before."""
    return profile.takeover + 2 * TICK


class UnservedPartition(NamedTuple):
    """A partition that nobody serves though somebody should. owner: who had it last. age: seconds for which that has been so, by what the
    rows tell; 0.0 for a row that is missing."""

    partition: int
    reason: Literal["owner silent", "owner gone", "unowned", "missing"]
    owner: str
    age: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What one look found.

    unserved: partitions without a server, stale: those of them that have been so for longer than allowed, and missing rows.
    silent: servers that should have been fenced by now. late: living servers whose last beats are late, when these are half of all: one
    is its own trouble, half of them are storage's. live: servers that count, needed: how many there should be. forgotten: words of
    operators that have stood for long and never expire.
    """

    unserved: tuple[UnservedPartition, ...] = ()
    stale: tuple[UnservedPartition, ...] = ()
    silent: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    live: int = 0
    needed: int = 0
    forgotten: tuple[Intent, ...] = ()
    oldest: float = 0.0
    """Seconds since the last beat of the living server that has been quiet for longest."""
    turns: tuple[str, ...] = ()
    """What is wrong with the fleet's checkpoint turns."""
    used: bool = True
    """A server has been here. A fleet that is there for turns or maintenance alone misses none."""
    unreadable: tuple[str, ...] = ()
    """Keys of rows that cannot be read."""

    def subjects(self) -> dict[Kind, tuple[str, ...]]:
        """What each kind is about; kinds that nothing was found of are left out."""
        found: dict[Kind, tuple[str, ...]] = {
            "silent": self.silent,
            "unserved": tuple(str(each.partition) for each in self.stale if each.reason != "missing") if self.used else (),
            "missing": tuple(str(each.partition) for each in self.stale if each.reason == "missing"),
            "servers": (f"{self.live} of {self.needed}",) if self.used and self.live < self.needed else (),
            "forgotten": tuple(intent.key for intent in self.forgotten),
            "late": self.late,
            "turns": self.turns,
            "unreadable": self.unreadable,
        }
        return {kind: subjects for kind, subjects in found.items() if subjects}


def usable_servers(servers: Iterable[Server], intents: Intents) -> list[str]:
    """Servers that count as being there: drained and prohibited ones are up, but of no use."""
    return [server.name for server in servers if server.state == "live" and server.name not in intents.drained]


def is_forgotten(word: Intent, now: Millis) -> bool:
    """Whether a word has stood for a day and never expires."""
    return not word.expires and now - word.created >= FORGOTTEN * 1000


def findings_of_summary(seen: FleetSummary, now: Millis) -> Findings:
    """What can be found without the partition rows."""
    fleet, profile, intents = seen.fleet, seen.fleet.profile, seen.in_force(now)
    ages = {server.name: seen.servers[server.name].age for server in seen.living}
    late = tuple(name for name, age in ages.items() if age >= LATE_BEATS * profile.beat + 1 and not may_fence(profile, age))
    return Findings(
        silent=tuple(name for name, age in ages.items() if may_fence(profile, age - 2 * TICK)),
        late=late if len(late) >= max(2, len(ages) / 2) else (),
        live=len(usable_servers(seen.living, intents)),
        needed=fleet.minimum + fleet.spare,
        forgotten=tuple(word for word in seen.intents if is_forgotten(word, now) and word.key not in seen.unreadable),
        oldest=max(ages.values(), default=0.0),
        used=bool(seen.servers),
        unreadable=seen.unreadable,
    )


def findings_of_snapshot(seen: FleetSnapshot, plan: PartitionPlan, now: Millis) -> Findings:
    """What a whole look shows. plan: of the same look; what it cannot place, for want of servers or room, is stale too.

    Partitions that are offline, or have no server that may have them, are as operators want them; of those that cannot be read nobody
    knows.
    """
    glance = seen.summary
    intents, profile = glance.in_force(now), glance.fleet.profile
    # Only since an operator's word ended should somebody serve it. Its end is a write of the fleet's row, at once or soon.
    over = {intent.partition: (now - intent.expires) / 1000 for intent in glance.intents if intent.expires and intent.expires <= now}
    found: list[UnservedPartition] = []
    kept = seen.kept
    for number in range(glance.fleet.partitions):
        if number in kept:
            continue
        row = seen.partitions.get(number)
        if row is None:
            found.append(UnservedPartition(number, "missing", "", 0.0))
            continue
        if number in intents.offline or plan.unplaced.get(number) == "prohibited":
            continue
        owner = glance.servers.get(row.value.owner)
        if not row.value.owner:
            found.append(UnservedPartition(number, "unowned", "", min(row.age, glance.age, over.get(number, row.age))))
        elif ended(row.value.incarnation, owner.value if owner is not None else None):
            found.append(UnservedPartition(number, "owner gone", row.value.owner, min(row.age, _gone_for(row.value, owner, profile))))
        elif owner is not None and may_fence(profile, owner.age):
            found.append(UnservedPartition(number, "owner silent", row.value.owner, owner.age))
    stale = tuple(each for each in found if each.reason == "missing" or each.age >= allowed_outage(profile))
    # Rows of servers go a day after their end; the epochs stay.
    used = bool(glance.servers) or any(each.value.epoch for each in seen.partitions.values())
    return replace(findings_of_summary(glance, now), unserved=tuple(found), stale=stale, used=used)


def _gone_for(partition: Partition, owner: Versioned[Server] | None, profile: Profile) -> float:
    """Seconds, at most, for which the partition's owner has been gone."""
    if owner is None:
        return float("inf")
    if owner.value.incarnation == partition.incarnation:
        return owner.age
    # It is back as another: about so long ago, by its beats.
    return owner.value.beat * profile.beat + owner.age



def removable_servers(seen: FleetSnapshot) -> list[str]:
    """Servers that have been dead for long, and whose incarnation no partition names."""
    named = {each.value.incarnation for each in seen.partitions.values()}
    return [
        name
        for name, each in sorted(seen.summary.servers.items())
        if each.value.state == "dead" and each.age >= KEEP_DEAD and each.value.incarnation not in named
    ]



# -- alarms


MOST_SUBJECTS: Final = 20
"""Subjects that an alarm names; it tells how many there are."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that has lasted for too long. since: when it was first found, count: of its subjects then. cleared: when it was over, 0
    while it lasts. told: the tenant's channel has been told all there is to tell."""

    kind: Kind
    since: Millis
    subjects: tuple[str, ...]
    count: int
    cleared: Millis = 0
    told: bool = False


@dataclass(frozen=True, slots=True)
class WatchState:
    """What is remembered of a fleet between inspections.

    seen: its fingerprint at the last whole look, at wall time `looked`. first: when findings that are no alarms yet were first made.
    unserved, stale: partitions without a server at the last whole look, and those of them that were so for too long: none where no server
    has ever been.
    """

    seen: str = ""
    looked: Millis = 0
    first: Mapping[Kind, Millis] = field(default_factory=dict)
    alarms: Mapping[Kind, Alarm] = field(default_factory=dict)
    unserved: int = 0
    stale: int = 0

    def whole_look(self, seen: str, now: Millis) -> bool:
        """Whether the partition rows are to be read: something changed, was not in order, or was not looked at for long."""
        return seen != self.seen or self.unserved > 0 or not 0 <= now - self.looked < READ_PARTITIONS_EVERY


PARTITION_KINDS: Final[frozenset[Kind]] = frozenset({"unserved", "missing", "unreadable"})
"""What only a whole look can find."""


def next_state(before: WatchState, found: Findings, now: Millis, whole: str | None) -> WatchState:
    """What is to be remembered after an inspection. whole: the fingerprint of a whole look; None when partitions were not read, and what
    was known of them stays.

    A finding of which nothing was known starts to count; one that has lasted long enough becomes an alarm, once; an alarm of which nothing
    is found any more is cleared, and stays until that has been told.
    """
    subjects = found.subjects()
    first: dict[Kind, Millis] = {}
    alarms: dict[Kind, Alarm] = {}
    for kind in KINDS:
        known = before.alarms.get(kind)
        if whole is None and kind in PARTITION_KINDS:
            if kind in before.first:
                first[kind] = before.first[kind]
            if known is not None:
                alarms[kind] = known
            continue
        if known is not None and known.cleared:
            # Only one at a time is told of; what comes back meanwhile waits its turn.
            if not known.told:
                alarms[kind] = known
            if kind in subjects:
                first[kind] = before.first.get(kind, now)
            continue
        if kind not in subjects:
            if known is not None:
                alarms[kind] = replace(known, cleared=now, told=False)
            continue
        if known is not None:
            alarms[kind] = known
            continue
        since = before.first.get(kind, now)
        if now - since >= patience(kind) * 1000:
            alarms[kind] = Alarm(kind, since, subjects[kind][:MOST_SUBJECTS], len(subjects[kind]))
        else:
            first[kind] = since
    if whole is None:
        return replace(before, first=first, alarms=alarms)
    stale = len(subjects.get("unserved", ())) + len(subjects.get("missing", ()))
    return WatchState(whole, now, first, alarms, len(found.unserved), stale)


def alarm_changes(before: WatchState, after: WatchState) -> tuple[list[Alarm], list[Alarm]]:
    """The alarms that have begun, and those that are over, since `before`."""
    begun = [alarm for kind, alarm in after.alarms.items() if not alarm.cleared and _since(before, kind) != alarm.since]
    over = [alarm for kind, alarm in after.alarms.items() if alarm.cleared and not before.alarms[kind].cleared]
    return begun, over


def _since(before: WatchState, kind: Kind) -> Millis | None:
    known = before.alarms.get(kind)
    return known.since if known is not None else None
