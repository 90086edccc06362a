"""Decides which events are approved now, and applies the results of POSTs.

An approval counts for all machines that the event names, and cannot be withdrawn. So for an event that needs preparation it is sent only
while this node is prepared, on a fresh document, and with the app's consent if other machines are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from ..config.settings import AgentSettings
from ..effects import Approve, PollNow, SendResult
from ..model import EventPhase, EventRecord, LeasedApproval, NodeState, Now
from ..observations import ApprovalPosted
from ..timings import APPROVAL_RETRY
from .event_rules import names_only
from .hook_runs import back_off
from .work import OVER, StepInProgress

_RESULTS: Final[Mapping[str, Literal["posted", "refused", "unreachable"]]] = {
    "accepted": "posted",
    "refused": "refused",
    "busy": "unreachable",
}
ASKING: Final = "the agent waits for the fleet's answer"
ASKING_FIRST: Final = "the agent asks the fleet first for its settings"
ASKING_TURN: Final = "the event names other nodes too, so the agent asks the fleet which of them approves it"
REFUSED: Final = "the app refuses this agent, so it approves nothing: it cannot know which other nodes are down"
UNDATED: Final = "its NotBefore cannot be read: a person may approve it, or it starts by itself"


def approve(work: StepInProgress) -> None:
    """Decide on approvals. Each intent is saved before its POST."""
    _expire(work)
    for record in list(work.events.values()):
        if record.phase in OVER or record.event.status == "Started":
            continue
        if record.phase is EventPhase.FOREIGN:
            grant = work.node.app.grants.get(record.event.event_id)
            if grant is not None and _open(work, record):
                _post(work, record, grant.id)
            continue
        record = work.put(record, at_once=_approves_at_once(work, record))
        if not _ready(work, record):
            continue
        if record.approved_at is not None:
            work.put(record, phase=EventPhase.APPROVED, reason="")
            continue
        reason, grant = held(work, record)
        if reason and reason != record.reason:
            record = work.put(record, reason=reason)
            # Every approval begins so. If the fleet does not answer, another reason follows soon.
            if reason not in (ASKING, ASKING_FIRST, ASKING_TURN):
                work.log("agent_approval_held", reason, record)
        elif not reason and _open(work, record):
            _post(work, record, "" if grant is None else grant.id)


def _ready(work: StepInProgress, record: EventRecord) -> bool:
    """Return true if this node needs to do nothing more before the event is approved."""
    if not work.needs(record):
        return record.phase in (EventPhase.WAITING, EventPhase.PREPARED)
    if record.phase is EventPhase.PREPARE_FAILED:
        return work.settings.approve_failed
    return record.phase is EventPhase.PREPARED and work.is_prepared(record)


def held(work: StepInProgress, record: EventRecord) -> tuple[str, LeasedApproval | None]:
    """Return why an event is not approved now, although the node is ready ('' when it is), and the leased approval to use."""
    node, settings, event = work.node, work.settings, record.event
    choice = work.choice(record)
    if event.rehearsal:
        return "a rehearsal is never approved", None
    if event.status != "Scheduled":
        return "its status is not known", None
    if node.app.refusal:
        return REFUSED, None
    grant = node.app.grants.get(event.event_id)
    if grant is not None:
        return "", grant
    hold = node.app.holds.get(event.event_id)
    if hold is not None:
        return f"held by the fleet: {hold}", None
    if choice == "approve":
        return ASKING_FIRST if unasked(node, work.now, settings) else turn_reason(record, node, work.now, settings), None
    if choice in ("ignore", "hold"):
        return f"the rule says {choice}", None
    if event.not_before is None:
        return UNDATED, None
    others = not names_only(event, settings.vm)
    if not settings.central:
        return ("the event names other nodes too, and no app knows whether they are prepared" if others else ""), None
    if node.app.away:
        if others:
            return "the event names other nodes too, and the app does not answer whether they are prepared", None
        if settings.require_central or settings.policy.require_central:
            return "the fleet does not answer, and its consent is required", None
        return ("the fleet does not answer; the agent waits a little longer for it" if _patient(node, work.now, settings) else ""), None
    if record.phase is EventPhase.PREPARE_FAILED:
        return "the fleet consents to approvals of prepared nodes only", None
    return ("" if _is_heard(event.event_id, node, work.now) else ASKING), None


def _approves_at_once(work: StepInProgress, record: EventRecord) -> bool:
    """Return true if the rules approve an event without preparation, and nothing but its turn keeps this agent from it."""
    return record.event.status == "Scheduled" and record.refusals < work.settings.post_tries and work.choice(record) == "approve"


def turn_reason(record: EventRecord, node: NodeState, now: Now, settings: AgentSettings) -> str:
    """Return why an event that needs no preparation is not approved now; '' when it is.

    Azure wants one approval of all nodes that an event names, so their agents take turns. Without the app, each approves it.
    """
    if not settings.central or settings.dry_run or names_only(record.event, settings.vm):
        return ""
    if node.app.away:
        return ASKING_TURN if _patient(node, now, settings) else ""
    if _is_heard(record.event.event_id, node, now):
        return ""
    other = node.app.others.get(record.event.event_id)
    return ASKING_TURN if other is None else f"{other} approves it for all"


def _is_heard(event_id: str, node: NodeState, now: Now) -> bool:
    """Return true while it is this agent's turn. An agent that was stopped for longer asks again."""
    return event_id in node.app.heard and now.steady < node.app.heard_until


def note_approved(work: StepInProgress, event_id: str, node: str) -> None:
    """Note that the agent of another node has approved an event for all, if this node needs to do nothing before it."""
    record = work.events.get(event_id)
    if record is None or record.phase is not EventPhase.WAITING or not record.at_once or record.event.status == "Started":
        return
    record = work.put(record, approved_at=work.now.wall, phase=EventPhase.APPROVED, reason=f"{node} has approved it for all")
    work.log("agent_approved", f"the event is approved: {record.reason}", record)


def unasked(node: NodeState, now: Now, settings: AgentSettings) -> bool:
    """Return true if the fleet's settings were never received, and may still arrive: the app has not been away for long."""
    unheard = settings.central and not settings.dry_run and node.policy is None
    return unheard and (not node.app.away or _patient(node, now, settings))


def _patient(node: NodeState, now: Now, settings: AgentSettings) -> bool:
    return now.steady < node.app.away_since + settings.patience


def _open(work: StepInProgress, record: EventRecord) -> bool:
    """Return true if a POST can be sent now: on a fresh document, not beside another POST, and with bounded repetition."""
    soon, settings = record.event.not_before, work.settings
    if record.posting or record.look_first or not work.node.sighted or record.unsure or work.now.steady < record.post_at:
        return False
    if record.event.status != "Scheduled" or record.approved_at is not None:
        return False
    if record.refusals >= settings.post_tries:
        work.once(record, "agent_approval_given_up", "the metadata service refuses the approval; the event starts at NotBefore without it")
        return False
    late = work.now.wall >= soon if soon is not None else record.posts >= settings.post_tries
    return record.posts == 0 or not late


def _post(work: StepInProgress, record: EventRecord, grant: str) -> None:
    intent = record.approve_intent if record.approve_intent is not None else work.now.wall
    record = work.put(record, approve_intent=intent, posting=True, posts=record.posts + 1, reason="")
    work.log("agent_approving", "the agent sends the approval", record, attempt=record.posts, grant=grant)
    work.emit(Approve(record.event.event_id, record.event.raw_id, record.posts, grant))


def apply_post_result(work: StepInProgress, post: ApprovalPosted) -> None:
    """Apply the result of a POST. Only a 200 approves. After any other result, the next document shows the state."""
    record = work.events.get(post.event_id)
    if post.grant:
        _drop_grant(work, post.event_id, post.grant)
        still = record is not None and record.listed and record.event.status != "Started"
        work.emit(SendResult(post.grant, _RESULTS[post.outcome] if still or post.outcome == "accepted" else "gone", post.http_status))
    if record is None:
        return
    record = work.put(record, posting=False)
    if post.outcome == "accepted":
        phase = (
            EventPhase.APPROVED if record.phase in (EventPhase.WAITING, EventPhase.PREPARED, EventPhase.PREPARE_FAILED) else record.phase
        )
        record = work.put(record, approved_at=work.now.wall, phase=phase)
        work.log("agent_approved", "the event is approved", record)
        return
    wait = back_off(record.posts, work.settings.retry_first, APPROVAL_RETRY)
    refused = post.outcome == "refused"
    record = work.put(record, look_first=True, post_at=work.now.steady + wait, refusals=record.refusals + refused)
    if record.phase not in OVER and record.event.status != "Started":
        text = f"the approval was {'refused' if refused else 'not answered'}: the agent reads the document again"
        work.log("agent_approval_failed", text, record, warn=refused, http_status=post.http_status)
    work.emit(PollNow())


# -- approvals that the app leased to this agent


def _expire(work: StepInProgress) -> None:
    """Drop leases that ran out. They go to another agent, so nothing may be POSTed under them."""
    app, now = work.node.app, work.now
    live = {key: grant for key, grant in app.grants.items() if now.steady < grant.until and now.wall < grant.expires}
    if len(live) != len(app.grants):
        _set_grants(work, live)


def _drop_grant(work: StepInProgress, event_id: str, grant_id: str) -> None:
    grants = work.node.app.grants
    if event_id in grants and grants[event_id].id == grant_id:
        _set_grants(work, {key: grant for key, grant in grants.items() if key != event_id})


def _set_grants(work: StepInProgress, grants: dict[str, LeasedApproval]) -> None:
    work.set(app=replace(work.node.app, grants=grants))
