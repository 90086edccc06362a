"""Request and response models of checkpoint turns (api.md, "Checkpoints")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ..leases.service.control.model import Why
from ..web.fields.error_texts import TEXT, Shaped
from ..web.fields.types import Maybe, NodeName, Stamp, Strict
from .rows import MAX_EPOCH
from .rules import Publication, ReplicaReport

MOST = 2**53 - 1
Count = Annotated[int, Field(ge=0, le=MOST)]
Epoch = Annotated[int, Field(ge=1, le=MAX_EPOCH)]
Incarnation = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Shaped(TEXT.format(64) + ", not empty"),
]
Location = Annotated[
    str,
    StringConstraints(min_length=1, max_length=2048, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Shaped(TEXT.format(2048) + ", not empty"),
]


class TakingIn(Strict):
    """The turn for which the replica is taking a checkpoint."""

    epoch: Epoch


class TurnReportIn(Strict):
    """A replica's report of its state."""

    seq: int = Field(ge=1, le=MOST, description="Number of the report. Each process counts from 1; seq 1 registers the process.")
    role: Literal["primary", "secondary"]
    term: Count = Field(description="Orders the replicas' claims to be primary: the highest term wins.")
    applied: Count = Field(description="Sequence up to which the replica has applied the log.")
    lag: Count = Field(0, description="Number of log entries that the replica is behind.")
    load: float = Field(
        0.0, ge=0, le=1e9, allow_inf_nan=False, description="Load by any measure that is the same on all replicas. 0: idle."
    )
    failures: Count = Field(0, description="Number of its latest checkpoints that failed in a row.")
    last_checkpoint: Count = Field(description="Sequence of its last checkpoint, kept over restarts. 0: none.")
    taking: TakingIn | None = Field(
        description="The turn for which it is taking a checkpoint, until that is published or given up. null: none."
    )
    mono_ms: Count = Field(description="Reading of a clock of the process that never steps back, in milliseconds.")
    ready: bool = Field(True, description="false: the replica wants no turn now.")
    incarnation: Incarnation | None = Field(
        None, description="Names this run of the process, so that late reports of an earlier run are refused."
    )

    def report(self) -> ReplicaReport:
        """Return the report as the rules take it."""
        return ReplicaReport(
            self.seq,
            self.role,
            self.term,
            self.mono_ms,
            self.applied,
            self.lag,
            self.load,
            self.failures,
            self.last_checkpoint,
            self.taking.epoch if self.taking is not None else 0,
            self.ready,
            self.incarnation or "",
        )


class GrantOut(Strict):
    """A turn that is handed out."""

    epoch: int
    limit_ms: int = Field(description="Time in which the replica may take its checkpoint, counted from the SEND of this report.")


class TurnReportAnswer(Strict):
    """The answer to a report. It counts only as the answer to the replica's latest report."""

    turn: GrantOut | None
    revoked: list[int] = Field(description="Turns that the replica must not take, or must stop taking.")
    report_ms: int = Field(description="Interval at which the replica should report.")


class PublishIn(Strict):
    """A finished checkpoint."""

    node: NodeName
    sequence: int = Field(ge=1, le=MOST, description="Sequence up to which the checkpoint applies.")
    location: Location
    bytes: Count

    def publication(self) -> Publication:
        """Return the publication as the rules take it."""
        return Publication(self.node, self.sequence, self.location, self.bytes)


class PublishAnswer(Strict):
    """latest: true if this checkpoint has the highest sequence."""

    latest: bool


class RevokeIn(Strict):
    """The reason for taking a turn back."""

    note: Why


class ForgetIn(Strict):
    """The reason for dropping a claim to be primary."""

    note: Why


class RevokeAnswer(Strict):
    """The time after which the next turn can be granted."""

    free_after_ms: int = Field(
        description="Upper bound. The next turn is granted sooner when the holder reports that it takes no checkpoint."
    )


TurnState = Literal["granted", "taking", "done", "timed-out", "revoked"]


class TurnOut(Strict):
    """A turn."""

    epoch: int
    holder: str
    state: TurnState
    reason: Maybe[Literal["limit", "silent", "restarted", "promoted", "failed", "short"]] = Field(
        default=None,
        description="Why it timed out. Its holder took too long, was silent, restarted, became primary, gave up, or fetched it too late.",
    )
    granted: Stamp
    timeout_ms: int
    attempts: Maybe[int] = Field(
        default=None, description="Number of times it was handed out, if more than once. A lost answer causes another one."
    )
    sequence: int | None = Field(description="Sequence of the published checkpoint.")
    ended: Maybe[Stamp] = None
    note: Maybe[str] = Field(default=None, description="Reason for which it was revoked.")
    author: Maybe[str] = None
    late: Maybe[Literal[True]] = Field(default=None, description="A checkpoint arrived after the turn ended, and does not count.")


class TurnList(Strict):
    """A page of turns, newest first."""

    items: list[TurnOut]
    next: str | None


class LatestOut(Strict):
    """The checkpoint with the highest sequence."""

    epoch: int
    node: str
    sequence: int
    location: str
    bytes: int
    at: Stamp


class ReplicaOut(Strict):
    """A node as a replica, from its last report."""

    role: Literal["primary", "secondary"]
    term: int
    applied: int
    lag: int
    load: float
    failures: int
    ready: bool
    report_age_ms: int = Field(description="Age of the last report, by the storage service's time.")
    down: Literal["silent", "clock"] | None
    skipped: Literal["primary", "down", "not ready", "taking", "lag", "maintenance"] | None = Field(
        description="Reason for which it would get no turn now."
    )
    taking: int | None = Field(description="Epoch of the turn for which it reports to be taking a checkpoint.")
    holds: int | None = Field(description="Epoch of the turn that it holds now.")
    last_checkpoint: int
