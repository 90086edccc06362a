"""Decisions about an event whose receiver works on it. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ....core.clock import Millis, to_text
from ....delivery.channels.model import LongWork
from ....storage.ports import Props
from ...answer_rows import KeptAnswer
from ...attempt_history import with_attempt, with_end
from ...failures import failed_attempt
from ...keys import digest
from ...late_reasons import expected_at
from ...rules import RowOutcome
from ...shard.retries import RetryPolicy
from ...work_rows import WORK, Work, WorkEnd, noted_work, work_of

MARGIN: Millis = 1_000
"""A heartbeat that extends the time by less than this is not stored."""


class HeldToken(NamedTuple):
    """The facts of a token that this service has made: the attempt that it belongs to, and its hash."""

    attempt: int
    epoch: int
    hash: str


type WorkState = Literal["working", "unsettled", "superseded"] | WorkEnd


def accepted(
    props: Mapping[str, Any], spec: LongWork, token_hash: str, *, began: Millis, now: Millis, status: int | None, kept: KeptAnswer | None
) -> RowOutcome:
    """Return the outcome of an attempt that the receiver has accepted, to complete it later: a retry that is due when its time is over.

    props: the claimed row. began: start of the attempt.
    """
    work = Work(int(props["tries"]), int(props["epoch"]), token_hash, began, spec.within, now + spec.at_most)
    history = with_attempt(props, began, "working", status, None, now - began)
    return RowOutcome("retrying", {"next": now + spec.within, "history": history, WORK: work.text()}, kept)


def state_of(props: Mapping[str, Any], token: HeldToken) -> WorkState:
    """Return the state of the work that the token belongs to.

    unsettled: its owner may be about to store that the receiver has accepted. superseded: the event went on without it.
    """
    work = noted_work(props)
    if work is not None and hmac.compare_digest(work.token, token.hash):
        return work.end or ("working" if work_of(props) is not None else "superseded")
    # One attempt may send twice, under two numbers; the second one is stored with its outcome.
    tries = int(props.get("tries", 0))
    if props["state"] == "firing" and props.get("epoch") == token.epoch and token.attempt in (tries, tries + 1):
        return "unsettled"
    return "superseded"


def completed(props: Mapping[str, Any], work: Work, now: Millis) -> RowOutcome:
    """Return the outcome of work that its receiver has completed."""
    late = max(0, work.began - expected_at(props))
    history = with_end(props, work.began, "delivered", None, now - work.began)
    return RowOutcome("delivered", {"ended": now, "late": late, "history": history, WORK: work._replace(end="completed").text()})


def failed(
    props: Mapping[str, Any],
    work: Work,
    policy: RetryPolicy,
    *,
    now: Millis,
    error: str,
    final: bool,
    retry_after: float | None = None,
    end: WorkEnd = "failed",
) -> RowOutcome:
    """Return the outcome of work that has failed: that of any failed attempt. The time of the work does not use up the policy's."""
    history = with_end(props, work.began, "final" if final else "retry", error, now - work.began)
    outcome = failed_attempt(
        props,
        policy,
        now=now,
        chance=_chance(props),
        waited=max(0, now - work.began),
        history=history,
        error=error,
        final=final,
        retry_after=retry_after,
    )
    return outcome._replace(props={**outcome.props, WORK: work._replace(end=end).text()})


def silence(props: Mapping[str, Any], policy: RetryPolicy, now: Millis) -> RowOutcome:
    """Return the outcome of work whose receiver has been silent until its time was over. It applies only while that time stands."""
    work, deadline = work_of(props), int(props["next"])
    assert work is not None  # the agenda names only events with work
    error = f"the receiver accepted the event and did not complete it in time: nothing was heard of it until {to_text(deadline)}"
    return failed(props, work, policy, now=now, error=error, final=False, end="silent")._replace(deadline=deadline)


def heard(props: Mapping[str, Any], work: Work, now: Millis) -> Props:
    """Return the row's change for a heartbeat; empty if it would extend the time by next to nothing."""
    deadline = min(now + work.within, work.latest)
    if deadline < int(props["next"]) + MARGIN:
        return {}
    return {"next": deadline, WORK: work._replace(beats=work.beats + 1, beat=now).text()}


_ENDED = {
    "completed": "this attempt's work was completed before",
    "failed": "this attempt's work was reported as failed before",
    "silent": "the time of this attempt was over before anything was heard of its work, so it counts as failed",
}
_ELSEWHERE = {
    "cancelled": "the event was cancelled",
    "moving": "the event was rescheduled",
    "joining": "the event was rescheduled",
    "moved": "the event was rescheduled",
    "dead": "the event is dead",
    "lapsed": "the event has lapsed",
    "delivered": "the event is delivered",
}


def refusal(props: Mapping[str, Any], state: WorkState) -> str:
    """Return why a call about work that does not go on is refused, for the receiver."""
    why = _ENDED.get(state) or _ELSEWHERE.get(str(props["state"])) or "the service has gone on to another attempt"
    return f"{why}; nothing was changed. Stop the work, and discard its result if it must not count twice."


def _chance(props: Mapping[str, Any]) -> float:
    """Return a number from 0 to 1 that follows from the attempt, so that the same decision is made twice."""
    return int.from_bytes(digest("work", str(props["id"]), str(props.get("tries", 0)))[:4]) / 0xFFFF_FFFF
