"""Serves operators, Event Grid and views: reads a view, decides by `rules`, writes the changes in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ...checkpoints.turns import PendingImpact
from ...core.clock import Millis, to_text
from ...core.errors import Problem
from ...engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ...engine.json_codec import TooLarge
from ...leases.rows import Fleet, fleet_key
from ...tenants.store import contended
from ...web.problem import conflict, invalid, not_found
from .. import rules
from ..model import AgentReportIn, RehearseIn, ResultIn
from ..rows import MAX_OPEN, EventRow, MaintenanceRow, node_key
from ..rule_settings import MaintenanceSettings
from ..story import in_order, start_after
from . import eventgrid
from .leases_port import Leases
from .reports import ReportRounds, too_many_events
from .store import ATTEMPTS, SURE_ROWS, MaintenanceStore, StoredEvents, changed_events
from .views import event_out, node_out, step_out

log = logging.getLogger(__name__)


class MaintenanceService:
    """Serves agents, operators and Event Grid. One per process; keeps no state but that of `ReportRounds`."""

    def __init__(
        self,
        store: MaintenanceStore,
        settings: Callable[[Fleet], MaintenanceSettings],
        reports: ReportRounds,
        leases: Leases,
    ) -> None:
        """reports: serves the reports of agents."""
        self._store, self._settings, self._reports, self._leases = store, settings, reports, leases

    # -- agents

    async def report(self, tenant: str, fleet: str, body: AgentReportIn) -> dict[str, Any]:
        """Apply an agent's report and return the answer.

        Raises 404, 409 `stale-seq`, `too-many-nodes`, `too-many-events`, `changed-meanwhile`, 422, `StorageError`.
        """
        return await self._reports.report(tenant, fleet, body)

    async def result(self, tenant: str, fleet: str, approval: str, body: ResultIn) -> None:
        """Apply the result of a leased approval. Raises 404, 409 `lease-lost`, `changed-meanwhile`, `StorageError`."""
        key, _ = await self._of(tenant, fleet)

        async def attempt() -> WriteConflict | None:
            read = await self._store.read(key)
            made = rules.finish(read.view, approval, body.node, body.outcome, body.http_status or 0, read.now)
            if made is None:
                raise not_found("approval")
            if made == "lease-lost":
                raise conflict("lease-lost", "the approval was given to another agent, or is over; do not POST it again")
            extra = {"action": "maintenance_posted", "fleet": key, "event_id": made.event_id, "outcome": body.outcome, "node": body.node}
            kept = _kept(read, made)
            if not kept:
                # A repeated result, because the answer to the first was lost.
                return None
            if await self._store.write(key, read, kept):
                log.info("%s: the approval of %s by way of %s: %s", key, made.event_id, body.node, body.outcome, extra=extra)
                return None
            return CONFLICT

        await retry_on_conflict(attempt, ATTEMPTS, contended)

    # -- operators

    async def approve(self, tenant: str, fleet: str, event_id: str, by: str, reason: str) -> dict[str, str]:
        """Grant an event's approval. Raises 404, 409 `already-started`, `changed-meanwhile`, `StorageError`."""

        def decide(event: EventRow, now: Millis) -> EventRow:
            made = rules.approve(event, by, reason, now)
            if made is None:
                raise _started(event)
            return made

        made = await self._decide(tenant, fleet, event_id, decide)
        assert made.grant is not None
        return {"id": made.grant.id, "state": "granted"}

    async def hold(self, tenant: str, fleet: str, event_id: str, by: str, reason: str) -> dict[str, str]:
        """Hold an event. Raises 404, 409 `already-started`, `already-approved`, `changed-meanwhile`, `StorageError`."""

        def decide(event: EventRow, now: Millis) -> EventRow:
            made = rules.hold(event, by, reason, now)
            if made == "already-approved":
                raise conflict(made, "Azure has the approval, and it cannot be taken back")
            if isinstance(made, str):
                raise _started(event)
            return made

        made = await self._decide(tenant, fleet, event_id, decide)
        assert made.hold is not None
        return {"id": made.hold.id, "state": "held"}

    async def rehearse(self, tenant: str, fleet: str, event_id: str, body: RehearseIn) -> dict[str, str]:
        """Start a rehearsal on nodes. Returns the event's id, and the time by which it begins.

        Raises 404, 409 `too-many-events`, `changed-meanwhile`, 422 for nodes without an agent that reports, `StorageError`.
        """
        key, settings = await self._of(tenant, fleet)
        nodes = tuple(dict.fromkeys(body.nodes))

        async def attempt() -> dict[str, str] | WriteConflict:
            read = await self._store.read(key, whole=True)
            for at, name in enumerate(body.nodes):
                if (known := read.view.nodes.get(name)) is None:
                    raise invalid(f"/nodes/{at}", "no agent has reported for this node")
                if not rules.may_rehearse(known, read.now):
                    silent = (read.now - known.at) // 60_000
                    raise invalid(f"/nodes/{at}", f"the agent of this node has been silent for {silent} minutes; start it first")
            if sum(each.open for each in read.view.events.values()) >= MAX_OPEN:
                raise too_many_events()
            made = rules.rehearsal(event_id, read.view, nodes, body.type, body.notice, body.duration_s, read.now)
            if await self._store.write(key, read, _kept(read, made)):
                extra = {"action": "maintenance_rehearsal", "fleet": key, "event_id": event_id, "nodes": list(nodes)}
                log.info("%s: %d nodes rehearse a %s", key, len(nodes), body.type, extra=extra)
                begins = rules.rehearses_by(made, read.view, settings, read.now)
                return {"event_id": made.event_id, "begins_by": to_text(begins)}
            return CONFLICT

        return await retry_on_conflict(attempt, ATTEMPTS, contended)

    async def forget(self, tenant: str, fleet: str, node: str) -> None:
        """Remove a node whose agent is silent, and let partitions return to it. Raises 404, 409 `agent-live`, `changed-meanwhile`,
        `StorageError`."""
        key, _ = await self._of(tenant, fleet)

        async def attempt() -> bool | WriteConflict:
            read = await self._store.read(key, whole=True)
            known = read.view.nodes.get(node)
            if known is None:
                return False
            if not rules.may_forget(known, read.view, read.now):
                detail = f"the agent of node {node} reported {(read.now - known.at) // 1000} s ago; stop it first, then repeat this"
                raise conflict("agent-live", detail)
            if await self._store.write(key, read, {node_key(node): None}) is None:
                return CONFLICT
            log.info("%s: node %s is forgotten", key, node, extra={"action": "maintenance_forgotten", "fleet": key, "node": node})
            return True

        known = await retry_on_conflict(attempt, ATTEMPTS, contended)
        # Also for a node that is not known any more: the answer to a first call may have been lost before this.
        await self._leases.leave(key, {node: False})
        if not known:
            raise not_found("node")

    # -- Event Grid

    async def delivered(self, tenant: str, fleet: str, deliveries: list[Any]) -> int:
        """Apply deliveries of Event Grid. Returns the number that concerned this fleet.

        Raises 404, 409 `changed-meanwhile`, 422, `StorageError`.
        """
        key, _ = await self._of(tenant, fleet)
        reported = [found for each in deliveries if (found := eventgrid.parse_delivery(each)) is not None]
        if len(reported) < len(deliveries):
            extra = {"action": "maintenance_eventgrid_ignored", "fleet": key, "count": len(deliveries) - len(reported)}
            log.info(
                "%s: %d deliveries of Event Grid are not about a VM's scheduled event", key, len(deliveries) - len(reported), extra=extra
            )
        if not reported:
            return 0

        async def attempt() -> int | WriteConflict:
            read = await self._store.read(key, whole=True)
            events = dict(read.view.events)
            known = 0
            room = MAX_OPEN - sum(event.open for event in events.values())
            for each in reported:
                before = events.get(each.event_id) or await self._store.event(key, each.event_id)
                made = eventgrid.merge_delivery(before, each, read.view, read.now)
                if made is not None and (each.event_id in events or (made.open and room > 0)):
                    known += 1
                    room -= each.event_id not in events
                    events[each.event_id] = made
            changed = changed_events(read.view, events)
            try:
                if await self._store.write(key, read, changed) and len(changed) <= SURE_ROWS:
                    return known
            except TooLarge as error:
                raise invalid("", f"too much to keep: {error}") from None
            return CONFLICT

        # Each attempt writes `SURE_ROWS` events or more.
        return await retry_on_conflict(attempt, ATTEMPTS + len(reported) // SURE_ROWS, contended)

    # -- views

    async def events(self, tenant: str, fleet: str, limit: int, after: int = 0) -> tuple[list[dict[str, Any]], int | None]:
        """Return a page of events, open ones first, then the latest, after the first `after`. Raises 404, `StorageError`."""
        key, settings = await self._of(tenant, fleet)
        read = await self._store.read(key, whole=True)
        found = sorted(await self._store.events(key), key=lambda each: (not each.open, -each.seen, each.event_id))
        items = [event_out(each, read.view, settings, read.now) for each in found[after : after + limit]]
        return items, after + limit if len(found) > after + limit else None

    async def event(self, tenant: str, fleet: str, event_id: str) -> dict[str, Any]:
        """Return one event. Raises 404, `StorageError`."""
        key, settings = await self._of(tenant, fleet)
        event = await self._store.event(key, event_id)
        if event is None:
            raise not_found("event")
        read = await self._store.read(key, whole=True)
        return event_out(event, read.view, settings, read.now)

    async def story(
        self, tenant: str, fleet: str, event_id: str, limit: int, after: str = "", node: str | None = None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of an event's steps in order of time, after the position `after`. node: only its steps.

        Raises 404, `StorageError`.
        """
        key, _ = await self._of(tenant, fleet)
        event = await self._store.event(key, event_id)
        if event is None:
            raise not_found("event")
        told = [each for each in in_order(event, await self._store.story(key, event_id)) if node is None or each.node == node]
        start = start_after(told, after) if after else 0
        items = told[start : start + limit]
        return [step_out(each) for each in items], items[-1].place if start + limit < len(told) else None

    async def nodes(self, key: str) -> dict[str, dict[str, Any]]:
        """Return the last reports of agents, by node. Raises `StorageError`."""
        definition = await self._store.definition(key)
        if definition is None:
            return {}
        settings, read = self._settings(definition), await self._store.read(key, whole=True)
        return {name: node_out(node, read.view, settings, read.now) for name, node in read.view.nodes.items()}

    async def pending(self, key: str) -> dict[str, PendingImpact]:
        """Return the next impact of each node of a fleet. Raises `StorageError`."""
        read = await self._store.read(key)
        if not any(event.open and not event.rehearsal for event in read.view.events.values()):
            return {}
        read = await self._store.read(key, whole=True)
        return rules.pending(read.view, read.now)

    async def end(self, key: str) -> None:
        """Remove all rows of an ended fleet. Safe to repeat. Raises `StorageError`."""
        await self._store.end(key)

    # -- inside

    async def _of(self, tenant: str, fleet: str) -> tuple[str, MaintenanceSettings]:
        key = fleet_key(tenant, fleet)
        definition = await self._store.definition(key)
        if definition is None:
            raise not_found("fleet")
        return key, self._settings(definition)

    async def _decide(self, tenant: str, fleet: str, event_id: str, decide: Callable[[EventRow, Millis], EventRow]) -> EventRow:
        key, _ = await self._of(tenant, fleet)

        async def attempt() -> EventRow | WriteConflict:
            read = await self._store.read(key)
            event = read.view.events.get(event_id)
            if event is None:
                old = await self._store.event(key, event_id)
                raise not_found("event") if old is None else _started(old)
            made = decide(event, read.now)
            if await self._store.write(key, read, _kept(read, made)):
                extra = {"action": "maintenance_decided", "fleet": key, "event_id": event_id}
                log.info("%s: %s is %s", key, event_id, "held" if made.hold is not None else "approved", extra=extra)
                return made
            return CONFLICT

        return await retry_on_conflict(attempt, ATTEMPTS, contended)


def _kept(read: StoredEvents, event: EventRow) -> dict[str, MaintenanceRow]:
    return changed_events(read.view, {event.event_id: event})


def _started(event: EventRow) -> Problem:
    return conflict("already-started", f"the event is {event.status}" if not event.rehearsal else "a rehearsal needs no approval")
