"""The events of one owner of a shard that wait because no server owns the partition of their ordering key.

They are not claimed, so waiting costs no delivery slot and no write. An owner whose tenant has no fleet channel asks nothing here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...delivery.channels.model import FleetChannel
from ...storage.ports import Row
from ..overlap import KEY
from ..timings import CHANNEL_UNREAD_WAIT
from .attempt import DeliveryAttempts, punctual_at

log = logging.getLogger(__name__)


class UnownedEvents:
    """The waiting events of one owner of a shard."""

    def __init__(self, attempts: DeliveryAttempts, clock: Clock, *, succeeds: bool) -> None:
        """succeeds: a former owner has released the shard; what it saw waiting is not known here."""
        self._attempts, self._clock, self._succeeds = attempts, clock, succeeds

    async def blocked(self, rows: Mapping[str, Row], claim: Sequence[str]) -> dict[str, Millis]:
        """Return those of the claimable events that must wait, and when to look at each again."""
        keyed = [rk for rk in claim if KEY in rows[rk].props]
        if not keyed:
            return {}
        found: dict[str, Millis] = {}
        fleets: dict[str, FleetChannel | None] = {}
        owned = set[tuple[str, str]]()
        """Channels and keys that can be delivered now, whichever the event."""
        for rk in keyed:
            props = rows[rk].props
            channel = str(props["channel"])
            try:
                if channel not in fleets:
                    target = await self._attempts.tenant.target(channel)
                    fleets[channel] = target.spec if target is not None and isinstance(target.spec, FleetChannel) else None
                if (spec := fleets[channel]) is None or (channel, str(props[KEY])) in owned:
                    continue
                tenant = self._attempts.tenant.name
                routed = await self._attempts.owners.route(tenant, spec.fleet, str(props[KEY]), punctual_at(props))
            except StorageError as error:
                log.debug("An owner of a partition could not be read: %s", error, extra={"action": "owner_unread"})
                found[rk] = self._clock.now() + CHANNEL_UNREAD_WAIT
                continue
            if routed.decision.action != "wait":
                if not routed.owner.hindrance:
                    owned.add((channel, str(props[KEY])))
                continue
            found[rk] = routed.decision.look
            # An event whose time has not come yet waits for that first.
            now = self._clock.now()
            since = punctual_at(props) if self._succeeds else max(now, punctual_at(props))
            self._attempts.waits.unowned(str(props["id"]), since)
        return found
