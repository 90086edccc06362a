"""Applies manual controls: one transaction, then a plan and its orders at once, so that they take effect with the next heartbeat."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ....core.clock import Clock
from ....core.errors import StorageError
from ....engine.async_runner import AsyncRunner
from ....engine.conflicts import WriteConflict, retry_steps
from ....engine.effects import LOST, Steps, get, load, write
from ....storage.names import FLEETS
from ....storage.ports import Applied, Merge, Row
from ....tenants.store import contended
from ....web.problem import not_found
from ...planner import DiversionReason
from ...rows import (
    FLEET,
    INTENTS,
    NO_PARTITION,
    Intent,
    Partition,
    Server,
    fleet_key,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
)
from ...unreadable_rows import parse_rows
from ..planning import Planning, PlanResult
from ..snapshot import FleetSummary, Versioned, parse_summary, row_age
from .verbs import REVOCATIONS, ControlRequest, IntentChange, decide

log = logging.getLogger(__name__)

TRIES = 10
"""Attempts to apply a verb while heartbeats or other operators come in between."""


class ControlResult(NamedTuple):
    """The result of a request. intent: now in force, or revoked. ended: other controls that it has ended. diverted: partitions that do not
    go to a drain's destination, with the reasons."""

    intent: Intent
    ended: tuple[Intent, ...]
    diverted: Mapping[int, DiversionReason]


class ManualControls:
    """Applies and lists manual controls. One per process."""

    def __init__(self, runner: AsyncRunner, planning: Planning, clock: Clock) -> None:
        self._runner, self._planning, self.clock = runner, planning, clock

    async def apply(self, tenant: str, fleet: str, request: ControlRequest) -> ControlResult:
        """Apply a verb, plan, and give the orders. Repeating a verb changes nothing.

        Raises 404, 409 (`verbs.decide`), `StorageError`.
        """
        key = _key(tenant, fleet)
        change = await self._runner.run(carry_out(key, request))
        if change is None:
            raise not_found("fleet")
        extra = {"action": "lease_control", "fleet": key, "verb": request.verb, "author": request.author, "note": request.note}
        target = request.server if request.partition == NO_PARTITION else f"partition {request.partition}"
        diverted: dict[int, DiversionReason] = {}
        if change.ops:
            log.info(
                "%s: %s %s by %s%s", key, request.verb, target, request.author, f": {request.note}" if request.note else "", extra=extra
            )
            try:
                planned = await self.plan(tenant, fleet, dry_run=False)
                diverted = planned.plan.diverted if request.to else {}
            except StorageError as error:
                # The control is stored: scanners or the app's sweep act on it later.
                log.warning("Orders of fleet %s are delayed: %s", key, error, extra={"action": "lease_orders_wait", "fleet": key})
        if diverted:
            _log_diverted(key, request, diverted)
        return ControlResult(change.intent, change.ended, diverted)

    async def intents(self, tenant: str, fleet: str) -> list[Intent]:
        """Return the controls in force, by verb and target. Raises 404, `StorageError`."""
        key = _key(tenant, fleet)
        found = await self._runner.run(_read_controls(key))
        if found is None:
            raise not_found("fleet")
        now = self.clock.now()
        return [intent for intent in found.intents if not intent.expires or now < intent.expires]

    async def plan(self, tenant: str, fleet: str, *, dry_run: bool) -> PlanResult:
        """Plan, and give the orders unless it is a dry run. Raises 404, `StorageError`."""
        key = _key(tenant, fleet)
        seen = await self._planning.look(key)
        if seen is None:
            raise not_found("fleet")
        planned = await self._planning.plan(seen, self.clock.now())
        return planned if dry_run else await self._planning.carry_out(key, planned)


def _log_diverted(key: str, request: ControlRequest, diverted: Mapping[int, DiversionReason]) -> None:
    reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(Counter(diverted.values()).items()))
    text = "%s: %d partitions do not go to %s, the destination of the drain of %s (%s)"
    extra = {"action": "lease_drain_diverted", "fleet": key, "server": request.server, "count": len(diverted)}
    log.warning(text, key, len(diverted), request.to, request.server, reasons, extra=extra)


def carry_out(key: str, request: ControlRequest) -> Steps[IntentChange | None]:
    """Write the changes of a request, and count them in the fleet's row, on its ETag. None if there is no such fleet.

    Raises `Problem` 404 for a partition or server that does not exist, and 409.
    """
    unsure: IntentChange | None = None

    def attempt() -> Steps[IntentChange | WriteConflict | None]:
        nonlocal unsure
        found = yield from _read_controls(key)
        if found is None:
            return None
        partition, server = yield from _read_target(key, request, found)
        destination = (yield from _read_server(key, request.to)) if request.to else None
        if unsure is not None and request.verb in REVOCATIONS and unsure.intent.key not in {intent.key for intent in found.intents}:
            # The write with the lost answer was applied.
            return unsure
        change = decide(request, found.fleet, found.intents, partition, server, destination)
        if not change.ops:
            return unsure or change
        answer = yield from write(FLEETS, key, Merge(FLEET, {"changes": found.fleet.changes + 1}, found.etag), *change.ops)
        if isinstance(answer, Applied):
            return change
        unsure = change if answer is LOST else unsure
        return WriteConflict(answer)

    ended = yield from retry_steps(attempt, TRIES)
    if isinstance(ended, WriteConflict):
        raise contended()
    return ended


def _read_controls(key: str) -> Steps[FleetSummary | None]:
    rows = yield from load(FLEETS, key, FLEET, INTENTS[1])
    return parse_summary(key, rows)


def _read_target(key: str, request: ControlRequest, found: FleetSummary) -> Steps[tuple[Partition | None, Versioned[Server] | None]]:
    """Read the target's row. Raises 404 for a partition out of range, and for an unknown server in a drain."""
    partition: Partition | None = None
    server: Versioned[Server] | None = None
    if request.partition != NO_PARTITION:
        if not 0 <= request.partition < found.fleet.partitions:
            raise not_found(f"partition: the fleet has partitions 0 to {found.fleet.partitions - 1}")
        row = yield from get(FLEETS, key, partition_key(request.partition))
        partition = next((found for _, found in parse_rows([row] if row is not None else [], parse_partition)[0]), None)
    else:
        row = yield from get(FLEETS, key, server_key(request.server))
        server = _server_of(row)
        if row is None and request.verb == "drain":
            raise not_found("node; to keep a server out before it registers, prohibit it")
    return partition, server


def _read_server(key: str, name: str) -> Steps[Versioned[Server] | None]:
    return _server_of((yield from get(FLEETS, key, server_key(name))))


def _server_of(row: Row | None) -> Versioned[Server] | None:
    known, _ = parse_rows([row] if row is not None else [], parse_server)
    return next((Versioned(found, of.etag, row_age(of)) for of, found in known), None)


def _key(tenant: str, fleet: str) -> str:
    try:
        return fleet_key(tenant, fleet)
    except ValueError:
        raise not_found("fleet") from None
