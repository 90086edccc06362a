"""Changes of a run, in the language of the command's options:

    slow         CHANNEL=DURATION@WHEN     each answer takes that much longer
    fail         CHANNEL=SHARE%@WHEN       that share of the attempts fails
    down         CHANNEL@WHEN              each attempt fails
    rate         CHANNEL=NUMBER/s@TIME     the channel's limit; `none` for no limit
    add-events   COUNT[:CHANNEL]@TIME[/DURATION]
    maintenance  [FLEET/]FAULT_DOMAIN@TIME[/DURATION]   announced a quarter of an hour before
    outage       [FLEET/]FAULT_DOMAIN@TIME[/DURATION]   the same without an announcement
    remove-servers  [FLEET/]COUNT@TIME     they hand off their partitions and leave

WHEN is TIME, TIME-TIME, or TIME/DURATION; without an end, the change lasts. TIME is a time of day (the next one from the beginning of the
window on), +DURATION after that beginning, or an ISO 8601 time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, Literal

from ..core.clock import Millis, to_datetime, to_millis, to_text
from ..core.durations import parse_time
from .snapshot import MAX_EVENTS, MAX_WINDOW, BadSnapshot, Snapshot

ANNOUNCED_BEFORE: Final[Millis] = 15 * 60_000
"""Milliseconds from the announcement of maintenance to its NotBefore: the shortest notice that Azure gives of a freeze or reboot."""
DEFAULT_LASTS: Final[Millis] = 600_000
"""Milliseconds of a maintenance or an outage without a duration."""
MAX_CHANGES: Final = 50
LONGEST: Final[Millis] = MAX_WINDOW
"""Longest duration in a change, in milliseconds."""
MAX_LENGTH: Final = 60
"""Characters of a duration."""
_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?", re.ASCII)
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)


class BadChange(ValueError):
    """A change cannot be read, or does not fit the export."""


@dataclass(frozen=True, slots=True)
class ReceiverChange:
    """A receiver answers `slower` milliseconds later, and fails in a share of the attempts, from `first` to `end` (None: it lasts)."""

    channel: str
    first: Millis
    end: Millis | None
    slower: Millis = 0
    failing: float = 0.0


@dataclass(frozen=True, slots=True)
class RateChange:
    """A channel's limit in deliveries a second from `at` on; None for no limit."""

    channel: str
    rate: float | None
    at: Millis


@dataclass(frozen=True, slots=True)
class AddedEvents:
    """Events that are due evenly over `over` milliseconds from `at` on. channel: empty for the first of the export."""

    count: int
    channel: str
    at: Millis
    over: Millis


@dataclass(frozen=True, slots=True)
class DomainChange:
    """The machines of a fault domain stand still for `lasts` milliseconds. fleet: empty for all."""

    kind: Literal["maintenance", "outage"]
    fleet: str
    domain: str
    at: Millis
    lasts: Millis


@dataclass(frozen=True, slots=True)
class ServerRemoval:
    """The last `count` servers by name leave. fleet: empty for all."""

    fleet: str
    count: int
    at: Millis


type Change = ReceiverChange | RateChange | AddedEvents | DomainChange | ServerRemoval


def parse_changes(given: Mapping[str, Iterable[str]], snapshot: Snapshot, zone: tzinfo | None = None) -> tuple[Change, ...]:
    """Return the changes of all options. given: texts by the option's name. zone: of times of day; None for this machine's.

    Raises `BadChange`.
    """
    reader = _ChangeReader(snapshot, zone)
    found: list[Change] = []
    for name, texts in given.items():
        if name not in OPTIONS:
            raise BadChange(f"{name!r} is not a change; use one of {', '.join(OPTIONS)}")
        for text in texts:
            try:
                found.append(_READERS[name](reader, str(text)))
            except BadChange as wrong:
                raise BadChange(f"{name} {text}: {wrong}. Example: {OPTIONS[name]}") from None
    if len(found) > MAX_CHANGES:
        raise BadChange(f"{len(found)} changes are too many; a run has at most {MAX_CHANGES}")
    if (more := sum(each.count for each in found if isinstance(each, AddedEvents))) + snapshot.total > MAX_EVENTS:
        raise BadChange(f"{more:,} more events exceed the {MAX_EVENTS:,} events of a run")
    return tuple(found)


OPTIONS: Final[Mapping[str, str]] = {
    "slow": "orders=2s@12:00-12:30",
    "fail": "orders=20%@12:00",
    "down": "orders@12:00/10m",
    "rate": "orders=10/s@12:00",
    "add-events": "10000:orders@12:00/1m",
    "maintenance": "2@14:00/10m",
    "outage": "2@14:00/10m",
    "remove-servers": "3@13:00",
}
"""The options, each with an example."""


def parse_duration_text(text: str) -> Millis:
    """Return a duration such as 2s, 300ms, 1h30m in milliseconds. Raises `BadChange`."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or not text.strip() or len(text) > MAX_LENGTH:
        raise BadChange(f"{text[:MAX_LENGTH]!r} is not a duration such as 2s, 300ms or 10m")
    hours, minutes, seconds, millis = (float(part or 0) for part in found.groups())
    found_ms = round(hours * 3_600_000 + minutes * 60_000 + seconds * 1000 + millis)
    if found_ms > LONGEST:
        raise BadChange(f"{text} is longer than a day, the longest window")
    return found_ms


class _ChangeReader:
    """Reads parts of changes, and checks them against the export."""

    def __init__(self, snapshot: Snapshot, zone: tzinfo | None) -> None:
        self._snapshot, self._zone = snapshot, zone

    def time(self, text: str) -> Millis:
        """Return a time within the window."""
        snapshot = self._snapshot
        at = self._time(text.strip())
        if not snapshot.first <= at < snapshot.end:
            span = f"{to_text(snapshot.first)} to {to_text(snapshot.end)}"
            raise BadChange(f"{to_text(at)} is not within the window of the export, {span}")
        return at

    def _time(self, text: str) -> Millis:
        first = self._snapshot.first
        if text.startswith("+"):
            return first + parse_duration_text(text[1:])
        if (found := _CLOCK.fullmatch(text)) is None:
            try:
                return parse_time(text)
            except ValueError:
                raise BadChange(f"{text!r} is not a time such as 12:00, +10m or 2026-11-21T12:00:00Z") from None
        hour, minute, second = (int(part or 0) for part in found.groups())
        begins: datetime = to_datetime(first).astimezone(self._zone)
        at = begins.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return to_millis(at if at >= begins else at + timedelta(days=1))

    def span(self, text: str) -> tuple[Millis, Millis | None]:
        """Return the begin and the end of TIME, TIME/DURATION or TIME-TIME."""
        begin, slash, lasts = text.partition("/")
        if slash:
            first = self.time(begin)
            return first, first + parse_duration_text(lasts)
        # An ISO time has hyphens of its own.
        begin, hyphen, end = text.rpartition("-") if re.fullmatch(r"[^-]+-[^-]+", text) else (text, "", "")
        first = self.time(begin)
        if not hyphen:
            return first, None
        ends = self._time(end)
        if ends <= first:
            raise BadChange(f"{end} is not after {begin}")
        return first, ends

    def channel(self, name: str) -> str:
        """Return the name of a channel of the export."""
        names = [channel.name for channel in self._snapshot.channels]
        if name not in names:
            raise BadChange(f"the export has no channel {name!r}; it has {', '.join(names) or 'none'}")
        return name

    def fleet(self, text: str) -> tuple[str, str]:
        """Return the fleet, empty for all, and the rest of [FLEET/]REST."""
        name, slash, rest = text.rpartition("/")
        names = [fleet.name for fleet in self._snapshot.fleets]
        if slash and name not in names:
            raise BadChange(f"the export has no fleet {name!r}; it has {', '.join(names) or 'none'}")
        if not names:
            raise BadChange("the export has no fleet")
        return name, rest

    def domain(self, kind: Literal["maintenance", "outage"], text: str) -> DomainChange:
        """Return a change of a fault domain."""
        target, span = _halves(text)
        fleet, domain = self.fleet(target)
        known = sorted({each for found in self._snapshot.fleets if fleet in ("", found.name) for each in found.domains})
        if domain not in known:
            raise BadChange(f"no node has the fault domain {domain!r}; the export has {', '.join(known) or 'none'}")
        at, end = self.span(span)
        return DomainChange(kind, fleet, domain, at, DEFAULT_LASTS if end is None else end - at)

    def fewer(self, text: str) -> ServerRemoval:
        """Return a removal of servers."""
        target, when = _halves(text)
        fleet, number = self.fleet(target)
        count = _count(number)
        least = min(sum(node.serves for node in found.nodes) for found in self._snapshot.fleets if fleet in ("", found.name))
        if count >= least:
            raise BadChange(f"at least one server must stay, and a fleet has {least}")
        return ServerRemoval(fleet, count, self.time(when))

    def receiver(self, text: str, how: Callable[[str], dict[str, Any]]) -> ReceiverChange:
        """Return a change of a receiver. how: parses the text after the sign =."""
        target, span = _halves(text)
        name, _, amount = target.partition("=")
        first, end = self.span(span)
        return ReceiverChange(self.channel(name), first, end, **how(amount))

    def rate(self, text: str) -> RateChange:
        """Return a change of a limit."""
        target, when = _halves(text)
        name, _, amount = target.partition("=")
        rate = None if amount == "none" else _number(amount.removesuffix("/s"))
        if rate is not None and not 0.001 <= rate <= 1e6:
            raise BadChange(f"{amount!r} is not a rate from 0.001/s to 1000000/s")
        return RateChange(self.channel(name), rate, self.time(when))

    def more(self, text: str) -> AddedEvents:
        """Return additional events."""
        target, span = _halves(text)
        number, colon, name = target.partition(":")
        channels = self._snapshot.channels
        if not colon and not channels:
            raise BadChange("the export has no channel")
        at, end = self.span(span)
        return AddedEvents(_count(number), self.channel(name) if colon else channels[0].name, at, 0 if end is None else end - at)


def _halves(text: str) -> tuple[str, str]:
    target, at, when = text.partition("@")
    if not at or not target or not when:
        raise BadChange("there is no @ with a time")
    return target.strip(), when.strip()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadChange(f"{text!r} is not a number") from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 0 < int(text) <= MAX_EVENTS:
        raise BadChange(f"{text[:20]!r} is not a count from 1 to {MAX_EVENTS:,}")
    return int(text)


def _share(text: str) -> float:
    share = _number(text.removesuffix("%")) / 100
    if not text.endswith("%") or not 0 < share <= 1:
        raise BadChange(f"{text!r} is not a share such as 20%")
    return share


def _always(text: str) -> dict[str, Any]:
    return {"failing": 1.0}


_READERS: Final[Mapping[str, Callable[[_ChangeReader, str], Change]]] = {
    "slow": lambda reader, text: reader.receiver(text, lambda amount: {"slower": parse_duration_text(amount)}),
    "fail": lambda reader, text: reader.receiver(text, lambda amount: {"failing": _share(amount)}),
    "down": lambda reader, text: reader.receiver(text, _always),
    "rate": lambda reader, text: reader.rate(text),
    "add-events": lambda reader, text: reader.more(text),
    "maintenance": lambda reader, text: reader.domain("maintenance", text),
    "outage": lambda reader, text: reader.domain("outage", text),
    "remove-servers": lambda reader, text: reader.fewer(text),
}

__all__ = ["OPTIONS", "BadChange", "BadSnapshot", "Change", "parse_changes", "parse_duration_text"]
