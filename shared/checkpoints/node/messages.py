"""Builds a replica's reports, in which `ReplicaState` is what the application says, and reads the answers (api.md, "Checkpoints")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ...client.errors import Unreadable
from .rules import ReplicaState, ReportReply


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a replica.

    role, term: by the replicas' own election; each primary has a higher term than those before it. applied: sequence up to which it has
    applied the log. lag: distance to the primary. load: 0 for idle. Lag and load may have any unit that is the same on all replicas.
    """

    role: Literal["primary", "secondary"] = "secondary"
    term: int = 0
    applied: int = 0
    lag: int = 0
    load: float = 0.0

    def __post_init__(self) -> None:
        if self.role not in ("primary", "secondary"):
            raise ValueError(f"role: expected primary or secondary, not {self.role!r}")
        for name in ("term", "applied", "lag"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value < 2**53:
                raise ValueError(f"{name}: expected an integer of 0 or more, not {value!r}")
        if not isinstance(self.load, int | float) or not 0 <= self.load <= 1e9:
            raise ValueError(f"load: expected a number from 0 to 1e9, not {self.load!r}")


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
