"""Decides which agents run the fleet's caller probe, in which phase of an event each probe counts, and what the results say. Pure.

Two agents of each quorum unit of an event probe while it comes, lasts, and its nodes catch up. The answer to each report says for which
events the agent probes, and in which phase these are; the next report brings the results so far. They are counts since the start of the
agent's process, so that a report that is repeated or lost changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ...core.clock import Millis
from ..latency import CATCHING_UP, PHASES, READY, Latencies, ProbePhase, merged, passed_bounds
from ..rows import EventRow, FleetEvents, NodeRow, ProbeRun
from ..rule_settings import MaintenanceSettings, ProbeSettings
from ..timings import BASELINE_WAIT, BUSY_INTERVAL, PROBE_AFTER, PROBE_AHEAD
from .domain_guard import is_live, quorum_unit

type ProbeVerdict = Literal["pending", "within", "passed", "not-measured"]

PROBERS: Final = 2
"""Agents that probe in one quorum unit."""
MAX_PROBERS: Final = 8
"""Agents whose results one event keeps. Others take over from agents that fall silent."""
MAX_PROBED: Final = 8
"""Events for which one agent probes at a time. Their rows stay small, and so do reports."""
ENOUGH: Final = 100
"""Probes of a phase from which a passed bound is an alarm."""
FORMER: Final = ""
"""Key of the results of agents' processes that have ended."""

_BACK: Final = 2 * BUSY_INTERVAL
"""Time after its report that it is done with an event within which a node's return to service belongs to this event."""
_OUT: Final = frozenset({"STARTED", "RESTORING", "RESTORE_FAILED"})


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The part of an agent's report about the caller probe. state: `ready`, or the reason why the agent cannot probe. run: names its
    process. events: results by event and phase."""

    state: str
    run: str = ""
    events: Mapping[str, Mapping[ProbePhase, Latencies]] = field(default_factory=dict)


def is_out(node: NodeRow) -> bool:
    """Return true if a node serves no callers: its agent took it out of service, or it was struck."""
    return node.disabled or any(entry.phase in _OUT for entry in node.entries)


def is_catching_up(node: NodeRow, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if a node serves again, and has not caught up yet."""
    return not is_out(node) and not node.caught_up and now < node.restored + settings.catch_up


def may_be_probed(event: EventRow, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true unless the probes for an event are over, as far as its row alone shows it."""
    if settings.probe is None:
        return False
    return event.open or (
        now - event.ended <= settings.catch_up + PROBE_AFTER
        and any(
            name not in event.caught_up and (phase != "DONE" or now <= at + _BACK + settings.catch_up)
            for name, (phase, at) in event.phases.items()
        )
    )


def is_probed(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true from some minutes before an event's nodes prepare until they have caught up. view: has all nodes."""
    if not may_be_probed(event, settings, now):
        return False
    if not event.open:
        return any(_is_away(node, event, settings, now) for node in view.named(event))
    if event.rehearsal or event.status == "started" or event.grant is not None or event.not_before is None:
        return True
    early = settings.approves_early(event.type, event.source, event.duration)
    return early or now >= event.not_before - settings.lead_of(event.type) - PROBE_AHEAD


def _is_away(node: NodeRow, event: EventRow, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true until a node is back from an event that is over, and has caught up. What a later event does to it does not count."""
    phase, at = event.phases.get(node.node, ("", now))
    if phase != "DONE":
        return is_out(node)
    return is_catching_up(node, settings, now) and node.restored <= at + _BACK and node.node not in event.caught_up


@dataclass(frozen=True, slots=True)
class UnitSurvey:
    """The live nodes of a quorum unit. out, behind: names of those that are out of service, and that catch up. probers: nodes with agents
    that probe."""

    nodes: tuple[NodeRow, ...]
    out: frozenset[str]
    behind: frozenset[str]
    probers: tuple[str, ...]


def survey(view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> dict[str, UnitSurvey]:
    """Return the live nodes by quorum unit. It takes time in proportion to the nodes, so it is made once for all events."""
    units: dict[str, list[NodeRow]] = {}
    for node in view.nodes.values():
        if is_live(node, view, now):
            units.setdefault(quorum_unit(node, settings), []).append(node)
    rehearsing = {name for event in view.events.values() if event.rehearsal and event.open for name in event.nodes}
    probing = {name for event in view.events.values() if may_be_probed(event, settings, now) for name in event.probes}
    return {unit: _survey(nodes, rehearsing, probing, settings, now) for unit, nodes in units.items()}


def _survey(nodes: list[NodeRow], rehearsing: set[str], probing: set[str], settings: MaintenanceSettings, now: Millis) -> UnitSurvey:
    out = frozenset(node.node for node in nodes if is_out(node))
    behind = frozenset(node.node for node in nodes if is_catching_up(node, settings, now))

    def rank(node: NodeRow) -> tuple[bool, bool, bool, bool, bool, str]:
        has_event = node.node in rehearsing or any(entry.listed and entry.phase != "FOREIGN" for entry in node.entries)
        reports_often = any(entry.listed for entry in node.entries)
        return node.node in out, has_event, node.node in behind, node.node not in probing, not reports_often, node.node

    # The agent of a machine that is struck measures the machine's own pause. A rehearsal strikes none.
    able = sorted((node for node in nodes if node.probe == READY and (node.node not in out or node.node in rehearsing)), key=rank)
    chosen = able[:1]
    # The second one is in another fault domain if possible, but not at the price of having an event itself.
    chosen += sorted(able[1:], key=lambda node: (rank(node)[:2], node.domain == able[0].domain, rank(node)))[: PROBERS - 1]
    return UnitSurvey(tuple(nodes), out, behind, tuple(node.node for node in chosen))


def phase_of(event: EventRow, view: FleetEvents, units: Mapping[str, UnitSurvey], settings: MaintenanceSettings) -> ProbePhase | None:
    """Return the phase in which probes count for an event; None while only nodes of other events are away, or one has fallen silent."""
    named = view.named(event)
    found = [units[unit] for unit in sorted({quorum_unit(node, settings) for node in named} & units.keys())]
    out = {name for unit in found for name in unit.out}
    behind = {name for unit in found for name in unit.behind}
    if not any(node.node in out | behind for node in named):
        # Its nodes serve. If others do not, this is no calm time to compare with.
        live = {node.node for unit in found for node in unit.nodes}
        return None if out or behind or not live.issuperset(node.node for node in named) else "before"
    if out:
        return "out"
    if len(behind) == 1:
        return "one_node"
    for unit in found:
        domains: dict[str, set[str]] = {}
        for node in unit.nodes:
            domains.setdefault(node.domain, set()).add(node.node)
        if any(len(members) > 1 and members <= behind for members in domains.values()):
            return "domain"
    return "some_nodes"


def order_for(node: NodeRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> dict[str, ProbePhase]:
    """Return the events for which a node's agent probes now, with their phases. view: has all nodes."""
    found: dict[str, ProbePhase] = {}
    events = [event for event in view.events.values() if may_be_probed(event, settings, now)]
    if node.probe != READY or not events:
        return found
    units = survey(view, settings, now)
    unit = quorum_unit(node, settings)
    if unit not in units or node.node not in units[unit].probers:
        return found
    for event in sorted(events, key=lambda event: (event.status == "scheduled", event.not_before or event.seen, event.event_id)):
        if not is_probed(event, view, settings, now) or unit not in {quorum_unit(each, settings) for each in view.named(event)}:
            continue
        if (phase := phase_of(event, view, units, settings)) is not None:
            found[event.event_id] = phase
        if len(found) == MAX_PROBED:
            break
    return found


def rehearses(event: EventRow, node: NodeRow, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if a node's agent runs its hooks for a rehearsal.

    In a fleet with a caller probe it begins once there is something to compare with, or that has been waited for long enough.
    """
    if not event.rehearsal or not event.open or node.node not in event.nodes:
        return False
    measured = settings.probe is None or bool(event.probes) or now - event.seen > BASELINE_WAIT
    return measured or node.entry(event.event_id) is not None


def rehearsal_waits_for(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> list[str]:
    """Return what an open rehearsal waits for before its nodes begin; empty once all of them take part."""
    if not event.rehearsal or event.status != "scheduled":
        return []
    idle = [node for node in view.named(event) if node.entry(event.event_id) is None]
    found = [f"the next report of {node.node}; an idle agent reports every 5 minutes" for node in idle if node.at <= event.seen]
    if idle and settings.probe is not None and not event.probes and now - event.seen <= BASELINE_WAIT:
        found.append("results of the caller probe to compare with")
    return found


def with_report(
    events: Mapping[str, EventRow],
    before: NodeRow | None,
    node: NodeRow,
    caught_up: bool,
    probed: ProbeReport | None,
    settings: MaintenanceSettings,
    now: Millis,
) -> dict[str, EventRow]:
    """Return the events that a report changes: with the agent's results, and with the time that its node needed to catch up.

    before: the node before the report. caught_up: the report says that the node has caught up.
    """
    was_behind = before is not None and (not before.caught_up or (before.disabled and not node.disabled))
    changed: dict[str, EventRow] = {}
    for event_id, event in events.items():
        if not event.open and now - event.ended > settings.catch_up + PROBE_AFTER:
            continue
        made = _with_caught_up(event, node, now) if caught_up and was_behind else event
        if probed is not None and settings.probe is not None and event_id in probed.events:
            made = with_results(made, node, probed, settings.probe)
        if made is not event:
            changed[event_id] = made
    return changed


def with_results(event: EventRow, node: NodeRow, report: ProbeReport, probe: ProbeSettings) -> EventRow:
    """Return an event with an agent's results for it."""
    phases = {phase: report.events[event.event_id][phase] for phase in PHASES if phase in report.events[event.event_id]}
    if not _probes(phases):
        return event
    before = event.probes.get(node.node)
    kept = dict(event.probes)
    if before is not None and before.run != report.run:
        # The agent's process was restarted, and counts from 0.
        kept[FORMER] = ProbeRun("", _sum([before, *([kept[FORMER]] if FORMER in kept else [])]))
    elif before is None and len(kept.keys() - {FORMER}) >= MAX_PROBERS:
        return event
    elif before is not None and _probes(before.phases) >= _probes(phases):
        # An older report that was late.
        return event
    kept[node.node] = ProbeRun(report.run, phases)
    return replace(event, probes=kept, bound=probe.bound)


def _with_caught_up(event: EventRow, node: NodeRow, now: Millis) -> EventRow:
    """Return an event with the time that a node needed to catch up, which its agent reports just now."""
    entry = node.entry(event.event_id)
    ours = entry is not None and entry.phase == "DONE" and node.restored >= event.seen
    if not ours or node.node in event.caught_up:
        return event
    return replace(event, caught_up={**event.caught_up, node.node: now - node.restored})


def _probes(phases: Mapping[ProbePhase, Latencies]) -> int:
    return sum(found.probes for found in phases.values())


def _sum(runs: list[ProbeRun]) -> dict[ProbePhase, Latencies]:
    phases = {phase: merged(run.phases[phase] for run in runs if phase in run.phases) for phase in PHASES}
    return {phase: found for phase, found in phases.items() if found.probes}


def results(event: EventRow) -> dict[ProbePhase, Latencies]:
    """Return the results of all agents for an event, by phase, without empty ones."""
    return _sum(list(event.probes.values()))


def bounds_passed(event: EventRow) -> list[str]:
    """Return a sentence for each bound that was passed during an event."""
    return passed_bounds(results(event), event.bound)


def alarms_callers(event: EventRow, now: Millis) -> bool:
    """Return true if callers notice an event more than the fleet allows, until an hour after its end.

    A phase of fewer probes has no p99 to speak of: one slow answer would be an alarm.
    """
    if event.bound is None or (not event.open and now - event.ended > PROBE_AFTER):
        return False
    return bool(passed_bounds({phase: found for phase, found in results(event).items() if found.probes >= ENOUGH}, event.bound))


def verdict(event: EventRow, probed: bool) -> ProbeVerdict:
    """Return the verdict on an event's probes. probed: they go on, so a bound that is passed now may be kept in the end."""
    if probed:
        return "pending"
    if bounds_passed(event):
        return "passed"
    found = results(event)
    return "within" if any(phase in found for phase in CATCHING_UP) else "not-measured"
