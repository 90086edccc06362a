"""What the app does for fleets every minute: find what is wrong, raise alarms and clear them, tell, and tidy up."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import orjson

from ...core.clock import Millis
from ...engine.async_runner import Carrier
from ...engine.effects import Steps, Write
from ...engine.fleet_cursor import FleetCursor, Visit
from ...leases.rows import Fleet, Server, server_key
from ...leases.service import takeover_rules
from ...leases.service.planning import Planning
from ...leases.service.snapshot import FleetSnapshot, FleetSummary, Versioned, read_summary
from ...leases.service.sweep_memory import SweepMemory
from ...leases.service.takeover import TakeoverSweep
from ...scheduler.ingest.internal_events import Publisher
from ...storage.names import FLEETS
from ...storage.ports import Applied, Delete, Row
from . import rules
from .alarms import SENTENCES, publish
from .rules import Alarm, Findings, Kind, WatchState
from .state import WATCHED, parse_watch_state, watch_state_props

log = logging.getLogger(__name__)

ACTIONS: Final[dict[Kind, str]] = {
    "silent": "lease_servers_silent",
    "unserved": "lease_partitions_unserved",
    "missing": "lease_rows_missing",
    "servers": "lease_servers_few",
    "forgotten": "lease_control_forgotten",
    "late": "lease_beats_late",
    "turns": "lease_turns_stuck",
    "unreadable": "lease_rows_unreadable",
}


type StuckTurns = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
"""Receives fleets' keys in order; returns what is wrong, for each fleet with stuck checkpoint turns. Raises `StorageError`."""


async def no_stuck_turns(keys: Sequence[str]) -> Mapping[str, str]:
    """Report that no fleet has stuck turns."""
    return {}


class FleetInspection:
    """One per process."""

    def __init__(
        self,
        memory: SweepMemory,
        cursor: FleetCursor,
        carrier: Carrier,
        planning: Planning,
        takeover: TakeoverSweep,
        publisher: Publisher,
        stuck_turns: StuckTurns,
    ) -> None:
        self._memory, self._cursor, self._carrier, self._planning = memory, cursor, carrier, planning
        self._takeover, self._publisher, self._stuck_turns = takeover, publisher, stuck_turns

    async def run_once(self, now: Millis) -> Counter[str]:
        """Inspect every fleet. Counts `fleets`, `whole`, `raised`, `cleared`, `told`, `removed`, `expired`, `plans`, `orders`, `failed`."""

        async def prepare(keys: list[str]) -> Visit:
            known, stuck = await asyncio.gather(self._memory.load(WATCHED, keys), self._stuck_turns(keys))

            async def visit(key: str) -> Counter[str]:
                return await self._visit(key, known.get(key), now, (stuck[key],) if key in stuck else ())

            return visit

        return await self._cursor.go(WATCHED, prepare)

    async def _visit(self, key: str, known: Row | None, now: Millis, turns: tuple[str, ...]) -> Counter[str]:
        counts: Counter[str] = Counter()
        seen = await self._carrier.drive(read_summary(key))
        if seen is None:
            if known is not None:
                await self._memory.forget(WATCHED, key)
            return Counter(gone=1)
        before, etag = parse_watch_state(known)
        if before.looked < _made(seen.fleet):
            # That was another fleet of the name.
            before = WatchState()
        survey: FleetSnapshot | None = None
        if before.whole_look(takeover_rules.fingerprint(seen), now):
            survey = await self._planning.look(key)
        if survey is None:
            after = rules.next_state(before, replace(rules.findings_of_summary(seen, now), turns=turns), now, None)
        else:
            counts["whole"] = 1
            seen = survey.summary
            after = rules.next_state(before, replace(await self._found(survey, now), turns=turns), now, takeover_rules.fingerprint(seen))
            counts += await self._tidy(survey, now)
        if after != before:
            # Whoever writes it raises the alarms: two instances at once do not tell twice.
            saved = await self._memory.save(WATCHED, key, watch_state_props(after), etag)
            if saved is None:
                return counts
            etag = saved
            counts += _log(key, before, after)
        if survey is not None and "unserved" in after.alarms and not after.alarms["unserved"].cleared:
            # Who should have placed them has not.
            found = await self._takeover.plan(key, now)
            counts += Counter(plans=1, orders=found[2] if found is not None else 0)
        return counts + await self._tell(key, seen.fleet, after, etag)

    async def _found(self, survey: FleetSnapshot, now: Millis) -> Findings:
        return rules.findings_of_snapshot(survey, (await self._planning.plan(survey, now)).plan, now)

    async def _tidy(self, survey: FleetSnapshot, now: Millis) -> Counter[str]:
        """Remove bumps that have happened, and servers that have been dead for long."""
        epochs = {number: each.value.epoch for number, each in survey.partitions.items()}
        counts = Counter(expired=await self._takeover.end(survey.summary, takeover_rules.expired_intents(survey.summary, now, epochs)))
        for name in rules.removable_servers(survey):
            removed = await self._carrier.drive(_remove(survey.summary, survey.summary.servers[name]))
            counts["removed"] += removed
        return counts

    async def _tell(self, key: str, fleet: Fleet, after: WatchState, etag: str) -> Counter[str]:
        """Tell the tenant's channel what it has not been told; a failure is made up for next time."""
        untold = [alarm for alarm in after.alarms.values() if not alarm.told]
        done = [alarm for alarm in untold if await publish(self._publisher, key, fleet.rest, alarm)]
        if done:
            alarms = dict(after.alarms) | {alarm.kind: replace(alarm, told=True) for alarm in done}
            await self._memory.save(WATCHED, key, watch_state_props(replace(after, alarms=alarms)), etag)
        return Counter(told=len(done))


def _made(fleet: Fleet) -> Millis:
    """When the fleet was made, 0 when it does not say."""
    return int(orjson.loads(fleet.rest).get("created", 0))


def _log(key: str, before: WatchState, after: WatchState) -> Counter[str]:
    begun, over = rules.alarm_changes(before, after)
    for alarm in begun:
        log.warning("%s: %s (%d: %s)", key, SENTENCES[alarm.kind], alarm.count, _some(alarm), extra=_extra(key, alarm, ACTIONS[alarm.kind]))
    for alarm in over:
        log.info("%s: no longer so: %s", key, SENTENCES[alarm.kind], extra=_extra(key, alarm, "lease_alarm_cleared"))
    return Counter(raised=len(begun), cleared=len(over))


def _extra(key: str, alarm: Alarm, action: str) -> dict[str, object]:
    return {"action": action, "fleet": key, "alarm": alarm.kind, "count": alarm.count, "subjects": list(alarm.subjects)}


def _some(alarm: Alarm) -> str:
    return ", ".join(alarm.subjects[:5]) + (" ..." if alarm.count > 5 else "")


def _remove(seen: FleetSummary, server: Versioned[Server]) -> Steps[bool]:
    """Remove a dead server's row, on the ETag that showed it dead: one that has come back refuses it."""
    answer = yield Write(FLEETS, seen.key, (Delete(server_key(server.value.name), server.etag),))
    return isinstance(answer, Applied)
