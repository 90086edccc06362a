"""The world and its log as JSON, for the control API and for `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.clock import Millis, to_text
from .model import Happening, ImdsEvent, World
from .rules import timetable
from .steps import fault_text


def world_document(world: World, urls: Mapping[str, str]) -> dict[str, Any]:
    """Return the whole world, for `GET /` of the control API."""
    return {
        "now": to_text(world.now),
        "began": to_text(world.began),
        "speed": world.speed,
        "vms": {name: vm_document(world, name, urls[name]) for name in world.vms},
        "events": [*(event_document(event, at) for event, at in timetable(world)), *(event_document(event) for event in world.ended)],
        "faults": [{"what": fault_text(fault.spec), "left": fault.left, "until": _time(fault.ends)} for fault in world.faults],
        "planned": [{"at": to_text(each.at), "does": each.step.verbs()[0]} for each in world.planned],
        "last": world.happened,
    }


def vm_document(world: World, name: str, url: str) -> dict[str, Any]:
    """Return a machine. `read`: the incarnation that it read last. `away`: True during an impact."""
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
        "away": is_away(world, name),
    }


def event_document(event: ImdsEvent, upcoming: Millis | None = None) -> dict[str, Any]:
    """Return an event, listed or ended. `upcoming`: time at which it starts or ends if nothing else happens."""
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


def happening_document(line: Happening) -> dict[str, Any]:
    """Return a line of the log, without empty members."""
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


def is_away(world: World, name: str) -> bool:
    """Return True during an impact of the machine."""
    return any(name in impact.vms for impact in world.impacts)


def _time(at: Millis | None) -> str | None:
    return None if at is None else to_text(at)
