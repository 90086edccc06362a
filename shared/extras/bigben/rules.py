"""Translate between BigBen's API and the scheduler's. Pure.

BigBen identifies an event by tenant and id, and an id can be used again once its event has ended. In the scheduler, an id names one
event until its retention ends. So each further use of an id is a *use* with its own event id: `order-17`, `order-17~1`, `order-17~2`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from ...core.clock import Millis, to_text
from ...core.durations import parse_time
from ...core.errors import Problem
from ...scheduler.keys import digest
from ...web.parsing import load_json, member
from .model import DeliveryOption, EventRequest, EventStatus

_PLAIN = re.compile(r"[A-Za-z0-9_:@-]{1,180}")
_ZONE = re.compile(r"\[[A-Za-z0-9_+/:-]{1,64}\]$")
_NO_SECONDS = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2})(Z|[+-]\d{2}:\d{2})$", re.ASCII)
_LABEL = re.compile(r"[^\x00-\x1f\x7f]{1,256}")

ID, TIME, OPTION, TEXT = "bigben.id", "bigben.time", "bigben.option", "bigben.text"
"""Labels that restore an event as BigBen's client sent it."""


class RejectedRequest(NamedTuple):
    """A refused request, with the reason."""

    code: int
    message: str


class UpsertRequest(NamedTuple):
    """A parsed request to schedule an event. `payload`: its JSON as sent, or None."""

    id: str
    tenant: str
    time: str
    due: Millis
    option: DeliveryOption
    payload: bytes | None


class RemoveRequest(NamedTuple):
    """A parsed request to remove an event."""

    id: str
    tenant: str


def parse_request(request: EventRequest, payload: bytes | None, known: bool) -> UpsertRequest | RemoveRequest | RejectedRequest:
    """Return the parsed request, or its refusal with the message that BigBen uses. known: the caller may act for the tenant."""
    if request.tenant is None:
        return RejectedRequest(400, "tenant not present")
    if request.mode == "UPSERT" and request.eventTime is None:
        return RejectedRequest(400, "event time not present")
    if not known:
        return RejectedRequest(400, f"tenant not registered / unknown tenant: {request.tenant}")
    if request.id is None or not _LABEL.fullmatch(request.id):
        rule = "id must be 1 to 256 characters, none of them a control character"
        return RejectedRequest(400, rule if request.id else "id not present")
    if request.mode == "REMOVE":
        return RemoveRequest(request.id, request.tenant)
    assert request.eventTime is not None
    due = parse_event_time(request.eventTime)
    if due is None:
        return RejectedRequest(400, "event time can not be parsed. Must be in ISO 8601 format.")
    option: DeliveryOption = request.deliveryOption or "FULL_EVENT"
    body = None if payload in (None, b"null") else payload
    if body is None and option == "PAYLOAD_ONLY":
        return RejectedRequest(400, "payload must not be null for deliveryOption PAYLOAD_ONLY")
    return UpsertRequest(request.id, request.tenant, request.eventTime, due, option, body)


def parse_event_time(text: str) -> Millis | None:
    """Parse an ISO 8601 time with an offset as Java's `ZonedDateTime` does: seconds are optional, a zone in brackets may follow.

    Returns None for other texts.
    """
    plain = _NO_SECONDS.sub(r"\1:00\2", _ZONE.sub("", text))
    try:
        return parse_time(plain)
    except ValueError:
        return None


def base_id(bigben_id: str) -> str:
    """Return the event id of an id's first use: the id itself if the scheduler accepts it, else a hash of it."""
    return bigben_id if _PLAIN.fullmatch(bigben_id) else hashed(bigben_id)


def hashed(bigben_id: str) -> str:
    """Return a short event id derived from the id by a hash."""
    return f"h~{digest(bigben_id).hex()}"


def event_id(bigben_id: str, generation: int) -> str:
    """Return the event id of one use of an id."""
    base = base_id(bigben_id)
    return f"{base}~{generation}" if generation else base


def body(wanted: UpsertRequest, event: str | None) -> bytes:
    """Return the body to deliver. A payload that is JSON in a string is delivered as that JSON, as BigBen posts it.

    event: the event's id, or None for an event that was past when it was sent. BigBen stores and names no such event.
    """
    if wanted.option == "PAYLOAD_ONLY":
        assert wanted.payload is not None
        return unwrapped(wanted.payload) or wanted.payload
    full = {
        "id": wanted.id,
        "eventTime": wanted.time,
        "tenant": wanted.tenant,
        "mode": "UPSERT",
        "deliveryOption": "FULL_EVENT",
        **({} if event is None else {"eventId": event}),
        "triggeredAt": to_text(wanted.due),
        "eventStatus": "TRIGGERED",
    }
    text = orjson.dumps(full)
    return text if wanted.payload is None else text[:-1] + b',"payload":' + wanted.payload + b"}"


def unwrapped(payload: bytes) -> bytes | None:
    """Return the JSON inside a JSON string, or None if there is none."""
    if not payload.startswith(b'"'):
        return None
    inner = str(orjson.loads(payload)).encode()
    try:
        load_json(inner, any_number=True)
    except Problem:
        return None
    return inner


def labels(wanted: UpsertRequest) -> dict[str, str]:
    """Return the labels from which the event can be shown as it was sent."""
    found = {ID: wanted.id, TIME: wanted.time, OPTION: wanted.option}
    if wanted.option == "PAYLOAD_ONLY" and wanted.payload is not None and unwrapped(wanted.payload) is not None:
        found[TEXT] = "yes"
    return found


def document(wanted: UpsertRequest, event: str, *, past: bool) -> bytes:
    """Return the event as `POST /events` takes it. It is stored before it is acknowledged: BigBen's clients look it up at once."""
    head = {"id": event, "due": to_text(wanted.due), "durability": "standard", "labels": labels(wanted)}
    return orjson.dumps(head)[:-1] + b',"payload":' + body(wanted, None if past else event) + b"}"


def patch(wanted: UpsertRequest, event: str, due: Millis, *, past: bool) -> bytes:
    """Return the change of a stored event, due at `due`, to the requested one, as `PATCH /events/{id}` takes it."""
    head = {"due": to_text(wanted.due)} if wanted.due != due else {}
    text = orjson.dumps(head)[:-1] + (b"," if head else b"")
    return text + b'"payload":' + body(wanted, None if past else event) + b"}"


def is_same(wanted: UpsertRequest, event: str, due: Millis, kept: Mapping[str, str], payload: bytes) -> bool:
    """Return True if a stored event, with these labels and this body, is the requested one, sent before or after its time."""
    equal = due == wanted.due and kept == labels(wanted)
    return equal and payload in (body(wanted, event), body(wanted, None))


_STATUS: Mapping[str, EventStatus] = {
    "queued": "UN_PROCESSED",
    "scheduled": "UN_PROCESSED",
    "firing": "TRIGGERED",
    "working": "TRIGGERED",
    "retrying": "TRIGGERED",
    "delivered": "PROCESSED",
    "dead": "ERROR",
    "lapsed": "ERROR",
    "cancelled": "DELETED",
}


def status_of(state: str) -> EventStatus:
    """Return BigBen's status for a state of an event."""
    return _STATUS[state]


def shown(event: Mapping[str, Any], kept: Mapping[str, str], payload: bytes) -> dict[str, Any] | None:
    """Return a stored event as BigBen shows it, or None if another API created it.

    event: its representation. kept: its labels. payload: the body to deliver.
    """
    if ID not in kept:
        return None
    given: bytes | None = payload
    if kept[OPTION] == "FULL_EVENT":
        given = member(payload, "payload")
    elif TEXT in kept:
        given = orjson.dumps(payload.decode())
    out: dict[str, Any] = {
        "id": kept[ID],
        "eventTime": kept[TIME],
        "tenant": event["tenant"],
        "mode": "UPSERT",
        "deliveryOption": kept[OPTION],
        "eventId": event["id"],
        "eventStatus": status_of(event["state"]),
    }
    if given:
        out["payload"] = orjson.Fragment(given)
    if event["attempts"]:
        out["triggeredAt"] = event["attempts"][-1]["at"]
    if out["eventStatus"] == "ERROR":
        out["error"] = {"code": 500, "message": event.get("error") or "it expired before it could be delivered"}
    return out
