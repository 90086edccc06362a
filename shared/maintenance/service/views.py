"""Shows maintenance rows as the API answers: events with their nodes, and nodes with their events."""

from __future__ import annotations

from typing import Any

from ...core.clock import Millis, to_text
from ..decisions import caller_probes, reservations
from ..decisions.approvals import Leased
from ..decisions.domain_guard import is_live
from ..latency import Latencies, LatencyBound, p99_of, percentile
from ..rows import EventRow, FleetEvents, NodeRow
from ..rule_settings import FleetRule, MaintenanceSettings, ProbeSettings
from ..rules import AgentAnswer
from ..story import MAX_REPORTED_STEPS, ToldStep


def answer_out(answer: AgentAnswer, settings: MaintenanceSettings) -> dict[str, Any]:
    """Return the answer to a report, with the fleet's settings for agents."""
    return {
        "next_report_ms": answer.next_report,
        "steps": MAX_REPORTED_STEPS,
        "approvals": [_leased(each) for each in answer.approvals],
        "hold": [{"event_id": event_id, "reason": reason} for event_id, reason in answer.holds.items()],
        "others": [{"event_id": event_id} | other._asdict() for event_id, other in answer.others.items()],
        "turn_ms": answer.turn,
        "permissions": [{"event_id": event_id} | _permission(why) for event_id, why in answer.permissions.items()],
        "commands": [{"id": each.id, "event_id": each.event_id, "do": each.do} for each in answer.orders],
        "rehearsals": [_rehearsal(each) for each in answer.rehearsals],
        "monitors": {
            "primary": answer.monitors.primary or None,
            "secondary": answer.monitors.secondary or None,
            "epoch": answer.monitors.epoch,
        },
        "settings": {
            "lead_ms": settings.lead,
            "leads_ms": dict(settings.leads),
            "require_central": settings.require_central,
            "rules": [_rule(each) for each in settings.rules],
            "catch_up_ms": settings.catch_up,
            "guard": settings.guard,
        }
        | (_probe_settings(settings.probe) if settings.probe is not None else {}),
    } | ({"probe": {"events": dict(answer.probes)}} if answer.probes else {})


def _probe_settings(probe: ProbeSettings) -> dict[str, Any]:
    what = {"url": probe.url} if probe.url else {"command": probe.command}
    slow = {"slow_ms": probe.bound.p99} if probe.bound.p99 is not None else {}
    return {"probe": {**what, "every_ms": probe.every, "timeout_ms": probe.timeout, **slow}}


def _permission(refused: str) -> dict[str, str]:
    return {"state": "refused", "reason": refused} if refused else {"state": "granted"}


def _rule(rule: FleetRule) -> dict[str, Any]:
    """Return a rule as agents follow it. The app itself sees to `early`: its commands say when to prepare."""
    return {name: value for name, value in rule._asdict().items() if value is not None and name != "early"}


def event_out(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> dict[str, Any]:
    """Return an event as the API answers it. The nodes of an open event come from `view`."""
    shown: dict[str, Any] = {
        "event_id": event.event_id,
        "type": event.type,
        "status": event.status,
        "scope": event.scope,
        "source": event.source,
        "not_before": _text(event.not_before),
        "duration_s": event.duration,
        "resources": list(event.resources),
        "first_seen": to_text(event.seen),
        "rehearsal": event.rehearsal,
        "nodes": _nodes(event, view, now),
        "approval": _approval(event),
        "alarms": list(event.alarms),
        "impact": impact(event),
    }
    if event.started:
        shown["started"] = to_text(event.started)
    if event.ended:
        shown["ended"] = to_text(event.ended)
    if settings.guard == "prepare" and event.status == "scheduled" and not event.rehearsal:
        since = view.guard.reserved.get(event.event_id)
        reserved = {} if since is None else {"reserved": to_text(since)}
        shown["permission"] = _permission(reservations.refusal(event, view, settings, now) or "") | reserved
    if waits := caller_probes.rehearsal_waits_for(event, view, settings, now):
        shown["waits_for"] = waits
    if event.caught_up:
        shown["catch_up_ms"] = dict(sorted(event.caught_up.items()))
    probed = caller_probes.is_probed(event, view, settings, now)
    if probed or event.probes or (event.rehearsal and settings.probe is not None):
        shown["probe"] = _caller_probe(event, probed)
    return shown


def _caller_probe(event: EventRow, probed: bool) -> dict[str, Any]:
    bound = event.bound or LatencyBound()
    limits = {"p99_ms": bound.p99, "failures": bound.failures}
    stated = {name: value for name, value in limits.items() if value is not None}
    return {
        "verdict": caller_probes.verdict(event, probed),
        "passed": caller_probes.bounds_passed(event),
        "phases": {phase: _latencies(found, bound) for phase, found in caller_probes.results(event).items()},
        "nodes": sorted(event.probes.keys() - {caller_probes.FORMER}),
    } | ({"bound": stated} if stated else {})


def _latencies(found: Latencies, bound: LatencyBound) -> dict[str, Any]:
    p50, p99 = percentile(found, 0.5), p99_of(found, bound)
    return {
        "probes": found.probes,
        "failures": found.failures,
        "p50_ms": None if p50 is None or p99 is None else round(min(p50, p99), 2),
        "p99_ms": None if p99 is None else round(p99, 2),
    }


def step_out(told: ToldStep) -> dict[str, Any]:
    """Return a step of an event's story as the API answers it."""
    step = told.step
    shown: dict[str, Any] = {
        "at": to_text(told.at),
        "node": told.node or None,
        "by": step.by,
        "action": step.action,
        "text": step.text,
        "level": "warning" if step.warning else "info",
    }
    return shown | ({"clock_corrected_ms": step.skew} if step.skew else {})


def impact(event: EventRow) -> dict[str, Any]:
    """Return the announced impact beside the measured one."""
    return {
        "notice_ms": max(0, event.not_before - event.seen) if event.not_before is not None else None,
        "advertised_ms": event.duration * 1000 if event.duration >= 0 else None,
        "observed_ms": dict(sorted(event.observed.items())),
        "lasted_ms": event.ended - event.started if event.started and event.ended else None,
    }


def node_out(node: NodeRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> dict[str, Any]:
    """Return the last report of a node's agent."""
    asked = reservations.permissions(node, view, settings, now)
    monitors = view.monitors
    role = {monitors.primary: "primary", monitors.secondary: "secondary"}.get(node.node)
    return {
        "vm": node.vm,
        "scope": node.scope,
        "location": node.location,
        "fault_domain": node.domain,
        "reported": to_text(node.at),
        "disabled": node.disabled,
        "leaving": node.leaving,
        "monitor": role,
        **({"probe": node.probe} if node.probe else {}),
        "events": {
            entry.event_id: _phase(entry.phase, node.at, entry.reason) | _asked(asked.get(entry.event_id)) for entry in node.entries
        },
    }


def _asked(refused: str | None) -> dict[str, Any]:
    return {} if refused is None else {"permission": _permission(refused)}


def _nodes(event: EventRow, view: FleetEvents, now: Millis) -> dict[str, Any]:
    if not event.open:
        return {node: _phase(phase, at) for node, (phase, at) in sorted(event.phases.items())}
    found: dict[str, Any] = {}
    for node in sorted(view.nodes.values(), key=lambda node: node.node):
        entry = node.entry(event.event_id)
        if entry is not None and entry.phase != "FOREIGN":
            found[node.node] = _phase(entry.phase, node.at, entry.reason)
    for node in view.named(event):
        if node.node not in found:
            silent = not is_live(node, view, now)
            found[node.node] = _phase("UNREPORTED", node.at, f"its agent {'is silent' if silent else 'has not reported the event yet'}")
    return dict(sorted(found.items()))


def _phase(phase: str, at: Millis, reason: str = "") -> dict[str, Any]:
    return {"phase": phase, "reported": to_text(at)} | ({"reason": reason} if reason else {})


def _approval(event: EventRow) -> dict[str, Any] | None:
    sent = event.by_agent
    if sent is not None and (event.grant is None or event.grant.state != "posted"):
        found = {"id": f"{event.event_id}.agent", "state": "posted", "by": "agent", "reason": "its agent approved it by itself"}
        return found | {"at": to_text(sent.at), "node": sent.node}
    if event.hold is not None:
        held = event.hold
        return {"id": held.id, "state": "held", "by": held.by, "reason": held.reason, "at": to_text(held.at)}
    given = event.grant
    if given is None:
        return None
    shown = {
        "id": given.id,
        "state": given.state,
        "by": given.by,
        "reason": given.reason,
        "at": to_text(given.at),
        "expires": to_text(given.expires),
    }
    return shown | ({"node": given.node} if given.node else {})


def _leased(each: Leased) -> dict[str, Any]:
    return {"id": each.id, "event_id": each.event_id, "lease_ms": each.lease, "expires": to_text(each.expires)}


def _rehearsal(event: EventRow) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "type": event.type,
        "status": "Scheduled",
        "not_before": _text(event.not_before),
        "source": event.source,
        "duration_s": event.duration,
        "resources": list(event.resources),
    }


def _text(at: Millis | None) -> str | None:
    return to_text(at) if at is not None else None
