"""Carries operators' verbs out: one transaction, then plan and order at once, so that they count with the next beat."""

from __future__ import annotations

import logging

from ....core.clock import Clock
from ....core.errors import StorageError
from ....engine.async_runner import AsyncRunner
from ....engine.effects import LOST, Steps, get, load, write
from ....storage.names import FLEETS
from ....storage.ports import Applied, Merge
from ....tenants.store import contended
from ....web.problem import not_found
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
from ...unreadable_rows import sift
from ..planning import Planning, PlanResult
from ..snapshot import FleetSummary, Versioned, parse_summary, row_age
from .verbs import REVOCATIONS, ControlRequest, IntentChange, decide

log = logging.getLogger(__name__)

TRIES = 10
"""Times a verb is tried when beats or other operators come in between."""


class ManualControls:
    """The verbs. One per process."""

    def __init__(self, runner: AsyncRunner, planning: Planning, clock: Clock) -> None:
        self._runner, self._planning, self.clock = runner, planning, clock

    async def say(self, tenant: str, fleet: str, word: ControlRequest) -> Intent:
        """Make the word stand, or take back what it takes back; then plan, and give the orders. The same word again changes nothing.

        Raises 404, 409 (`verbs.decide`), `StorageError`.
        """
        key = _key(tenant, fleet)
        change = await self._runner.run(carry_out(key, word))
        if change is None:
            raise not_found("fleet")
        extra = {"action": "lease_control", "fleet": key, "verb": word.verb, "author": word.author, "note": word.note}
        target = word.server if word.partition == NO_PARTITION else f"partition {word.partition}"
        if change.ops:
            log.info("%s: %s %s, says %s%s", key, word.verb, target, word.author, f": {word.note}" if word.note else "", extra=extra)
            try:
                await self.plan(tenant, fleet, dry_run=False)
            except StorageError as error:
                # The word stands: scanners or the watch act on it with their next look.
                log.warning("Orders of %s wait for the next look: %s", key, error, extra={"action": "lease_orders_wait", "fleet": key})
        return change.intent

    async def intents(self, tenant: str, fleet: str) -> list[Intent]:
        """What stands, by verb and target. Raises 404, `StorageError`."""
        key = _key(tenant, fleet)
        found = await self._runner.run(_standing(key))
        if found is None:
            raise not_found("fleet")
        now = self.clock.now()
        return [intent for intent in found.intents if not intent.expires or now < intent.expires]

    async def plan(self, tenant: str, fleet: str, *, dry_run: bool) -> PlanResult:
        """What the planner would do now; unless `dry_run`, the orders are given. Raises 404, `StorageError`."""
        key = _key(tenant, fleet)
        seen = await self._planning.look(key)
        if seen is None:
            raise not_found("fleet")
        planned = await self._planning.plan(seen, self.clock.now())
        return planned if dry_run else await self._planning.carry_out(key, planned)


def carry_out(key: str, word: ControlRequest) -> Steps[IntentChange | None]:
    """Write what the word changes, with the count of changes in the fleet's row, on its ETag. None when there is no such fleet.

    Raises `Problem` 404 for a partition or server that is not there, 409.
    """
    unsure: IntentChange | None = None
    for _ in range(TRIES):
        found = yield from _standing(key)
        if found is None:
            return None
        partition, server = yield from _about(key, word, found)
        if unsure is not None and word.verb in REVOCATIONS and unsure.intent.key not in {intent.key for intent in found.intents}:
            # The lost write was applied.
            return unsure
        change = decide(word, found.intents, partition, server)
        if not change.ops:
            return unsure or change
        answer = yield from write(FLEETS, key, Merge(FLEET, {"changes": found.fleet.changes + 1}, found.etag), *change.ops)
        if isinstance(answer, Applied):
            return change
        unsure = change if answer is LOST else unsure
    raise contended()


def _standing(key: str) -> Steps[FleetSummary | None]:
    rows = yield from load(FLEETS, key, FLEET, INTENTS[1])
    return parse_summary(key, rows)


def _about(key: str, word: ControlRequest, found: FleetSummary) -> Steps[tuple[Partition | None, Versioned[Server] | None]]:
    """The rows that a word is about. Raises 404 for a partition out of range, and for a server to be drained that is not known."""
    partition: Partition | None = None
    server: Versioned[Server] | None = None
    if word.partition != NO_PARTITION:
        if not 0 <= word.partition < found.fleet.partitions:
            raise not_found(f"partition: the fleet has 0 to {found.fleet.partitions - 1}")
        row = yield from get(FLEETS, key, partition_key(word.partition))
        partition = next((found for _, found in sift([row] if row is not None else [], parse_partition)[0]), None)
    else:
        row = yield from get(FLEETS, key, server_key(word.server))
        known, _ = sift([row] if row is not None else [], parse_server)
        server = next((Versioned(found, of.etag, row_age(of)) for of, found in known), None)
        if row is None and word.verb == "drain":
            raise not_found("node; to keep a server out that has not been here yet, prohibit it")
    return partition, server


def _key(tenant: str, fleet: str) -> str:
    try:
        return fleet_key(tenant, fleet)
    except ValueError:
        raise not_found("fleet") from None
