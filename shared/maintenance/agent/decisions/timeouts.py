"""Applies the passing of time: impacts measured as gaps, warnings about late or long events, and removal of old ids."""

from __future__ import annotations

from typing import Final

from ..model import EventPhase
from ..timings import CLOCK_LIMIT
from .hook_runs import may_retry
from .work import StepInProgress

_EXPOSED: Final = (EventPhase.STARTED, EventPhase.APPROVED, EventPhase.PREPARED)


def measure_gap(work: StepInProgress) -> None:
    """Measure a gap between two ticks as an impact, on either clock, because the steady clock of a frozen machine may stop."""
    before, now = work.node.ticked, work.now
    work.set(ticked=now)
    if before is None:
        return
    seconds = max(now.steady - before.steady, (now.wall - before.wall) / 1000)
    if seconds <= work.settings.gap:
        return
    hit = [record for record in work.mine() if record.phase in _EXPOSED and not record.event.rehearsal]
    started = [record for record in hit if record.phase is EventPhase.STARTED] or hit
    for record in started:
        record = work.put(record, observed_ms=record.observed_ms + round(1000 * seconds))
        work.log("agent_impact_observed", f"the node was frozen for {seconds:.1f} s", record, observed_ms=record.observed_ms)
    if not started:
        work.log("agent_gap_observed", f"the node was frozen for {seconds:.1f} s, and no event explains it", warn=True)


def check_clock(work: StepInProgress, error: float | None) -> None:
    """Warn once if this machine's clock differs too much from the metadata service's, and log when it agrees again."""
    if error is None:
        return
    wrong = abs(error) > (CLOCK_LIMIT / 2 if work.node.clock_wrong else CLOCK_LIMIT)
    if wrong == work.node.clock_wrong:
        return
    work.set(clock_wrong=wrong)
    if wrong:
        side = "ahead of" if error > 0 else "behind"
        text = f"this machine's clock is {abs(error):.0f} s {side} the metadata service's, which NotBefore is compared with: synchronize it"
        work.log("agent_clock_wrong", text, warn=True, fields={"error_ms": round(1000 * error)})
    else:
        work.log("agent_clock_right", "this machine's clock agrees with the metadata service's again")


def give_warnings(work: StepInProgress) -> None:
    """Give the warnings that are due, each once per event."""
    now, settings = work.now, work.settings
    for record in list(work.mine()):
        soon, started = record.event.not_before, record.started_at
        if record.phase is EventPhase.PREPARE_FAILED and not may_retry(work, record):
            record = work.once(record, "agent_prepare_given_up", "NotBefore has passed, and the node is not prepared")
        if record.phase is EventPhase.STARTED and started is not None and now.wall >= started + 1000 * settings.started_warning:
            work.once(record, "agent_event_lasts", "the event began long ago and is still listed, so the node is not restored")
        if record.event.status != "Started" and soon is not None and now.wall >= soon + 1000 * settings.late_warning:
            work.once(record, "agent_event_late", "NotBefore has long passed, and the event has not begun")


def forget_old_events(work: StepInProgress) -> None:
    """Remove events that have been done for `keep_done` seconds."""
    for event_id, record in list(work.events.items()):
        if (
            record.done_at is not None
            and record.phase is EventPhase.DONE
            and work.now.wall >= record.done_at + 1000 * work.settings.keep_done
        ):
            work.drop(event_id)
