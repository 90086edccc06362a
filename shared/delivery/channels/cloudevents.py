"""Deliveries as CloudEvents 1.0: headers of the binary mode (http), one JSON object (queue), the SDK's object (Event Grid).

Source: https://github.com/cloudevents/spec, HTTP protocol binding 3.1 and JSON event format. In addition to the required attributes, an
event has `time` (its due time) and the extensions `tocsindue`, `tocsinfired` (RFC 3339, UTC, milliseconds), `tocsinlatems` and
`tocsinattempt` (integers), and `traceparent` if it has one.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import orjson

from ...core.clock import to_text
from .content import JSON
from .ports import OutgoingDelivery, Target

TYPE = "tocsin.event.due"
SPEC_VERSION = "1.0"
CONTENT_TYPE = JSON

_NEEDS_CODING = re.compile(r"[^\x21\x23\x24\x26-\x7e]+")
"""Characters that a header value must encode: all outside U+0021 to U+007E, and the quote and the percent sign."""


def _percent(found: re.Match[str]) -> str:
    return "".join([f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace")])


def header_value(text: str) -> str:
    """Return `text` percent-encoded for a CloudEvents header (HTTP binding 3.1.3.2); a lone surrogate becomes `?`. Never raises."""
    return _NEEDS_CODING.sub(_percent, text)


def source(target: Target) -> str:
    """Return `/tenants/{tenant}/channels/{channel}`."""
    return f"/tenants/{target.tenant}/channels/{target.name}"


def binary_headers(target: Target, delivery: OutgoingDelivery) -> dict[str, str]:
    """Return the headers of the binary mode, with the content type; the body is the payload itself."""
    own = headers_of(delivery_lines(header_value(delivery.id), delivery))
    return channel_headers(target) | own | {"content-type": delivery.content_type}


def channel_headers(target: Target) -> dict[str, str]:
    """Return those of the headers that all deliveries of a channel share."""
    return {"content-type": CONTENT_TYPE, "ce-specversion": SPEC_VERSION, "ce-type": TYPE, "ce-source": source(target)}


def delivery_lines(id: str, delivery: OutgoingDelivery) -> str:
    """Return the headers that belong to one delivery, as lines of a request without the last line break.

    id: the event's id as a header value, see `header_value`.
    """
    due = to_text(delivery.due)
    # One text instead of a mapping, because every delivery pays for it.
    lines = (
        f"ce-id: {id}\r\nce-time: {due}\r\nce-tocsindue: {due}\r\nce-tocsinfired: {to_text(delivery.fired)}\r\n"
        f"ce-tocsinlatems: {delivery.late_ms}\r\nce-tocsinattempt: {delivery.attempt}"
    )
    return lines if delivery.traceparent is None else f"{lines}\r\ntraceparent: {header_value(delivery.traceparent)}"


def headers_of(lines: str) -> dict[str, str]:
    """Return the headers by name. lines: those of a request, without the last line break."""
    return dict([line.split(": ", 1) for line in lines.split("\r\n")])


def extensions(delivery: OutgoingDelivery) -> dict[str, Any]:
    """Return the extension attributes, for the JSON format and Event Grid."""
    out: dict[str, Any] = {
        "tocsindue": to_text(delivery.due),
        "tocsinfired": to_text(delivery.fired),
        "tocsinlatems": delivery.late_ms,
        "tocsinattempt": delivery.attempt,
    }
    if delivery.traceparent is not None:
        out["traceparent"] = delivery.traceparent
    return out


def structured(target: Target, delivery: OutgoingDelivery, sender: Mapping[str, Any]) -> bytes:
    """Return the event as one JSON object. The payload is included byte for byte as sent: ingest has checked that it is JSON.

    The bytes of an event with a content type of its own are `data_base64`.

    sender: attributes about the process that sends it.
    """
    attributes: dict[str, Any] = {
        "specversion": SPEC_VERSION,
        "id": delivery.id,
        "source": source(target),
        "type": TYPE,
        "time": to_text(delivery.due),
        "datacontenttype": delivery.content_type,
        **extensions(delivery),
        **sender,
    }
    if delivery.content_type != JSON:
        attributes["data_base64"] = base64.b64encode(delivery.body).decode()
        return orjson.dumps(attributes)
    return b'%b,"data":%b}' % (orjson.dumps(attributes)[:-1], delivery.body or b"null")
