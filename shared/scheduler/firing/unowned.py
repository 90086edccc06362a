"""The events of one owner of a shard that wait because no server owns the partition of their ordering key.

They are not claimed, so waiting costs no delivery slot and no write. An owner whose tenant has no fleet channel asks nothing here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...delivery.channels.model import FleetChannel
from ...storage.ports import Row
from ..overlap import KEY
from ..rules import punctual_at
from ..timings import CHANNEL_UNREAD_WAIT
from .attempt import DeliveryAttempts

log = logging.getLogger(__name__)


class UnownedEvents:
    """The waiting events of one owner of a shard."""

    def __init__(self, attempts: DeliveryAttempts, clock: Clock, *, succeeds: bool) -> None:
        """succeeds: a former owner has released the shard; what it saw waiting is not known here."""
        self._attempts, self._clock, self._succeeds = attempts, clock, succeeds

    async def blocked(self, rows: Mapping[str, Row], claim: Sequence[str]) -> dict[str, Millis]:
        """Return those of the claimable events in lines that must wait, and when to look at each again."""
        by_key: dict[tuple[str, str], list[str]] = {}
        for rk in claim:
            if KEY in (props := rows[rk].props):
                by_key.setdefault((str(props["channel"]), str(props[KEY])), []).append(rk)
        if not by_key:
            return {}
        fleets = {channel for channel in {channel for channel, _ in by_key} if await self._delivers_to_owners(channel)}
        # Side by side: events of other channels in the shard wait for these reads.
        asked = [(channel, key, rows, waiting) for (channel, key), waiting in by_key.items() if channel in fleets]
        found = await asyncio.gather(*(self._blocked(*each) for each in asked))
        return {rk: look for each in found for rk, look in each.items()}

    async def _delivers_to_owners(self, channel: str) -> bool:
        """Return False for a channel of another type."""
        try:
            target = await self._attempts.tenant.target(channel)
        except StorageError:
            # Its events wait until it can be read.
            return True
        return target is not None and isinstance(target.spec, FleetChannel)

    async def _blocked(self, channel: str, key: str, rows: Mapping[str, Row], claim: Sequence[str]) -> dict[str, Millis]:
        """Return those of one key's events that must wait."""
        tenant, owners = self._attempts.tenant, self._attempts.owners()
        found: dict[str, Millis] = {}
        try:
            target = await tenant.target(channel)
            if target is None or not isinstance(target.spec, FleetChannel):
                return {}
            for rk in claim:
                props = rows[rk].props
                routed = await owners.route(tenant.name, target.spec.fleet, key, punctual_at(props))
                if not routed.owner.hold:
                    return {}
                if routed.decision.action == "wait":
                    found[rk] = routed.decision.look
                    # An event whose time has not come yet waits for that first.
                    since = punctual_at(props) if self._succeeds else max(self._clock.now(), punctual_at(props))
                    self._attempts.waits.unowned(str(props["id"]), since)
        except StorageError as error:
            log.debug("The owner of a partition could not be read: %s", error, extra={"action": "owner_unread"})
            return dict.fromkeys(claim, self._clock.now() + CHANNEL_UNREAD_WAIT)
        return found
