"""Moves partitions away from servers before maintenance, and lets them return afterwards.

The app writes an intent of its own, `maintain`, beside the manual controls of operators. The intent expires by itself and is renewed
while it is needed, so that an app that stops does not keep the fleet off a node.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ...core.clock import Clock, Millis
from ...engine.async_runner import AsyncRunner
from ...engine.conflicts import WriteConflict, retry_steps, write_for
from ...engine.effects import Steps, load
from ...storage.names import FLEETS
from ...storage.ports import ANY, Delete, Merge, Op, Props, Upsert
from ..rows import FLEET, INTENTS, SERVERS, Intent, event_fields, maintenance_note
from ..timings import INTENT_LIFETIME
from .planning import Planning
from .snapshot import FleetSummary, parse_summary, with_servers
from .views import owners_of

log = logging.getLogger(__name__)


MAX_SERVERS: Final = 98
"""Servers in one transaction."""
TRIES: Final = 5
AUTHOR: Final = "maintenance"


class MaintenanceDrain:
    """Drains servers for maintenance. One per process, without state."""

    def __init__(self, runner: AsyncRunner, planning: Planning, clock: Clock) -> None:
        self._runner, self._planning, self._clock = runner, planning, clock

    async def held(self, key: str, nodes: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each server; servers that do not exist are left out. Raises `StorageError`."""
        seen = await self._planning.look(key)
        if seen is None:
            return {}
        owned = owners_of(seen)
        return {name: len(owned.get(name, ())) for name in nodes if name in seen.summary.servers or name in owned}

    async def leave(self, key: str, nodes: Mapping[str, bool], events: Mapping[str, Sequence[str]] | None = None) -> None:
        """Drain the servers that map to True, and end the drain of those that map to False. Raises `StorageError`.

        events: the Scheduled Events of each server. The intents name them, so that the servers' log lines can.
        """
        events = events or {}
        written = await self._runner.run(write_intents(key, nodes, self._clock.now(), events))
        if written is None:
            return
        named = sorted({each for found in events.values() for each in found})
        changed = ", ".join(f"{name} {'is drained' if gone else 'is available'}" for name, gone in sorted(nodes.items())[:5])
        log.info("Maintenance of fleet %s: %s", key, changed, extra={"action": "lease_maintenance", "fleet": key, **event_fields(named)})
        if not written.drains and written.has_scanners:
            # Nothing must move. The scanners see that the fleet has changed, and plan.
            return
        seen = await self._planning.look(key)
        if seen is not None:
            await self._planning.carry_out(key, await self._planning.plan(seen, self._clock.now()))


class WrittenIntents(NamedTuple):
    """drains: at least one drain was begun or renewed. has_scanners: servers of the fleet plan by themselves."""

    drains: bool
    has_scanners: bool


def write_intents(key: str, nodes: Mapping[str, bool], now: Millis, events: Mapping[str, Sequence[str]]) -> Steps[WrittenIntents | None]:
    """Write the intents that differ from `nodes`; None if none was written. events: by server, for the notes of new intents.

    After `TRIES` conflicts return None: the next sweep tries again.
    """

    def attempt() -> Steps[WrittenIntents | WriteConflict | None]:
        # Usually nothing changes, and the servers' rows need not be read to find that out.
        own = parse_summary(key, (yield from load(FLEETS, key, FLEET, INTENTS[1])))
        if own is None or not may_change(own, nodes, now):
            return None
        seen = with_servers(own, (yield from load(FLEETS, key, *SERVERS)))
        ops = intent_changes(seen, nodes, now, events)
        if not ops:
            return None
        count: Props = {"changes": seen.fleet.changes + 1}
        done = WrittenIntents(any(isinstance(op, Upsert) for op in ops), any(server.scans for server in seen.living))
        return (yield from write_for(done, FLEETS, key, Merge(FLEET, count, seen.etag), *ops))

    ended = yield from retry_steps(attempt, TRIES)
    return None if isinstance(ended, WriteConflict) else ended


def may_change(seen: FleetSummary, nodes: Mapping[str, bool], now: Millis) -> bool:
    """Return False if the intents are in line with `nodes`, whatever the servers are. Pure."""
    standing = {intent.server: intent for intent in seen.intents if intent.verb == "maintain"}
    return any(_is_due(standing.get(name), now) if gone else name in standing for name, gone in nodes.items())


def _is_due(intent: Intent | None, now: Millis) -> bool:
    """Return True if a drain has no intent yet, or one that must be renewed."""
    return intent is None or intent.expires - now < INTENT_LIFETIME // 2


def intent_changes(seen: FleetSummary, nodes: Mapping[str, bool], now: Millis, events: Mapping[str, Sequence[str]]) -> tuple[Op, ...]:
    """Return the writes that bring the intents in line with `nodes`. Pure.

    If no server would remain for the partitions, none is drained: service until the impact is better than no service.
    """
    standing = {intent.server: intent for intent in seen.intents if intent.verb == "maintain"}
    # A drained server cannot take partitions over, unless its drain ends with this change.
    unavailable = {name for name in seen.in_force(now).drained if nodes.get(name, True) or name not in standing}
    left = {name for name, gone in nodes.items() if gone}
    refuge = any(server.name not in left and server.name not in unavailable for server in seen.living if server.state == "live")
    ops: list[Op] = []
    for name, gone in sorted(nodes.items()):
        before = standing.get(name)
        if not gone:
            ops += [Delete(before.key, ANY)] if before is not None else []
        elif refuge and _is_due(before, now):
            since, note = before.created if before is not None else now, maintenance_note(events.get(name, ()))
            new = Intent("maintain", server=name, note=note, author=AUTHOR, expires=now + INTENT_LIFETIME, created=since)
            ops.append(Upsert(new.key, new.props()))
    return tuple(ops[:MAX_SERVERS])
