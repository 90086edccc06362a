"""Why an event was late, and for what an event waits that has not arrived. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from ...core.readable import readable_duration
from ..tenant_doctor import LATE

_HELD: Final[Mapping[str, tuple[str, str]]] = {
    "paused": ("Its channel is paused.", "Resume the channel once its receiver may have the events."),
    "breaker": ("The circuit breaker of its channel is open: its receiver fails.", "Mend the receiver."),
    "ordering-key": ("Earlier events of its ordering key have to end first.", "Examine the event that `held.behind` names."),
    "overlap": ("An earlier occurrence of its schedule has to end first.", "Examine the event that `held.behind` names."),
    "partition-owner": ("No server owns the partition of its ordering key.", "Examine the fleet of its channel with the tool doctor."),
}
_ENDED: Final[Mapping[str, tuple[str, str]]] = {
    "dead": (
        "Nothing: it is dead; no attempt succeeded, or the receiver refused it.",
        "Read `error`. Once the cause is mended, redrive it.",
    ),
    "lapsed": ("Nothing: its `expires` has passed.", "Create a new event, if it is still wanted."),
    "cancelled": ("Nothing: it was cancelled.", "Create a new event, if it is still wanted."),
}
_OPEN: Final[Mapping[str, tuple[str, str]]] = {
    "queued": ("The ingest queue, from which it is stored (durability fast).", "If it lasts, run the tool doctor."),
    "working": ("Its receiver, which has accepted it and completes it later.", "Ask the receiver's owner, if `work.deadline` is far."),
    "retrying": ("Its next attempt: the last one failed.", "Read the error of the last attempt, and mend the receiver."),
    "firing": ("The answer of its receiver.", "If it lasts, the receiver is slow."),
}


def explain(event: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the parts of the event's lateness with their meaning and the next step, or what it waits for."""
    state, due = str(event["state"]), datetime.fromisoformat(event.get("planned") or event["due"])
    shown = {name: event[name] for name in ("id", "state", "channel", "due", "planned", "created", "delivered_at") if event.get(name)}
    late = event.get("late_ms")
    if late is not None:
        shown |= {"late_ms": late, "late_by": readable_duration(late)}
    elif now > due and state not in _ENDED:
        ms = round((now - due).total_seconds() * 1000)
        shown |= {"overdue_ms": ms, "overdue_by": readable_duration(ms)}
    reasons = []
    for each in event.get("late_because") or ():
        means, do = LATE.get(each["reason"], ("No reason was recorded.", "Examine its attempts."))
        reasons.append({**each, "means": means, "do": do})
    shown["reasons"] = reasons
    if state != "delivered":
        waits, do = _waits(event, state, due, now)
        shown |= {"waits_for": waits, "do": do}
    elif not reasons:
        shown["summary"] = "It was late by less than 100 ms, for which no reason is noted." if late else "It was not late."
    more = {name: event[name] for name in ("held", "next_attempt", "work", "error", "attempts") if event.get(name)}
    return shown | more


def _waits(event: Mapping[str, Any], state: str, due: datetime, now: datetime) -> tuple[str, str]:
    if held := event.get("held"):
        return _HELD.get(held["reason"], (f"It is held: {held['reason']}.", "Examine its channel."))
    if found := _ENDED.get(state) or _OPEN.get(state):
        return found
    if now < due:
        return "Its due time, which has not come.", "Nothing."
    return "A process that takes it up: it is due, and nothing holds it.", "If it lasts, run the tool doctor."
