"""The fields of channels, tenants and fleets, as arguments. In `set`, None resets a field to its default; in `put`, it is left out.

A duration is a timedelta, or a text such as `PT15S`, so that a definition that was read can be stored again. The reference of each field is
docs/reference/openapi.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal, TypedDict

type Duration = timedelta | str
type Scope = Literal["events", "fleets", "agent", "read", "metrics", "admin"]


class RateLimits(TypedDict, total=False):
    """Limits of a channel's receiver, over all instances."""

    deliveries_per_second: float | None
    concurrency: int | None
    """Deliveries in flight."""


class OrderingKeyLimits(TypedDict, total=False):
    """Limits of the events with one ordering key."""

    concurrency: int
    deliveries_per_second: float
    ordered: bool
    """True: one at a time, in the order of due times."""
    failed_blocks: bool
    """If ordered: while an event waits for a retry, the events after it wait too."""


class LongWorkFields(TypedDict, total=False):
    """Lets a receiver answer 202 and complete the event later."""

    within: Duration | None
    at_most: Duration | None


class ChannelFields(TypedDict, total=False):
    """The definition of a channel: `type`, the fields of this type, and the limits of all types."""

    type: Literal["http", "fleet", "queue", "eventgrid", "kafka", "servicebus"]
    url: str
    """http: the address that gets the deliveries."""
    headers: Mapping[str, str | None] | None
    """http and fleet. Answers mask their values; `***` keeps the stored value."""
    timeout: Duration | None
    """http and fleet: longest time for an answer."""
    answers: Literal["failed", "all", "none"] | None
    """http and fleet: the attempts whose answers are kept."""
    answer_headers: bool | None
    final_statuses: Sequence[int] | None
    """http and fleet: statuses that are not retried."""
    client_certificate: str | None
    long_work: LongWorkFields | None
    entra_audience: str | None
    fleet: str
    """fleet: the fleet whose servers get the deliveries; each server gets those of its partitions."""
    path: str | None
    """fleet: the path at each server."""
    queue: str
    """queue: name of the storage queue."""
    account: str | None
    """queue: name of another storage account."""
    endpoint: str
    """eventgrid: the address of the topic."""
    servers: str
    """kafka: brokers as `host:port`, separated by commas."""
    topic: str
    key: str | None
    """kafka: JSON Pointer to the record's key in the payload. servicebus: the key of `key_name`."""
    tls: bool | None
    username: str | None
    password: str | None
    namespace: str
    """servicebus: host of the namespace."""
    entity: str
    """servicebus: name of the queue or topic."""
    subject: str | None
    sessions: bool | None
    time_to_live: Duration | None
    key_name: str | None
    limits: RateLimits | None
    per_key: OrderingKeyLimits | None
    """Replaced as a whole."""


class RetryFields(TypedDict, total=False):
    """The retries of a tenant's failed deliveries: `schedule`, or `attempts`, `first` and `max`."""

    attempts: int
    first: Duration
    max: Duration
    within: Duration
    schedule: Sequence[Duration]


class TenantLimits(TypedDict, total=False):
    """The limits of a tenant. None: those of the product."""

    events_per_second: float | None
    open_events: int | None
    schedules: int | None
    partitions: int | None
    fleets: int | None
    agents: int | None
    servers: int | None
    locks: int | None
    payload_bytes: int | None
    deliveries_per_second: float | None
    concurrency: int | None


class NoticeFields(TypedDict, total=False):
    """The kinds of notices that a tenant gets, and the channel that gets them."""

    channel: str
    kinds: Sequence[str]


class EntraAudienceFields(TypedDict):
    """An audience for which a tenant's channels may get tokens, and the hosts that may get them."""

    audience: str
    hosts: Sequence[str]


class TenantFields(TypedDict, total=False):
    """The settings of a tenant."""

    durability: Literal["fast", "standard", "mirrored"] | None
    retry: RetryFields | None
    """Replaced as a whole."""
    expires: Duration | None
    """`expires` of new events that leave it out."""
    limits: TenantLimits | None
    searchable: Sequence[str] | None
    """Names of labels by which events are found quickly."""
    notices: NoticeFields | None
    entra_audiences: Sequence[EntraAudienceFields] | None


class FleetProfile(TypedDict):
    """The heartbeat interval of servers, the validity of a heartbeat, and the silence after which another server takes over."""

    beat: Duration
    validity: Duration
    takeover: Duration


class MoveLimits(TypedDict, total=False):
    """Limits of the moves of partitions."""

    max_per_server: int | None
    claims_per_cycle: int | None
    moves_per_minute: int | None
    drain: Duration | None


class ServerCount(TypedDict, total=False):
    """The number of servers that a fleet should have."""

    minimum: int | None
    spare: int | None


class TurnTimeoutFields(TypedDict, total=False):
    """Timeout of a checkpoint turn: of the first one, and its bounds."""

    initial: Duration | None
    min: Duration | None
    max: Duration | None


class CheckpointFields(TypedDict, total=False):
    """Settings of a fleet's checkpoint turns."""

    timeout: TurnTimeoutFields | None
    drift: float | None
    silence: Duration | None
    max_lag: int | None
    interval: Duration | None


class QuorumFields(TypedDict, total=False):
    """The limit of fault domains that may be down at once."""

    per: Literal["location", "scope", "fleet"] | None
    domains_down: int | None


class MaintenanceRuleFields(TypedDict, total=False):
    """The action for matching events."""

    type: Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
    source: Literal["Platform", "User"]
    max_seconds: int
    action: Literal["approve", "prepare", "hold", "ignore"]
    early: bool


class ProbeBoundFields(TypedDict, total=False):
    """The limits of what callers may notice of maintenance."""

    p99_ms: int | None
    failures: float | None


class ProbeFields(TypedDict, total=False):
    """A request that agents make as a caller does: `url` or `command`."""

    url: str | None
    command: str | None
    every: Duration | None
    timeout: Duration | None
    bound: ProbeBoundFields | None


class MaintenanceFields(TypedDict, total=False):
    """Settings for Azure's Scheduled Events."""

    lead: Duration | None
    leads: Mapping[str, Duration | None] | None
    require_central: bool | None
    transport: Literal["relay", "arm"] | None
    catch_up: Duration | None
    quorum: QuorumFields | None
    guard: Literal["approve", "prepare"] | None
    silence: Duration | None
    strangers: Literal["hold", "ignore"] | None
    early: bool | None
    rules: Sequence[MaintenanceRuleFields] | None
    probe: ProbeFields | None


class AlarmFields(TypedDict, total=False):
    """The channel for a fleet's alarms."""

    channel: str
    kinds: Sequence[Literal["stale", "dead", "maintenance"]] | None


class FleetFields(TypedDict, total=False):
    """The definition of a fleet. Only a resize changes the number of its partitions."""

    partitions: int
    profile: Literal["economy", "default", "fast", "seed"] | FleetProfile | None
    limits: MoveLimits | None
    servers: ServerCount | None
    checkpoints: CheckpointFields | None
    maintenance: MaintenanceFields | None
    notify: AlarmFields | None


DURATIONS: Final = {
    "channel": frozenset({"timeout", "time_to_live", "long_work.within", "long_work.at_most"}),
    "tenant": frozenset({"expires", "retry.first", "retry.max", "retry.within", "retry.schedule"}),
    "schedule": frozenset({"every", "jitter", "catch_up.within", "timeout", "retry.first", "retry.max", "retry.within", "retry.schedule"}),
    "fleet": frozenset(
        {
            *("profile.beat", "profile.validity", "profile.takeover", "limits.drain"),
            *("checkpoints.timeout.initial", "checkpoints.timeout.min", "checkpoints.timeout.max"),
            *("checkpoints.silence", "checkpoints.interval"),
            *("maintenance.lead", "maintenance.leads", "maintenance.catch_up", "maintenance.silence"),
            *("maintenance.probe.every", "maintenance.probe.timeout"),
        }
    ),
}
"""Paths of the durations in each definition. Those in a list, or under names of the user, have the path of the list or object."""
