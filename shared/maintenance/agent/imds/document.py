"""Parses documents of the Instance Metadata Service. Reports the parts that cannot be read.

Source: Microsoft's page "Azure Metadata Service: Scheduled Events for Linux VMs", its older api-versions, which lack fields, and what has
been seen in the wild. Nothing is taken from a body that is not a JSON object with a list of events.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...azure_names import distinct
from ...not_before import read_time
from ..model import EVENT_TYPES, EventsDocument, ScheduledEvent, ScheduledEventStatus, UnreadableDocument

if TYPE_CHECKING:
    from ....core.clock import Millis


_STATUSES: dict[str, ScheduledEventStatus] = {"scheduled": "Scheduled", "started": "Started"}
_TYPES = {name.lower(): name for name in EVENT_TYPES}
MAX_ID = 128
"""Longest EventId that is accepted, in characters; a GUID has 36."""
MAX_PROBLEMS = 10
"""Largest number of problems that is reported of one document."""


def read(body: bytes) -> EventsDocument | UnreadableDocument:
    """Parse the body of a 200. Unknown keys are ignored."""
    try:
        raw = json.loads(body.decode("utf-8-sig"), parse_constant=_refuse, object_pairs_hook=_object)
    except _RepeatedKey as error:
        return UnreadableDocument(f"the body has the key {error} twice in one object")
    except UnicodeDecodeError:
        return UnreadableDocument("the body is not UTF-8")
    except (ValueError, RecursionError):
        return UnreadableDocument("the body is empty" if not body.strip() else "the body is not JSON")
    if not isinstance(raw, dict):
        return UnreadableDocument("the body is not a JSON object")
    items = raw.get("Events")
    if not isinstance(items, list):
        return UnreadableDocument("the body has no list of Events")
    problems: list[str] = []
    events: dict[str, ScheduledEvent] = {}
    for number, item in enumerate(items):
        found = _event(item)
        if isinstance(found, str):
            problems.append(f"Events[{number}]: {found}")
        elif (known := events.get(found.event_id)) is not None:
            events[found.event_id] = _merged(known, found)
        else:
            events[found.event_id] = found
    return EventsDocument(_incarnation(raw.get("DocumentIncarnation")), tuple(events.values()), tuple(problems[:MAX_PROBLEMS]))


class _RepeatedKey(Exception):
    """An object has two values for one key, and nothing shows which of them counts."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RepeatedKey(_plain(Counter(key for key, _ in pairs).most_common(1)[0][0][:64]))
    return found


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _incarnation(raw: object) -> int | None:
    if isinstance(raw, bool):
        return None
    if isinstance(raw, int):
        return raw
    return int(raw) if isinstance(raw, str) and re.fullmatch(r"-?\d{1,20}", raw, re.ASCII) else None


def _event(item: object) -> ScheduledEvent | str:
    """Parse an event. Returns a text with the reason if it is invalid."""
    if not isinstance(item, dict):
        return "not an object"
    raw_id = item.get("EventId")
    if not isinstance(raw_id, str) or not raw_id.strip() or len(raw_id) > MAX_ID or not raw_id.isprintable():
        return "no EventId that can be read"
    resources = item.get("Resources")
    if not isinstance(resources, list) or not all(isinstance(name, str) for name in resources):
        return f"EventId {raw_id}: Resources is not a list of names"
    kind, description = item.get("EventType"), item.get("Description")
    kind = _plain(kind.strip()[:64]) if isinstance(kind, str) else ""
    return ScheduledEvent(
        event_id=raw_id.strip().casefold(),
        raw_id=raw_id.strip(),
        type=_TYPES.get(kind.lower(), kind),
        status=_STATUSES.get(str(item.get("EventStatus")).strip().lower(), "Unknown"),
        not_before=read_time(item.get("NotBefore")),
        source="User" if str(item.get("EventSource")).strip().lower() == "user" else "Platform",
        duration=_duration(item.get("DurationInSeconds")),
        resources=distinct(map(_plain, resources)),
        description=_plain(description[:500]) if isinstance(description, str) else "",
    )


def _plain(text: str) -> str:
    """Replace characters that cannot be printed. Names of machines are printable, so a replaced text never equals one."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def _duration(raw: object) -> int:
    if isinstance(raw, str) and re.fullmatch(r"\d{1,9}", raw, re.ASCII):
        return int(raw)
    # Half a second is an impact, so a fraction counts as a whole one.
    if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw < 1e9:
        return int(-(-raw // 1))
    return -1


def _merged(one: ScheduledEvent, other: ScheduledEvent) -> ScheduledEvent:
    """Merge two descriptions of one event to the worse case: started, sooner, and of unknown type and duration where they differ."""
    both = (one, other)
    started = any(event.status == "Started" for event in both)
    same_times = one.not_before is not None and other.not_before is not None
    return ScheduledEvent(
        event_id=one.event_id,
        raw_id=one.raw_id,
        type=one.type if one.type == other.type else "",
        status="Started" if started else one.status if one.status == other.status else "Unknown",
        not_before=min(_times(*both)) if same_times else None,
        source=one.source if one.source == other.source else "Platform",
        duration=one.duration if one.duration == other.duration else -1,
        resources=distinct(one.resources + other.resources),
        description=one.description,
    )


def _times(*events: ScheduledEvent) -> Iterator[Millis]:
    return (event.not_before for event in events if event.not_before is not None)
