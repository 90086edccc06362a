"""The emulator's clockwork: what happens in the world by itself. Pure: the time is an argument.

    Scheduled --(all of its job approved, or NotBefore; then its delay)--> Started --(it has settled, impacts are over)--> completed

A job is what happens to one host: its events, one for each scope with machines there, start together. All that is due happens at its own
instant and in order, however late `tick` is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...core.clock import Millis
from ...core.errors import Problem
from .model import Event, Happening, Planned, Vm, World
from .scenario import Scenario, StepSpec
from .steps import perform
from .transitions import end, note, settled, spared, start, switched_off, with_vms


def plan(world: World, steps: Iterable[StepSpec]) -> World:
    """The world with steps to come, each `at` its time from now; of those at one time, the first told comes first."""
    new = [Planned(world.now + world.span(step.at), step) for step in steps]
    return replace(world, planned=tuple(sorted((*world.planned, *new), key=lambda each: each.at))) if new else world


def inject(world: World, steps: Iterable[StepSpec]) -> World:
    """Let steps happen now, or `at` a time from now. If one does not fit, it raises `Problem` and none has happened."""
    moved, later = world, []
    for step in steps:
        if step.at:
            later.append(step)
        else:
            moved = perform(moved, step)
    return tick(plan(settled(world, moved), later), world.now)


def begin(scenario: Scenario, now: Millis, *, speed: float = 1.0, seed: str = "") -> World:
    """The world at the start of a scenario; its spans are divided by `speed`."""
    vms = {spec.name: Vm(spec, spec.incarnation) for spec in scenario.vms}
    world = World(imds=scenario.imds, speed=speed, seed=seed, began=now, now=now, vms=vms)
    return tick(plan(world, scenario.steps), now)


def drain(world: World) -> tuple[World, tuple[Happening, ...]]:
    """What happened since the last drain, taken out of the world."""
    return replace(world, log=()), world.log


def tick(world: World, now: Millis) -> World:
    """Let all happen that is due by `now`. A time that steps back changes nothing."""
    while (due := next_due(world)) is not None and due <= now:
        world = settled(world, _happen(replace(world, now=max(due, world.now))))
    return replace(world, now=max(now, world.now))


def next_due(world: World) -> Millis | None:
    """When something happens next, if nobody asks and nothing is injected."""
    return min(_dues(world), default=None)


def timetable(world: World) -> list[tuple[Event, Millis]]:
    """When each listed event starts, or is over if it has started, as things stand. None is over while an impact of it lasts."""
    agreed: dict[str, Millis | None] = {}
    for event in world.events:
        both = (event.approved_at, event.others_at, agreed.get(event.job, 0))
        agreed[event.job] = None if None in both else max(at for at in both if at is not None)
    away: dict[str, Millis] = {}
    for impact in world.impacts:
        away[impact.event.shown.id] = max(impact.ends, away.get(impact.event.shown.id, 0))
    return [(event, _turn(event, agreed[event.job], away.get(event.shown.id, 0))) for event in world.events]


def _turn(event: Event, agreed: Millis | None, away: Millis) -> Millis:
    if event.started_at is not None:
        return max(event.started_at + event.settles, away)
    due = event.shown.not_before
    return (due if agreed is None else min(due, agreed)) + event.delay


def _dues(world: World) -> Iterator[Millis]:
    if world.planned:
        yield world.planned[0].at
    for impact in world.impacts:
        yield impact.ends
    for _, at in timetable(world):
        yield at
    idle, flow = world.span(world.imds.idle), world.span(world.imds.flow)
    for vm in world.vms.values():
        if vm.on_at is None:
            continue
        if vm.asked_at is not None:
            yield vm.asked_at + idle
        if world.now < vm.on_at + flow:
            yield vm.on_at + flow


def _happen(world: World) -> World:
    """All that is due at this very instant, once."""
    now = world.now
    while world.planned and world.planned[0].at <= now:
        step, world = world.planned[0].step, replace(world, planned=world.planned[1:])
        try:
            world = perform(world, step)
        except Problem as problem:
            # What agents do decides whether a step still fits: an event to cancel may have started.
            world = note(world, "step-refused", text=f"{step.verbs()[0]}: {problem.detail}")
    for event in [each for each, at in timetable(world) if not each.started and at <= now]:
        world = start(world, event)
    for impact in [each for each in world.impacts if each.ends <= now]:
        world = spared(world, impact)
    for event in [each for each, at in timetable(world) if each.started and at <= now]:
        world = end(world, event, "completed")
    idle = world.span(world.imds.idle)
    for vm in [each for each in world.vms.values() if each.on_at is not None and each.asked_at is not None and each.asked_at + idle <= now]:
        world = with_vms(world, [vm.name], switched_off)
        world = note(world, "off", vm=vm.name, text="no request for so long")
    return world
