"""The file of an export: the figures and names that a twin needs, but no payloads, addresses or secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ..core.clock import Millis, to_text
from ..core.durations import parse_time

FORMAT: Final = 1
MAX_BYTES: Final = 64 * 2**20
"""Largest file, in bytes."""
MAX_WINDOW: Final[Millis] = 24 * 3_600_000
"""Longest window, in milliseconds."""
MAX_EVENTS: Final = 100_000
"""Most events of a run, repeated ones included."""
MAX_CHANNELS: Final = 200
MAX_SCHEDULES: Final = 1_000
MAX_NODES: Final = 300
"""Most nodes of all fleets together."""
MAX_NODE_SECONDS: Final = 400_000
"""Most nodes of all fleets, times the seconds of the window: a run takes one to two minutes for each 100,000."""


class BadSnapshot(ValueError):
    """The file is not an export, or is too large for a run."""


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """Events of one due time. due: milliseconds since 1970. size: bytes of a payload. key: number of the ordering key; None without one.
    times: number of events that it represents; those beyond the first are spread over the minute."""

    due: Millis
    channel: str
    size: int = 2
    key: int | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class ExportedChannel:
    """A channel, and how its receiver has answered lately.

    took: milliseconds of attempts, sorted; empty if none is known. failed: the share of the attempts that failed. timeout: milliseconds.
    rate, concurrency: limits of the channel. per_key: as the API shows it.
    """

    name: str
    kind: str = "http"
    timeout: Millis = 15_000
    rate: float | None = None
    concurrency: int | None = None
    per_key: Mapping[str, Any] | None = None
    paused: bool = False
    took: tuple[int, ...] = ()
    failed: float = 0.0


@dataclass(frozen=True, slots=True)
class ExportedNode:
    """A node of a fleet. serves: it runs a server. agent: it runs an agent. role: as a replica; empty if it is none.

    fault_domain: as its agent reports it, or else its server. server_domain: as its server reports it, for the planner."""

    name: str
    vm: str = ""
    scope: str = ""
    location: str = ""
    fault_domain: str = ""
    capacity: int = 0
    serves: bool = True
    agent: bool = False
    role: str = ""
    server_domain: str = ""


@dataclass(frozen=True, slots=True)
class AnnouncedMaintenance:
    """A Scheduled Event that is announced. not_before: milliseconds since 1970. lasts: milliseconds of the impact."""

    nodes: tuple[str, ...]
    not_before: Millis
    lasts: Millis


@dataclass(frozen=True, slots=True)
class ExportedFleet:
    """A fleet: its definition as the API shows it, its nodes, and the seconds that its latest checkpoints took."""

    name: str
    definition: Mapping[str, Any]
    nodes: tuple[ExportedNode, ...] = ()
    announced: tuple[AnnouncedMaintenance, ...] = ()
    checkpoints_took: tuple[float, ...] = ()

    @property
    def domains(self) -> list[str]:
        """The fault domains of its nodes, sorted."""
        return sorted({node.fault_domain for node in self.nodes if node.fault_domain})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of an export. first, end: the window, milliseconds since 1970. retry: the tenant's, as the API shows it."""

    first: Millis
    end: Millis
    events: tuple[PlannedEvent, ...] = ()
    channels: tuple[ExportedChannel, ...] = ()
    schedules: tuple[Mapping[str, Any], ...] = ()
    fleets: tuple[ExportedFleet, ...] = ()
    retry: Mapping[str, Any] = field(default_factory=dict)
    tenant_rate: float | None = None
    tenant_concurrency: int | None = None
    notes: tuple[str, ...] = ()
    """Sentences about inexact parts: samples, defaults, and parts that the key was not permitted to read."""

    @property
    def total(self) -> int:
        """The events of a run, without those of schedules."""
        return sum(event.times for event in self.events)

    def check(self) -> None:
        """Raise `BadSnapshot` if it is too large for a run."""
        seconds, nodes = (self.end - self.first) / 1000, sum(len(fleet.nodes) for fleet in self.fleets)
        if not 0 < self.end - self.first <= MAX_WINDOW:
            raise BadSnapshot(f"the window from {to_text(self.first)} to {to_text(self.end)} is empty, or longer than 24 hours")
        if self.total > MAX_EVENTS:
            raise BadSnapshot(f"{self.total:,} events are more than the {MAX_EVENTS:,} of a run; export a shorter window with --for")
        for what, count, most in (
            ("channels", len(self.channels), MAX_CHANNELS),
            ("schedules", len(self.schedules), MAX_SCHEDULES),
            ("nodes", nodes, MAX_NODES),
        ):
            if count > most:
                raise BadSnapshot(f"{count:,} {what} are more than the {most:,} of a run")
        if nodes * seconds > MAX_NODE_SECONDS:
            longest = MAX_NODE_SECONDS / nodes / 60
            raise BadSnapshot(f"{nodes} nodes over {seconds / 60:.0f} min are too many; export {longest:.0f} min or less, or fewer fleets")

    def text(self) -> str:
        """Return the file's text."""
        document = {"tocsin_what_if": FORMAT, **asdict(self)}
        document["first"], document["end"] = to_text(self.first), to_text(self.end)
        # A line an event: [milliseconds after the first, channel, size, key, times].
        rows = [[each.due - self.first, each.channel, each.size, each.key, each.times] for each in self.events]
        document["events"] = []
        head = json.dumps(document, indent=1, sort_keys=True)
        return head.replace('"events": []', '"events": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n ]", 1) + "\n"


def parse_snapshot(text: str) -> Snapshot:
    """Read the text of a file. Raises `BadSnapshot`."""
    if len(text) > MAX_BYTES:
        raise BadSnapshot(f"the file has more than {MAX_BYTES // 2**20} MiB")
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise BadSnapshot(f"this is not JSON: {wrong}") from None
    if not isinstance(given, dict) or given.get("tocsin_what_if") != FORMAT:
        raise BadSnapshot(f"this is not an export of `tocsin what-if export` of format {FORMAT}")
    try:
        first = parse_time(given["first"])
        found = Snapshot(
            first,
            parse_time(given["end"]),
            tuple(_event(first, row) for row in given["events"]),
            tuple(_parsed_as(ExportedChannel, each, took=tuple) for each in given["channels"]),
            tuple(given["schedules"]),
            tuple(_fleet(each) for each in given["fleets"]),
            dict(given["retry"]),
            given["tenant_rate"],
            given["tenant_concurrency"],
            tuple(map(str, given["notes"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise BadSnapshot(f"the file was changed, or another version wrote it: {type(wrong).__name__}: {wrong}") from None
    found.check()
    return found


def _event(first: Millis, row: Any) -> PlannedEvent:
    after, channel, size, key, times = row
    # An event that was overdue at the export is due before the window.
    if (
        type(after) is not int
        or not all(type(each) is int and each >= 0 for each in (size, times))
        or not (key is None or type(key) is int)
    ):
        raise ValueError(f"an event must be [milliseconds, channel, size, key, times], not {row!r}")
    return PlannedEvent(first + after, str(channel), size, key, times)


def _fleet(given: Any) -> ExportedFleet:
    found: ExportedFleet = _parsed_as(
        ExportedFleet,
        given,
        nodes=lambda nodes: tuple(_parsed_as(ExportedNode, each) for each in nodes),
        announced=lambda events: tuple(_parsed_as(AnnouncedMaintenance, each, nodes=tuple) for each in events),
        checkpoints_took=tuple,
    )
    return found


def _parsed_as(kind: Any, given: Any, **convert: Callable[[Any], Any]) -> Any:
    return kind(**{name: convert[name](value) if name in convert else value for name, value in given.items()})
