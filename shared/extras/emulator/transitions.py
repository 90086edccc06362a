"""Small moves of the emulated world that `rules`, `steps` and `asking` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...core.clock import Millis
from .model import Ended, Event, Happening, Impact, Kind, Shown, Vm, World


def note(world: World, kind: Kind, *, vm: str = "", event: Event | None = None, text: str = "") -> World:
    """One line more in the log."""
    name, event_id = (event.name, event.shown.id) if event is not None else ("", "")
    line = Happening(world.happened + 1, world.now, kind, vm, name, event_id, text)
    return replace(world, happened=world.happened + 1, log=(*world.log, line))


def view(world: World, vm: Vm) -> tuple[Shown, ...]:
    """What documents of `vm` list now."""
    return tuple(event.shown for event in listed_for(world, vm))


def listed_for(world: World, vm: Vm) -> list[Event]:
    """The events of the machine's scope that are not hidden from it, once its service is on and they flow."""
    if vm.on_at is None or world.now < flows_at(world, vm.on_at):
        return []
    return [event for event in world.events if event.scope == vm.spec.scope and vm.name not in event.hidden_from]


def flows_at(world: World, on_at: Millis) -> Millis:
    """From when on events reach a machine whose service was switched on then."""
    return on_at + world.span(world.imds.flow)


def settled(before: World, after: World) -> World:
    """`after`, with a new incarnation for each machine whose document is no longer what it was `before`."""
    changed = {
        name: replace(vm, incarnation=vm.incarnation + 1)
        for name, vm in after.vms.items()
        if vm.on_at is not None and view(before, before.vms[name]) != view(after, vm)
    }
    return replace(after, vms={**after.vms, **changed}) if changed else after


def with_vms(world: World, names: Iterable[str], change: Callable[[Vm], Vm]) -> World:
    """`change` made to the machines of these names."""
    return replace(world, vms={**world.vms, **{name: change(world.vms[name]) for name in names}})


def with_event(world: World, old: Event, new: Event) -> World:
    """One listed event replaced."""
    return replace(world, events=tuple(new if event is old else event for event in world.events))


def start(world: World, event: Event) -> World:
    """The event starts now, and its impact with it."""
    started = replace(event, shown=replace(event.shown, status="Started"), started_at=world.now)
    world = note(with_event(world, event, started), "started", event=started)
    return hit(world, started, event.impact) if event.impact else world


def hit(world: World, event: Event, lasts: Millis) -> World:
    """The event's machines are away from now on, for so long."""
    vms = event.shown.resources
    for vm in vms:
        world = note(world, "impact-began", vm=vm, event=event)
    return replace(world, impacts=(*world.impacts, Impact(event, vms, world.now + lasts)))


def spared(world: World, impact: Impact) -> World:
    """The impact is over."""
    for vm in impact.vms:
        world = note(world, "impact-ended", vm=vm, event=impact.event)
    return replace(world, impacts=tuple(each for each in world.impacts if each is not impact))


def end(world: World, event: Event, outcome: Ended) -> World:
    """The event is no longer listed. An impact that has begun goes on."""
    gone = replace(event, ended_at=world.now, outcome=outcome)
    events = tuple(each for each in world.events if each is not event)
    return note(replace(world, events=events, ended=(*world.ended[-KEPT:], gone)), outcome, event=gone)


def switched_off(vm: Vm, incarnation: int | None = None) -> Vm:
    """The service is off; its documents will count from `incarnation`, or as at first."""
    return replace(vm, on_at=None, incarnation=vm.spec.incarnation if incarnation is None else incarnation, read=None)


KEPT = 999
"""Ended events remembered, but for the last one."""
