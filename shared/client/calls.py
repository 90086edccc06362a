"""The operations of the API: what to send for each, and how its answer is read. Pure, but for the ids made for events without one."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack
from urllib.parse import parse_qsl, quote

from pydantic import TypeAdapter

from .exchange import Call, Recovery, nothing, reading
from .model import BatchLine, Event, Load, Occurrence, Options, Page, Schedule, ScheduleOptions, Stats, fields, plain

_EVENTS = reading(Page[Event].model_validate)
_SCHEDULES = reading(Page[Schedule].model_validate)
_OCCURRENCES = reading(Page[Occurrence].model_validate)
_LOADS = reading(Page[Load].model_validate)
_ONE_EVENT = reading(Event.model_validate, tagged=True)
_ONE_SCHEDULE = reading(Schedule.model_validate, tagged=True)
_LINES: TypeAdapter[tuple[BatchLine, ...]] = TypeAdapter(tuple[BatchLine, ...])
_NAME = re.compile(r"[A-Za-z0-9_:@~.-]{1,200}")
_OPTIONS = Options.__optional_keys__ | Options.__required_keys__
_RECURRENCE = ScheduleOptions.__optional_keys__ | ScheduleOptions.__required_keys__

PAGE = 1000
"""Items asked for at a time."""


def encode(value: Any) -> bytes:
    """JSON. TypeError for what is none, ValueError for NaN and infinities."""
    # Not orjson: it turns NaN into null, and refuses whole numbers over 64 bits.
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def new_id() -> str:
    """An id for an event that was given none, so that sending it twice makes one event."""
    return f"~{uuid.uuid4().hex}"


def event_document(payload: Any, options: Options, *, make_id: bool) -> dict[str, Any]:
    """The event as the API takes it. TypeError for an option that there is not, ValueError for a naive time or not just one of two."""
    if strange := options.keys() - _OPTIONS:
        raise TypeError(f"no such option: {', '.join(sorted(strange))}")
    document = fields(**options)
    if ("due" in document) == ("delay" in document):
        raise ValueError("give exactly one of due and delay")
    if make_id and "id" not in document and document.get("durability") != "fast":
        document["id"] = new_id()
    return {**document, "payload": payload}


def schedule(payload: Any, **options: Unpack[Options]) -> Call[Event]:
    document = event_document(payload, options, make_id=True)
    return Call("POST", "events", _ONE_EVENT, body=encode(document), repeatable="id" in document)


def batch(lines: Sequence[bytes], *, repeatable: bool) -> Call[tuple[BatchLine, ...]]:
    read = reading(lambda document: _LINES.validate_python(document["results"]))
    return Call("POST", "events/batch", read, body=b"\n".join(lines), media="application/x-ndjson", repeatable=repeatable, slow=True)


def get(id: str) -> Call[Event]:
    return Call("GET", f"events/{_name(id)}", _ONE_EVENT)


def events(
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    state: str | None = None,
    channel: str | None = None,
    cursor: str | None,
) -> Call[Page[Event]]:
    query = _page(cursor, **{"from": since, "to": until, "state": state, "channel": channel})
    return Call("GET", "events", _EVENTS, query=query)


def dead_letters(
    *, since: datetime | None = None, until: datetime | None = None, channel: str | None = None, cursor: str | None
) -> Call[Page[Event]]:
    return Call("GET", "dead-letters", _EVENTS, query=_page(cursor, **{"from": since, "to": until, "channel": channel}))


def cancel(id: str, *, if_match: str | None = None) -> Call[None]:
    recovery = Recovery(frozenset({"already-final", "precondition-failed"}), get(id), frozenset({"cancelled"}), lambda _: None)
    return Call("DELETE", f"events/{_name(id)}", nothing, headers=_if_match(if_match), recovery=recovery)


def change(id: str, changes: Mapping[str, Any], *, if_match: str | None = None) -> Call[Event]:
    if not changes:
        raise ValueError("name at least one field to change")
    payload = {"payload": changes["payload"]} if "payload" in changes else {}
    document = {name: plain(name, value) for name, value in changes.items() if name != "payload"} | payload
    # With If-Match a second try cannot tell whether it was the first one that changed the version.
    repeatable = if_match is None
    return Call("PATCH", f"events/{_name(id)}", _ONE_EVENT, body=encode(document), headers=_if_match(if_match), repeatable=repeatable)


def fire(id: str) -> Call[Event]:
    begun = frozenset({"firing", "retrying", "delivered", "dead"})
    recovery = Recovery(frozenset({"already-firing", "already-final"}), get(id), begun, lambda event: event)
    return Call("POST", f"events/{_name(id)}/fire", _ONE_EVENT, recovery=recovery)


def redrive(id: str) -> Call[Event]:
    alive = frozenset({"scheduled", "firing", "retrying", "delivered", "lapsed"})
    recovery = Recovery(frozenset({"not-dead"}), get(id), alive, lambda event: event)
    return Call("POST", f"events/{_name(id)}/redrive", _ONE_EVENT, recovery=recovery)


def redrive_all(*, since: datetime | None = None, until: datetime | None = None, channel: str | None = None) -> Call[int]:
    body = encode(fields(**{"from": since, "to": until, "channel": channel}))
    return Call("POST", "dead-letters/redrive", reading(lambda document: int(document["redriven"])), body=body, slow=True)


def stats() -> Call[Stats]:
    return Call("GET", "stats", reading(Stats.model_validate))


def load(since: datetime | None, until: datetime | None) -> Call[tuple[Load, ...]]:
    return Call("GET", "load", lambda reply: _LOADS(reply).items, query=fields(**{"from": since, "to": until}))


def put_schedule(id: str, payload: Any, if_match: str | None, options: ScheduleOptions) -> Call[Schedule]:
    if strange := options.keys() - _RECURRENCE:
        raise TypeError(f"no such option: {', '.join(sorted(strange))}")
    body = encode({**fields(**options), "payload": payload})
    repeatable = if_match is None
    return Call("PUT", f"schedules/{_name(id)}", _ONE_SCHEDULE, body=body, headers=_if_match(if_match), repeatable=repeatable)


def get_schedule(id: str) -> Call[Schedule]:
    return Call("GET", f"schedules/{_name(id)}", _ONE_SCHEDULE)


def delete_schedule(id: str, if_match: str | None) -> Call[None]:
    return Call("DELETE", f"schedules/{_name(id)}", nothing, headers=_if_match(if_match), repeatable=False)


def schedules(*, cursor: str | None) -> Call[Page[Schedule]]:
    return Call("GET", "schedules", _SCHEDULES, query=_page(cursor))


def pause_schedule(id: str, *, paused: bool) -> Call[Schedule]:
    return Call("POST", f"schedules/{_name(id)}/{'pause' if paused else 'resume'}", _ONE_SCHEDULE)


def trigger(id: str) -> Call[Event]:
    return Call("POST", f"schedules/{_name(id)}/trigger", _ONE_EVENT, repeatable=False)


def preview(id: str, n: int) -> Call[tuple[Occurrence, ...]]:
    return Call("GET", f"schedules/{_name(id)}/preview", lambda reply: _OCCURRENCES(reply).items, query={"n": str(n)})


def raw(method: str, path: str, body: Any = None) -> Call[Any]:
    content = b"" if body is None else encode(body)
    read = reading(lambda document: document)
    # What an unknown POST or PATCH does twice, nobody can know here.
    repeatable = method in ("GET", "PUT")
    path, _, query = path.partition("?")
    return Call(
        method, path, lambda reply: read(reply) if reply.body else None, query=dict(parse_qsl(query)), body=content, repeatable=repeatable
    )


def _name(id: str) -> str:
    if not _NAME.fullmatch(id) or id in (".", ".."):
        raise ValueError("not an id: 1 to 200 of A-Z a-z 0-9 _ - : @ ~")
    return quote(id, safe=":@")


def _if_match(etag: str | None) -> dict[str, str]:
    return {} if etag is None else {"if-match": etag}


def _page(cursor: str | None, **filters: Any) -> dict[str, str]:
    return fields(limit=str(PAGE), cursor=cursor, **filters)
