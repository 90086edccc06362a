"""Serves agents' reports in rounds: those of a fleet that wait are decided one after the other on one view, and written together.

A round is as if its reports had come one after the other at one moment, with no other write in between. Its view is read after the last of
them has come, and everything is written in one transaction on the ETags of that view, or decided again.

Agents of all fleets of one scope report the same events. About the VMs that an event names and that have no agent of the asking fleet, the
other fleets of its tenant are asked. A fleet that knows some of the named VMs stores in its own row of the event which these are, and since
when it agrees that others approve the event for them. No tenant learns of another tenant's VMs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import batched, islice
from typing import Any, Final, NamedTuple

from ...core.clock import Clock
from ...core.errors import Problem, StorageError
from ...engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ...engine.json_codec import TooLarge
from ...engine.rounds import Rounds, Served
from ...leases.rows import Fleet, event_fields, fleet_key
from ...storage.ports import MAX_EGT_ROWS
from ...tenants.cache import Cached
from ...tenants.model import Limits, no_limits
from ...tenants.store import contended
from ...web.problem import conflict, invalid, not_found
from .. import rules
from ..azure_names import distinct
from ..decisions.approvals import known_elsewhere
from ..decisions.caller_probes import ProbeReport
from ..latency import Latencies
from ..model import AgentReportIn
from ..rows import GUARD, MAX_NODES, MAX_OPEN, MONITORS, EventRow, FleetEvents, MaintenanceRow, NodeEntry, NodeRow, OtherNode, node_key
from ..rule_settings import MaintenanceSettings
from ..story import Told, events_around, told_by, told_by_agent
from ..timings import FREE_ROWS, LONGEST_PAUSE, ROWS_A_SECOND
from .leases_port import Leases
from .store import ATTEMPTS, SURE_ROWS, MaintenanceStore, StoredEvents, changed_events
from .views import answer_out

log = logging.getLogger(__name__)

SEARCH_AGE: Final = 5.0
"""Seconds for which a process remembers which fleets of a tenant have an event. What they say about it is read anew each time."""
MOST_SEARCHES: Final = 1000
READS_AT_ONCE: Final = 16
MOST_SIZES: Final = 10_000
"""Fleets whose sizes a process remembers."""
MOST_REPORTS: Final = SURE_ROWS
"""Reports of one round: each writes the row of its node."""
MOST_CHARACTERS: Final = 500_000
"""Characters of the reports of one round, about. A transaction has at most 4 MiB."""
MOST_DRAINED: Final = 90
"""Nodes whose drain one round changes, about as many as one transaction takes. The others follow with their own reports."""
MOST_GETS: Final = 3
"""Nodes whose rows are read one by one. For more of them, one read of all nodes costs fewer requests."""
TOO_MANY_EVENTS: Final = f"a fleet has at most {MAX_OPEN:,} open events"


class OtherFleets:
    """Asks other fleets of the same tenant. One per process; remembers only which fleets have an event."""

    def __init__(self, store: MaintenanceStore, clock: Clock) -> None:
        self._store = store
        self._found = Cached(self._search, clock, ttl=SEARCH_AGE, missing_ttl=SEARCH_AGE, size=MOST_SEARCHES)

    async def seen(self, key: str, read: StoredEvents, asked: Mapping[str, str]) -> StoredEvents:
        """Return what was read with the answers of other fleets. asked: the scopes of the events. Raises `StorageError`."""
        if not asked:
            return read
        others = {event_id: await self._ask(key, event_id, scope) for event_id, scope in asked.items()}
        return replace(read, view=replace(read.view, others=others))

    async def _ask(self, key: str, event_id: str, scope: str) -> dict[str, OtherNode]:
        tenant, _, own = key.partition(":")
        others = [fleet for fleet in await self._found.get((tenant, event_id)) or () if fleet != own]
        return known_elsewhere({fleet: await self._store.event(f"{tenant}:{fleet}", event_id) for fleet in others}, scope)

    async def _search(self, asked: tuple[str, str]) -> tuple[str, ...] | None:
        """Return the names of the tenant's fleets that have an event; None for none."""
        tenant, event_id = asked
        found: list[str] = []
        for some in batched(await self._store.index(tenant), READS_AT_ONCE):
            events: list[EventRow | None] = await asyncio.gather(*(self._store.event(key, event_id) for key in some))
            found += [key.partition(":")[2] for key, event in zip(some, events, strict=True) if event is not None]
        return tuple(found) or None


class ReceivedReport(NamedTuple):
    """A report that waits for its round. node: the row that it brings; probed: its results of the caller probe."""

    tenant: str
    body: AgentReportIn
    node: NodeRow
    probed: ProbeReport | None


@dataclass(slots=True)
class Round:
    """The decisions of a round so far. view: after them. answers: by the order of the reports. told: steps for the stories."""

    read: StoredEvents
    view: FleetEvents
    answers: list[dict[str, Any] | Exception] = field(default_factory=list)
    told: Told = field(default_factory=dict)

    def changed(self) -> dict[str, MaintenanceRow]:
        """Return the rows that differ from those that were read, nodes first."""
        before, after = self.read.view, self.view
        kept: dict[str, MaintenanceRow] = {node_key(name): node for name, node in after.nodes.items() if node is not before.nodes.get(name)}
        if after.monitors != before.monitors:
            kept[MONITORS] = after.monitors
        if after.guard != before.guard:
            kept[GUARD] = after.guard
        return kept | changed_events(before, after.events)


class PartitionsOfNodes:
    """The partitions of a fleet's nodes, read once for a round: the reading for one node costs as much as that for all."""

    def __init__(self, key: str, leases: Leases, names: Set[str]) -> None:
        """names: nodes that the view may not have yet."""
        self._key, self._leases, self._names = key, leases, names
        self._held: Mapping[str, int] = {}
        self._looked: Set[str] = frozenset()

    @property
    def looked(self) -> bool:
        """True once they were read."""
        return bool(self._looked)

    async def held(self, asked: Set[str], view: FleetEvents) -> dict[str, int]:
        """Return the number of partitions of the nodes that are asked for. Raises `StorageError`."""
        if not asked <= self._looked:
            self._looked = view.nodes.keys() | self._names | asked
            self._held = await self._leases.held(self._key, self._looked)
        return {name: self._held[name] for name in sorted(asked) if name in self._held}


class ReportRounds:
    """Serves the reports of agents. One per process; keeps no state but the sizes of fleets and the reports that wait."""

    def __init__(
        self,
        store: MaintenanceStore,
        settings: Callable[[Fleet], MaintenanceSettings],
        leases: Leases,
        others: OtherFleets,
        tenant_limits: Callable[[str], Awaitable[Limits]] = no_limits,
        *,
        clock: Clock,
    ) -> None:
        """others: knows the VMs of other fleets. tenant_limits: returns the limits of a tenant; called for the first report of a node."""
        self._store, self._settings, self._leases, self._tenant_limits = store, settings, leases, tenant_limits
        self._others = others
        self._sizes: dict[str, int] = {}
        """The number of nodes of fleets, as this process saw it last."""
        self._rounds: Rounds[ReceivedReport, dict[str, Any]] = Rounds(self._serve, clock, MOST_REPORTS)

    async def report(self, tenant: str, fleet: str, body: AgentReportIn) -> dict[str, Any]:
        """Apply an agent's report and return the answer. Raises as `MaintenanceService.report`."""
        return await self._rounds.ask(fleet_key(tenant, fleet), ReceivedReport(tenant, body, _node(body), _probed(body)))

    async def _serve(self, key: str, reports: Sequence[ReceivedReport]) -> Served[dict[str, Any]]:
        """Serve as many of the first reports as one transaction takes."""
        definition = await self._store.definition(key)
        if definition is None:
            return Served([not_found("fleet") for _ in reports])
        settings = self._settings(definition)
        reports = _fitting(reports)
        try:
            return await self._decide(key, reports, settings)
        except (StorageError, Problem):
            raise
        except Exception:
            if len(reports) == 1:
                raise
            # One of them cannot be served or stored, which is no reason to refuse the others.
            return await self._decide_alone(key, reports[0], settings)

    async def _decide_alone(self, key: str, report: ReceivedReport, settings: MaintenanceSettings) -> Served[dict[str, Any]]:
        try:
            return await self._decide(key, [report], settings)
        except Exception as error:
            return Served([error])

    async def _decide(self, key: str, reports: Sequence[ReceivedReport], settings: MaintenanceSettings) -> Served[dict[str, Any]]:
        rows = 0
        again = False
        partitions = PartitionsOfNodes(key, self._leases, {report.node.node for report in reports})

        async def attempt() -> Round | WriteConflict:
            nonlocal rows, again
            nodes = [report.node for report in reports]
            read = await self._read(key, nodes, settings, again)
            read = await self._others.seen(key, read, rules.scopes_to_ask(read.view, nodes, settings) if read.whole else {})
            rows += len(read.etags)
            made = await self._play(key, reports, read, settings, partitions)
            changed = made.changed()
            if not changed:
                return made
            is_new = not read.view.nodes.keys() >= made.view.nodes.keys()
            if is_new:
                # Before its first row, so that the timers find every fleet with rows, whatever fails in between.
                await self._store.enlist(key)
            if not await self._store.write(key, read, changed, made.told):
                again = True
                return CONFLICT
            if is_new:
                # And after it: if the fleet ended meanwhile, its entry is gone, and the new row must be found and removed.
                await self._store.enlist(key)
            return made

        try:
            made = await retry_on_conflict(attempt, ATTEMPTS, contended)
        except TooLarge as error:
            if len(reports) > 1:
                raise
            raise invalid("/events", f"too much to keep: {error}") from None
        if await self._update_drain(key, made, settings) or partitions.looked:
            # The fleet's servers and partitions were read, too: that is as many rows again, and more.
            rows *= 3
        is_small = len(made.read.etags) <= FREE_ROWS
        return Served(made.answers, 0.0 if is_small else _pause(rows))

    async def _read(self, key: str, nodes: Sequence[NodeRow], settings: MaintenanceSettings, again: bool) -> StoredEvents:
        """Read what the decisions need. again: a write has failed, because a row had changed or was there already."""
        if not again and len(nodes) <= MOST_GETS and not any(rules.asks_for_something(node) for node in nodes):
            read = await self._store.read(key, sorted({node.node for node in nodes}))
            if not any(node.node not in read.view.nodes or rules.needs_all_nodes(read.view, node, settings, read.now) for node in nodes):
                return read
        read = await self._store.read(key, whole=True)
        if again and any(entry.listed and entry.event_id not in read.view.events for node in nodes for entry in node.entries):
            # An event that could not be inserted may be in the ledger as one that ended long ago.
            read = await self._store.read(key, whole=True, old=True)
        if len(self._sizes) >= MOST_SIZES:
            self._sizes.clear()
        self._sizes[key] = len(read.view.nodes)
        return read

    async def _play(
        self,
        key: str,
        reports: Sequence[ReceivedReport],
        read: StoredEvents,
        settings: MaintenanceSettings,
        partitions: PartitionsOfNodes,
    ) -> Round:
        """Decide the reports one after the other, as far as one transaction takes them."""
        made = Round(read, read.view)
        for report in reports:
            before = made.view.nodes.get(report.node.node)
            held = await partitions.held(rules.nodes_to_drain(made.view, report.node, settings), made.view)
            own = (await self._tenant_limits(report.tenant)).agents if before is None else None
            most = MAX_NODES if own is None else own
            size = self._sizes.get(key, 0)
            accepted = rules.receive(made.view, report.node, settings, held, read.whole, read.now, most, report.probed, size)
            if not isinstance(accepted, rules.AcceptedAgentReport):
                made.answers.append(_refusal(accepted, most))
                continue
            after = self._after(made, report, before, accepted, settings)
            if made.answers and not self._fits(after):
                break
            made = after
        return made

    def _after(
        self,
        made: Round,
        report: ReceivedReport,
        before: NodeRow | None,
        accepted: rules.AcceptedAgentReport,
        settings: MaintenanceSettings,
    ) -> Round:
        node, view, body = accepted.node, made.view, report.body
        after = FleetEvents({**view.nodes, node.node: node}, accepted.events, accepted.monitors, view.alarms, accepted.guard, view.others)
        steps = None if body.steps is None else [step.reported() for step in body.steps]
        known = replace(view, events={**view.events, **accepted.events})
        told = {about: list(found) for about, found in made.told.items()}
        for about, found in told_by_agent(before, node, known, steps, body.sent, self._store.wall()).items():
            told.setdefault(about, []).extend(found)
        return Round(made.read, after, [*made.answers, answer_out(accepted.answer, settings)], told)

    def _fits(self, made: Round) -> bool:
        """Return true if one transaction takes the rows and the stories of a round."""
        changed = made.changed()
        stories = told_by(made.read.view, changed, self._store.wall()).keys() | made.told.keys()
        return len(changed) <= SURE_ROWS and len(changed) + len(stories) <= MAX_EGT_ROWS

    async def _update_drain(self, key: str, made: Round, settings: MaintenanceSettings) -> bool:
        """Let partitions leave the nodes that have begun to need it, and allow them back on the others. False if there is none.

        Nodes that need it too, and have not reported it yet, follow in the same step: a wave over many nodes changes the fleet's intents
        once, and is planned once.
        """
        before, after, now = made.read.view.nodes, made.view, made.read.now
        turned = {name: node for name, node in after.nodes.items() if node.leaving != (name in before and before[name].leaving)}
        if not turned:
            return False
        leaving = {name: node.leaving for name, node in turned.items()}
        if made.read.whole and any(leaving.values()):
            others = (name for name, node in after.nodes.items() if name not in turned and rules.must_leave(node, after, settings, now))
            leaving |= dict.fromkeys(islice(others, max(0, MOST_DRAINED - len(turned))), True)
        events = {name: events_around(after.nodes[name], after, now=now) for name in leaving}
        try:
            await self._leases.leave(key, leaving, events)
        except (StorageError, Problem) as error:
            # The sweep repeats it.
            for name in turned:
                extra = {"action": "maintenance_leases_wait", "fleet": key, "node": name, **event_fields(events[name])}
                log.warning("%s: the drain of %s could not be changed: %s", key, name, error, extra=extra)
        return True


def _pause(rows: int) -> float:
    """Return the seconds after which a process may read a fleet again that took it `rows` rows this time."""
    return min(LONGEST_PAUSE, max(0, rows - FREE_ROWS) / ROWS_A_SECOND)


def _refusal(why: rules.AgentReportRefusal, most: int) -> Problem:
    if why == "too-many-nodes":
        detail = f"the fleet has as many nodes with agents as the tenant's limit allows, {most:,}"
        return conflict(why, f"{detail}; an operator can raise limits.agents", "agents")
    if why == "too-many-events":
        return too_many_events()
    return conflict(why, "a later report of this node has been stored")


def too_many_events() -> Problem:
    """Return 409 for a fleet with too many open maintenance events."""
    return conflict("too-many-events", TOO_MANY_EVENTS, "maintenance_events")


def _fitting(reports: Sequence[ReceivedReport]) -> Sequence[ReceivedReport]:
    """Return the first reports, at least one, that are not too large for one transaction together."""
    left = MOST_CHARACTERS
    for count, report in enumerate(reports):
        left -= sum(200 + len(entry.reason) + sum(len(name) + 3 for name in entry.resources) for entry in report.node.entries)
        if left < 0 and count:
            return reports[:count]
    return reports


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
                bool(each.at_once),
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
        lead=body.lead_ms or 0,
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
