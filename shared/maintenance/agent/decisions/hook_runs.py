"""Decides which hook is due, applies its result, and restores the node. One hook runs at a time, so that none undoes the work of
another."""

from __future__ import annotations

from dataclasses import replace

from ....core import backoff
from ..effects import RunHook
from ..model import EventPhase, EventRecord, HookKind, HookRun, NodeState, Restore
from ..observations import HookEnded
from ..timings import ASK_FIRST, ASK_MOST, FIRST_LOOK, KEPT_RESTORES, OVERDUE
from . import permission
from .documents import finish_event, stop_hook
from .event_rules import prepare_at
from .work import AWAITING, StepInProgress


def back_off(failures: int, first: float, most: float) -> float:
    """Return the seconds to wait after `failures`: doubling, bounded."""
    return backoff.exponential(first, failures - 1, most, 30)


# -- preparing


def advance(work: StepInProgress) -> None:
    """Start preparing for the events that are due, by time or by command of the fleet."""
    for record in work.mine():
        if _due(work, record):
            record = work.put(_warned_if_refused(work, record), phase=EventPhase.PREPARING, hurry=False, reason="")
            work.log("agent_prepare_due", "it is time to prepare", record)
        elif record.phase is EventPhase.WAITING and work.needs(record):
            _explain_wait(work, record)
        if record.phase is EventPhase.PREPARING and "prepare" not in work.settings.hooks:
            _prepared(work, record)


def _due(work: StepInProgress, record: EventRecord) -> bool:
    now = work.now
    match record.phase:
        case EventPhase.WAITING:
            if record.hurry:
                return True
            if _to_be_seen(work, record):
                return False
            granted = record.event.event_id in work.node.app.grants
            return work.needs(record) and (granted or now.wall >= permission.start_at(record, work.node, now, work.settings))
        case EventPhase.PREPARE_FAILED:
            return record.hurry or (now.steady >= record.retry_at and may_retry(work, record))
        case EventPhase.PREPARED | EventPhase.APPROVED:
            # Prepared under another boot, or approved when it still had no impact.
            anyway = record.phase is EventPhase.APPROVED and work.settings.approve_failed and record.tries > 0
            return not record.unsure and not record.event.rehearsal and work.needs(record) and not work.is_prepared(record) and not anyway
    return False


def _explain_wait(work: StepInProgress, record: EventRecord) -> None:
    """Show in reports and in the log why the node does not prepare yet: the fleet refuses."""
    why = permission.refusal(record, work.node, work.settings)
    if why == record.reason:
        return
    if why and not record.reason:
        work.log("agent_prepare_refused", why, record)
    work.put(record, reason=why)


def _warned_if_refused(work: StepInProgress, record: EventRecord) -> EventRecord:
    """Warn if the node prepares although the fleet's last answer refused it."""
    if record.phase is not EventPhase.WAITING or record.hurry or record.event.event_id in work.node.app.grants:
        return record
    why = permission.refusal(record, work.node, work.settings)
    return work.once(record, "agent_prepare_forced", f"the node cannot wait any longer and prepares: {why}") if why else record


def _to_be_seen(work: StepInProgress, record: EventRecord) -> bool:
    """Return true if a poll must first show the state of an event from before the start.

    After a boot past NotBefore that is required in any case, because the boot may have been the impact.
    """
    if not record.unsure:
        return False
    soon = record.event.not_before
    if work.node.rebooted and (record.phase is not EventPhase.WAITING or soon is None or work.now.wall >= soon):
        return True
    return not work.node.looked and work.now.steady < work.node.since + FIRST_LOOK


def may_retry(work: StepInProgress, record: EventRecord) -> bool:
    """Return true until NotBefore, and for a minimum number of attempts in any case."""
    soon = record.event.not_before
    return record.tries < work.settings.prepare_tries or (soon is not None and work.now.wall < soon)


def _prepared(work: StepInProgress, record: EventRecord) -> None:
    record = work.put(record, phase=EventPhase.PREPARED, prepared_at=work.now.wall, prepared_boot=work.node.boot_id, reason="")
    work.log("agent_prepared", "the node is prepared", record)


# -- running


def run_next(work: StepInProgress) -> None:
    """Start the most urgent hook, if none is running."""
    run = work.node.run
    if run is not None:
        if run.kind == "caught_up" and (work.node.disabled or any(_wants(work, record) for record in work.mine())):
            # It only checks the node, and nothing waits for it.
            stop_hook(work)
        limit = work.settings.hooks.get(run.kind, 0.0) + OVERDUE
        if not run.overdue and work.now.steady >= run.since + limit:
            stop_hook(work)
            work.set(run=replace(run, stopping=True, overdue=True))
            text = f"{run.kind} has not ended {OVERDUE:.0f} s after its deadline"
            work.log("agent_hook_overdue", text, work.events.get(run.event_id), warn=True)
        return
    mine = list(work.mine())
    for record in mine:
        if record.hook_wanted is not None:
            _launch(work, record.hook_wanted, work.put(record, hook_wanted=None), attempt=1)
            return
    waiting = [record for record in mine if _wants(work, record)]
    if waiting:
        record = min(waiting, key=lambda each: prepare_at(each.event, work.settings))
        _launch(work, "prepare", work.put(record, tries=record.tries + 1), attempt=record.tries + 1)
        return
    restore = work.node.restore
    if restore is not None and work.node.sighted and work.now.steady >= restore.retry_at:
        _put_back(work, restore)
    elif "caught_up" in work.settings.hooks and not work.node.in_step and not work.node.disabled and work.now.steady >= work.node.ask_at:
        _launch(work, "caught_up", None, attempt=work.node.asks + 1)


def _wants(work: StepInProgress, record: EventRecord) -> bool:
    """Return true if an event needs a hook to run."""
    return record.hook_wanted is not None or (record.phase is EventPhase.PREPARING and not _to_be_seen(work, record))


def _launch(work: StepInProgress, kind: HookKind, record: EventRecord | None, attempt: int) -> None:
    number = work.node.runs + 1
    event_id = "" if record is None else record.event.event_id
    work.set(runs=number, run=HookRun(number, kind, event_id, work.now.steady))
    if kind in ("prepare", "emergency"):
        work.set(disabled=True, in_step=False, asks=0, ask_at=0.0)
    work.log("agent_hook_started", f"{kind} begins", record, attempt=attempt)
    work.emit(RunHook(number, kind, record, attempt, work.settings.hooks[kind]))


def apply_hook_end(work: StepInProgress, end: HookEnded) -> None:
    """Apply the end of a hook. The result of a hook that was asked to stop does not count."""
    run = work.node.run
    if run is None or run.number != end.run:
        return
    work.set(run=None)
    record = last_done(work.node) if run.kind == "caught_up" else work.events.get(run.event_id)
    if run.stopping:
        work.log("agent_hook_stopped", f"{run.kind} was stopped", record)
        return
    text = f"{run.kind} {'succeeded' if end.ok else 'failed'}{': ' + end.detail if end.detail else ''}"
    fails = not end.ok and run.kind != "caught_up"
    work.log("agent_hook_ended", text, record, warn=fails, ms=round(1000 * (work.now.steady - run.since)))
    if run.kind == "caught_up":
        _asked(work, end)
    elif run.kind in ("restore", "verify"):
        _restore_ended(work, run.kind, end)
    elif record is not None and run.kind == "prepare":
        _prepare_ended(work, record, end)


def _prepare_ended(work: StepInProgress, record: EventRecord, end: HookEnded) -> None:
    if record.phase is EventPhase.STARTED and end.ok:
        work.put(record, prepared_at=work.now.wall, prepared_boot=work.node.boot_id)
    if record.phase is not EventPhase.PREPARING:
        return
    if end.ok:
        _prepared(work, record)
        return
    wait = back_off(record.tries, work.settings.retry_first, work.settings.retry_most)
    record = work.put(
        record, phase=EventPhase.PREPARE_FAILED, retry_at=work.now.steady + wait, reason=f"prepare failed: {end.detail}"[:200]
    )
    text = "the node is not prepared, so the agent does not approve the event"
    work.log("agent_prepare_failed", text, record, warn=True, attempt=record.tries)


# -- putting back


def keeps_away(work: StepInProgress, record: EventRecord) -> bool:
    """Return true if an event on this node prevents its restore.

    Every listed event does, except one that is ignored and has not started, and one with a preparation that is still far away.
    """
    if record.event.status != "Started":
        if work.choice(record) == "ignore":
            return False
        if record.phase is EventPhase.WAITING:
            if permission.refusal(record, work.node, work.settings):
                # Other nodes wait until this one is back.
                return False
            near = work.settings.near_of(record.event.type, work.node.restores)
            return prepare_at(record.event, work.settings) - work.now.wall <= 1000 * near
    return True


def put_back(work: StepInProgress) -> None:
    """Decide to restore the node: if THE AGENT took it out of service, and the last event is gone."""
    node = work.node
    waiting = _awaiting(work)
    if not node.disabled:
        for record in waiting:
            finish_event(work, record)
        return
    keeper = next((record for record in work.mine() if keeps_away(work, record)), None)
    if keeper is not None:
        if node.run is not None and node.run.kind in ("restore", "verify"):
            stop_hook(work)
        work.set(restore=None)
        for record in waiting:
            finish_event(work, record, f"the node stays out of service for {keeper.event.event_id}")
    elif node.restore is None and node.sighted:
        work.set(restore=Restore(since=work.now.steady))
        work.log("agent_restore_due", "the last event is gone: the agent restores the node", waiting[0] if waiting else None)


def _put_back(work: StepInProgress, restore: Restore) -> None:
    kind: HookKind = restore.step
    if kind == "restore":
        # Once this begins, no earlier preparation counts any more.
        for record in list(work.events.values()):
            if record.prepared_boot:
                work.put(record, prepared_boot="")
    if kind not in work.settings.hooks:
        _restored_step(work, restore)
        return
    waiting = [work.put(record, phase=EventPhase.RESTORING) for record in _awaiting(work)]
    _launch(work, kind, waiting[0] if waiting else None, attempt=restore.failures + 1)


def _restored_step(work: StepInProgress, restore: Restore) -> None:
    """Go on to the next step of the restore, or end it."""
    if restore.step == "restore":
        work.set(restore=replace(restore, step="verify"))
        run_next(work)
        return
    took = round(work.now.steady - restore.since, 3)
    work.set(restore=None, disabled=False, restores=(*work.node.restores, took)[-KEPT_RESTORES:])
    waiting = _awaiting(work)
    work.log("agent_restored", "the node is back in service", waiting[0] if waiting else None)
    for record in waiting:
        finish_event(work, record)


def _restore_ended(work: StepInProgress, kind: HookKind, end: HookEnded) -> None:
    restore = work.node.restore
    if restore is None:
        return
    if end.ok:
        if kind == "verify":
            _restored_step(work, restore)
        else:
            work.set(restore=replace(restore, step="verify"))
        return
    failures = restore.failures + 1
    wait = back_off(failures, work.settings.retry_first, work.settings.restore_most)
    work.set(restore=Restore("restore", failures, work.now.steady + wait, restore.since))
    waiting = [work.put(each, phase=EventPhase.RESTORE_FAILED, reason=f"{kind} failed: {end.detail}"[:200]) for each in _awaiting(work)]
    text = f"the node is still out of service; the next attempt is in {wait:.0f} s"
    work.log("agent_restore_failed", text, waiting[0] if waiting else None, warn=True, attempt=failures)


def _asked(work: StepInProgress, end: HookEnded) -> None:
    """Apply the result of the hook `caught_up`; on failure it runs again later."""
    asks = work.node.asks + 1
    if end.ok:
        work.set(in_step=True, asks=0)
        work.log("agent_caught_up", "the node has caught up with the other nodes", last_done(work.node))
    else:
        work.set(asks=asks, ask_at=work.now.steady + back_off(asks, ASK_FIRST, ASK_MOST))


def last_done(state: NodeState) -> EventRecord | None:
    """Return the event that was over last, which the node catches up after; None if there is none."""
    done = [record for record in state.events.values() if record.done_at is not None]
    return max(done, key=lambda each: each.done_at or 0, default=None)


def _awaiting(work: StepInProgress) -> list[EventRecord]:
    """Return the events that are gone, and are done once the node is restored."""
    return [record for record in work.events.values() if record.phase in AWAITING]
