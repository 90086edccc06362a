"""Computes the bill from a measurement. Pure: no clock, no file.

An instance on Flex Consumption is billed while it executes anything, however little of its processor it uses: its whole memory for the
time from the first invocation's start until none runs, for at least a second. All HTTP functions share instances, every other function has
its own. An invocation that begins within a second that is already billed is not billed again for that second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from .prices import Prices

MONTH = 30 * 86_400.0
"""Seconds of a month."""

type Spell = tuple[float, float]
"""The start and the end of a time, in seconds."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation. Times in seconds. group: the functions that share its instance."""

    function: str
    group: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Operations:
    """Requests to storage as they are billed; `queue` does not count the polls of the host's listeners."""

    table: float = 0.0
    queue: float = 0.0
    polls: Mapping[str, float] = field(default_factory=dict)
    """Polls of listeners by queue, as if a listener always ran."""
    blob: float = 0.0
    targets: Mapping[str, int] = field(default_factory=dict)
    """The same requests by method and target."""


@dataclass(frozen=True, slots=True)
class RareTimer:
    """A timer with a period longer than the measurement, run once and measured."""

    function: str
    seconds: float
    table: float
    queue: float
    per_month: float


@dataclass(frozen=True, slots=True)
class Record:
    """The measurement of a window. invocations: also earlier ones, and those that were running at either end of it."""

    window: Spell
    invocations: Sequence[Invocation]
    operations: Operations = field(default_factory=Operations)
    log_bytes: Mapping[str, float] = field(default_factory=dict)
    """Bytes of telemetry by kind."""
    events: float = 0.0
    """Events that were delivered."""
    listeners: Mapping[str, str] = field(default_factory=dict)
    """Queue by the function that listens to it."""
    timers: Sequence[str] = ()
    """The timer functions."""
    rare: Sequence[RareTimer] = ()

    @property
    def seconds(self) -> float:
        return self.window[1] - self.window[0]


@dataclass(frozen=True, slots=True)
class Deployed:
    """The resources of a deployment that have fixed costs."""

    log_alerts: Mapping[float, int] = field(default_factory=dict)
    """Rules by minutes between two runs."""
    metric_alerts: int = 0
    secrets: int = 0
    site_diagnostics: int = 0
    """Apps whose platform metrics are copied to the logs."""
    service_diagnostics: int = 0
    """Storage services and vaults whose platform metrics are copied to the logs."""
    private_endpoints: int = 0
    nat_gateways: int = 0
    """Each with a public address."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Amounts for a month, or for a million events."""

    billed_seconds: Mapping[str, float]
    """Seconds for which an instance of each group is billed."""
    executions: Mapping[str, float]
    """Invocations by function."""
    table: float
    queue: float
    polls: float
    blob: float
    log_bytes: Mapping[str, float]
    events: float

    @property
    def seconds(self) -> float:
        return sum(self.billed_seconds.values())

    @property
    def transactions(self) -> float:
        return self.table + self.queue + self.polls + self.blob


@dataclass(frozen=True, slots=True)
class Bill:
    """The costs of a usage with instances of one size."""

    usage: Usage
    memory_mb: int
    gb_seconds: float
    parts: Mapping[str, float]
    """USD by kind of cost."""
    before_free: float
    """USD without the free amounts."""

    @property
    def usd(self) -> float:
        return sum(self.parts.values())


def periods(spells: Iterable[Spell], prices: Prices) -> list[Spell]:
    """Return the billed periods of one instance: spells that overlap are one, and each is billed for a minimum time."""
    least, step = prices.least_ms, prices.round_up_ms
    found: list[Spell] = []
    for start, end in sorted(spells):
        if found and start < found[-1][1]:
            start, end = found[-1][0], max(found.pop()[1], end)
        found.append((start, start + max(least, ceil(round((end - start) * 1000, 3) / step) * step) / 1000))
    return found


def within(spells: Iterable[Spell], window: Spell) -> float:
    """Return the seconds of the spells that lie in the window."""
    return sum(max(0.0, min(end, window[1]) - max(start, window[0])) for start, end in spells)


def billed(record: Record, prices: Prices) -> dict[str, float]:
    """Return the seconds of the window for which each group's instance is billed."""
    groups: defaultdict[str, list[Spell]] = defaultdict(list)
    for each in record.invocations:
        groups[each.group].append((each.start, each.end))
    found = {group: within(periods(spells, prices), record.window) for group, spells in groups.items()}
    return {group: seconds for group, seconds in found.items() if seconds}


def polled(record: Record, prices: Prices) -> float:
    """Return the polls of the listeners that run: a listener runs as long as its function's instance."""
    spells: defaultdict[str, list[Spell]] = defaultdict(list)
    for each in record.invocations:
        if each.function in record.listeners:
            spells[record.listeners[each.function]].append((each.start, each.end + prices.warm_s))
    share = {queue: within(_merged(each), record.window) / record.seconds for queue, each in spells.items()}
    return sum(count * share.get(queue, 0.0) for queue, count in record.operations.polls.items())


def _merged(spells: Iterable[Spell]) -> list[Spell]:
    found: list[Spell] = []
    for start, end in sorted(spells):
        if found and start <= found[-1][1]:
            start, end = found[-1][0], max(found.pop()[1], end)
        found.append((start, end))
    return found


def scaled(record: Record, factor: float, prices: Prices) -> Usage:
    """Return `factor` times the usage of the window."""
    executions = Counter(each.function for each in record.invocations if record.window[0] <= each.end < record.window[1])
    minutes = record.seconds / 60
    ticking = sum(timer in executions for timer in record.timers)
    blob = record.operations.blob + (prices.host_leases_minute + prices.timer_leases_minute * ticking) * minutes * bool(executions)
    return Usage(
        billed_seconds={group: seconds * factor for group, seconds in billed(record, prices).items()},
        executions={name: count * factor for name, count in sorted(executions.items())},
        table=record.operations.table * factor,
        queue=record.operations.queue * factor,
        polls=polled(record, prices) * factor,
        blob=blob * factor,
        log_bytes={kind: size * factor for kind, size in record.log_bytes.items()},
        events=record.events * factor,
    )


def month(record: Record, prices: Prices) -> Usage:
    """Return the usage of a month of windows like this one, with the rare timers."""
    found = scaled(record, MONTH / record.seconds, prices)
    rare = [each for each in record.rare if each.function not in found.executions]
    seconds = {f"function:{each.function}": max(each.seconds, prices.least_ms / 1000) * each.per_month for each in rare}
    return Usage(
        billed_seconds={**found.billed_seconds, **seconds},
        executions={**found.executions, **{each.function: each.per_month for each in rare}},
        table=found.table + sum(each.table * each.per_month for each in rare),
        queue=found.queue + sum(each.queue * each.per_month for each in rare),
        polls=found.polls,
        blob=found.blob,
        log_bytes=found.log_bytes,
        events=found.events,
    )


def per_million(record: Record, prices: Prices) -> Usage:
    """Return the usage of a million events like those of the window."""
    return scaled(record, 1_000_000 / record.events, prices)


def bill(usage: Usage, deployed: Deployed | None, memory_mb: int, prices: Prices) -> Bill:
    """Return the costs of a usage. deployed: what has fixed costs for a month; if None, neither these nor free amounts are counted."""
    gb_seconds = usage.seconds * memory_mb / 1024
    executions = sum(usage.executions.values())
    log_gb = sum(usage.log_bytes.values()) / 1e9
    stored = usage.events * prices.event_row_bytes * prices.kept_days / 30 / 1e9
    free = deployed is not None
    parts = {
        **on_demand(gb_seconds, executions, prices, free=free),
        "tables": usage.table * prices.table_10k / 1e4,
        "queues": (usage.queue + usage.polls) * prices.queue_10k / 1e4,
        "blobs": usage.blob * prices.blob_10k / 1e4,
        "stored": stored * prices.stored_gb,
        "logs": max(0.0, log_gb - prices.free_log_gb * free) * prices.log_gb,
    }
    granted = min(gb_seconds, prices.free_gb_seconds) * prices.gb_second
    granted += min(executions, prices.free_executions) * prices.million_executions / 1e6
    if deployed is not None:
        parts |= fixed_costs(deployed, prices)
    return Bill(usage, memory_mb, gb_seconds, parts, sum(parts.values()) + granted * free)


def on_demand(gb_seconds: float, executions: float, prices: Prices, *, free: bool) -> dict[str, float]:
    """Return the costs of instances on demand. free: less the free amounts of a month."""
    return {
        "compute": max(0.0, gb_seconds - prices.free_gb_seconds * free) * prices.gb_second,
        "executions": max(0.0, executions - prices.free_executions * free) * prices.million_executions / 1e6,
    }


def ready(instances: float, memory_mb: int, share: float, prices: Prices) -> float:
    """Return the costs a month of always-ready instances that execute for this share of the time. They have no free amounts."""
    return instances * memory_mb / 1024 * MONTH * (prices.ready_gb_second + share * prices.ready_active_gb_second)


def ready_pays_from(memory_mb: int, prices: Prices) -> float:
    """Return the share of the time above which an always-ready instance costs less than one on demand that has the free amount."""
    saved = memory_mb / 1024 * MONTH * (prices.gb_second - prices.ready_active_gb_second)
    return (ready(1, memory_mb, 0.0, prices) + prices.free_gb_seconds * prices.gb_second) / saved


def controller_polls(queues: int, prices: Prices) -> float:
    """Return the costs a month of the scale controller's looks at the queues, if each is billed as an operation."""
    return queues * MONTH / prices.controller_poll_s * prices.queue_10k / 1e4


def listener_polls(prices: Prices) -> float:
    """Return the costs a month of a queue listener that always lives, and polls as host.json sets it."""
    return MONTH / prices.listener_poll_s * prices.queue_10k / 1e4


def fixed_costs(deployed: Deployed, prices: Prices) -> dict[str, float]:
    """Return the costs a month, by kind, that a deployment has without any load or timer."""
    rows = (deployed.site_diagnostics * prices.site_metrics + deployed.service_diagnostics * prices.service_metrics) * MONTH / 60
    alerts = sum(count * _alert(minutes, prices) for minutes, count in deployed.log_alerts.items())
    return {
        "platform metrics": rows * prices.metric_row_bytes / 1e9 * prices.log_gb,
        "alert rules": alerts + deployed.metric_alerts * prices.metric_alert,
        "vault": deployed.secrets * prices.vault_reads_day * 30 * prices.vault_10k / 1e4,
        "network": deployed.private_endpoints * prices.private_endpoint
        + deployed.nat_gateways * (prices.nat_gateway + prices.public_address),
    }


def _alert(minutes: float, prices: Prices) -> float:
    if minutes >= 15:
        return prices.log_alert_15m
    if minutes >= 10:
        return prices.log_alert_10m
    return prices.log_alert_5m if minutes >= 5 else prices.log_alert_1m
