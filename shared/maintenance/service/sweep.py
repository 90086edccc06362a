"""The timers' part of maintenance: ends, expiries and due approvals, drains of leases, notices, and the ledger."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import Final, NamedTuple

from ...core.clock import Clock, Millis
from ...core.pressure import PressureGauge
from ...engine.conflicts import CONFLICT, WriteConflict, try_repeatedly
from ...engine.sweeps import RUNS_A_SWEEP, SCAN_PERIOD, FleetCursor, Postponement, RowPace, VisitFleet
from ...leases.fleet_notices import channel_for
from ...leases.rows import FLEET, Fleet, parse_fleet
from ...scheduler.ingest.queue_consumer import EventPublisher
from ...storage.names import FLEETS, MAINTENANCE
from ...storage.ports import Row, Tables
from .. import rules
from ..decisions import approvals
from ..rows import ALARMS, GUARD, INDEX, MONITORS, AlarmsRow, ApprovalRow, EventRow, FleetEvents, MaintenanceRow, event_key, node_key
from ..rule_settings import MaintenanceSettings
from ..story import events_around
from . import figures, notifications
from .arm import Acknowledge, Acknowledged
from .definition import read_maintenance_settings
from .leases_port import Leases
from .reports import OtherFleets
from .store import ATTEMPTS, MaintenanceStore, StoredEvents, changed_events

log = logging.getLogger(__name__)

SCANNED: Final = "maintenance-scan"
INSPECTED: Final = "maintenance-inspection"
INSPECTION_PERIOD: Final = 60.0
"""Seconds between runs of the inspection (job `stale_scan`)."""
MAX_STRETCH: Final = 2.0
"""Largest factor on the time between two visits to a fleet while storage refuses requests. Approvals and drains that are due wait for it,
unless a report of the fleet carries them out."""
FRESH: Final[Millis] = 26 * 3_600_000
"""Time for which reports are compared with an ended event. Agents report an event for a day after its end."""


UNADDRESSED: Final = Acknowledged("unreachable", 0)
"""The result of an approval while no node of its event has reported its resource id."""


class Told(NamedTuple):
    """The ways out of the sweep: to tenants, and to the metadata service by way of Azure Resource Manager."""

    publisher: EventPublisher
    acknowledge: Acknowledge


class MaintenanceSweep:
    """Sweeps over all fleets with agents. One per process; keeps no state between ticks."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        leases: Leases,
        told: Told,
        pace: RowPace | None = None,
        pressure: PressureGauge | None = None,
    ) -> None:
        """pace: that of all sweeps; each visit waits for it. pressure: of the requests of this process to storage."""
        self._tables, self._leases = tables, leases
        self._store = MaintenanceStore(tables, clock.now)
        self._others = OtherFleets(self._store, clock)
        self._publisher, self._acknowledge = told
        self._cursor = FleetCursor(tables, clock, MAINTENANCE, INDEX, pace)
        self._scans = Postponement(pressure, SCAN_PERIOD, sure=RUNS_A_SWEEP, most=MAX_STRETCH)
        self._inspections = Postponement(pressure, INSPECTION_PERIOD, most=MAX_STRETCH)

    async def run_once(self, now: Millis) -> Counter[str]:
        """Sweep the fleets with open events, every few seconds.

        Counts `fleets`, `postponed` (left out because storage refuses requests), `busy`, `changed`, `told`, `acknowledged`, `failed`.
        """
        return await self._sweep(SCANNED, self._scans, now, everything=False)

    async def inspect(self, now: Millis) -> Counter[str]:
        """Sweep all fleets, every minute. Counts as `run_once`."""
        return await self._sweep(INSPECTED, self._inspections, now, everything=True)

    async def retain(self, now: Millis) -> Counter[str]:
        """Take ended events out of what reports read, and old ones out of the ledger, every hour. Counts `aged`, `removed`."""
        counts: Counter[str] = Counter()
        for key in await self._store.index():
            row = await self._tables.get(FLEETS, key, FLEET)
            if row is None:
                await self._store.end(key)
                counts["ended"] += 1
                continue
            events = await self._store.events(key)
            over = [each for each in events if not each.open]
            counts["removed"] += await self._store.stale(key, [e for e in over if rules.is_forgettable(e, now)], remove=True)
            aged = [e for e in over if not rules.is_forgettable(e, now) and now - e.ended > FRESH]
            counts["aged"] += await self._store.stale(key, aged, remove=False)
        return counts

    async def _sweep(self, sweep: str, postponement: Postponement, now: Millis, *, everything: bool) -> Counter[str]:
        async def prepare(entries: dict[str, Row]) -> VisitFleet:
            postponed = postponement.of(entries, now)

            async def visit(key: str) -> Counter[str]:
                if key in postponed:
                    return Counter(postponed=1)
                return await self._visit(key, entries[key], everything=everything)

            return visit

        return await self._cursor.visit_next(sweep, prepare)

    async def _visit(self, key: str, entry: Row, *, everything: bool) -> Counter[str]:
        row = await self._tables.get(FLEETS, key, FLEET)
        if row is None:
            return Counter()
        fleet = parse_fleet(row.props)
        if not everything and not figures.had_open_events(entry):
            # Most fleets have no open event, and few rows show it. One that had is likely to have some still, and is read once, as a whole.
            events = (await self._store.read(key)).view.events.values()
            if not any(event.open for event in events):
                return Counter()
        counts = Counter(busy=1)
        settings = read_maintenance_settings(fleet)

        async def attempt() -> tuple[StoredEvents, FleetEvents, StoredEvents] | WriteConflict:
            read = await self._store.read(key, whole=True)
            read = await self._others.seen(key, read, rules.scopes_to_ask(read.view, (), settings))
            after = rules.sweep(read.view, settings, read.now)
            changed = _changed(read.view, after)
            stored = await self._store.write(key, read, changed)
            if stored is None:
                return CONFLICT
            counts["changed"] += len(changed)
            return read, after, stored

        swept = await try_repeatedly(attempt, ATTEMPTS)
        if isinstance(swept, WriteConflict):
            # Reports come in all the time, and each of them settles what it is about.
            return counts
        read, after, stored = swept
        gone = dict.fromkeys(read.view.nodes, False)
        leaving = [node for node in after.nodes.values() if node.leaving or node != read.view.nodes.get(node.node)]
        around = {node.node: events_around(node, after, now=read.now) for node in leaving}
        await self._leases.leave(key, gone | {name: node.leaving for name, node in after.nodes.items()}, around)
        counts["acknowledged"] += await self._acknowledge_due(key, after, settings, read.now)
        counts["told"] += await self._publish(key, fleet, settings, stored)
        if everything and not figures.has_props(entry, noted := figures.alarm_props(after) | figures.care_props(after, read.now)):
            await self._store.note(key, noted)
        return counts

    async def _acknowledge_due(self, key: str, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> int:
        """Send due approvals to Azure Resource Manager. Returns their number."""
        if settings.transport != "arm":
            return 0
        done = 0
        for event in view.events.values():
            given = event.due
            if given is None or event.status != "scheduled" or event.rehearsal or event.by_agent is not None:
                continue
            resource = next((node.resource_id for node in view.named(event) if node.resource_id), "")
            if approvals.withhold_reason(event, view, settings, now) is not None:
                continue
            held = await self._leases.held(key, [node.node for node in view.named(event)])
            if approvals.undrained_reason(event, view, held, settings, now) is not None:
                continue
            answer = await self._acknowledge(resource, event.event_id) if resource else UNADDRESSED
            extra = {"action": "maintenance_acknowledged", "fleet": key, "event_id": event.event_id, "outcome": answer.outcome}
            log.info("%s: the approval of %s through Azure Resource Manager: %s", key, event.event_id, answer.outcome, extra=extra)
            done += await self._settle(key, event.event_id, given, answer)
        return done

    async def _settle(self, key: str, event_id: str, given: ApprovalRow, answer: Acknowledged) -> bool:
        """Store Azure's answer to an approval. False when the approval no longer stands, or others kept writing in between."""

        async def attempt() -> bool | WriteConflict:
            read = await self._store.read(key)
            known = read.view.events.get(event_id)
            if known is None or known.due is None or known.due.id != given.id:
                return False
            free = replace(known, grant=replace(known.due, node=""))
            made = approvals.apply_result(free, "", answer.outcome, answer.http_status, read.now)
            return True if made is None or made == known or await self._store.write(key, read, {event_key(event_id): made}) else CONFLICT

        return await try_repeatedly(attempt, ATTEMPTS) is True

    async def _publish(self, key: str, fleet: Fleet, settings: MaintenanceSettings, stored: StoredEvents) -> int:
        """Publish the notices that are due; a failed one is repeated next time. stored: the rows as they were just read and written."""
        channel = channel_for(fleet.rest, notifications.KIND)
        published: dict[str, list[str]] = {}
        for rk, kept in _publishable(stored.view).items():
            done = [
                what
                for what, notice in notifications.due_notices(key, kept, settings, channel, stored.now)
                if notice is None or await notifications.publish(self._publisher, key, notice)
            ]
            for what in done:
                notifications.log_of(key, kept, what)
            if done:
                published[rk] = done
        newest: StoredEvents | None = stored

        async def attempt() -> int | WriteConflict:
            nonlocal newest
            read, newest = newest or await self._store.read(key), None
            marked: dict[str, MaintenanceRow] = {
                rk: replace(kept, told=rules.mark_published(kept, published[rk]))
                for rk, kept in _publishable(read.view).items()
                if rk in published
            }
            return len(marked) if await self._store.write(key, read, marked) else CONFLICT

        # If the marks cannot be stored, the next sweep repeats the notices under the same ids, so none is delivered twice.
        marked = await try_repeatedly(attempt, ATTEMPTS) if published else 0
        return 0 if isinstance(marked, WriteConflict) else marked


def _publishable(view: FleetEvents) -> dict[str, EventRow | AlarmsRow]:
    """Return the rows about which notices are published, by key."""
    return {**{event_key(event_id): event for event_id, event in view.events.items()}, ALARMS: view.alarms}


def _changed(before: FleetEvents, after: FleetEvents) -> dict[str, MaintenanceRow | None]:
    """Return the rows that differ; None for a row to remove. Rows on which decisions depend come first."""
    kept: dict[str, MaintenanceRow | None] = {}
    if after.monitors != before.monitors:
        kept[MONITORS] = after.monitors
    if after.guard != before.guard:
        kept[GUARD] = after.guard
    if after.alarms != before.alarms:
        kept[ALARMS] = after.alarms
    kept |= changed_events(before, after.events)
    return kept | {node_key(name): after.nodes.get(name) for name, node in before.nodes.items() if node != after.nodes.get(name)}
