"""The operations of the API: the request of each, and the function that reads its answer. Pure, except for generated event ids."""

from __future__ import annotations

import base64
import json
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack
from urllib.parse import parse_qsl, quote

from ..core.label_text import labels_text
from .exchange import ApiCall, ApiReply, Recovery, json_reader, read_empty, refusal
from .model import (
    AnswerPage,
    Backfill,
    BatchLine,
    BulkJob,
    Event,
    EventOptions,
    Fanout,
    FanoutReport,
    Heartbeat,
    MinuteLoad,
    Occurrence,
    Schedule,
    ScheduleOptions,
    Sizes,
    Stats,
    to_json_fields,
    to_json_value,
)
from .reading import reader_of

_EVENTS = json_reader(reader_of(AnswerPage[Event]))
_SCHEDULES = json_reader(reader_of(AnswerPage[Schedule]))
_OCCURRENCES = json_reader(reader_of(AnswerPage[Occurrence]))
_LOADS = json_reader(reader_of(AnswerPage[MinuteLoad]))
_HEARTBEAT = json_reader(reader_of(Heartbeat))
_BACKFILL = json_reader(reader_of(Backfill))
_ONE_EVENT = json_reader(reader_of(Event), tagged=True)
_FANOUT = json_reader(reader_of(Fanout))
_REPORT = json_reader(reader_of(FanoutReport))
_ONE_JOB = json_reader(reader_of(BulkJob))
_JOBS = json_reader(reader_of(AnswerPage[BulkJob]))
ONE_SCHEDULE = json_reader(reader_of(Schedule), tagged=True)
_LINES = reader_of(tuple[BatchLine, ...])
_NAME = re.compile(r"[A-Za-z0-9_:@~.-]{1,200}")
_OPTIONS = EventOptions.__optional_keys__ | EventOptions.__required_keys__
_RECURRENCE = ScheduleOptions.__optional_keys__ | ScheduleOptions.__required_keys__

log = logging.getLogger(__name__)

UNDELIVERED = frozenset({"dead", "cancelled", "lapsed"})
"""States in which an event has ended without a delivery."""
_ADVICE = "Use a new id, or on_conflict: 'error' raises, and 'redrive' delivers a dead event again."
PAGE = 1000
"""Items of a list that one request asks for."""


def encode(value: Any) -> bytes:
    """Return the value as JSON. Raises TypeError for what JSON cannot hold, ValueError for NaN and infinities."""
    # Not orjson: it turns NaN into null, and refuses whole numbers over 64 bits.
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def new_id() -> str:
    """Return a new id for an event without one, so that sending it twice creates one event."""
    return f"~{uuid.uuid4().hex}"


def event_document(payload: Any, options: EventOptions, *, make_id: bool, channels: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the event as the API takes it. channels: of a fan-out. payload: None with a method that needs no body means no body.

    Raises TypeError for an unknown option, ValueError for a time without a time zone and unless exactly one of due and delay is given.
    """
    if unknown := options.keys() - _OPTIONS:
        raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
    document = to_json_fields(**options)
    if "expires" in options and options["expires"] is None:
        # Null is another value than none: the event never lapses, whatever its tenant's settings say.
        document["expires"] = None
    if ("due" in document) == ("delay" in document):
        raise ValueError("give exactly one of due and delay")
    if make_id and not {"id", "collapse"} & document.keys() and document.get("durability") != "fast":
        document["id"] = new_id()
    if channels is not None:
        document["channels"] = list(channels)
    if payload is None and may_lack_payload(options):
        return document
    return {**document, "payload": sent_payload(payload, document)}


def sent_payload(payload: Any, given: Mapping[str, Any]) -> Any:
    """Return the payload as the API takes it: the base64 of bytes, any other as it is. given: the other members.

    Raises TypeError for bytes without a content type.
    """
    if not isinstance(payload, bytes | bytearray | memoryview):
        return payload
    if given.get("content_type") is None:
        raise TypeError("a payload of bytes needs content_type, such as text/xml")
    return base64.b64encode(payload).decode()


def may_lack_payload(options: EventOptions) -> bool:
    """Return True if the event's requests may have no body."""
    return options.get("target", {}).get("method") in ("GET", "DELETE")


def schedule(payload: Any, **options: Unpack[EventOptions]) -> ApiCall[Event]:
    document = event_document(payload, options, make_id=True)
    return ApiCall("POST", "events", _stored_event, body=encode(document), repeatable="id" in document)


def fan_out(payload: Any, channels: Sequence[str], **options: Unpack[EventOptions]) -> ApiCall[Fanout]:
    document = event_document(payload, options, make_id=True, channels=channels)
    return ApiCall("POST", "events", _stored_fanout, body=encode(document), repeatable="id" in document)


def _stored_event(reply: ApiReply) -> Event:
    event = _ONE_EVENT(reply)
    _warn_of_ended(reply, [event])
    return event


def _stored_fanout(reply: ApiReply) -> Fanout:
    fanout = _FANOUT(reply)
    _warn_of_ended(reply, fanout.events)
    return fanout


def _warn_of_ended(reply: ApiReply, events: Sequence[Event]) -> None:
    """Log that a request has scheduled nothing, because an event with its id has ended without a delivery."""
    if reply.status == 200:
        for event in events:
            if event.state in UNDELIVERED:
                extra = {"action": "event_ended_before", "event": event.id}
                log.warning("The event %s exists and is %s: nothing was scheduled. %s", event.id, event.state, _ADVICE, extra=extra)


def get_fanout(id: str) -> ApiCall[Fanout]:
    return ApiCall("GET", f"events/{_name(id)}", _FANOUT)


def change_fanout(id: str, changes: Mapping[str, Any]) -> ApiCall[FanoutReport]:
    return ApiCall("PATCH", f"events/{_name(id)}", _REPORT, body=_changes(changes))


def cancel_fanout(id: str) -> ApiCall[FanoutReport]:
    return ApiCall("DELETE", f"events/{_name(id)}", _REPORT)


def fire_fanout(id: str) -> ApiCall[FanoutReport]:
    return ApiCall("POST", f"events/{_name(id)}/fire", _REPORT)


def redrive_fanout(id: str) -> ApiCall[FanoutReport]:
    return ApiCall("POST", f"events/{_name(id)}/redrive", _REPORT)


def batch(lines: Sequence[bytes], *, repeatable: bool) -> ApiCall[tuple[BatchLine, ...]]:
    read = json_reader(lambda document: _LINES(document["results"]))
    return ApiCall("POST", "events/batch", read, body=b"\n".join(lines), media="application/x-ndjson", repeatable=repeatable, slow=True)


def get(id: str) -> ApiCall[Event]:
    return ApiCall("GET", f"events/{_name(id)}", _ONE_EVENT)


def events(
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    state: str | None = None,
    channel: str | None = None,
    labels: Mapping[str, str] | None = None,
    id_prefix: str | None = None,
    error: str | None = None,
    held: bool = False,
    cursor: str | None,
) -> ApiCall[AnswerPage[Event]]:
    filters = {"from": since, "to": until, "state": state, "channel": channel, "id_prefix": id_prefix, "error": error}
    query = _page(cursor, **filters, label=labels_text(labels) if labels else None, held="true" if held else None)
    return ApiCall("GET", "events", _EVENTS, query=query)


def dead_letters(
    *, since: datetime | None = None, until: datetime | None = None, channel: str | None = None, cursor: str | None
) -> ApiCall[AnswerPage[Event]]:
    return ApiCall("GET", "dead-letters", _EVENTS, query=_page(cursor, **{"from": since, "to": until, "channel": channel}))


def cancel(id: str, *, if_match: str | None = None) -> ApiCall[None]:
    recovery = Recovery(frozenset({"already-final", "precondition-failed"}), get(id), frozenset({"cancelled"}), lambda _: None)
    return ApiCall("DELETE", f"events/{_name(id)}", _read_cancelled, headers=match_header(if_match), recovery=recovery)


def _read_cancelled(reply: ApiReply) -> None:
    """Accept an empty answer, or the report of a fan-out. Raises `Refused` for its first event that is not cancelled."""
    if not reply.body:
        return
    for line in _REPORT(reply).unchanged:
        if line.state != "cancelled":
            raise refusal(ApiReply(line.status, {}, encode(line.problem)), f"DELETE events/{line.id}")


def _changes(changes: Mapping[str, Any]) -> bytes:
    if not changes:
        raise ValueError("name at least one field to change")
    payload = {"payload": sent_payload(changes["payload"], changes)} if "payload" in changes else {}
    return encode({name: to_json_value(name, value) for name, value in changes.items() if name != "payload"} | payload)


def change(id: str, changes: Mapping[str, Any], *, if_match: str | None = None) -> ApiCall[Event]:
    body = _changes(changes)
    # With If-Match, a second try cannot know whether the first try changed the version.
    repeatable = if_match is None
    return ApiCall("PATCH", f"events/{_name(id)}", _ONE_EVENT, body=body, headers=match_header(if_match), repeatable=repeatable)


def fire(id: str) -> ApiCall[Event]:
    begun = frozenset({"firing", "working", "retrying", "delivered", "dead"})
    recovery = Recovery(frozenset({"already-firing", "already-final"}), get(id), begun, lambda event: event)
    return ApiCall("POST", f"events/{_name(id)}/fire", _ONE_EVENT, recovery=recovery)


def redrive(id: str) -> ApiCall[Event]:
    alive = frozenset({"scheduled", "firing", "working", "retrying", "delivered", "lapsed"})
    recovery = Recovery(frozenset({"not-dead"}), get(id), alive, lambda event: event)
    return ApiCall("POST", f"events/{_name(id)}/redrive", _ONE_EVENT, recovery=recovery)


def redrive_all(*, since: datetime | None = None, until: datetime | None = None, channel: str | None = None) -> ApiCall[int]:
    body = encode(to_json_fields(**{"from": since, "to": until, "channel": channel}))
    return ApiCall("POST", "dead-letters/redrive", json_reader(lambda document: int(document["redriven"])), body=body, slow=True)


def prepare_job(
    action: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    state: str | None = None,
    channel: str | None = None,
    labels: Mapping[str, str] | None = None,
    id_prefix: str | None = None,
    error: str | None = None,
    due: datetime | None = None,
    later: timedelta | None = None,
    earlier: timedelta | None = None,
) -> ApiCall[BulkJob]:
    chosen = to_json_fields(**{"from": since, "to": until, "state": state, "channel": channel, "id_prefix": id_prefix, "error": error})
    document = {"action": action, "filter": chosen | ({"labels": dict(labels)} if labels else {})}
    body = encode(document | to_json_fields(due=due, later=later, earlier=earlier))
    # A job that was made twice does nothing: each waits for its confirmation.
    return ApiCall("POST", "jobs", _ONE_JOB, body=body, slow=True)


def job(id: str) -> ApiCall[BulkJob]:
    return ApiCall("GET", f"jobs/{_name(id)}", _ONE_JOB)


def jobs(*, cursor: str | None) -> ApiCall[AnswerPage[BulkJob]]:
    return ApiCall("GET", "jobs", _JOBS, query=_page(cursor))


def confirm_job(id: str, confirmation: str) -> ApiCall[BulkJob]:
    return ApiCall("POST", f"jobs/{_name(id)}/confirm", _ONE_JOB, body=encode({"confirmation": confirmation}))


def cancel_job(id: str) -> ApiCall[BulkJob]:
    return ApiCall("POST", f"jobs/{_name(id)}/cancel", _ONE_JOB)


def sizes() -> ApiCall[Sizes]:
    return ApiCall("GET", "limits", json_reader(reader_of(Sizes)))


def stats() -> ApiCall[Stats]:
    return ApiCall("GET", "stats", json_reader(reader_of(Stats)))


def load(since: datetime | None, until: datetime | None) -> ApiCall[tuple[MinuteLoad, ...]]:
    return ApiCall("GET", "load", lambda reply: _LOADS(reply).items, query=to_json_fields(**{"from": since, "to": until}))


def put_schedule(id: str, payload: Any, if_match: str | None, options: ScheduleOptions) -> ApiCall[Schedule]:
    if unknown := options.keys() - _RECURRENCE:
        raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
    body = encode({**to_json_fields(**options), "payload": sent_payload(payload, options)})
    repeatable = if_match is None
    return ApiCall("PUT", f"schedules/{_name(id)}", ONE_SCHEDULE, body=body, headers=match_header(if_match), repeatable=repeatable)


def get_schedule(id: str) -> ApiCall[Schedule]:
    return ApiCall("GET", f"schedules/{_name(id)}", ONE_SCHEDULE)


def delete_schedule(id: str, if_match: str | None, keep_overdue: bool) -> ApiCall[None]:
    query = {"overdue": "keep"} if keep_overdue else {}
    return ApiCall("DELETE", f"schedules/{_name(id)}", read_empty, query=query, headers=match_header(if_match), repeatable=False)


def schedules(*, cursor: str | None) -> ApiCall[AnswerPage[Schedule]]:
    return ApiCall("GET", "schedules", _SCHEDULES, query=_page(cursor))


def pause_schedule(id: str, *, paused: bool) -> ApiCall[Schedule]:
    return ApiCall("POST", f"schedules/{_name(id)}/{'pause' if paused else 'resume'}", ONE_SCHEDULE)


def trigger(id: str) -> ApiCall[Event]:
    # With an id, two calls have the effect of one.
    return ApiCall("POST", f"schedules/{_name(id)}/trigger", _ONE_EVENT, body=encode({"id": uuid.uuid4().hex[:16]}))


def preview(id: str, n: int) -> ApiCall[tuple[Occurrence, ...]]:
    return ApiCall("GET", f"schedules/{_name(id)}/preview", lambda reply: _OCCURRENCES(reply).items, query={"n": str(n)})


def backfill(id: str, since: datetime, until: datetime, *, name: str | None, spread: timedelta | None) -> ApiCall[Backfill]:
    # With a name, two calls have the effect of one.
    fields = to_json_fields(**{"from": since, "to": until, "id": name or f"c-{uuid.uuid4().hex[:14]}", "spread": spread})
    body = encode({key: value for key, value in fields.items() if value is not None})
    return ApiCall("POST", f"schedules/{_name(id)}/backfill", _BACKFILL, body=body, slow=True)


def heartbeat(name: str, within: timedelta, channel: str | None, payload: Any) -> ApiCall[Heartbeat]:
    fields = {"within": to_json_value("delay", within), "channel": channel, "payload": payload}
    body = encode({key: value for key, value in fields.items() if value is not None})
    return ApiCall("POST", f"heartbeats/{quote(name)}", _HEARTBEAT, body=body)


def end_heartbeat(name: str) -> ApiCall[None]:
    return ApiCall("DELETE", f"heartbeats/{quote(name)}", read_empty, repeatable=False)


def raw(method: str, path: str, body: Any = None) -> ApiCall[Any]:
    content = b"" if body is None else encode(body)
    read = json_reader(lambda document: document)
    # It is not known here whether sending an arbitrary POST or PATCH twice has the effect of one.
    repeatable = method in ("GET", "PUT")
    path, _, query = path.partition("?")
    return ApiCall(
        method, path, lambda reply: read(reply) if reply.body else None, query=dict(parse_qsl(query)), body=content, repeatable=repeatable
    )


def _name(id: str) -> str:
    if not _NAME.fullmatch(id) or id in (".", ".."):
        raise ValueError(f"{id[:40]!r} is not an id: an id has 1 to 200 characters of A-Z a-z 0-9 _ - : @ ~")
    return quote(id, safe=":@")


def match_header(etag: str | None) -> dict[str, str]:
    return {} if etag is None else {"if-match": etag}


def _page(cursor: str | None, **filters: Any) -> dict[str, str]:
    return to_json_fields(limit=str(PAGE), cursor=cursor, **filters)
