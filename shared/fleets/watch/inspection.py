"""The sweep of every minute: inspects all fleets, raises and clears alarms, notifies tenants, and tidies up.

An alarm is sent as an event on a channel of the tenant. Its id follows from the alarm, so an alarm that is sent twice is one event.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...core.clock import Millis, to_text
from ...engine.effects import Steps, write
from ...engine.sweeps import Postponement, VisitFleet
from ...leases.fleet_notices import channel_for, name_in_id, send_notice
from ...leases.rows import Fleet, Server, server_key
from ...leases.service import takeover_rules
from ...leases.service.snapshot import FleetSnapshot, FleetSummary, Versioned, read_summary
from ...leases.service.sweep_memory import PLANNED, idle_fleets
from ...leases.service.takeover import SweptFleets, TakeoverSweep
from ...scheduler.ingest.queue_consumer import EventPublisher
from ...storage.names import FLEETS
from ...storage.ports import Applied, Delete, Row
from ..definition import created_of
from . import rules
from .alarms import ALARMS, Alarm, alarm_text
from .orders import has_orders
from .rules import Findings, WatchState
from .state import WATCHED, parse_watch_state, watch_state_props

log = logging.getLogger(__name__)


def alarm_event(key: str, alarm: Alarm, channel: str) -> dict[str, Any]:
    """Return the event that reports an alarm or its end. Equal alarms give equal events."""
    tenant, _, fleet = key.partition(":")
    state = "cleared" if alarm.cleared else "raised"
    payload = {
        "type": "lease-alarm",
        "tenant": tenant,
        "fleet": fleet,
        "alarm": alarm.kind,
        "kind": ALARMS[alarm.kind].notification,
        "state": state,
        "since": to_text(alarm.since),
        "cleared": to_text(alarm.cleared) if alarm.cleared else None,
        "count": alarm.count,
        "subjects": list(alarm.subjects),
        "text": f"{fleet}: {alarm_text(fleet, alarm)}",
    }
    due = to_text(alarm.cleared or alarm.since)
    return {"id": f"lease:{name_in_id(fleet)}:{alarm.kind}:{alarm.since}:{state}", "due": due, "channel": channel, "payload": payload}


async def publish_alarm(publisher: EventPublisher, key: str, definition: str, alarm: Alarm) -> bool:
    """Send an alarm to the fleet's channel, if it has one. Return False to try again later. Raises `StorageError`."""
    channel = channel_for(definition, ALARMS[alarm.kind].notification)
    if channel is None:
        return True
    return await send_notice(publisher, key, alarm_event(key, alarm, channel), {"alarm": alarm.kind})


INSPECTION_PERIOD: Final = 60.0
"""Seconds between runs of the inspection (job `stale_scan` of the sweep)."""

MAX_STRETCH: Final = 2.0
"""Largest factor on the time between two inspections of a fleet while storage refuses requests. The alarm about it must not wait longer."""

type StuckTurns = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
"""Receives fleets' keys in order; returns what is wrong, for each fleet with stuck checkpoint turns. Raises `StorageError`."""


async def no_stuck_turns(keys: Sequence[str]) -> Mapping[str, str]:
    """Report that no fleet has stuck turns."""
    return {}


class FleetInspection:
    """Inspects fleets. One per process."""

    def __init__(
        self,
        swept: SweptFleets,
        takeover: TakeoverSweep,
        publisher: EventPublisher,
        stuck_turns: StuckTurns,
    ) -> None:
        self._memory, self._cursor, self._runner, self._planning, self._pressure = swept
        self._takeover, self._publisher, self._stuck_turns, pressure = takeover, publisher, stuck_turns, swept.pressure
        self._postponement = Postponement(pressure, INSPECTION_PERIOD, most=MAX_STRETCH)

    async def run_once(self, now: Millis) -> Counter[str]:
        """Inspect every fleet, idle ones in turns.

        Counts `fleets`, `idle` (left out in this run), `postponed` (left out because storage refuses requests), `whole`, `raised`,
        `cleared`, `told`, `removed`, `expired`, `plans`, `orders`, `failed`.
        """

        async def prepare(rows: dict[str, Row]) -> VisitFleet:
            keys = list(rows)
            postponed = self._postponement.of(keys, now)
            wanted = [key for key in keys if key not in postponed]
            known, planned, stuck = await asyncio.gather(
                self._memory.load(WATCHED, keys), self._memory.load(PLANNED, keys), self._stuck_turns(wanted)
            )
            settled = [
                key for key in idle_fleets(planned) if key in known and _has_nothing_new(parse_watch_state(known[key]).value, key in stuck)
            ]
            skipped = takeover_rules.skipped_fleets(settled, INSPECTION_PERIOD, now)

            async def visit(key: str) -> Counter[str]:
                if key in postponed:
                    return Counter(postponed=1)
                if key in skipped:
                    return Counter(idle=1)
                return await self._inspect(key, known.get(key), now, (stuck[key],) if key in stuck else ())

            return visit

        return await self._cursor.visit_next(WATCHED, prepare)

    async def _inspect(self, key: str, known: Row | None, now: Millis, turns: tuple[str, ...]) -> Counter[str]:
        counts: Counter[str] = Counter()
        summary = await self._runner.run(read_summary(key))
        if summary is None:
            if known is not None:
                await self._memory.forget(WATCHED, key)
            return Counter(gone=1)
        before, etag = parse_watch_state(known)
        if before.read_at < created_of(summary.fleet):
            # The state is that of an earlier fleet of the same name.
            before = WatchState()
        snapshot: FleetSnapshot | None = None
        mark, deserted = takeover_rules.fingerprint(summary), before.is_deserted(summary)
        if before.must_read_partitions(mark, now, deserted=deserted) or has_orders(summary):
            snapshot = await self._planning.look(key)
        if snapshot is None:
            found = replace(rules.findings_of_summary(summary, now), turns=turns)
            after = rules.next_state(before, self._with_pressure(found, summary), now, None)
        else:
            counts["whole"] = 1
            summary = snapshot.summary
            found = replace(await self._find(snapshot, now), turns=turns)
            after = rules.next_state(before, self._with_pressure(found, summary), now, takeover_rules.fingerprint(summary))
            counts += await self._tidy(snapshot, now)
        if after != before:
            # Only the instance that writes the state reports its alarms, so two instances at once do not report them twice.
            saved = await self._memory.save(WATCHED, key, watch_state_props(after), etag)
            if saved is None:
                return counts
            etag = saved
            counts += _log_changes(key, before, after)
        if snapshot is not None and "unserved" in after.alarms and not after.alarms["unserved"].cleared:
            # The scanners of the fleet have not placed these partitions, so the app does.
            planned = await self._takeover.plan(key, now)
            counts += Counter(plans=1, orders=planned[2] if planned is not None else 0)
        return counts + await self._notify(key, summary.fleet, after, etag)

    async def _find(self, snapshot: FleetSnapshot, now: Millis) -> Findings:
        return rules.findings_of_snapshot(snapshot, (await self._planning.plan(snapshot, now)).plan, now)

    def _with_pressure(self, found: Findings, summary: FleetSummary) -> Findings:
        """Return the findings with the app's own refused requests, where servers live that cannot report theirs."""
        share = self._pressure.share if self._pressure is not None else 0.0
        if not share or found.throttled or not any(not server.scans for server in summary.living):
            return found
        return replace(found, throttled=(f"the app ({share:.0%})".replace("%", " %"),))

    async def _tidy(self, snapshot: FleetSnapshot, now: Millis) -> Counter[str]:
        """Remove completed bumps, and rows of servers that have been dead for long."""
        epochs = {number: each.value.epoch for number, each in snapshot.partitions.items()}
        expired = takeover_rules.expired_intents(snapshot.summary, now, epochs)
        counts = Counter(expired=await self._takeover.end(snapshot.summary, expired))
        for name in rules.removable_servers(snapshot):
            removed = await self._runner.run(_remove_server(snapshot.summary, snapshot.summary.servers[name]))
            counts["removed"] += removed
        return counts

    async def _notify(self, key: str, fleet: Fleet, after: WatchState, etag: str) -> Counter[str]:
        """Send alarms that the tenant's channel has not received. The next inspection repeats what fails."""
        unsent = [alarm for alarm in after.alarms.values() if not alarm.notified]
        sent = [alarm for alarm in unsent if await publish_alarm(self._publisher, key, fleet.rest, alarm)]
        if sent:
            alarms = dict(after.alarms) | {alarm.kind: replace(alarm, notified=True) for alarm in sent}
            await self._memory.save(WATCHED, key, watch_state_props(replace(after, alarms=alarms)), etag)
        return Counter(told=len(sent))


def _has_nothing_new(state: WatchState, has_stuck_turns: bool) -> bool:
    return state.is_settled and has_stuck_turns == ("turns" in state.alarms)


def _log_changes(key: str, before: WatchState, after: WatchState) -> Counter[str]:
    raised, cleared = rules.alarm_changes(before, after)
    name = key.partition(":")[2]
    for alarm in raised:
        log.warning("%s: %s", key, alarm_text(name, alarm), extra=_log_fields(key, alarm, ALARMS[alarm.kind].action))
    for alarm in cleared:
        log.info("%s: %s", key, alarm_text(name, alarm), extra=_log_fields(key, alarm, "lease_alarm_cleared"))
    return Counter(raised=len(raised), cleared=len(cleared))


def _log_fields(key: str, alarm: Alarm, action: str) -> dict[str, object]:
    return {"action": action, "fleet": key, "alarm": alarm.kind, "count": alarm.count, "subjects": list(alarm.subjects)}


def _remove_server(summary: FleetSummary, server: Versioned[Server]) -> Steps[bool]:
    """Remove a dead server's row, on the ETag that showed it dead: a server that has registered again makes the store refuse it."""
    answer = yield from write(FLEETS, summary.key, Delete(server_key(server.value.name), server.etag))
    return isinstance(answer, Applied)
