"""Builds a replica's reports and reads the app's answers to them (api.md, "Checkpoints")."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...client.errors import Unreadable
from .health import Health
from .rules import ReplicaState, ReportReply


class ParsedReply(NamedTuple):
    """The app's answer to a report. interval: seconds until the next one."""

    reply: ReportReply
    interval: float


def build_report(
    me: ReplicaState, health: Health, *, failures: int, last_checkpoint: int, now: float, ready: bool, incarnation: str
) -> dict[str, Any]:
    """Return the body of report `me.seq`. now: the steady clock, in seconds."""
    return {
        "seq": me.seq,
        "role": health.role,
        "term": health.term,
        "applied": health.applied,
        "lag": health.lag,
        "load": health.load,
        "failures": failures,
        "last_checkpoint": last_checkpoint,
        "taking": None if me.held is None else {"epoch": me.held.epoch},
        "mono_ms": int(now * 1000),
        "ready": ready,
        "incarnation": incarnation,
    }


def parse_reply(body: Any) -> ParsedReply:
    """Read the answer to a report. Raises `Unreadable`."""
    try:
        turn = body["turn"]
        interval = min(max(float(body["report_ms"]) / 1000, 0.1), 3600)
        given = None if turn is None else (int(turn["epoch"]), float(turn["limit_ms"]) / 1000)
        return ParsedReply(ReportReply(given, frozenset(int(epoch) for epoch in body["revoked"])), interval)
    except (KeyError, TypeError, ValueError):
        raise Unreadable("the answer to a report does not have the form that this API defines") from None
