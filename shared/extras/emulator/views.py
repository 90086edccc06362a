"""The world and what happens in it, as JSON and as lines: for the control API, for `--json`, for the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.clock import Millis, to_text
from .model import Event, Happening, World
from .rules import timetable
from .steps import told


def world_out(world: World, urls: Mapping[str, str]) -> dict[str, Any]:
    """All there is, for `GET /` of the control API."""
    return {
        "now": to_text(world.now),
        "began": to_text(world.began),
        "speed": world.speed,
        "vms": {name: vm_out(world, name, urls[name]) for name in world.vms},
        "events": [*(event_out(event, at) for event, at in timetable(world)), *(event_out(event) for event in world.ended)],
        "faults": [{"what": told(fault.spec), "left": fault.left, "until": _time(fault.ends)} for fault in world.faults],
        "planned": [{"at": to_text(each.at), "does": each.step.verbs()[0]} for each in world.planned],
        "last": world.happened,
    }


def vm_out(world: World, name: str, url: str) -> dict[str, Any]:
    """One machine; `read` is the incarnation that it read last, `away` whether it has an impact just now."""
    vm = world.vms[name]
    return {
        "url": url,
        "scope": vm.spec.scope,
        "host": vm.spec.host,
        "fault_domain": vm.spec.fault_domain,
        "on": vm.on_at is not None,
        "incarnation": vm.incarnation,
        "read": vm.read,
        "requests": vm.requests,
        "asked": _time(vm.asked_at),
        "away": away(world, name),
    }


def event_out(event: Event, upcoming: Millis | None = None) -> dict[str, Any]:
    """One event, listed or over. `upcoming`: when it starts or ends if nothing more happens."""
    return {
        "name": event.name,
        "event_id": event.shown.id,
        "scope": event.scope,
        "job": event.job,
        "type": event.shown.type,
        "status": event.outcome or event.shown.status.lower(),
        "resources": list(event.shown.resources),
        "source": event.shown.source,
        "duration_s": event.shown.duration,
        "not_before": to_text(event.shown.not_before),
        "scheduled": to_text(event.scheduled_at),
        "approved": _time(event.approved_at),
        "approved_by": event.approved_by or None,
        "started": _time(event.started_at),
        "ended": _time(event.ended_at),
        "next": _time(upcoming),
    }


def happening_out(line: Happening) -> dict[str, Any]:
    """One line of the log; members that say nothing are left out."""
    out = {
        "number": line.number,
        "at": to_text(line.at),
        "kind": line.kind,
        "vm": line.vm,
        "event": line.event,
        "event_id": line.event_id,
        "text": line.text,
    }
    return {key: value for key, value in out.items() if value != ""}


def away(world: World, name: str) -> bool:
    """Whether the machine has an impact just now."""
    return any(name in impact.vms for impact in world.impacts)


def _time(at: Millis | None) -> str | None:
    return None if at is None else to_text(at)
