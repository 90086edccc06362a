"""The outcome of a failed attempt: the event is retried, or it is dead or lapsed. Pure; every failed attempt is settled by it.

A stale answer, by a server that does not own the partition of the event's key any more, is no failed attempt: its owner is looked up again
after a pause. The number of such answers is stored, so they cannot go on for ever. Neither is a delivery that did not reach the server that
owns the partition, for as long as a failover takes: the time of the first one is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from ..core.clock import Millis
from ..core.readable import readable_duration
from ..delivery.channels.ports import Verdict
from ..delivery.channels.rules import MAX_RETRY_AFTER
from ..storage.ports import Props
from . import rules
from .properties.attempts import ERROR_LENGTH, with_attempt, with_note
from .shard.retries import RetryPolicy, after_failure

STALE: Final = "stale"
"""Property of an event row: stale answers since the last attempt that counts. Absent, or 0, for none."""
UNREACHED: Final = "unreached"
"""Property of an event row: time of the first delivery since then that did not reach the owner of its partition. Absent, or 0, for none."""


def stale_answer(props: Mapping[str, Any], verdict: Verdict, fired: Millis, now: Millis) -> rules.RowOutcome | None:
    """Return the outcome of an attempt with a stale answer; None if it counts as a failed attempt."""
    from ..delivery.fleet_owners import stale_pause

    count = int(props.get(STALE, 0)) + 1
    pause = stale_pause(count)
    if pause is None:
        return None
    history = with_attempt(props, fired, "stale", verdict.status, verdict.error, now - fired)
    return rules.RowOutcome("retrying", {"next": now + pause, "history": history, STALE: count, **rules.send_for_free(props)})


def unreached_owner(props: Mapping[str, Any], failover: Millis, verdict: Verdict, fired: Millis, now: Millis) -> rules.RowOutcome | None:
    """Return the outcome of an attempt that did not reach the owner of the partition; None if it counts as a failed attempt."""
    from ..delivery.fleet_owners import unreached_pause

    since = int(props.get(UNREACHED, 0)) or now
    pause = unreached_pause(since, failover, now)
    if pause is None:
        return None
    history = with_attempt(props, fired, "retry", None, verdict.error, now - fired)
    return rules.RowOutcome("retrying", {"next": now + pause, "history": history, UNREACHED: since, **rules.send_for_free(props)})


def counting(props: Mapping[str, Any]) -> Props:
    """Return the change with which an attempt counts: what cost none is counted anew after it."""
    return {name: 0 for name in (STALE, UNREACHED) if name in props}


def failed_attempt(
    props: Mapping[str, Any],
    policy: RetryPolicy,
    *,
    now: Millis,
    chance: float,
    waited: Millis,
    history: str,
    error: str,
    final: bool,
    retry_after: float | None = None,
    free: bool = False,
) -> rules.RowOutcome:
    """Return the outcome of an attempt that has failed by `now`.

    chance: 0 to 1, spreads the pauses. waited: milliseconds that do not use up the policy's time, besides those that the row has noted.
    history: the attempts with this one. final: it must not be retried. free: it does not count, because it was the probe of an open circuit
    breaker.
    """
    # Only attempts that are known to have failed count; claims of owners that ended do not use up the policy.
    failed = int(props.get("failed", 0)) + (not free)
    waited += int(props.get("waited", 0))
    # An event that was overdue when it was accepted is retried like any other.
    since = max(int(props["due"]), int(props["created"])) + waited
    until = rules.last_call(props)
    retry_at = after_failure(policy, since, failed, now, chance, final=final, retry_after=retry_after, until=until)
    error = error[:ERROR_LENGTH]
    if retry_at is None or (until is not None and retry_at > until):
        # No later attempt could be in time, so the event ends now.
        ended: Literal["dead", "lapsed"] = "dead" if retry_at is None else "lapsed"
        change: Props = {"ended": now, "history": history, "error": error, "failed": failed}
        outcome = rules.lapse(props, change) if ended == "lapsed" else rules.RowOutcome(ended, change)
    else:
        asked = 0 if retry_after is None else round(retry_after * 1000)
        if asked > retry_at - now:
            longer = "more than " if retry_after == MAX_RETRY_AFTER else ""
            note = f"asked to wait {longer}{readable_duration(asked)}; waits {readable_duration(retry_at - now)}"
            history = with_note(history, note)
        outcome = rules.RowOutcome("retrying", {"next": retry_at, "history": history, "failed": failed, "waited": waited})
    return outcome._replace(props={**outcome.props, **rules.send_for_free(props)}) if free else outcome
