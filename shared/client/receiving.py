"""What a receiver does with a delivery: check that it comes from its Tocsin, then read it.

The signature (Standard Webhooks) covers the event's id, the second of the attempt, and the body. The other headers come unsigned, over
TLS: believe them as far as you believe the connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import from_json

from ..core import signing
from ..core.clock import Clock, SystemClock, to_datetime
from ..core.durations import parse_time
from .errors import BadDelivery

CLOCK: ContextVar[Clock] = ContextVar("tocsin_receiver_clock")
"""Set by the test kit, whose clock is months ahead."""
_SYSTEM = SystemClock()
_SOURCE = re.compile(r"/tenants/([^/]+)/channels/([^/]+)")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt to deliver an event. The same `id` may come more than once: keep the ids you have dealt with."""

    id: str
    """The event's id, the same for every attempt."""
    due: datetime
    fired: datetime
    """When the attempt began."""
    attempt: int
    """1 for the first attempt."""
    late: timedelta
    tenant: str
    channel: str
    payload: Any
    """The payload's JSON, read."""
    body: bytes = field(repr=False)
    """The same as it was sent in, byte for byte."""


def verify(headers: Mapping[str, str], body: bytes, secret: str | Iterable[str], *, tolerance: float = 300.0) -> Delivery:
    """The delivery in a request; raises `BadDelivery` for one that must not be trusted: answer 401.

    headers: of the request, names in any case. body: its bytes as they came, not decoded. secret: the channel's `whsec_...`, or several
    while rotating. tolerance: seconds the request may be older or newer than this machine's clock says. ValueError for a malformed
    secret, TypeError for a body that is not bytes.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError("verify needs the body's bytes as they came: text that was decoded and encoded again may differ")
    body = bytes(body)
    secrets = (secret,) if isinstance(secret, str) else tuple(secret)
    if not secrets:
        raise ValueError("no secret given")
    found = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (signing.HEADER_ID, signing.HEADER_TIMESTAMP, signing.HEADER_SIGNATURE) if not found.get(name)]
    if missing:
        raise BadDelivery(f"not signed: no {', '.join(missing)}")
    if not signing.verify(found, body, secrets, CLOCK.get(_SYSTEM).now(), tolerance):
        raise BadDelivery("the signature does not fit the body, the secret or the time")
    try:
        return _read(found, body)
    except (KeyError, ValueError, OverflowError):
        raise BadDelivery("signed, but not a Tocsin delivery: a ce- header is missing or malformed, or the body is not JSON") from None


def _read(headers: Mapping[str, str], body: bytes) -> Delivery:
    id, source = headers["ce-id"], _SOURCE.fullmatch(headers["ce-source"])
    if id != headers[signing.HEADER_ID]:
        # Only webhook-id is signed: another ce-id would let an old delivery pass for a new event.
        raise ValueError
    if source is None:
        raise ValueError
    return Delivery(
        id=id,
        due=to_datetime(parse_time(headers["ce-tocsindue"])),
        fired=to_datetime(parse_time(headers["ce-tocsinfired"])),
        attempt=int(headers["ce-tocsinattempt"]),
        late=timedelta(milliseconds=int(headers["ce-tocsinlatems"])),
        tenant=source[1],
        channel=source[2],
        payload=from_json(body),
        body=body,
    )
