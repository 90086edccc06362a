"""The header `tocsin-owner` of deliveries to the owner of a partition: the signed name of the lease that the owner must hold.

    tocsin-owner: fleet=search, generation=3, partition=17, epoch=42, id=order-17, v1=<base64>[, v1=<base64>]

`id` is the delivery's `webhook-id`. Each `v1` is HMAC-SHA256 of

    tocsin-owner-v1 LF fleet LF generation LF partition LF epoch LF id

with one of the channel's signing secrets as the key, the newest first; LF is one line feed. No text that a standard signature covers begins
so, because an id holds no line feed. A receiver that does not hold this lease answers `STALE`; the service then looks up the owner again.
"""

from __future__ import annotations

import binascii
import hmac
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from .signing import secret_bytes

HEADER: Final = "tocsin-owner"
STALE: Final = 421
"""Status of the answer of a server that does not own the partition under this epoch (Misdirected Request, RFC 9110 15.5.20)."""
_MAX_SIGNATURES: Final = 4
_FIELDS: Final = re.compile(
    r"fleet=([a-z0-9-]{1,40}), generation=([1-9][0-9]{0,9}), partition=(0|[1-9][0-9]{0,4}), epoch=(0|[1-9][0-9]{0,18}), "
    r"id=([!-+\--~]{1,2000})"
    r"((?:, v1=[A-Za-z0-9+/]{43}=){1,4})"
)


class OwnerClaim(NamedTuple):
    """The lease that a delivery names. id: the delivery's `webhook-id`."""

    fleet: str
    generation: int
    partition: int
    epoch: int
    id: str

    @property
    def content(self) -> bytes:
        """The bytes that are signed."""
        return "\n".join(("tocsin-owner-v1", self.fleet, str(self.generation), str(self.partition), str(self.epoch), self.id)).encode()


def _signature(claim: OwnerClaim, secret: str) -> str:
    return binascii.b2a_base64(hmac.digest(secret_bytes(secret), claim.content, "sha256"), newline=False).decode()


def sign_owner(claim: OwnerClaim, secrets: Iterable[str]) -> str:
    """Return the header's value. secrets: each as `whsec_...`, at least one. Raises ValueError for a malformed one."""
    fields = f"fleet={claim.fleet}, generation={claim.generation}, partition={claim.partition}, epoch={claim.epoch}, id={claim.id}"
    return ", ".join([fields, *(f"v1={_signature(claim, secret)}" for secret in secrets)])


def verify_owner(value: str, webhook_id: str, secrets: Iterable[str]) -> OwnerClaim | None:
    """Return the claim of a header's value if a holder of one of `secrets` signed it for this `webhook_id`; otherwise None.

    Signatures are compared in constant time. Raises ValueError if one of the caller's own `secrets` is malformed.
    """
    found = _FIELDS.fullmatch(value)
    wanted = list(secrets)
    for secret in wanted:
        secret_bytes(secret)
    if found is None or found[5] != webhook_id:
        return None
    claim = OwnerClaim(found[1], int(found[2]), int(found[3]), int(found[4]), found[5])
    offered = [each.removeprefix("v1=") for each in found[6].split(", ")[1:]][:_MAX_SIGNATURES]
    good = False
    for secret in wanted:
        expected = _signature(claim, secret)
        for signature in offered:
            good |= hmac.compare_digest(expected, signature)
    return claim if good else None
