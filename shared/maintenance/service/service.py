"""Serves agents' reports and operators' requests: reads a view, decides by `rules`, writes the changes in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from ...checkpoints.turns import PendingImpact
from ...core.clock import Millis
from ...core.errors import Problem, StorageError
from ...engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ...engine.json_codec import TooLarge
from ...leases.rows import Fleet, event_fields, fleet_key
from ...tenants.model import Limits, no_limits
from ...tenants.store import contended
from ...web.problem import conflict, invalid, not_found
from .. import rules
from ..azure_names import distinct
from ..decisions.caller_probes import ProbeReport
from ..latency import Latencies
from ..model import AgentReportIn, RehearseIn, ResultIn
from ..rows import GUARD, MAX_NODES, MAX_OPEN, MONITORS, EventRow, FleetEvents, MaintenanceRow, NodeEntry, NodeRow, event_key, node_key
from ..rule_settings import MaintenanceSettings
from ..story import Told, events_around, in_order, start_after, told_by_agent
from . import eventgrid
from .store import SURE_ROWS, MaintenanceStore, StoredEvents
from .views import answer_out, event_out, node_out, step_out

log = logging.getLogger(__name__)

MOST_SIZES: Final = 10_000
"""Fleets whose sizes a process remembers."""
ATTEMPTS: Final = 10
"""Attempts after conflicts. They are frequent, because all agents of a scope report the same event at once."""

_REFUSED: Final[Mapping[str, str]] = {
    "stale-seq": "a later report of this node has been stored",
    "too-many-events": f"a fleet has at most {MAX_OPEN:,} open events",
}


class Leases(Protocol):
    """The part of a fleet's leases that maintenance needs."""

    async def held(self, key: str, nodes: Iterable[str]) -> Mapping[str, int]:
        """Return the number of partitions of nodes. Nodes without any may be left out. Raises `StorageError`."""

    async def leave(self, key: str, nodes: Mapping[str, bool], events: Mapping[str, Sequence[str]] | None = None) -> None:
        """Make partitions leave the nodes that map to True, and allow them back on those that map to False. Raises `StorageError`.

        events: the Scheduled Events of each node.
        """


class MaintenanceService:
    """Serves agents, operators and Event Grid. One per process; keeps no state but the sizes of fleets."""

    def __init__(
        self,
        store: MaintenanceStore,
        settings: Callable[[Fleet], MaintenanceSettings],
        leases: Leases,
        tenant_limits: Callable[[str], Awaitable[Limits]] = no_limits,
    ) -> None:
        """tenant_limits: returns the limits of a tenant; called for the first report of a node."""
        self._store, self._settings, self._leases, self._tenant_limits = store, settings, leases, tenant_limits
        self._sizes: dict[str, int] = {}
        """The number of nodes of fleets, as this process saw it last."""

    # -- agents

    async def report(self, tenant: str, fleet: str, body: AgentReportIn) -> dict[str, Any]:
        """Apply an agent's report and return the answer.

        Raises 404, 409 `stale-seq`, `too-many-nodes`, `too-many-events`, `changed-meanwhile`, 422, `StorageError`.
        """
        key, settings = await self._of(tenant, fleet)
        node, probed = _node(body), _probed(body)
        lost_one = False

        async def attempt() -> dict[str, Any] | WriteConflict:
            nonlocal lost_one
            # Such a report needs all nodes in any case: then one read is enough.
            read = await self._store.read(key, node.node, whole=not lost_one and rules.asks_for_something(node))
            if not read.whole and (rules.needs_all_nodes(read.view, node, settings, read.now) or node.node not in read.view.nodes):
                # An event that could not be inserted may be in the ledger as one that ended long ago.
                back = lost_one and any(entry.listed and entry.event_id not in read.view.events for entry in node.entries)
                read = await self._store.read(key, whole=True, old=back)
            if read.whole:
                if len(self._sizes) >= MOST_SIZES:
                    self._sizes.clear()
                self._sizes[key] = len(read.view.nodes)
            before = read.view.nodes.get(node.node)
            asked = rules.nodes_to_drain(read.view, node, settings)
            held = await self._leases.held(key, asked) if asked else {}
            own = (await self._tenant_limits(tenant)).agents if before is None else None
            most = MAX_NODES if own is None else own
            size = self._sizes.get(key, 0)
            accepted = rules.receive(read.view, node, settings, held, read.whole, read.now, most, probed, size)
            if accepted == "too-many-nodes":
                detail = f"the fleet has as many nodes with agents as the tenant's limit allows, {most:,}"
                raise conflict(accepted, f"{detail}; an operator can raise limits.agents")
            if not isinstance(accepted, rules.AcceptedAgentReport):
                raise conflict(accepted, _REFUSED[accepted])
            if before is None:
                # Before its first row, so that the timers find every fleet with rows, whatever fails in between.
                await self._store.enlist(key)
            try:
                if not await self._store.write(key, read, _changed(read, accepted), self._told(before, accepted, read, body)):
                    lost_one = True
                    return CONFLICT
            except TooLarge as error:
                raise invalid("/events", f"too much to keep: {error}") from None
            if before is None:
                # And after it: if the fleet ended meanwhile, its entry is gone, and the new row must be found and removed.
                await self._store.enlist(key)
            await self._update_drain(key, before, accepted.node, FleetEvents({}, accepted.events), read.now)
            return answer_out(accepted.answer, settings)

        return await retry_on_conflict(attempt, ATTEMPTS, contended)

    async def result(self, tenant: str, fleet: str, approval: str, body: ResultIn) -> None:
        """Apply the result of a leased approval. Raises 404, 409 `lease-lost`, `changed-meanwhile`, `StorageError`."""
        key, _ = await self._of(tenant, fleet)

        async def attempt() -> WriteConflict | None:
            read = await self._store.read(key)
            made = rules.finish(read.view, approval, body.node, body.outcome, body.http_status or 0)
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

    async def rehearse(self, tenant: str, fleet: str, event_id: str, body: RehearseIn) -> str:
        """Start a rehearsal on nodes. Returns the event's id.

        Raises 404, 409 `too-many-events`, `changed-meanwhile`, 422 for nodes without an agent, `StorageError`.
        """
        key, _ = await self._of(tenant, fleet)
        nodes = tuple(dict.fromkeys(body.nodes))

        async def attempt() -> str | WriteConflict:
            read = await self._store.read(key, whole=True)
            for at, name in enumerate(body.nodes):
                if name not in read.view.nodes:
                    raise invalid(f"/nodes/{at}", "no agent has reported for this node")
            if sum(each.open for each in read.view.events.values()) >= MAX_OPEN:
                raise conflict("too-many-events", _REFUSED["too-many-events"])
            made = rules.rehearsal(event_id, read.view, nodes, body.type, body.notice, body.duration_s, read.now)
            if await self._store.write(key, read, _kept(read, made)):
                extra = {"action": "maintenance_rehearsal", "fleet": key, "event_id": event_id, "nodes": list(nodes)}
                log.info("%s: %d nodes rehearse a %s", key, len(nodes), body.type, extra=extra)
                return made.event_id
            return CONFLICT

        return await retry_on_conflict(attempt, ATTEMPTS, contended)

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

    def _told(self, before: NodeRow | None, accepted: rules.AcceptedAgentReport, read: StoredEvents, body: AgentReportIn) -> Told:
        """Return the steps of a report for the stories of its events."""
        steps = None if body.steps is None else [step.reported() for step in body.steps]
        view = replace(read.view, events={**read.view.events, **accepted.events})
        return told_by_agent(before, accepted.node, view, steps, body.sent, self._store.wall())

    async def _update_drain(self, key: str, before: NodeRow | None, node: NodeRow, view: FleetEvents, now: Millis) -> None:
        if node.leaving == (before is not None and before.leaving):
            return
        events = events_around(node, view, now=now)
        try:
            await self._leases.leave(key, {node.node: node.leaving}, {node.node: events})
        except (StorageError, Problem) as error:
            # The sweep repeats it.
            extra = {"action": "maintenance_leases_wait", "fleet": key, "node": node.node, **event_fields(events)}
            log.warning("%s: the drain of %s could not be changed: %s", key, node.node, error, extra=extra)


def _node(body: AgentReportIn) -> NodeRow:
    entries: dict[str, NodeEntry] = {}
    for each in body.events:
        # If an event is listed twice, the first entry counts.
        entries.setdefault(
            each.event_id,
            NodeEntry(
                each.event_id,
                each.type,
                "Started" if each.status == "Started" else "Scheduled",
                each.phase,
                each.not_before,
                each.source,
                each.duration_s,
                distinct(each.resources),
                each.reason or "",
                each.observed_ms or 0,
                each.outcome or "",
            ),
        )
    return NodeRow(
        body.node,
        body.vm,
        body.scope,
        body.seq,
        0,
        body.location,
        body.fault_domain,
        body.boot_id,
        body.incarnation,
        body.disabled,
        body.resource_id or "",
        tuple(entries.values()),
        caught_up=bool(body.caught_up),
        probe=body.probe.state if body.probe is not None else "",
    )


def _probed(body: AgentReportIn) -> ProbeReport | None:
    probe = body.probe
    if probe is None:
        return None
    events = {
        event_id: {
            phase: Latencies({str(at): count for at, count in found.buckets.items()}, found.failures, found.slow)
            for phase, found in phases.items()
        }
        for event_id, phases in probe.events.items()
    }
    return ProbeReport(probe.state, probe.run, events)


def _changed(read: StoredEvents, accepted: rules.AcceptedAgentReport) -> dict[str, MaintenanceRow]:
    """Return the rows that a report changes, its node's first."""
    kept: dict[str, MaintenanceRow] = {node_key(accepted.node.node): accepted.node}
    if accepted.monitors != read.view.monitors:
        kept[MONITORS] = accepted.monitors
    if accepted.guard != read.view.guard:
        kept[GUARD] = accepted.guard
    return kept | changed_events(read.view, accepted.events)


def changed_events(view: FleetEvents, events: Mapping[str, EventRow]) -> dict[str, MaintenanceRow]:
    """Return the rows of the changed events."""
    return {event_key(event_id): event for event_id, event in events.items() if event != view.events.get(event_id)}


def _kept(read: StoredEvents, event: EventRow) -> dict[str, MaintenanceRow]:
    return changed_events(read.view, {event.event_id: event})


def _started(event: EventRow) -> Problem:
    return conflict("already-started", f"the event is {event.status}" if not event.rehearsal else "a rehearsal needs no approval")
