"""Reads the maintenance settings of a fleet's definition for the rules."""

from __future__ import annotations

import json

from ...leases.rows import Fleet
from ..latency import LatencyBound
from ..rule_settings import FleetRule, MaintenanceSettings, ProbeSettings
from ..settings import CallerProbe, stored_settings
from ..timings import HAND_OFF


def read_maintenance_settings(fleet: Fleet) -> MaintenanceSettings:
    """Return the maintenance settings of a stored fleet."""
    settings = stored_settings(json.loads(fleet.rest))
    # An order is read with the next beat but one at the latest, given with one before, and carried out within the drain.
    hand_off = max(HAND_OFF, round((fleet.limits.drain + 3 * fleet.profile.beat) * 1000))
    return MaintenanceSettings(
        settings.lead,
        {str(kind): lead for kind, lead in settings.leads.items()},
        settings.transport,
        settings.catch_up,
        settings.quorum.per,
        settings.quorum.domains_down,
        settings.early,
        hand_off,
        settings.require_central,
        tuple(FleetRule(rule.action, rule.type, rule.source, rule.max_seconds, rule.early) for rule in settings.rules),
        silence=settings.silence,
        guard=settings.guard,
        probe=_probe(settings.probe) if settings.probe is not None else None,
        strangers=settings.strangers,
    )


def _probe(probe: CallerProbe) -> ProbeSettings:
    bound = LatencyBound(probe.bound.p99_ms, probe.bound.failures) if probe.bound is not None else LatencyBound()
    return ProbeSettings(probe.url or "", probe.command or "", probe.every, probe.timeout, bound)
