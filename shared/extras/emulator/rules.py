"""Changes of the emulated world that happen with time. Pure: the time is an argument.

    Scheduled --(all of its job approved, or NotBefore; then its delay)--> Started --(it has settled, impacts are over)--> completed

A job is the work on one host. Its events, one for each scope with machines there, start together. Everything due happens at its own
instant and in order, however late `tick` is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...core.clock import Millis
from ...core.errors import Problem
from .model import Happening, ImdsEvent, PlannedStep, Vm, World
from .scenario import Scenario, StepSpec
from .steps import perform
from .transitions import add_log_line, end, end_impact, start, switched_off, with_new_incarnations, with_vms


def plan_steps(world: World, steps: Iterable[StepSpec]) -> World:
    """Return the world with further planned steps, each `at` its time from now. Steps at the same time keep their order."""
    new = [PlannedStep(world.now + world.span(step.at), step) for step in steps]
    return replace(world, planned=tuple(sorted((*world.planned, *new), key=lambda each: each.at))) if new else world


def inject_steps(world: World, steps: Iterable[StepSpec]) -> World:
    """Perform steps now, or plan them if they have an `at`. Raises `Problem` for a step that cannot be done; then none was done."""
    moved, later = world, []
    for step in steps:
        if step.at:
            later.append(step)
        else:
            moved = perform(moved, step)
    return tick(plan_steps(with_new_incarnations(world, moved), later), world.now)


def initial_world(scenario: Scenario, now: Millis, *, speed: float = 1.0, seed: str = "") -> World:
    """Return the world at the start of a scenario. Its durations are divided by `speed`."""
    vms = {spec.name: Vm(spec, spec.incarnation) for spec in scenario.vms}
    world = World(imds=scenario.imds, speed=speed, seed=seed, began=now, now=now, vms=vms)
    return tick(plan_steps(world, scenario.steps), now)


def take_log(world: World) -> tuple[World, tuple[Happening, ...]]:
    """Remove the log from the world. Returns the world and the removed lines."""
    return replace(world, log=()), world.log


def tick(world: World, now: Millis) -> World:
    """Do everything that is due by `now`. A time that steps back changes nothing."""
    while (due := next_due(world)) is not None and due <= now:
        world = with_new_incarnations(world, _do_due(replace(world, now=max(due, world.now))))
    return replace(world, now=max(now, world.now))


def next_due(world: World) -> Millis | None:
    """Return the time of the next change, if no request and no step comes before; None if nothing is due."""
    return min(_dues(world), default=None)


def timetable(world: World) -> list[tuple[ImdsEvent, Millis]]:
    """Return each listed event with the time at which it starts, or ends if it has started. It does not end during an impact."""
    agreed: dict[str, Millis | None] = {}
    for event in world.events:
        both = (event.approved_at, event.others_at, agreed.get(event.job, 0))
        agreed[event.job] = None if None in both else max(at for at in both if at is not None)
    away: dict[str, Millis] = {}
    for impact in world.impacts:
        away[impact.event.shown.id] = max(impact.ends, away.get(impact.event.shown.id, 0))
    return [(event, _next_change(event, agreed[event.job], away.get(event.shown.id, 0))) for event in world.events]


def _next_change(event: ImdsEvent, agreed: Millis | None, away: Millis) -> Millis:
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


def _do_due(world: World) -> World:
    """Do everything that is due at this instant, once."""
    now = world.now
    while world.planned and world.planned[0].at <= now:
        step, world = world.planned[0].step, replace(world, planned=world.planned[1:])
        try:
            world = perform(world, step)
        except Problem as problem:
            # Agents' actions decide whether a step is still possible: an event to cancel may have started.
            world = add_log_line(world, "step-refused", text=f"{step.verbs()[0]}: {problem.detail}")
    for event in [each for each, at in timetable(world) if not each.started and at <= now]:
        world = start(world, event)
    for impact in [each for each in world.impacts if each.ends <= now]:
        world = end_impact(world, impact)
    for event in [each for each, at in timetable(world) if each.started and at <= now]:
        world = end(world, event, "completed")
    idle = world.span(world.imds.idle)
    for vm in [each for each in world.vms.values() if each.on_at is not None and each.asked_at is not None and each.asked_at + idle <= now]:
        world = with_vms(world, [vm.name], switched_off)
        world = add_log_line(world, "off", vm=vm.name, text="no request for the idle time")
    return world
