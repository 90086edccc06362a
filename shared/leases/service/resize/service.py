"""Begins a change of the partition count, and tells the servers, so that they hear of it with their next beat."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ....core.clock import Clock
from ....core.errors import StorageError
from ....engine.async_runner import AsyncRunner
from ....tenants.store import contended
from ....web.problem import conflict, not_found
from ...protocol import resizing
from ...protocol.resizing import Beginning, Begun, Busy, Offline
from ...rows import INTENTS, fleet_key
from ..planning import Planning

log = logging.getLogger(__name__)

SOME = 5
"""Partitions that a refusal names."""


class ResizeService:
    """One per process."""

    def __init__(self, runner: AsyncRunner, planning: Planning, clock: Clock) -> None:
        self._runner, self._planning, self._clock = runner, planning, clock

    async def resize(self, tenant: str, fleet: str, partitions: int) -> Begun:
        """Have the fleet use so many partitions. The same count again changes nothing.

        Raises 404, 409 `resizing`, `offline`, `rows-missing`, `changed-meanwhile`, `StorageError`.
        """
        try:
            key = fleet_key(tenant, fleet)
        except ValueError:
            raise not_found("fleet") from None
        await self._whole(key, partitions)
        found = await self._begin(key, partitions)
        if found.again and not found.fleet.former:
            return found
        extra = {"action": "lease_resize", "fleet": key, "partitions": partitions, "generation": found.fleet.generation}
        log.info("%s: %d partitions instead of %d", key, partitions, found.fleet.former, extra=extra)
        try:
            await self._tell(key)
        except StorageError as error:
            # The count stands: scanners or the watch carry it on with their next look.
            log.warning("Orders of %s wait for the next look: %s", key, error, extra={"action": "lease_orders_wait", "fleet": key})
        return found

    async def _whole(self, key: str, partitions: int) -> None:
        """A partition without a row is never closed, so that a change would wait for it for ever. Raises 409."""
        seen = await self._planning.look(key)
        if seen is None or seen.summary.fleet.former or seen.summary.fleet.partitions == partitions:
            return
        kept = seen.kept
        if missing := [number for number in range(seen.summary.fleet.partitions) if number not in kept and number not in seen.partitions]:
            text = f"rows of partitions are missing: {_some(missing)}; a PUT of the fleet gives them back"
            raise conflict("rows-missing", text)
        if odd := [rk for rk in seen.summary.unreadable if not rk.startswith(INTENTS[0])]:
            text = f"rows cannot be read, and a change would wait for them: {', '.join(odd[:SOME])}; mend them first"
            raise conflict("rows-missing", text)

    async def _begin(self, key: str, partitions: int) -> Begun:
        found: Beginning = await self._runner.run(resizing.begin(key, partitions, self._clock.now()))
        if isinstance(found, Busy):
            # It may be done but for the last step.
            await self._runner.run(resizing.sweep(key))
            found = await self._runner.run(resizing.begin(key, partitions, self._clock.now()))
        match found:
            case Begun():
                return found
            case Busy(fleet):
                raise conflict("resizing", f"the fleet is going from {fleet.former:,} partitions to {fleet.partitions:,}; wait for that")
            case Offline(offline):
                text = f"partitions are offline, and their keys would be served again: {_some(offline)}; bring them online first"
                raise conflict("offline", text)
            case "missing":
                raise not_found("fleet")
            case "contended":
                raise contended()

    async def _tell(self, key: str) -> None:
        # Whatever nobody has can be claimed under the new count at once.
        await self._runner.run(resizing.sweep(key))
        seen = await self._planning.look(key)
        if seen is not None:
            await self._planning.carry_out(key, await self._planning.plan(seen, self._clock.now()))


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:SOME])) + (" ..." if len(numbers) > SOME else "")
