"""The agent's decisions: pure functions of the state, the observation and the time.

tests/unit/maintenance/agent/decisions/states.md has the state table.

Production, the model checker and the random tests run these functions. Their invariants:

1. never approve unprepared: an event that needs preparation is approved only after its prepare succeeded in this life of the services;
2. always restore after the last event, if THE AGENT took the node out of service;
3. never act on garbage: nothing is approved and nothing restored unless the last poll brought a document without unreadable parts.
"""

from __future__ import annotations

from typing import NamedTuple

from ..config.settings import AgentSettings
from ..effects import AgentEffect
from ..model import EventPhase, EventRecord, NodeState, Now
from ..observations import (
    AppAnswer,
    ApprovalPosted,
    AppUnreachable,
    DocumentRead,
    HookEnded,
    Observation,
    PollFailed,
    StartUp,
    StopRequested,
    Tick,
)
from . import app_answers, approvals, documents, hook_runs, timeouts
from .permission import start_at
from .work import AWAITING, StepInProgress


class Decision(NamedTuple):
    """The state to save, and what to carry out once it is saved, in this order."""

    state: NodeState
    effects: tuple[AgentEffect, ...]


def step(state: NodeState, observation: Observation, now: Now, settings: AgentSettings) -> Decision:
    """Apply one observation. Never raises for any content of a document, a hook or the app."""
    work = StepInProgress(state, now, settings)
    match observation:
        case StartUp():
            documents.apply_start(work, observation)
        case DocumentRead(document, clock_error):
            documents.apply_document(work, document)
            timeouts.check_clock(work, clock_error)
        case PollFailed(reason):
            documents.apply_poll_failure(work, reason)
        case HookEnded():
            hook_runs.apply_hook_end(work, observation)
        case ApprovalPosted():
            approvals.apply_post_result(work, observation)
        case AppAnswer():
            app_answers.apply_answer(work, observation)
        case AppUnreachable():
            app_answers.apply_unreachable_app(work, observation)
        case Tick():
            timeouts.measure_gap(work)
        case StopRequested():
            documents.stop_hook(work)
            work.set(stopping=True)
            work.log("agent_stops", "the agent ends without restoring or approving anything")
    if not work.node.stopping:
        _settle(work)
    effects = work.effects()
    return Decision(work.node, effects)


def _settle(work: StepInProgress) -> None:
    """Do everything that is due now. A decision that was missed is made at the next observation."""
    app_answers.play_rehearsals(work)
    hook_runs.advance(work)
    hook_runs.put_back(work)
    hook_runs.run_next(work)
    approvals.approve(work)
    timeouts.give_warnings(work)
    timeouts.forget_old_events(work)


def asked_events(state: NodeState) -> frozenset[str]:
    """Return the events that a report of this state asks to approve: they are PREPARED, or need no preparation; for `AppAnswer.told`."""
    return frozenset(event_id for event_id, record in state.events.items() if _asks(record))


def _asks(record: EventRecord) -> bool:
    return record.phase is EventPhase.PREPARED or (record.phase is EventPhase.WAITING and record.at_once)


def unready_reason(state: NodeState, now: Now, settings: AgentSettings) -> str:
    """Return why the agent is not ready; '' when it is."""
    if state.stopping:
        return "the agent ends"
    refused = f"the app refuses this agent: {state.app.refusal}" if state.app.refusal else ""
    if state.good_at is None:
        missing = f"no document yet{': ' + state.complaint if state.complaint else ''}"
        return f"{refused}; {missing}" if refused else missing
    age = now.steady - state.good_at
    stale = f"no document for {age:.0f} s: {state.complaint}" if age > settings.stale else ""
    return "; ".join(reason for reason in (refused, _unrestored_reason(state), stale) if reason)


def _unrestored_reason(state: NodeState) -> str:
    """Return why the node is out of service although its events are over; '' unless a restore has failed."""
    # The reason of the last failure stays while the next attempt runs.
    failed = next((record for record in state.events.values() if record.phase in AWAITING and record.reason), None)
    failures = state.restore.failures if state.restore is not None else 0
    if not failures and failed is None:
        return ""
    tries = f" after {failures} attempt{'s' if failures > 1 else ''}" if failures else ""
    why = f": {failed.reason}" if failed is not None else ""
    return f"the node is not restored{tries}, and is out of service{why}"


def next_wake(state: NodeState, now: Now, settings: AgentSettings) -> float | None:
    """Return the seconds until a timer is due; None if there is none. 0: one is due already and waits for something else."""
    settings = settings.following(state.policy)
    waits = []
    for record in state.events.values():
        soon = record.event.not_before
        match record.phase:
            case EventPhase.WAITING:
                waits.append((start_at(record, state, now, settings) - now.wall) / 1000)
            case EventPhase.PREPARE_FAILED:
                waits.append(record.retry_at - now.steady)
        if record.event.rehearsal and record.listed and soon is not None:
            end = soon + 1000 * max(record.event.duration, 0)
            waits.append((soon - now.wall if record.event.status != "Started" else end - now.wall) / 1000)
        if record.posts and not record.posting and record.approved_at is None and record.listed:
            waits.append(record.post_at - now.steady)
    if state.app.away and asked_events(state):
        waits.append(state.app.away_since + settings.patience - now.steady)
    if state.restore is not None and state.run is None:
        waits.append(state.restore.retry_at - now.steady)
    ahead = [wait for wait in waits if wait > 0]
    return min(ahead) if ahead else (0.0 if waits else None)
