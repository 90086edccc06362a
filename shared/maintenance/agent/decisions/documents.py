"""Applies the start and each document: which events are on this node, start, and are gone."""

from __future__ import annotations

from dataclasses import replace

from ....core.clock import to_text
from ..effects import StopHook
from ..model import AppState, EventOutcome, EventPhase, EventRecord, EventsDocument, ScheduledEvent
from ..observations import StartUp
from .event_rules import names, prepare_at
from .work import OVER, StepInProgress


def apply_start(work: StepInProgress, begun: StartUp) -> None:
    """Apply the start of the process. Work that was under way continues once a document shows the state of the events."""
    rebooted = work.node.boot_id not in ("", begun.boot_id)
    work.set(boot_id=begun.boot_id, rebooted=rebooted, since=work.now.steady, looked=False)
    work.log("agent_started", "the agent starts", found=begun.found, rebooted=int(rebooted), disabled=int(work.node.disabled))
    if begun.found == "corrupt":
        work.log("agent_state_unreadable", "the state file could not be read and was set aside", warn=True, marker=int(begun.marker))
    if work.node.policy is None or work.node.policy.of != work.settings.fleet:
        # The settings of another fleet, or of one that this node has left.
        work.follow(None)
        work.set(app=AppState())
    if begun.found != "kept" and begun.marker:
        # Only the agent's own mark counts, because an operator may have drained the node.
        work.set(disabled=True)
        text = "the state is lost, and a mark says that the agent took the node out of service: it restores the node"
        work.log("agent_state_lost", text, warn=True)
    for record in work.mine():
        if not record.event.rehearsal:
            work.put(record, unsure=True)


def apply_document(work: StepInProgress, document: EventsDocument) -> None:
    """Apply a document that is valid, at least in part."""
    node = work.node
    whole = not document.problems
    # The number alone proves nothing: the service may repeat it for other events.
    same = document.incarnation is not None and document == node.document
    complaint = "; ".join(document.problems)
    if complaint != node.complaint:
        if complaint:
            text = f"parts of the document cannot be read, so no event counts as gone: {complaint}"
            work.log("agent_document_partly_unreadable", text, warn=True)
        elif not node.sighted and node.good_at is not None:
            work.log("agent_document_back", "documents can be read again")
    seen = document if whole else None
    incarnation = document.incarnation if whole else None
    work.set(looked=True, sighted=whole, good_at=work.now.steady, complaint=complaint, incarnation=incarnation, document=seen)
    for record in list(work.events.values()):
        if record.look_first:
            work.put(record, look_first=False)
    if same:
        return
    listed = set()
    for event in document.events:
        listed.add(event.event_id)
        _listed(work, event)
    if whole:
        for record in list(work.events.values()):
            if record.listed and not record.event.rehearsal and record.event.event_id not in listed:
                apply_event_end(work, record)
        if work.node.rebooted:
            if not any(record.event.status == "Started" or record.done_at == work.now.wall for record in _known(work)):
                work.log("agent_reboot_unexpected", "the machine booted, and none of its events had begun", warn=True)
            work.set(rebooted=False)


def apply_poll_failure(work: StepInProgress, reason: str) -> None:
    """Apply a failed poll: the known state stays, and timers run on."""
    if work.node.complaint != reason:
        work.log("agent_document_missing", reason, warn=True)
    work.set(looked=True, sighted=False, complaint=reason, document=None)


def _known(work: StepInProgress) -> list[EventRecord]:
    return [record for record in work.events.values() if record.phase is not EventPhase.FOREIGN and not record.event.rehearsal]


def _listed(work: StepInProgress, event: ScheduledEvent) -> None:
    record, on_me = work.events.get(event.event_id), names(event, work.settings.vm)
    if record is not None and record.event.rehearsal:
        return
    if record is None or record.phase is EventPhase.FOREIGN:
        if on_me or record is None:
            _new(work, event, on_me, record)
        elif record.event != event:
            record = work.put(record, event=event)
            work.log("agent_event_changed", f"an event of other nodes is {event.status}", record)
    elif record.phase in OVER:
        if on_me:
            _new(work, event, on_me, record)
    elif on_me:
        _again(work, record, event)
    else:
        work.log("agent_event_moved", "the event no longer names this node", record)
        apply_event_end(work, replace(record, event=event))


def _new(work: StepInProgress, event: ScheduledEvent, on_me: bool, known: EventRecord | None) -> None:
    """Add an event that is new on this node, or back after it was gone. An event that was approved once is not approved again."""
    record = EventRecord(event, EventPhase.FOREIGN, work.now.wall)
    if not on_me:
        work.put(record)
        whom = ", ".join(event.resources[:10]) if event.resources else "nobody"
        work.log("agent_event_of_others", f"an event names {whom}", record, resources=len(event.resources))
        return
    if known is not None:
        record = replace(record, approve_intent=known.approve_intent, approved_at=known.approved_at)
    if event.status != "Started":
        record = work.put(record, phase=EventPhase.WAITING)
        details: dict[str, str | int] = {"source": event.source, "duration": event.duration, "due": _due(work, event)}
        work.log("agent_event_seen", f"an event is on this node: {work.choice(record)}", record, fields=details)
        return
    why = "approved by its user" if event.source == "User" else "a failure of the hardware"
    hook = "emergency" if work.needs(record) and "emergency" in work.settings.hooks else None
    record = work.put(record, phase=EventPhase.STARTED, started_at=work.now.wall, hook_wanted=hook)
    work.log("agent_event_first_seen_started", f"the event had begun when it was first seen: {why}", record, warn=True, source=event.source)


def _again(work: StepInProgress, record: EventRecord, event: ScheduledEvent) -> None:
    was = record.event.status
    if was == "Started" and event.status != "Started":
        record = work.once(record, "agent_event_went_back", f"the event had begun, and now is {event.status}: it counts as begun")
        event = replace(event, status="Started")
    elif event.status == "Unknown":
        record = work.once(record, "agent_event_status_unknown", "the status of the event is not known: the agent does not approve it")
    if event.status == "Started" and event.not_before is None:
        event = replace(event, not_before=record.event.not_before)
    changed = event != record.event
    record = work.put(record, event=event)
    if event.status == "Started" and (was != "Started" or record.unsure):
        apply_event_start(work, record)
    elif changed:
        text = f"the event has changed: {work.choice(record)}"
        work.log("agent_event_changed", text, record, duration=event.duration, due=_due(work, event))
    if work.events[event.event_id].unsure:
        work.put(work.events[event.event_id], unsure=False)


def _due(work: StepInProgress, event: ScheduledEvent) -> str:
    """Return the time at which preparing is due, as text."""
    return to_text(prepare_at(event, work.settings) or work.now.wall)


def apply_event_start(work: StepInProgress, record: EventRecord) -> None:
    """Apply the start of an event: its impact may come at any moment, so nothing is prepared or approved any more."""
    phase = record.phase
    run = work.node.run
    if phase is EventPhase.PREPARING and run is not None and run.event_id == record.event.event_id and not work.settings.idempotent:
        stop_hook(work)
    back = record.unsure
    again = back and work.node.rebooted and work.settings.after_reboot == "prepare" and work.needs(record)
    hook = "prepare" if again and "prepare" in work.settings.hooks else None
    started = record.started_at if record.started_at is not None else work.now.wall
    record = work.put(record, phase=EventPhase.STARTED, started_at=started, reason="", hook_wanted=hook)
    if back:
        text = "the machine booted, as the event announced" if work.node.rebooted else "the agent restarted, but the machine did not boot"
        work.log("agent_restart_expected" if work.node.rebooted else "agent_restart_unexpected", text, record, warn=not work.node.rebooted)
    if phase is not EventPhase.STARTED:
        ready = work.is_prepared(record) or not work.needs(record)
        text = "the event begins" if ready else f"the event begins, and the node is not prepared; its phase is {phase}"
        work.log("agent_event_started", text, record, warn=not ready)


def apply_event_end(work: StepInProgress, record: EventRecord) -> None:
    """Apply the end of an event. The restore of the node is decided once the whole document is applied."""
    outcome: EventOutcome = "completed or cancelled"
    if record.phase is EventPhase.FOREIGN:
        work.drop(record.event.event_id)
        work.log("agent_event_of_others_gone", "an event of other nodes is gone", record)
        return
    if record.phase is EventPhase.STARTED:
        outcome = "completed"
    elif record.approve_intent is None and record.approved_at is None and not record.unsure:
        outcome = "cancelled"
    run = work.node.run
    if run is not None and run.event_id == record.event.event_id:
        stop_hook(work)
    record = work.put(record, listed=False, phase=EventPhase.RESTORING, outcome=outcome, reason="", unsure=False, hook_wanted=None)
    work.log("agent_event_gone", f"the event is gone: {outcome}", record, observed_ms=record.observed_ms)
    if not work.node.disabled:
        finish_event(work, record)


def finish_event(work: StepInProgress, record: EventRecord, reason: str = "") -> None:
    """Finish an event. Its id is kept, so that it is recognized if it comes back."""
    record = work.put(record, phase=EventPhase.DONE, done_at=work.now.wall, reason=reason)
    work.log("agent_event_done", f"done: {record.outcome}{', ' + reason if reason else ''}", record)


def stop_hook(work: StepInProgress) -> None:
    """Stop the running hook, because it is not needed any more. Its end is awaited."""
    run = work.node.run
    if run is not None and not run.stopping:
        work.emit(StopHook(run.number))
        work.set(run=replace(run, stopping=True))
