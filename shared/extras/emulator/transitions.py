"""Small changes of the emulated world that `rules`, `steps` and `metadata_service` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...core.clock import Millis
from .model import Happening, HappeningKind, ImdsEvent, ImdsOutcome, Impact, ListedEvent, Vm, World


def add_log_line(world: World, kind: HappeningKind, *, vm: str = "", event: ImdsEvent | None = None, text: str = "") -> World:
    """Return the world with another line in its log."""
    name, event_id = (event.name, event.shown.id) if event is not None else ("", "")
    line = Happening(world.happened + 1, world.now, kind, vm, name, event_id, text)
    return replace(world, happened=world.happened + 1, log=(*world.log, line))


def listed_events(world: World, vm: Vm) -> tuple[ListedEvent, ...]:
    """Return the events as documents of `vm` list them now."""
    return tuple(event.shown for event in listed_for(world, vm))


def listed_for(world: World, vm: Vm) -> list[ImdsEvent]:
    """Return the events that the machine may see: those of its scope that are not hidden from it, while its service is on."""
    if vm.on_at is None or world.now < flows_at(world, vm.on_at):
        return []
    return [event for event in world.events if event.scope == vm.spec.scope and vm.name not in event.hidden_from]


def flows_at(world: World, on_at: Millis) -> Millis:
    """Return the time from which events reach a machine whose service was switched on at `on_at`."""
    return on_at + world.span(world.imds.flow)


def with_new_incarnations(before: World, after: World) -> World:
    """Return `after` with a new incarnation for each machine whose document differs from the one `before`."""
    changed = {
        name: replace(vm, incarnation=vm.incarnation + 1)
        for name, vm in after.vms.items()
        if vm.on_at is not None and listed_events(before, before.vms[name]) != listed_events(after, vm)
    }
    return replace(after, vms={**after.vms, **changed}) if changed else after


def with_vms(world: World, names: Iterable[str], change: Callable[[Vm], Vm]) -> World:
    """Return the world with `change` applied to the machines of these names."""
    return replace(world, vms={**world.vms, **{name: change(world.vms[name]) for name in names}})


def with_event(world: World, old: ImdsEvent, new: ImdsEvent) -> World:
    """Return the world with a listed event replaced."""
    return replace(world, events=tuple(new if event is old else event for event in world.events))


def start(world: World, event: ImdsEvent) -> World:
    """Start the event and its impact."""
    started = replace(event, shown=replace(event.shown, status="Started"), started_at=world.now)
    world = add_log_line(with_event(world, event, started), "started", event=started)
    return begin_impact(world, started, event.impact) if event.impact else world


def begin_impact(world: World, event: ImdsEvent, lasts: Millis) -> World:
    """Begin an impact: the event's machines are away for `lasts` milliseconds."""
    vms = event.shown.resources
    for vm in vms:
        world = add_log_line(world, "impact-began", vm=vm, event=event)
    return replace(world, impacts=(*world.impacts, Impact(event, vms, world.now + lasts)))


def end_impact(world: World, impact: Impact) -> World:
    """End an impact."""
    for vm in impact.vms:
        world = add_log_line(world, "impact-ended", vm=vm, event=impact.event)
    return replace(world, impacts=tuple(each for each in world.impacts if each is not impact))


def end(world: World, event: ImdsEvent, outcome: ImdsOutcome) -> World:
    """End the event: it is no longer listed. An impact that has begun continues."""
    gone = replace(event, ended_at=world.now, outcome=outcome)
    events = tuple(each for each in world.events if each is not event)
    return add_log_line(replace(world, events=events, ended=(*world.ended[-MAX_ENDED:], gone)), outcome, event=gone)


def switched_off(vm: Vm, incarnation: int | None = None) -> Vm:
    """Return the machine with its service off. Its documents will count from `incarnation`, or from the scenario's value."""
    return replace(vm, on_at=None, incarnation=vm.spec.incarnation if incarnation is None else incarnation, read=None)


MAX_ENDED = 999
"""Ended events that are kept, in addition to the last one."""
