"""Standard Webhooks signatures. The service signs each delivery; the receiver verifies it.

Source: https://github.com/standard-webhooks/standard-webhooks, symmetric scheme `v1`. What is signed is
`{id}.{timestamp}.{body}`: the event's id (the same for every attempt), whole seconds since 1970 UTC, the body's bytes. A header
holds one signature per valid secret, newest first, with spaces between, so that a receiver may change secrets in its own time.

Receivers written in Python use `verify`; any other Standard Webhooks library does as well.
"""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Iterable, Mapping
from functools import lru_cache

from .clock import Millis

PREFIX = "whsec_"
HEADER_ID = "webhook-id"
HEADER_TIMESTAMP = "webhook-timestamp"
HEADER_SIGNATURE = "webhook-signature"

_MAX_SIGNATURES = 16
"""Signatures of one header that `verify` looks at: a sender needs two; a stranger must not buy more of our time."""


def secret_bytes(secret: str) -> bytes:
    """The key in `whsec_<base64>` (padding optional). ValueError, without the secret in it, when it is none."""
    text = secret.removeprefix(PREFIX)
    try:
        key = binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:
        raise ValueError("not a webhook secret: whsec_ and base64") from None
    if not key:
        raise ValueError("not a webhook secret: it is empty")
    return key


@lru_cache(maxsize=4096)
def _keyed(secret: str) -> hmac.HMAC:
    # Setting up a key costs more than hashing a small payload: the object is made once and copied (1.1 us against 1.7).
    return hmac.new(secret_bytes(secret), digestmod="sha256")


def _digest(secret: str, head: bytes, body: bytes) -> bytes:
    mac = _keyed(secret).copy()
    mac.update(head)
    mac.update(body)
    return mac.digest()


def sign(id: str, seconds: int, body: bytes, secrets: Iterable[str]) -> str:
    """The value of `webhook-signature`: `v1,<base64>` for each secret, in their order. ValueError for a malformed secret."""
    head = f"{id}.{seconds}.".encode()
    return " ".join([f"v1,{binascii.b2a_base64(_digest(secret, head, body), newline=False).decode()}" for secret in secrets])


def verify(headers: Mapping[str, str], body: bytes, secrets: Iterable[str], now: Millis, tolerance: float = 300.0) -> bool:
    """True when `body` is what a holder of one of `secrets` signed, at most `tolerance` seconds before or after `now`.

    Header names match in any case. Pure: reads no clock. Signatures are compared in constant time. False says no more than that
    the request must not be trusted; ValueError means that one of the caller's own `secrets` is malformed.
    """
    found = {name.lower(): value for name, value in headers.items()}
    id, stamp, signatures = found.get(HEADER_ID), found.get(HEADER_TIMESTAMP), found.get(HEADER_SIGNATURE)
    wanted = [secret for secret in secrets if secret_bytes(secret)]
    if not id or not stamp or not signatures:
        return False
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12) or abs(now / 1000 - int(stamp)) > tolerance:
        return False
    # The stamp is signed as it was sent: "007" and "7" are not the same bytes.
    head = f"{id}.{stamp}.".encode("utf-8", "replace")
    parts = signatures.split(" ", _MAX_SIGNATURES)[:_MAX_SIGNATURES]
    offered = [part[3:].encode("utf-8", "replace") for part in parts if part[:3] == "v1,"]
    good = False
    for secret in wanted:
        expected = binascii.b2a_base64(_digest(secret, head, body), newline=False)
        for signature in offered:
            good |= hmac.compare_digest(expected, signature)
    return good
