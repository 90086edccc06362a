"""Changes of a fleet's partition count over HTTP. `protocol/resizing` has the protocol, `generations` the decisions.

The wire models, the service and its route. The service begins a resize, and gives the servers their orders, so that they learn of it with
their next heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from pydantic import Field

from ...core.clock import Clock
from ...core.errors import StorageError
from ...engine.async_runner import AsyncRunner
from ...tenants.store import contended
from ...web.fields.types import Name, Strict
from ...web.problem import conflict, not_found
from ...web.routes import Answer, Call, RouteGroup
from ..generations import ResizeProgress
from ..protocol import resizing
from ..protocol.resizing import PartitionsOffline, ResizeBegun, ResizeOutcome, ResizeUnderWay
from ..rows import INTENTS, MAX_PARTITIONS, fleet_key
from .planning import Planning

log = logging.getLogger(__name__)


class ResizeIn(Strict):
    """The new partition count of a fleet."""

    partitions: int = Field(ge=1, le=MAX_PARTITIONS)


class ResizeOut(Strict):
    """The generation of the new partition count."""

    generation: int


class ResizingOut(Strict):
    """The progress of a resize. It is complete when `opened` is the fleet's partition count."""

    former: int = Field(alias="from", description="Partitions of the generation before.")
    closed: int = Field(description="Partitions of the generation before that no server owns any more.")
    opened: int = Field(description="Partitions of the new generation that can be claimed.")


def resizing_out(progress: ResizeProgress | None) -> ResizingOut | None:
    """Return the progress as the API shows it; None if no resize is under way."""
    if progress is None:
        return None
    return ResizingOut.model_validate({"from": progress.former, "closed": progress.closed, "opened": progress.opened})


type FleetRoom = Callable[[str, str, int], AbstractAsyncContextManager[None]]
"""Receives the tenant, the fleet's name and its new number of partitions, which are stored inside. Entering it raises 409 if there are too
many."""
type Nudge = Callable[[str, str, float], object]
"""Receives the tenant, the fleet's name, and the seconds in which one visit is enough; returns at once."""
SOME = 5
"""Partitions that an error names."""


class ResizeService:
    """Resizes fleets. One per process."""

    def __init__(
        self,
        runner: AsyncRunner,
        planning: Planning,
        clock: Clock,
        room: FleetRoom = lambda tenant, fleet, partitions: nullcontext(),
        nudge: Nudge = lambda tenant, fleet, beat: None,
    ) -> None:
        """Keep the parts.

        room: bounds the partitions of the tenant's fleets; without it there is no limit. nudge: makes the takeover sweep visit the fleet,
        which may be idle, so that it continues the resize at its next run too.
        """
        self._runner, self._planning, self._clock, self._room = runner, planning, clock, room
        self._nudge = nudge

    async def resize(self, tenant: str, fleet: str, partitions: int) -> ResizeBegun:
        """Change the fleet's partition count. Repeating the same count changes nothing.

        Raises 404, 409 `resizing`, `offline`, `rows-missing`, `too-many-partitions`, `changed-meanwhile`, `StorageError`.
        """
        try:
            key = fleet_key(tenant, fleet)
        except ValueError:
            raise not_found("fleet") from None
        async with self._room(tenant, fleet, partitions):
            await self._whole(key, partitions)
            found = await self._begin(key, partitions)
        if found.again and not found.fleet.former:
            return found
        extra = {"action": "lease_resize", "fleet": key, "partitions": partitions, "generation": found.fleet.generation}
        log.info("Fleet %s resizes to %d partitions from %d", key, partitions, found.fleet.former, extra=extra)
        try:
            await self._tell(key)
        except StorageError as error:
            # The count is stored: scanners or the app's sweep continue the resize later.
            log.warning("Orders of fleet %s are delayed: %s", key, error, extra={"action": "lease_orders_wait", "fleet": key})
        self._nudge(tenant, fleet, 0.0)
        return found

    async def _whole(self, key: str, partitions: int) -> None:
        """Check that all rows can be read. A partition without a row is never closed, so a resize would not end. Raises 409."""
        seen = await self._planning.look(key)
        if seen is None or seen.summary.fleet.former or seen.summary.fleet.partitions == partitions:
            return
        kept = seen.kept
        if missing := [number for number in range(seen.summary.fleet.partitions) if number not in kept and number not in seen.partitions]:
            text = f"rows of partitions are missing: {_some(missing)}; repeat the PUT of the fleet to restore them"
            raise conflict("rows-missing", text)
        if odd := [rk for rk in seen.summary.unreadable if not rk.startswith(INTENTS[0])]:
            text = f"rows cannot be read, and a resize would wait for them: {', '.join(odd[:SOME])}; repair them in the table first"
            raise conflict("rows-missing", text)

    async def _begin(self, key: str, partitions: int) -> ResizeBegun:
        found: ResizeOutcome = await self._runner.run(resizing.begin(key, partitions, self._clock.now()))
        if isinstance(found, ResizeUnderWay):
            # The resize before may lack only its last step.
            await self._runner.run(resizing.sweep(key))
            found = await self._runner.run(resizing.begin(key, partitions, self._clock.now()))
        match found:
            case ResizeBegun():
                return found
            case ResizeUnderWay(fleet):
                text = f"the fleet changes from {fleet.former:,} to {fleet.partitions:,} partitions; wait until that resize is complete"
                raise conflict("resizing", text)
            case PartitionsOffline(offline):
                text = f"partitions are offline, and a resize would serve their keys again: {_some(offline)}; bring them online first"
                raise conflict("offline", text)
            case "missing":
                raise not_found("fleet")
            case "contended":
                raise contended()

    async def _tell(self, key: str) -> None:
        # Partitions without an owner can be claimed under the new count at once.
        await self._runner.run(resizing.sweep(key))
        seen = await self._planning.look(key)
        if seen is not None:
            await self._planning.carry_out(key, await self._planning.plan(seen, self._clock.now()))


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:SOME])) + (" ..." if len(numbers) > SOME else "")


resizes = RouteGroup[ResizeService]("leases", scope="fleets", params={"fleet": Name})


@resizes.post(
    "v1/fleets/{fleet}/leases/resize",
    answers={202: ResizeOut, 200: ResizeOut, 409: ("resizing", "offline", "rows-missing", "too-many-partitions", "changed-meanwhile")},
    examples={"twice as many": {"partitions": 128}},
)
async def leases_resize(call: Call[ResizeService, ResizeIn]) -> Answer:
    """Change a fleet's partition count while its servers run.

    Servers hand over with their next heartbeats. The answer is 200 if the fleet already has that count.
    """
    begun = await call.service.resize(call.tenant, call.params["fleet"], call.body.partitions)
    return Answer(202 if begun.fleet.former else 200, {"generation": begun.fleet.generation})
