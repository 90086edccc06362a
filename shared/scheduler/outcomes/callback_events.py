"""The content of a callback: what became of an event, as the payload of another one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ...core.clock import Millis, to_text
from ...delivery.channels import answer_heads
from ...delivery.channels.answer_heads import AnswerHead
from ...storage.ports import Row
from ...tenants.model import Durability
from ..attempt_history import history_of
from ..keys import digest
from ..model import EventIn
from ..owed import CALLBACK_OF
from ..rows import EventToStore, new_event
from ..rules import asked_due

MOST_LABELS = 8 * 1024
"""Bytes of an event's labels that a callback repeats; longer ones are left out, so that any channel takes the callback."""


def callback_source(row: Row) -> str:
    """Return the name from which the callback's id follows. An event ends once at each place, and again elsewhere if it is redriven."""
    return f"callback:{row.props['state']}:{row.pk}/{row.rk}"


def callback_event(row: Row, event_id: str, channel: str, answers: Mapping[Millis, AnswerHead], now: Millis) -> EventToStore:
    """Return the callback of an ended event, ready to be stored. event_id: the callback's. answers: the kept heads, by their attempts."""
    props = row.props
    ended = int(props["ended"])
    durability: Durability = "mirrored" if props.get("durability") == "mirrored" else "standard"
    event = EventIn.model_construct(due=ended, channel=channel, payload=None)
    found = new_event(event, orjson.dumps(outcome_of(props, answers)), now, durability)
    found.id = found.props["id"] = event_id
    found.hash = digest("callback", event_id).hex()
    found.props[CALLBACK_OF] = props["id"]
    if "trace" in props:
        found.props["trace"] = props["trace"]
    return found


def outcome_of(props: Mapping[str, Any], answers: Mapping[Millis, AnswerHead]) -> dict[str, Any]:
    """Return the payload of the callback of an ended event."""
    state = str(props["state"])
    told: dict[str, Any] = {
        "type": f"event.{state}",
        "event": props["id"],
        "channel": props["channel"],
        "state": state,
        "due": to_text(asked_due(props, int(props["due"]))),
        "created": to_text(int(props.get("asked", props["created"]))),
        "ended": to_text(int(props["ended"])),
        "attempts": int(props.get("tries", 0)),
    }
    if state == "delivered":
        told["late_ms"] = int(props.get("late", 0))
    elif "error" in props:
        told["error"] = props["error"]
    if history := history_of(props):
        at, _, status, error, _ = history[-1][:5]
        told["last_attempt"] = to_text(at)
        if status is not None:
            told["status"] = status
        if error is not None and state != "delivered":
            told.setdefault("error", error)
        if at in answers:
            told["answer"] = answer_heads.shown(answers[at])
    if "labels" in props and len(str(props["labels"]).encode()) <= MOST_LABELS:
        told["labels"] = orjson.loads(str(props["labels"]))
    return told
