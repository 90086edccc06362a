"""The alarms of leases: one table with the threshold, sentence, urgency, log action and notification kind of each.

To change the text of an alarm or the time after which it is raised, edit `ALARMS`. `rules.py` decides when an alarm is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from ...core.clock import Millis, to_text
from ...leases.fleet_alarms import AlarmDefinition, NotificationKind, Reason
from ...leases.profiles import Profile
from ...leases.timings import TAKEOVER_PERIOD

type Kind = Literal[
    "silent",
    "unserved",
    "missing",
    "servers",
    "forgotten",
    "late",
    "turns",
    "unreadable",
    "unlisted",
    "orders",
    "destination",
    "throttled",
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind.__value__)

MAX_SUBJECTS: Final = 20
"""Subjects that an alarm names. Its count includes the others."""
TEXT_SUBJECTS: Final = 5
"""Subjects that the text of an alarm names."""

FORGOTTEN_AFTER: Final = 24 * 3600.0
"""Seconds after which a manual control without an expiry counts as forgotten."""
LATE_BEATS: Final = 2.5
"""Heartbeat intervals after which a server is late. One lost heartbeat does not make it late."""
LASTING: Final = 60.0
"""Seconds that a finding must last if the fleet often repairs it by itself."""


def allowed_outage(profile: Profile) -> float:
    """Return the seconds for which a partition may have no owner. The app has taken over by then, and a hand-off is much shorter."""
    return profile.takeover + 2 * TAKEOVER_PERIOD


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAlarm(AlarmDefinition):
    """One kind of alarm of leases.

    lasts: seconds that a finding must last before the alarm is raised. notification: the kind in the fleet's `notify.kinds` that selects
    the alarm. many: sentence for several subjects. cleared: sentence for the end of the alarm. command: shows more. means, remedy: what
    `tocsin leases doctor` says.
    """

    action: str
    notification: NotificationKind
    lasts: float
    many: str
    cleared: str
    command: str
    means: str
    remedy: str


ALARMS: Final[Mapping[Kind, LeaseAlarm]] = {
    # `lasts` is 0 where the finding itself needs an age, or where the fleet cannot repair it.
    "silent": LeaseAlarm(
        action="lease_servers_silent",
        notification="stale",
        lasts=0.0,
        sentence="1 server is silent and not fenced since {since}: {subjects}.",
        many="{count} servers are silent and not fenced since {since}: {subjects}.",
        cleared="All silent servers are fenced, or send heartbeats again.",
        command="tocsin leases nodes {fleet}",
        reason=Reason("urgent", "silent server", "silent servers"),
        means="Servers send no heartbeats and have not been fenced.",
        remedy="Run tocsin status: it shows whether lease_scan, the job that fences silent servers, is late.",
    ),
    "unserved": LeaseAlarm(
        action="lease_partitions_unserved",
        notification="stale",
        lasts=0.0,
        sentence="1 partition has had no owner since {since}: {subjects}.",
        many="{count} partitions have had no owner since {since}: {subjects}.",
        cleared="The partitions have owners again.",
        command="tocsin leases stale {fleet}",
        reason=Reason("urgent", "partition without an owner", "partitions without an owner"),
        means="Partitions have had no owner for longer than a takeover takes.",
        remedy="Run tocsin leases plan {fleet}",
    ),
    "missing": LeaseAlarm(
        action="lease_rows_missing",
        notification="stale",
        lasts=LASTING,
        sentence="The row of 1 partition has been missing since {since}: {subjects}.",
        many="The rows of {count} partitions have been missing since {since}: {subjects}.",
        cleared="All partitions have their rows again.",
        command="tocsin leases stale {fleet}",
        reason=Reason("urgent", "partition without its row", "partitions without their rows"),
        means="Rows of partitions were deleted.",
        remedy="Run tocsin leases stale {fleet}",
    ),
    "servers": LeaseAlarm(
        action="lease_servers_few",
        notification="dead",
        lasts=LASTING,
        sentence="Only {subjects} servers (minimum + spare) have been available since {since}.",
        many="Only {subjects} servers (minimum + spare) have been available since {since}.",
        cleared="Enough servers (minimum + spare) are available again.",
        command="tocsin leases nodes {fleet}",
        reason=Reason("urgent", "too few servers"),
        means="Fewer servers are live than the fleet wants.",
        remedy="Run tocsin leases nodes {fleet}",
    ),
    "forgotten": LeaseAlarm(
        action="lease_control_forgotten",
        notification="stale",
        lasts=0.0,
        sentence="1 manual control is older than a day and has no expiry: {subjects}.",
        many="{count} manual controls are older than a day and have no expiry: {subjects}.",
        cleared="No manual control is older than a day without an expiry.",
        command="tocsin leases intents {fleet}",
        reason=Reason("later", "forgotten manual control", "forgotten manual controls"),
        means="A manual control is older than a day and has no expiry.",
        remedy="Run tocsin leases intents {fleet}",
    ),
    "late": LeaseAlarm(
        action="lease_beats_late",
        notification="stale",
        lasts=LASTING,
        sentence="The heartbeats of 1 server have been late since {since}: {subjects}. Storage may be throttled.",
        many="The heartbeats of {count} servers, at least half of the fleet, have been late since {since}: {subjects}. "
        "Storage may be throttled.",
        cleared="Heartbeats arrive in time again.",
        command="tocsin leases nodes {fleet}",
        reason=Reason("later", "server with late heartbeats", "servers with late heartbeats"),
        means="Half of all heartbeats are late: storage is slow or throttles.",
        remedy="Run tocsin leases nodes {fleet} --watch 2",
    ),
    "turns": LeaseAlarm(
        action="lease_turns_stuck",
        notification="stale",
        lasts=0.0,
        sentence="Checkpoint turns have been stuck since {since}: {subjects}.",
        many="Checkpoint turns have been stuck since {since}: {subjects}.",
        cleared="Checkpoint turns make progress again.",
        command="tocsin turns list {fleet}",
        reason=Reason("soon", "checkpoint turns are stuck"),
        means="Checkpoint turns time out, or no replica can take one.",
        remedy="Run tocsin turns list {fleet} and tocsin leases nodes {fleet}",
    ),
    "unreadable": LeaseAlarm(
        action="lease_rows_unreadable",
        notification="stale",
        lasts=0.0,
        sentence="1 row has been unreadable since {since}, and its subject stays as it is: {subjects}. Repair it in the table.",
        many="{count} rows have been unreadable since {since}, and their subjects stay as they are: {subjects}. Repair them in the table.",
        cleared="All rows can be read again.",
        command="tocsin leases doctor {fleet}",
        reason=Reason("urgent", "unreadable row", "unreadable rows"),
        means="Rows were edited and cannot be read. What they describe stays as it is.",
        remedy="Correct the rows in the table.",
    ),
    "unlisted": LeaseAlarm(
        action="lease_partitions_unlisted",
        notification="stale",
        lasts=LASTING,
        sentence="Since {since} the row of 1 partition and the list of its server do not agree: {subjects}. "
        "Restart the servers that they name.",
        many="Since {since} the rows of {count} partitions and the lists of their servers do not agree: {subjects}. "
        "Restart the servers that they name.",
        cleared="The rows of all partitions and the lists of their servers agree again.",
        command="tocsin leases doctor {fleet}",
        reason=Reason("soon", "partition that its server does not list", "partitions that their servers do not list"),
        means="Rows of partitions and lists of servers do not agree, for example after storage has lost writes.",
        remedy="Run tocsin leases show {fleet}, and restart the servers that have these partitions",
    ),
    "orders": LeaseAlarm(
        action="lease_orders_unanswered",
        notification="stale",
        lasts=0.0,
        sentence="1 server that speaks HTTP has not followed its orders since {since} or longer: {subjects}.",
        many="{count} servers that speak HTTP have not followed their orders since {since} or longer: {subjects}.",
        cleared="All servers that speak HTTP follow their orders again.",
        command="tocsin leases nodes {fleet}",
        reason=Reason("soon", "server that does not follow its orders", "servers that do not follow their orders"),
        means="Servers that speak HTTP do not claim or release what they are ordered to.",
        remedy="Run tocsin leases nodes {fleet}",
    ),
    "destination": LeaseAlarm(
        action="lease_destinations_lost",
        notification="stale",
        lasts=LASTING,
        sentence="Since {since} the destination of 1 drain cannot take partitions, and they go to other servers: {subjects}.",
        many="Since {since} the destinations of {count} drains cannot take partitions, and they go to other servers: {subjects}.",
        cleared="The destinations of all drains can take partitions again, or the drains have ended.",
        command="tocsin leases intents {fleet}",
        reason=Reason("later", "drain whose destination is lost", "drains whose destinations are lost"),
        means="Servers are drained to a server that can take no partitions.",
        remedy="Run tocsin leases intents {fleet}",
    ),
    "throttled": LeaseAlarm(
        action="lease_storage_refuses",
        notification="stale",
        lasts=LASTING,
        sentence="Storage has refused or not answered many requests since {since}: {subjects}. "
        "Scans and plans are rarer, heartbeats are not.",
        many="Storage has refused or not answered many requests since {since}: {subjects}. Scans and plans are rarer, heartbeats are not.",
        cleared="Storage accepts requests again.",
        command="tocsin leases nodes {fleet}",
        reason=Reason("soon", "storage refuses or does not answer many requests"),
        means="Storage refuses or does not answer many requests of servers.",
        remedy="Find out what else uses the storage account",
    ),
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm of one fleet. Times are wall times.

    since: when the finding was first made. subjects: the first `MAX_SUBJECTS` of them. count: number of subjects when the alarm was raised.
    cleared: when the alarm ended; 0 while it lasts. notified: the tenant's channel has received the current state.
    """

    kind: Kind
    since: Millis
    subjects: tuple[str, ...]
    count: int
    cleared: Millis = 0
    notified: bool = False


def alarm_text(fleet: str, alarm: Alarm) -> str:
    """Return the sentence of an alarm: what is affected, since when, how many, and the command that shows more."""
    definition = ALARMS[alarm.kind]
    if alarm.cleared:
        return f"{definition.cleared} The alarm lasted from {to_text(alarm.since)} to {to_text(alarm.cleared)}."
    subjects = ", ".join(alarm.subjects[:TEXT_SUBJECTS]) + (" ..." if alarm.count > TEXT_SUBJECTS else "")
    sentence = (definition.sentence if alarm.count == 1 else definition.many).format(
        count=alarm.count, since=to_text(alarm.since), subjects=subjects
    )
    return f"{sentence} `{definition.command.format(fleet=fleet)}` shows more."
