"""Applies the app's answers, and plays rehearsals by the agent's own clock."""

from __future__ import annotations

from dataclasses import replace

from ....core.clock import to_text
from ..effects import SendResult
from ..model import EventPhase, EventRecord, LeasedApproval, ScheduledEvent
from ..observations import AppAnswer, AppCommand, AppUnreachable
from ..policy import FleetPolicy
from .approvals import note_approved
from .documents import apply_event_end, apply_event_start
from .work import AWAITING, OVER, StepInProgress


def apply_answer(work: StepInProgress, answer: AppAnswer) -> None:
    """Apply an answer to a report. Its holds and leased approvals replace those known before."""
    if work.node.app.away:
        work.log("agent_app_back", "the app answers again")
    grants = {grant.event_id: grant for grant in answer.grants if _takes(work, grant)}
    app = replace(
        work.node.app,
        away=False,
        refusal="",
        heard=answer.told.difference(answer.holds, answer.approves, answer.approved),
        heard_until=answer.until,
        others=dict(answer.approves),
        holds=dict(answer.holds),
        grants=grants,
        monitors=answer.monitors if answer.monitors is not None else work.node.app.monitors,
        permitted=answer.permitted,
        refused=dict(answer.refused),
    )
    work.set(app=app)
    _follow(work, answer.policy)
    for event_id, node in answer.approved.items():
        note_approved(work, event_id, node)
    for command in answer.commands:
        _obey(work, command)
    for event in answer.rehearsals:
        _rehearse(work, event)


def _follow(work: StepInProgress, policy: FleetPolicy | None) -> None:
    """Store the fleet's settings. If the app does not send them, the known ones stay."""
    known = work.node.policy
    if policy is None and known is not None:
        return
    asked = replace(policy or FleetPolicy(), of=work.settings.fleet)
    if asked == known:
        return
    work.follow(asked)
    lead = work.settings.lead_of("")
    fields: dict[str, str | int] = {"lead_seconds": round(lead), "rules": len(asked.rules), "require_central": int(asked.require_central)}
    work.log("agent_fleet_settings", "the agent follows the fleet's settings in addition to its file", fields=fields)


def apply_unreachable_app(work: StepInProgress, away: AppUnreachable) -> None:
    """Apply a failed report: the node follows its own rules. If the app refuses this agent, nothing is approved before NotBefore."""
    reason, app = away.reason, work.node.app
    if away.refused and not app.refusal:
        work.log("agent_refused", f"the app refuses this agent: {reason}. Check its key, its fleet and the app's address", warn=True)
    if away.refused:
        # Approvals that it leased before were given to an agent that it still knew.
        work.set(app=replace(app, refusal=reason, grants={}))
    if not work.node.app.away and not away.refused:
        work.log("agent_app_away", f"the app cannot be reached: {reason}", warn=True)
    since = work.node.app.away_since if work.node.app.away else work.now.steady
    work.set(app=replace(work.node.app, away=True, away_since=since, heard=frozenset(), others={}))


def _takes(work: StepInProgress, grant: LeasedApproval) -> bool:
    """Return true if a leased approval can be used. Otherwise its result is reported at once."""
    record = work.events.get(grant.event_id)
    if record is None or not record.listed or record.phase in OVER or record.event.status == "Started" or record.event.rehearsal:
        work.emit(SendResult(grant.id, "gone"))
        return False
    if record.approved_at is not None:
        work.emit(SendResult(grant.id, "posted"))
        return False
    return True


def _obey(work: StepInProgress, command: AppCommand) -> None:
    new = command.id not in work.node.commands
    work.set(commands=work.node.commands | {command.id} if len(work.node.commands) < 1000 else frozenset({command.id}))
    record = work.events.get(command.event_id)
    if record is not None and command.do == "prepare" and record.phase in (EventPhase.WAITING, EventPhase.PREPARE_FAILED):
        record = work.put(record, hurry=True)
        text = "the fleet orders to prepare now"
    elif command.do == "restore" and work.node.restore is not None and (record is None or record.phase in AWAITING):
        work.set(restore=replace(work.node.restore, retry_at=work.now.steady))
        text = "the fleet orders to restore the node now"
    else:
        listed = record is not None and record.phase not in OVER
        why = "a second impact is possible" if listed and command.do == "restore" else "there is nothing to do"
        text = f"the agent does not carry out the fleet's order to {command.do}: {why}"
    if new:
        work.log("agent_command", text, record, command=command.id)


# -- rehearsals


def _rehearse(work: StepInProgress, event: ScheduledEvent) -> None:
    if event.event_id in work.events:
        return
    soon = event.not_before if event.not_before is not None else work.now.wall + round(1000 * work.settings.lead_of(event.type))
    event = replace(event, rehearsal=True, status="Scheduled", not_before=soon, resources=(work.settings.vm,))
    record = work.put(EventRecord(event, EventPhase.WAITING, work.now.wall))
    work.log("agent_rehearsal_seen", "a rehearsal begins: hooks run, and nothing is approved", record, due=to_text(soon))


def play_rehearsals(work: StepInProgress) -> None:
    """Start each rehearsal at its NotBefore, and end it after its duration."""
    for record in list(work.mine()):
        event = record.event
        if not event.rehearsal or event.not_before is None or work.now.wall < event.not_before:
            continue
        if event.status != "Started":
            record = work.put(record, event=replace(event, status="Started"))
            apply_event_start(work, record)
        if work.now.wall >= event.not_before + 1000 * max(event.duration, 0):
            apply_event_end(work, work.events[event.event_id])
