"""The parts of the world of turns: replicas, what is under way, states, plays.

Time is true time in whole seconds. The service's `Date` at second t shows t or t - 1, whichever is worse: that stands for its resolution
of one second. A replica's clock may be as slow as the drift bound allows, so what it stops at `limit` it stops, in true seconds, at any
moment up to `limit / (1 - drift)` after the send. In a play with `rates` the clock of who is troubled runs, in each second, as fast as one
of them says: now too slow, now too fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shared.checkpoints.node.rules import HeldTurn, ReplicaState

DRIFT = 0.3
PARTS = 70
"""Parts of a second, so that the slowest clock and the fastest advance by whole numbers."""
SLOWEST, TRUE, FASTEST = 49, 70, 100
"""The drift bound on either side: 0.7, and 1 / 0.7."""
START = 1_800_000_000
"""The start of the service's clock, in seconds."""


class ReplicaReport(NamedTuple):
    """A report on its way. life: the process that sent it. taking: an epoch, 0 for none. last: its last checkpoint's sequence."""

    node: str
    life: int
    seq: int
    role: str
    term: int
    taking: int
    last: int
    ready: bool = True


class Publish(NamedTuple):
    node: str
    epoch: int
    sequence: int


class Revoke(NamedTuple):
    epoch: int


class Scan(NamedTuple):
    """One step of the sweep."""


class Forget(NamedTuple):
    """An operator takes back what was claimed by a primary."""


type Request = ReplicaReport | Publish | Revoke | Scan | Forget


class Answer(NamedTuple):
    """The answer to a report. epoch: that of the turn handed out, 0 for none. limit: milliseconds. refused: the problem's code."""

    node: str
    life: int
    seq: int
    epoch: int = 0
    limit: int = 0
    revoked: tuple[int, ...] = ()
    refused: str = ""


class Change(NamedTuple):
    """Rows to write, at once or not at all: by key, what the row must be now, and what it is then. broken: the rule that this breaks."""

    rows: tuple[tuple[str, Any, Any], ...]
    broken: str = ""


class Pending(NamedTuple):
    """An instance of the app has read and decided, and has not written yet."""

    request: Request
    change: Change
    answer: Answer | None


class Node(NamedTuple):
    """A machine, and the process of the replica on it. me: what the process knows of turns. runs: whether the body of `me.held` runs; if
    not, its checkpoint is being published. orphan: what a former process left running. last: the sequence of its last checkpoint, as it
    is on disk; said: as it is reported, which waits for the end of the publish. reports: how many more it may send. clock: of the machine,
    in `PARTS` of a second, where it does not always run as slow as it may."""

    up: bool = True
    life: int = 1
    me: ReplicaState = ReplicaState()
    role: str = "secondary"
    term: int = 1
    runs: bool = False
    orphan: HeldTurn | None = None
    last: int = 0
    said: int = 0
    reports: int = 0
    clock: int = 0


class Faults(NamedTuple):
    """The steps that may still happen. scan: steps of the sweep. finish, fail: bodies that end. again: writes whose
    answer is lost, before or after they are applied; their instance looks again. forget: claims that an operator takes back."""

    crash: int = 0
    promote: int = 0
    demote: int = 0
    revoke: int = 0
    lose: int = 0
    scan: int = 0
    finish: int = 0
    fail: int = 0
    again: int = 0
    forget: int = 0


class State(NamedTuple):
    now: int
    nodes: tuple[tuple[str, Node], ...]
    store: int
    """The stored rows, by the number that the world gave them."""
    under_way: tuple[Request, ...]
    pending: tuple[int, ...]
    """By number too."""
    answers: tuple[Answer, ...]
    faults: Faults


@dataclass(frozen=True)
class Play:
    """A play: its replicas and faults. nodes: all of them have registered, and were not ready then. dates: how far `Date` may lag,
    in seconds. draws: what chance may say; of
    equals a high one takes the last."""

    name: str
    nodes: dict[str, Node]
    faults: Faults = field(default_factory=Faults)
    until: int = 6
    timeout: int = 5
    silence: int = 60
    dates: tuple[int, ...] = (0, 1)
    draws: tuple[float, ...] = (0.99,)
    granted: bool = True
    """The exploration begins when the first secondary has been granted a turn, and has not come for it."""
    troubled: tuple[str, ...] = ("a",)
    """The replicas that may crash, those that may be promoted, and those with clocks of a changing rate."""
    rates: tuple[int, ...] = ()
    """The steps by which such a clock may advance in a true second, in `PARTS`; none: all clocks always run as slow as they may."""
    split: bool = True
    """Something may happen between an instance's read and its write."""
    endless: bool = False
    """Reports keep coming, see `endless`."""
    latest_only: bool = True
    """Answers to older reports need not be distinguished from lost ones."""
