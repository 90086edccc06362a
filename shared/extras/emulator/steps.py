"""Perform steps of scenarios and of the control API on the world. Pure.

A step that cannot be done (an event that has started cannot be cancelled) raises `Problem` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import NAMESPACE_URL, uuid5

from ...core.clock import Millis
from ...core.readable import count_of
from ...web.problem import conflict, invalid
from .model import ImdsEvent, ImdsFault, ListedEvent, Vm, World
from .scenario import ApproveSpec, ChangeSpec, EventSpec, FaultSpec, HideSpec, ResetSpec, SkipSpec, StepSpec, VmSelection, notice_of
from .transitions import add_log_line, begin_impact, end, start, switched_off, with_event, with_vms

SETTLES: dict[str, Millis] = {"Preempt": 60_000, "Terminate": 60_000}
DEFAULT_SETTLES: Millis = 600_000
"""Time from the start of an event to its end, including the time in which Azure watches the host. Milliseconds."""
IMPACTS: dict[str, Millis] = {"Freeze": 7_000, "Reboot": 90_000, "Redeploy": 180_000, "Preempt": 60_000, "Terminate": 60_000}
DEFAULT_IMPACT: Millis = 60_000
"""Time that machines are away if neither the step nor the advertised duration gives it. Milliseconds."""
DURATIONS = {"Freeze": 7}
"""Advertised seconds; -1 for other types."""
DESCRIPTIONS = {
    "Freeze": "The host is being updated; the virtual machine is paused meanwhile.",
    "Reboot": "The virtual machine is about to be restarted.",
    "Redeploy": "The virtual machine is about to move to another host; its temporary disk is lost.",
    "Preempt": "The spot virtual machine is about to be evicted.",
    "Terminate": "The virtual machine is about to be deleted.",
}
_SECOND: Millis = 1000

type EventMove = Callable[[World, ImdsEvent], World]


def perform(world: World, step: StepSpec) -> World:
    """Return the world after `step`, at its present time. Raises `Problem`: 422 for unknown names, 409 if the state does not allow it."""
    for name in step.vm_names():
        if name not in world.vms:
            raise invalid(f"/{step.verbs()[0]}", f"there is no machine {name}")
    if step.event is not None:
        return _schedule(world, step.event)
    events = _listed_events(world, step.event_name())
    if step.change is not None:
        return _change(world, step.change, events)
    if step.cancel is not None:
        _no_started(events, "cancelled")
        return _each(world, events, lambda world, event: end(world, event, "cancelled"))
    if step.vanish is not None:
        return _each(world, events, lambda world, event: end(world, event, "vanished"))
    if step.start is not None:
        _no_started(events, "started")
        return _each(world, events, start)
    return _perform_rest(world, step, events)


def _perform_rest(world: World, step: StepSpec, events: list[ImdsEvent]) -> World:
    if step.complete is not None:
        _all_started(events)
        return _each(world, events, lambda world, event: end(world, event, "completed"))
    if (impact := step.impact) is not None:
        _all_started(events)
        return _each(world, events, lambda world, event: begin_impact(world, event, world.span(impact.lasts)))
    if step.hide is not None:
        return _hide(world, step.hide, events, hidden=True)
    if step.show is not None:
        return _hide(world, step.show, events, hidden=False)
    if step.approve is not None:
        return _approve(world, step.approve, events)
    if step.reset is not None:
        return _reset(world, step.reset)
    if step.skip is not None:
        return _skip(world, step.skip)
    if step.fault is not None:
        return _add_fault(world, step.fault)
    assert step.clear is not None
    return _clear(world, step.clear)


def approve(world: World, event: ImdsEvent, by: str) -> World:
    """Record an approval. Only the first one counts, and it cannot be withdrawn."""
    if event.approved_at is not None or event.started:
        return world
    approved = replace(event, approved_at=world.now, approved_by=by)
    return add_log_line(with_event(world, event, approved), "approved", vm=by, event=approved)


def _listed_events(world: World, name: str | None) -> list[ImdsEvent]:
    """Return the listed events of a name. Raises `Problem` if there are none."""
    if name is None:
        return []
    events = [event for event in world.events if event.name == name]
    if events:
        return events
    if any(event.name == name for event in world.ended):
        raise conflict("not-listed", f"event {name} is no longer listed")
    raise invalid("", f"there is no event {name}")


def _each(world: World, events: list[ImdsEvent], move: EventMove) -> World:
    for event in events:
        world = move(world, event)
    return world


def _no_started(events: list[ImdsEvent], what: str) -> None:
    if any(event.started for event in events):
        raise conflict("already-started", f"event {events[0].name} has started and cannot be {what}")


def _all_started(events: list[ImdsEvent]) -> None:
    if not all(event.started for event in events):
        raise conflict("not-started", f"event {events[0].name} has not started")


def _schedule(world: World, spec: EventSpec) -> World:
    name = spec.name or f"event-{world.made + 1}"
    if any(event.name == name for event in (*world.events, *world.ended)):
        raise conflict("name-in-use", f"another event is already named {name}")
    groups = list(_groups(world, spec, name))
    if not groups:
        raise invalid("/event", "it selects no machine")
    if spec.id is not None and len(groups) > 1:
        raise invalid("/event/id", f"an id names one event, but these machines need {len(groups)} events: one for each scope and host")
    if spec.id is not None and any(event.shown.id.casefold() == spec.id.casefold() for event in world.events):
        raise conflict("id-in-use", f"another listed event already has the id {spec.id}")
    for job, vms in groups:
        world = _add(world, spec, name, job, vms)
    return world


def _groups(world: World, spec: EventSpec, name: str) -> Iterator[tuple[str, list[Vm]]]:
    """Yield the job and the machines of each event to create: one event for each scope; by fault domain, one job for each host."""
    found: dict[tuple[str, str], list[Vm]] = {}
    for vm in world.vms.values():
        if spec.vms is not None:
            chosen, job = vm.name in spec.vms, name
        elif spec.host is not None:
            chosen, job = vm.spec.host == spec.host, name
        else:
            chosen = vm.spec.fault_domain == spec.fault_domain and spec.scope in (None, vm.spec.scope)
            job = f"{name}/{vm.spec.host or vm.name}"
        if chosen:
            found.setdefault((job, vm.spec.scope), []).append(vm)
    for (job, _), vms in found.items():
        yield job, vms


def _add(world: World, spec: EventSpec, name: str, job: str, vms: list[Vm]) -> World:
    duration = DURATIONS.get(spec.type, -1) if spec.duration is None else spec.duration
    shown = ListedEvent(
        id=spec.id or str(uuid5(NAMESPACE_URL, f"{world.seed}/{world.made}")),
        type=spec.type,
        resources=tuple(vm.name for vm in vms),
        status="Scheduled",
        not_before=_not_before(world, notice_of(spec)),
        description=DESCRIPTIONS.get(spec.type, "") if spec.description is None else spec.description,
        source=spec.source,
        duration=duration,
        raw=spec.raw,
        omit=tuple(spec.omit),
    )
    event = ImdsEvent(
        name=name,
        scope=vms[0].spec.scope,
        job=job,
        shown=shown,
        scheduled_at=world.now,
        delay=world.span(spec.delay),
        others_at=None if spec.others is None else world.now + world.span(spec.others),
        impact=world.span(_impact(spec, duration)),
        settles=world.span(SETTLES.get(spec.type, DEFAULT_SETTLES) if spec.settles is None else spec.settles),
    )
    world = replace(world, events=(*world.events, event), made=world.made + 1)
    if spec.started:
        return start(world, event)
    return add_log_line(world, "scheduled", event=event)


def _impact(spec: EventSpec, duration: int) -> Millis:
    if spec.impact is not None:
        return spec.impact
    return duration * _SECOND if duration >= 0 else IMPACTS.get(spec.type, DEFAULT_IMPACT)


def _not_before(world: World, notice: Millis) -> Millis:
    """Return NotBefore, rounded up: documents show whole seconds, and no event starts before the time that they show."""
    return -(-(world.now + world.span(notice)) // _SECOND) * _SECOND


def _change(world: World, spec: ChangeSpec, events: list[ImdsEvent]) -> World:
    if spec.notice is not None:
        _no_started(events, "put off")
    if spec.vms is not None and (len(events) > 1 or any(world.vms[vm].spec.scope != events[0].scope for vm in spec.vms)):
        raise conflict("not-one-scope", f"the machines of {spec.event} are not of one scope")
    given = {key: value for key in ("type", "source", "duration", "description", "raw") if (value := getattr(spec, key)) is not None}
    if spec.notice is not None:
        given["not_before"] = _not_before(world, spec.notice)
    if spec.vms is not None:
        given["resources"] = tuple(spec.vms)
    if spec.omit is not None:
        given["omit"] = tuple(spec.omit)

    def changed(world: World, event: ImdsEvent) -> World:
        new = replace(event, shown=replace(event.shown, **given))
        return add_log_line(with_event(world, event, new), "changed", event=new, text=", ".join(sorted(given)))

    return _each(world, events, changed)


def _hide(world: World, spec: HideSpec, events: list[ImdsEvent], *, hidden: bool) -> World:
    names = frozenset(_vms(world, spec))

    def moved(world: World, event: ImdsEvent) -> World:
        new = replace(event, hidden_from=event.hidden_from | names if hidden else event.hidden_from - names)
        return add_log_line(with_event(world, event, new), "hidden" if hidden else "shown", event=new, text=", ".join(sorted(names)))

    return _each(world, events, moved)


def _approve(world: World, spec: ApproveSpec, events: list[ImdsEvent]) -> World:
    _no_started(events, "approved")
    if spec.vm is not None:
        events = [event for event in events if event.scope == world.vms[str(spec.vm)].spec.scope]
        if not events:
            raise conflict("other-scope", f"{spec.event} names no machine of the scope of {spec.vm}")
    return _each(world, events, lambda world, event: approve(world, event, spec.vm or "operator"))


def _vms(world: World, spec: VmSelection) -> list[str]:
    return spec.vms or list(world.vms)


def _reset(world: World, spec: ResetSpec) -> World:
    for name in _vms(world, spec):
        world = with_vms(world, [name], lambda vm: switched_off(vm, spec.incarnation))
        world = add_log_line(world, "reset", vm=name)
    return world


def _skip(world: World, spec: SkipSpec) -> World:
    for name in _vms(world, spec):
        world = with_vms(world, [name], lambda vm: replace(vm, incarnation=vm.incarnation + spec.by))
        world = add_log_line(world, "skipped", vm=name, text=count_of(spec.by, "incarnation"))
    return world


def _add_fault(world: World, spec: FaultSpec) -> World:
    ends = None if spec.lasts is None else world.now + world.span(spec.lasts)
    fault = ImdsFault(spec, ends, spec.times)
    return add_log_line(replace(world, faults=(*world.faults, fault)), "failing", text=fault_text(spec))


def fault_text(spec: FaultSpec) -> str:
    """Return a short description of a fault."""
    what = "connection cut" if spec.drop else f"{spec.status} {'own text' if spec.text is not None else spec.body}"
    return f"{what}{f', {spec.delay / 1000:g} s late' if spec.delay else ''}: {', '.join(spec.on)} of {', '.join(spec.vms or ['all'])}"


def _clear(world: World, spec: VmSelection) -> World:
    cleared = set(_vms(world, spec))
    left = []
    for fault in world.faults:
        rest = [name for name in _vms(world, fault.spec) if name not in cleared]
        if rest:
            left.append(replace(fault, spec=fault.spec.model_copy(update={"vms": rest})))
    return add_log_line(replace(world, faults=tuple(left)), "cleared", text=", ".join(spec.vms or ["all"]))
