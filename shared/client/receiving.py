"""Verify and read deliveries in a receiver.

The signature (Standard Webhooks) covers the event's id, the second of the attempt, and the body. The other headers are not signed:
trust them as far as you trust the TLS connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..core import long_work, signing
from ..core.clock import Clock, SystemClock, to_datetime
from ..core.durations import parse_time
from .errors import BadDelivery
from .reading import read_json

if TYPE_CHECKING:
    from .work import Work

CLOCK: ContextVar[Clock] = ContextVar("tocsin_receiver_clock")
"""The clock that signatures are checked with. The test kit sets it, because its clock is months ahead."""
_JSON = "application/json"
_SYSTEM = SystemClock()
_SOURCE = re.compile(r"/tenants/([^/]+)/channels/([^/]+)")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt to deliver an event. The same `id` may arrive more than once: record the ids that you have processed."""

    id: str
    """Id of the event, the same for every attempt."""
    due: datetime
    fired: datetime
    """Time at which the attempt began."""
    attempt: int
    """1 for the first attempt."""
    late: timedelta
    tenant: str
    channel: str
    payload: Any
    """The payload, decoded from JSON; None for a request without a body (methods GET and DELETE). For another `content_type`: the bytes."""
    body: bytes = field(repr=False)
    """The payload's bytes as they arrived."""
    content_type: str = "application/json"
    """The type of the body. It is not signed."""
    work: Work | None = None
    """The way to complete the event later; None unless the channel allows long work. Its headers are not signed: see `Work.at`."""


def verify(headers: Mapping[str, str], body: bytes, secret: str | Iterable[str], *, tolerance: float = 300.0) -> Delivery:
    """Return the delivery in a request. Raises `BadDelivery` if the request must not be trusted: answer 401.

    headers: of the request, with names in any case. body: its bytes as they arrived, not decoded. secret: the channel's `whsec_...`, or
    several while it is rotated. tolerance: seconds by which the request may be older or newer than this machine's clock. Raises
    ValueError for a malformed secret, TypeError for a body that is not bytes.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError("verify needs the body's bytes as they arrived: text that was decoded and encoded again may differ")
    body = bytes(body)
    secrets = (secret,) if isinstance(secret, str | bytes) else tuple(secret or ())
    if not secrets:
        raise ValueError("verify needs the channel's secret, whsec_..., and got none. Is the setting that holds it there?")
    for each in secrets:
        if not isinstance(each, str):
            raise TypeError(f"verify needs the channel's secret as text, whsec_..., and got {type(each).__name__}")
    found = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (signing.HEADER_ID, signing.HEADER_TIMESTAMP, signing.HEADER_SIGNATURE) if not found.get(name)]
    if missing:
        raise BadDelivery(f"the request is not signed: it lacks {', '.join(missing)}")
    if not signing.verify(found, body, secrets, CLOCK.get(_SYSTEM).now(), tolerance):
        raise BadDelivery("the signature does not match the body, the secret or the time")
    try:
        return _read(found, body)
    except (KeyError, ValueError, OverflowError):
        detail = "the request is signed but is not a Tocsin delivery: a ce- header is missing or malformed, or the body is not JSON"
        raise BadDelivery(detail) from None


def _read(headers: Mapping[str, str], body: bytes) -> Delivery:
    id, source = headers["ce-id"], _SOURCE.fullmatch(headers["ce-source"])
    if id != headers[signing.HEADER_ID]:
        # Only webhook-id is signed: another ce-id would let an old delivery pass for a new event.
        raise ValueError
    if source is None:
        raise ValueError
    content_type = headers.get("content-type", _JSON)
    return Delivery(
        id=id,
        due=to_datetime(parse_time(headers["ce-tocsindue"])),
        fired=to_datetime(parse_time(headers["ce-tocsinfired"])),
        attempt=int(headers["ce-tocsinattempt"]),
        late=timedelta(milliseconds=int(headers["ce-tocsinlatems"])),
        tenant=source[1],
        channel=source[2],
        payload=_payload(body, content_type),
        body=body,
        work=_work(headers),
        content_type=content_type,
    )


def _payload(body: bytes, content_type: str) -> Any:
    if content_type.partition(";")[0].strip().lower() not in ("", _JSON):
        return body
    return read_json(body) if body else None


def _work(headers: Mapping[str, str]) -> Work | None:
    url, token = headers.get(long_work.HEADER_URL), headers.get(long_work.HEADER_TOKEN)
    if not url or not token:
        return None
    from .work import Work

    return Work(url, token, timedelta(seconds=int(headers.get(long_work.HEADER_WITHIN, "0"))))
