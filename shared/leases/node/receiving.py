"""`OwnerGuard`: lets a server take only the deliveries of partitions that it owns, under the epoch that it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ...client.receiving import CLOCK
from ...core import owner_header, signing
from ...core.clock import Millis, SystemClock

UNSIGNED = 401
"""Status of the answer to a request without a valid signature of the service."""


class HoldsLeases(Protocol):
    """The parts of a `LeaseKeeper` that the guard asks."""

    @property
    def fleet(self) -> str: ...

    def holds(self, generation: int, partition: int, epoch: int) -> bool:
        """Return True if this process may act on the partition under this epoch now."""


class OwnedDelivery(NamedTuple):
    """A delivery that this server may act on. id: for deduplication, the same for all attempts at an event."""

    id: str
    partition: int
    epoch: int
    body: bytes
    generation: int = 1

    @property
    def payload(self) -> Any:
        """The parsed JSON of the body."""
        return json.loads(self.body)


class RefusedDelivery(NamedTuple):
    """A delivery that this server must not act on. status: of the answer. reason: for its body."""

    status: int
    reason: str


class OwnerGuard:
    """Checks deliveries of a fleet channel: signature, owner header, and this server's own lease at this moment.

    ::

        guard = OwnerGuard(keeper, [os.environ["CHANNEL_SECRET"]])

        def on_post(headers, body):
            found = guard.check(headers, body)
            if isinstance(found, RefusedDelivery):
                return found.status, found.reason
            return apply_once(found.id, found.partition, found.epoch, found.payload)

    The lease can end right after the check. Ask `keeper.owns` again before each step that must not be done twice, or write with
    `FencedBatch` under `found.epoch`, which makes the store refuse a former owner.
    """

    def __init__(self, keeper: HoldsLeases, secrets: Iterable[str], *, wall: Callable[[], Millis] | None = None) -> None:
        """secrets: the channel's signing secrets, two during a rotation. wall: wall time in milliseconds, by default the system's.

        Raises ValueError for a malformed secret.
        """
        self._keeper, self._secrets = keeper, tuple(secrets)
        for secret in self._secrets:
            signing.secret_bytes(secret)
        # In tests with the test kit, this is the kit's clock.
        self._wall = wall or CLOCK.get(SystemClock()).now

    def check(self, headers: Mapping[str, str], body: bytes) -> OwnedDelivery | RefusedDelivery:
        """Return the delivery if this server owns its partition; otherwise the answer to give: 401, or 421 for a stale owner."""
        if not signing.verify(headers, body, self._secrets, self._wall()):
            return RefusedDelivery(UNSIGNED, "the signature is not valid")
        given = {name.lower(): value for name, value in headers.items()}
        claim = owner_header.verify_owner(given.get(owner_header.HEADER, ""), given[signing.HEADER_ID], self._secrets)
        if claim is None:
            return RefusedDelivery(UNSIGNED, f"the header {owner_header.HEADER} is missing or not valid")
        if claim.fleet != self._keeper.fleet or not self._keeper.holds(claim.generation, claim.partition, claim.epoch):
            return RefusedDelivery(owner_header.STALE, f"this server does not own partition {claim.partition} under epoch {claim.epoch}")
        return OwnedDelivery(claim.id, claim.partition, claim.epoch, body, claim.generation)
