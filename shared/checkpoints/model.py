"""Wire models of turns (api.md, "Checkpoints")."""

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
    """The turn that is taken."""

    epoch: Epoch


class TurnReportIn(Strict):
    """What a replica says of itself."""

    seq: int = Field(ge=1, le=MOST, description="Counts the reports of a process; 1 registers it.")
    role: Literal["primary", "secondary"]
    term: Count = Field(description="Orders the members' claims to be primary: a higher one wins.")
    applied: Count = Field(description="Sequence up to which it has applied the log.")
    lag: Count = Field(0, description="How far it is behind.")
    load: float = Field(0.0, ge=0, le=1e9, allow_inf_nan=False, description="Any measure that is alike on all; 0: idle.")
    failures: Count = Field(0, description="Of its late checkpoints.")
    last_checkpoint: Count = Field(description="Sequence of its last checkpoint, kept over restarts; 0: none.")
    taking: TakingIn | None = Field(description="The turn it takes, until what it made is published or given up; null: none.")
    mono_ms: Count = Field(description="A clock of the process that never steps back.")
    ready: bool = Field(True, description="false: it wants no turn now.")
    incarnation: Incarnation | None = Field(None, description="Of this run of the process: late reports of one before it are refused then.")

    def report(self) -> ReplicaReport:
        """The same for the rules."""
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
    limit_ms: int = Field(description="For so long it may take its checkpoint, counted from the SEND of this report.")


class TurnReportAnswer(Strict):
    """What a replica is told. It counts only as the answer to the replica's latest report."""

    turn: GrantOut | None
    revoked: list[int] = Field(description="Turns that it must not take, or not any more.")
    report_ms: int = Field(description="How often it is to report.")


class PublishIn(Strict):
    """A finished checkpoint."""

    node: NodeName
    sequence: int = Field(ge=1, le=MOST, description="Up to which the checkpoint applies.")
    location: Location
    bytes: Count

    def publication(self) -> Publication:
        """The same for the rules."""
        return Publication(self.node, self.sequence, self.location, self.bytes)


class PublishAnswer(Strict):
    """latest: whether this is the checkpoint with the highest sequence."""

    latest: bool


class RevokeIn(Strict):
    """Why a turn is taken back."""

    note: Why


class ForgetIn(Strict):
    """Why a claim to be primary is taken back."""

    note: Why


class RevokeAnswer(Strict):
    """When the next turn can be granted."""

    free_after_ms: int = Field(description="At most; sooner when the holder reports that it takes nothing.")


TurnState = Literal["granted", "taking", "done", "timed-out", "revoked"]


class TurnOut(Strict):
    """A turn."""

    epoch: int
    holder: str
    state: TurnState
    reason: Maybe[Literal["limit", "silent", "restarted", "promoted", "failed", "short"]] = Field(
        default=None,
        description="Why it timed out: its holder took too long, fell silent, began anew, became primary, gave up, or came too late.",
    )
    granted: Stamp
    timeout_ms: int
    attempts: Maybe[int] = Field(default=None, description="How often it was handed out, where that is more than once: after lost answers.")
    sequence: int | None = Field(description="Of the checkpoint that was published.")
    ended: Maybe[Stamp] = None
    note: Maybe[str] = Field(default=None, description="Why it was revoked.")
    author: Maybe[str] = None
    late: Maybe[Literal[True]] = Field(default=None, description="A checkpoint came after its end, and does not count.")


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
    """A node as a replica, by its last report."""

    role: Literal["primary", "secondary"]
    term: int
    applied: int
    lag: int
    load: float
    failures: int
    ready: bool
    report_age_ms: int = Field(description="By the storage service's own time.")
    down: Literal["silent", "clock"] | None
    skipped: Literal["primary", "down", "not ready", "taking", "lag", "maintenance"] | None = Field(
        description="Why it would get no turn now."
    )
    taking: int | None = Field(description="The epoch of the turn it says it takes.")
    holds: int | None = Field(description="The epoch of the turn that is its now.")
    last_checkpoint: int
