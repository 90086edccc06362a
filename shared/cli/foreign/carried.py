"""Definitions carried over from another scheduler, and a record of those that were not. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...scheduler.recurring.cron import check
from ...scheduler.recurring.cron_dialects import Dialect, rewritten
from ..declared.references import escaped
from ..terminal.documents import parse_sendable

MAX_BYTES: Final = 16 * 1024 * 1024
"""Largest input, in bytes, of all files together."""
MAX_ENTRIES: Final = 10_000
"""Most definitions in the input."""
MAX_ID: Final = 110
"""Longest id of a schedule, before a number: further channels may be added to it."""
MAX_EVENT_ID: Final = 190
"""Longest id of an event, before a number."""
MAX_CHANNEL: Final = 34
"""Longest name of a channel, before a number."""


class TooLarge(ValueError):
    """The input has more definitions than are carried over at once."""


class Source(NamedTuple):
    """The content of one file. name: as it was given, for the report."""

    name: str
    text: str


class Note(NamedTuple):
    """Something that was not carried over. where: file and entry. lost: True if the entry itself was left out, False for a part of it."""

    where: str
    what: str
    do: str
    lost: bool


@dataclass(frozen=True, slots=True)
class Target:
    """The channel of the imported schedules. url: of an http channel that the file defines; empty for a channel that the app has.

    now: the present time in seconds since 1970; schedules that had ended by then are left out.
    """

    tenant: str
    channel: str
    url: str
    timezone: str
    now: float = 0.0


@dataclass(slots=True)
class Carried:
    """The definitions for a file, events for `tocsin events import`, and what was not carried over."""

    target: Target
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    channels: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    entries: int = 0
    _event_ids: dict[str, bool] = field(default_factory=dict)

    def enter(self) -> None:
        """Count an entry of the input. Raises `TooLarge`."""
        self.entries += 1
        if self.entries > MAX_ENTRIES:
            raise TooLarge(f"the input has more than {MAX_ENTRIES:,} definitions; split it")

    def lost(self, where: str, what: str, do: str) -> None:
        """Note an entry that was left out."""
        self.notes.append(Note(where, what, do, lost=True))

    def part(self, where: str, what: str, do: str) -> None:
        """Note a part of an entry that was left out."""
        self.notes.append(Note(where, what, do, lost=False))

    def add_schedule(self, wanted: str, rule: Mapping[str, Any], payload: Any) -> str:
        """Add a schedule under a free id made from the wanted one, and return the id. `${env:NAME}` of the input stays that text."""
        id = free_name(to_id(wanted, MAX_ID), self.schedules)
        zone = {"timezone": self.target.timezone} if "cron" in rule and self.target.timezone and "timezone" not in rule else {}
        self.schedules[id] = {**escaped(dict(rule)), **zone, "channel": self.target.channel, "payload": escaped(payload)}
        return id

    def add_event(self, wanted: str, event: Mapping[str, Any]) -> None:
        """Add an event under a free id made from the wanted one."""
        id = free_name(to_id(wanted, MAX_EVENT_ID), self._event_ids)
        self._event_ids[id] = True
        self.events.append({"id": id, **event})

    def document(self) -> dict[str, Any]:
        """Return the document for `tocsin apply`."""
        own = {self.target.channel: {"type": "http", "url": self.target.url}} if self.target.url and self.schedules else {}
        parts = {"channels": {**own, **self.channels}, "schedules": self.schedules}
        return {"tenants": {self.target.tenant: {name: part for name, part in parts.items() if part}}}


def to_id(text: str, most: int) -> str:
    """Return a text as an id: other characters become hyphens."""
    return re.sub(r"[^A-Za-z0-9_:@~-]+", "-", text).strip("-")[:most] or "imported"


def to_channel(text: str) -> str:
    """Return a text as the name of a channel."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_CHANNEL].strip("-") or "imported"


def free_name(wanted: str, taken: Mapping[str, Any]) -> str:
    """Return the wanted name, with a number behind it if it is taken."""
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def cron_of(expression: str, dialect: Dialect) -> str:
    """Return the expression of another scheduler as schedules read it. Raises ValueError with the reason why none can express it."""
    return check(rewritten(expression, dialect))


def documents_of(source: Source) -> Iterator[Any]:
    """Yield the JSON documents of a file, one behind the other, as commands print them in a loop. Raises ValueError."""
    decoder, text, at = json.JSONDecoder(), source.text, 0
    while match := re.compile(r"\S").search(text, at):
        try:
            _, end = decoder.raw_decode(text, match.start())
        except RecursionError:
            raise ValueError(f"{source.name}: it is nested too deeply") from None
        except ValueError as wrong:
            raise ValueError(f"{source.name}: this is not JSON: {wrong}") from None
        try:
            # Once more, so that numbers keep their digits.
            yield parse_sendable(text[match.start() : end])
        except ValueError as wrong:
            raise ValueError(f"{source.name}: {wrong}") from None
        at = end


def payload_of(text: str) -> Any:
    """Return the JSON that a text holds, or the text itself."""
    try:
        return parse_sendable(text)
    except ValueError:
        return text


def text_of(entry: Mapping[str, Any], name: str) -> str:
    """Return a member that should be a text; an empty one if it is missing or something else."""
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def object_of(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a member that should be an object; an empty one if it is missing or something else."""
    value = entry.get(name)
    return value if isinstance(value, dict) else {}
