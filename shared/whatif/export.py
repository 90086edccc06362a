"""Reads a snapshot from the API in bounded pages. Of too many events it takes a sample, and notes that. It takes no payloads or secrets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from ..core.clock import Millis, to_text
from ..core.durations import parse_duration, parse_time
from .snapshot import (
    MAX_CHANNELS,
    MAX_EVENTS,
    MAX_SCHEDULES,
    AnnouncedMaintenance,
    BadSnapshot,
    ExportedChannel,
    ExportedFleet,
    ExportedNode,
    PlannedEvent,
    Snapshot,
)

MINUTE: Final[Millis] = 60_000
LOOKED_BACK: Final[Millis] = 3_600_000
"""Time before the window from which receivers' answers are taken, in milliseconds."""
OVERDUE_SINCE: Final[Millis] = 86_400_000
"""Time before the window from which overdue events are taken, in milliseconds."""
ANSWERS: Final = 100
"""Delivered events of a channel whose attempts are looked at."""
MAX_OVERDUE: Final = 1_000
SLICES: Final = 60
"""Most parts of the window from which a sample takes events."""
LEAST_SLICE: Final = 50
"""Fewest events of a part."""
STAND_INS: Final = 20
"""Most events of the sample that represent a minute of which no event was read."""
TURNS: Final = 50
IMPACT_S: Final = 7
"""Seconds of an impact whose duration Azure does not give."""
_TIMING: Final = ("cron", "every", "timezone", "start", "jitter", "at_most_once_per", "channel", "channels", "overlap")
_DEFINITION: Final = ("partitions", "profile", "limits", "servers", "checkpoints", "maintenance")


class ApiReader(Protocol):
    """The API, as a command's session reads it."""

    def get(self, path: str, **query: Any) -> Any:
        """Return the object at a path."""

    def items(self, path: str, *, limit: int | None = None, **query: Any) -> Iterator[Any]:
        """Yield the items of a list, at most `limit`."""


type ReadIfAllowed = Callable[[Callable[[], Any]], tuple[Any, str]]
"""Returns what a call returns, or None and the reason of the refusal, if the key is not permitted to make it."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """first, end: the window, milliseconds since 1970. limit: most events that are read. fleets: their names; None for all."""

    first: Millis
    end: Millis
    limit: int = 20_000
    fleets: Sequence[str] | None = None


class SnapshotExporter:
    """One export."""

    def __init__(self, reader: ApiReader, admin: ApiReader, allowed: ReadIfAllowed, tenant: str, options: ExportOptions) -> None:
        """reader: acts for the tenant. admin: names the tenant only in paths."""
        self._reader, self._admin, self._allowed, self._tenant, self._options = reader, admin, allowed, tenant, options
        self._notes: list[str] = []
        self._keys: dict[str, int] = {}
        self._span: dict[str, Any] = {"from_": to_text(options.first), "to": to_text(options.end)}

    def read(self) -> Snapshot:
        """Return the snapshot. Raises `BadSnapshot` if it is too large for a run, and the client's errors."""
        schedules = sorted(self._reader.items("schedules", limit=MAX_SCHEDULES + 1), key=lambda each: str(each["id"]))
        active = [each for each in schedules if not each.get("paused") and self._occurs(each)]
        events = self._events([str(each["id"]) for each in active])
        names = {event.channel for event in events}
        for each in active:
            names |= {str(each["channel"])} if each.get("channel") else set(each.get("channels") or ())
        tenant, _ = self._allowed(lambda: self._admin.get(f"tenants/{self._tenant}"))
        if tenant is None:
            self._notes.append("The key may not read the tenant: its retries are the defaults, and its limits are unknown.")
        limits: Mapping[str, Any] = (tenant or {}).get("limits") or {}
        found = Snapshot(
            self._options.first,
            self._options.end,
            tuple(events),
            tuple(self._channels(names)),
            tuple(self._schedule(each) for each in active),
            tuple(self._fleets()),
            (tenant or {}).get("retry") or {},
            limits.get("deliveries_per_second"),
            limits.get("concurrency"),
            tuple(self._notes),
        )
        found.check()
        return found

    # -- events

    def _events(self, schedules: Sequence[str]) -> list[PlannedEvent]:
        load = self._reader.get("load", **self._span)
        if load.get("incomplete"):
            self._notes.append("The app has not counted all events of each minute; the counts are too small.")
        counts = {parse_time(each["minute"]): int(each["scheduled"]) for each in load["items"] if each["scheduled"]}
        total, limit = sum(counts.values()), self._options.limit
        if total > MAX_EVENTS:
            title = f"{total:,} events are due in the window, and a run has {MAX_EVENTS:,} at most"
            raise BadSnapshot(f"{title}; choose a shorter window with --for")
        overdue: dict[str, Any] = {"from_": to_text(self._options.first - OVERDUE_SINCE), "to": to_text(self._options.first)}
        late = list(self._reader.items("events", limit=MAX_OVERDUE, state="scheduled", **overdue))
        found = [event for _, event in self._planned(late, schedules)]
        if found:
            self._notes.append(f"{len(found):,} events were overdue; they are due at the beginning of the window.")
        if total <= limit:
            return found + [event for _, event in self._planned(self._reader.items("events", state="scheduled", **self._span), schedules)]
        read = 0
        spans = slices(counts, max(1, min(SLICES, limit // LEAST_SLICE)))
        for first, end in spans:
            span: dict[str, Any] = {"from_": to_text(first), "to": to_text(end)}
            items = list(self._reader.items("events", limit=limit // len(spans), state="scheduled", **span))
            read += len(items)
            kept = [event for _, event in self._planned(items, schedules)]
            share = len(kept) / len(items) if items else 0.0
            inside = {minute: round(count * share) for minute, count in counts.items() if first <= minute < end}
            found += scaled(kept, inside)
        self._notes.append(f"{read:,} of {total:,} events were read; they stand for the others, which are spread over their minutes.")
        return found

    def _planned(self, items: Iterable[Any], schedules: Sequence[str]) -> Iterator[tuple[str, PlannedEvent]]:
        """Yield events without the occurrences of schedules, which the twin makes itself."""
        own = tuple(f"{name}:" for name in schedules)
        for each in items:
            if own and str(each["id"]).startswith(own):
                continue
            key = each.get("ordering_key")
            number = None if key is None else self._keys.setdefault(str(key), len(self._keys))
            yield each["id"], PlannedEvent(parse_time(each.get("planned") or each["due"]), str(each["channel"]), _size(each), number)

    # -- channels and schedules

    def _channels(self, names: set[str]) -> Iterator[ExportedChannel]:
        path = f"tenants/{self._tenant}/channels"
        listed, _ = self._allowed(lambda: list(self._admin.items(path, limit=MAX_CHANNELS)))
        if listed is None:
            self._notes.append("The key may not read channels: their limits are unknown, and their time-out is 15 s.")
        known = {str(each["name"]): each for each in listed or ()}
        for name in sorted(names | known.keys()):
            took, failed = self._answers(name)
            if not took:
                self._notes.append(f"No answer of channel {name} in the last hour is known; the twin's receiver takes 20 to 80 ms.")
            shown = known.get(name, {})
            limits = shown.get("limits") or {}
            yield ExportedChannel(
                name,
                str(shown.get("type", "http")),
                parse_duration(shown["timeout"]) if "timeout" in shown else 15_000,
                limits.get("deliveries_per_second"),
                limits.get("concurrency"),
                shown.get("per_key"),
                bool(shown.get("paused")),
                took,
                failed,
            )

    def _answers(self, name: str) -> tuple[tuple[int, ...], float]:
        """Return the milliseconds of the latest answers, sorted, and the share of the attempts that failed."""
        span: dict[str, Any] = {"from_": to_text(self._options.first - LOOKED_BACK), "to": to_text(self._options.first)}
        items = self._reader.items("events", limit=ANSWERS, state="delivered", channel=name, **span)
        attempts = [attempt for each in items for attempt in each.get("attempts") or ()]
        took = sorted(int(each["took_ms"]) for each in attempts if each["outcome"] == "delivered" and each.get("took_ms") is not None)
        failed = sum(each["outcome"] not in ("delivered", "working") for each in attempts)
        return tuple(took), round(failed / len(attempts), 4) if attempts else 0.0

    def _occurs(self, shown: Mapping[str, Any]) -> bool:
        """Return True if the next occurrence is in the window. Earlier ones are events."""
        return bool(shown.get("next")) and parse_time(str(shown["next"])) < self._options.end

    def _schedule(self, shown: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: shown[name] for name in _TIMING if shown.get(name) is not None}
        found["end"] = min(shown.get("end") or self._span["to"], self._span["to"])
        if "every" in found and "start" not in found and shown.get("next"):
            found["start"] = shown["next"]
        exclude = shown.get("exclude") or {}
        days = set(exclude.get("dates") or ())
        for name in exclude.get("calendars") or ():
            days |= set(self._reader.get(f"calendars/{name}")["dates"])
        # Only days of the window matter, with the time zones around it.
        near = {day for day in days if abs(parse_time(f"{day}T00:00:00Z") - self._options.first) < 3 * OVERDUE_SINCE}
        if near:
            found["exclude"] = {"dates": sorted(near)}
        return found

    # -- fleets

    def _fleets(self) -> Iterator[ExportedFleet]:
        wanted = self._options.fleets
        if wanted is not None and not wanted:
            return
        listed, refused = self._allowed(lambda: list(self._reader.items("fleets")))
        if listed is None:
            self._notes.append(f"No fleet was read: {refused}.")
        for shown in listed or ():
            if wanted is None or shown["name"] in wanted:
                yield self._fleet(shown)

    def _fleet(self, shown: Mapping[str, Any]) -> ExportedFleet:
        name = str(shown["name"])
        definition = {part: shown[part] for part in _DEFINITION if shown.get(part) is not None}
        maintenance = {part: value for part, value in definition.get("maintenance", {}).items() if part not in ("probe", "transport")}
        # The API leaves it out for a fleet that has the former value; a new fleet would get another one.
        definition["maintenance"] = {"guard": "approve", **maintenance}
        path = f"fleets/{name}"
        nodes = tuple(_node(each) for each in self._reader.items(f"{path}/nodes"))
        turns = list(self._reader.items(f"{path}/turns", limit=TURNS))
        took = [(parse_time(turn["ended"]) - parse_time(turn["granted"])) / 1000 for turn in turns if turn["state"] == "done"]
        events = self._reader.items(f"{path}/maintenance/events", limit=1000)
        announced = [each for event in events if (each := self._announced(event)) is not None]
        return ExportedFleet(name, definition, nodes, tuple(announced), tuple(sorted(took)))

    def _announced(self, event: Mapping[str, Any]) -> AnnouncedMaintenance | None:
        if event.get("rehearsal") or event.get("started") or event.get("ended") or not event.get("not_before"):
            return None
        at = parse_time(event["not_before"])
        lasts = int(event["duration_s"])
        known = self._options.first <= at < self._options.end
        return AnnouncedMaintenance(tuple(event["nodes"]), at, 1000 * (lasts if lasts > 0 else IMPACT_S)) if known else None


def _node(shown: Mapping[str, Any]) -> ExportedNode:
    beat, agent, replica = shown.get("beat"), shown.get("maintenance"), shown.get("turn")
    domain = (agent or {}).get("fault_domain") or (beat or {}).get("fault_domain") or ""
    return ExportedNode(
        str(shown["node"]),
        str((agent or {}).get("vm", "")),
        str((agent or {}).get("scope", "")),
        str((agent or {}).get("location", "")),
        str(domain),
        int((beat or {}).get("capacity", 0)),
        beat is not None,
        agent is not None and not agent.get("disabled"),
        str(replica["role"]) if replica is not None else "",
        str((beat or {}).get("fault_domain", "")),
    )


def _size(event: Mapping[str, Any]) -> int:
    """Return the approximate bytes of a payload: the API shows it decoded."""
    from json import dumps

    return len(dumps(event.get("payload"), default=str, ensure_ascii=False).encode())


def slices(counts: Mapping[Millis, int], most: int) -> list[tuple[Millis, Millis]]:
    """Return at most `most` spans of whole minutes that hold about as many events each. counts: events by the minute's beginning."""
    minutes = sorted(counts)
    total, found, first, held = sum(counts.values()), [], None, 0
    for minute in minutes:
        first = minute if first is None else first
        held += counts[minute]
        if held * most >= total or minute == minutes[-1]:
            found.append((first, minute + MINUTE))
            first, held = None, 0
    return found


def scaled(sample: Sequence[PlannedEvent], counts: Mapping[Millis, int]) -> list[PlannedEvent]:
    """Return the sample, scaled to the count of each minute. Events of other minutes represent a minute of which the sample has none."""
    by_minute: dict[Millis, list[PlannedEvent]] = defaultdict(list)
    for event in sample:
        by_minute[event.due - event.due % MINUTE].append(event)
    found: list[PlannedEvent] = []
    turn = 0
    for minute, count in sorted(counts.items()):
        if not sample or not count:
            continue
        inside = by_minute.get(minute, [])[:count]
        if not inside:
            for _ in range(min(count, STAND_INS, len(sample))):
                other = sample[turn % len(sample)]
                turn += 1
                inside.append(PlannedEvent(minute + other.due % MINUTE, other.channel, other.size, other.key))
        each, more = divmod(count, len(inside))
        found += [replace(event, times=each + (number < more)) for number, event in enumerate(inside)]
    return found
