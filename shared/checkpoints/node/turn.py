"""A turn, as seen by the code that takes the checkpoint.

The log lines of a replica about its turns (docs/reference/log-actions.md) are here too, and the explanation of a refusal.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import re
from collections.abc import Callable
from typing import Final

from ...client.errors import NotFound, Refused
from ...core.errors import TocsinError
from .rules import HeldTurn, StopReason
from .state_file import MadeCheckpoint

log = logging.getLogger(__name__)


_LOCATION: Final = re.compile(r"[^\x00-\x1f\x7f]{1,2048}")

_REASONS: Final = {
    "limit": "its time is over",
    "revoked": "an operator took it back",
    "promoted": "this replica has become the primary",
    "forgotten": "the app does not know this replica any more",
    "stopped": "the participant has ended",
    "late": "its checkpoint came too late to be published",
    "ended": "its body has ended",
    "unanswered": "its publish got no answer; the next reports carry the checkpoint's sequence",
}


class TurnLost(TocsinError):
    """The turn ended before its checkpoint was published.

    reason: limit, revoked, promoted, forgotten, stopped, late, unanswered or ended (docs/how-to/checkpoints.md).
    """

    def __init__(self, epoch: int, reason: str) -> None:
        super().__init__(f"turn {epoch} is lost: {_REASONS[reason]}")
        self.epoch, self.reason = epoch, reason


class Turn:
    """A turn that this replica holds: no other replica of the fleet takes a checkpoint until `remaining` is 0."""

    def __init__(self, held: HeldTurn, steady: Callable[[], float]) -> None:
        self._held, self._steady = held, steady
        self.lost: StopReason | None = None
        """Reason for which the body must end; None while it may go on."""
        self.made: MadeCheckpoint | None = None
        """The checkpoint that was given to `result`."""
        self.ended = False
        """True once the body has ended."""
        self.latest: bool | None = None
        """After the end: true if the published checkpoint is the fleet's latest, false if there is a newer one."""

    @property
    def epoch(self) -> int:
        """Number of the turn. Each turn of a fleet has a higher one than those before it."""
        return self._held.epoch

    @property
    def until(self) -> float:
        """End of the turn's time, in seconds of `tocsin.clock.steady`."""
        return self._held.until

    def remaining(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self._held.until - self._steady())

    def check(self) -> None:
        """Raise `TurnLost` unless this replica still holds the turn. For code on threads, which cannot be cancelled: call it before each
        step."""
        reason = self.lost or ("ended" if self.ended else "limit" if self.remaining() == 0 else None)
        if reason is not None:
            raise TurnLost(self.epoch, reason)

    async def on_thread[**P, T](self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function on a thread; it should call `check` before each step.

        If the body is cancelled, this still returns only after the function has: until then reports show the turn as taken.
        """
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        # Not a task: code that cancels all tasks would not end the thread.
        work = asyncio.get_running_loop().run_in_executor(None, call)
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            # The function usually raises the error of `check` then.
            work.exception()
            raise cancelled
        return work.result()

    def result(self, sequence: int, location: str, bytes: int = 0) -> None:
        """Set the checkpoint to publish when the body ends.

        sequence: up to which the checkpoint applies, 1 or more. location: where it is stored, 1 to 2,048 characters. bytes: its size.
        Raises ValueError for invalid values.
        """
        if type(sequence) is not int or not 1 <= sequence < 2**53:
            raise ValueError(f"sequence: expected an integer of 1 or more, not {sequence!r}")
        if not isinstance(location, str) or not _LOCATION.fullmatch(location):
            raise ValueError(f"location: expected a text of 1 to 2048 characters without control characters, not {location!r}")
        if type(bytes) is not int or not 0 <= bytes < 2**53:
            raise ValueError(f"bytes: expected an integer of 0 or more, not {bytes!r}")
        self.made = MadeCheckpoint(self.epoch, sequence, location, bytes)


class ParticipantLog:
    """Writes one replica's log lines. Each has `action`, `fleet` and `node`."""

    def __init__(self, fleet: str, node: str) -> None:
        self._fleet, self._node = fleet, node
        self._who = {"fleet": fleet, "node": node}
        self._problem = ""

    def waits(self) -> None:
        """Log that the application asked for a turn."""
        log.info("%s waits for its turn in fleet %s", self._node, self._fleet, extra={"action": "turn_waiting", **self._who})

    def granted(self, turn: Turn) -> None:
        """Log that the body of a turn begins."""
        text, seconds = "%s has turn %d of fleet %s, for %.0f seconds", turn.remaining()
        log.info(text, self._node, turn.epoch, self._fleet, seconds, extra={"action": "turn_granted", "epoch": turn.epoch, **self._who})

    def too_short(self, epoch: int, limit: float, grace: float) -> None:
        """Warn that a turn is not begun. A replica with a grace longer than its turns would else wait for ever without a reason."""
        text = "Turn %d of %s is not begun: its limit of %.1f seconds is too short for a grace of %g seconds"
        log.warning(text, epoch, self._node, limit, grace, extra={"action": "turn_too_short", "epoch": epoch, **self._who})

    def published(self, turn: Turn) -> None:
        """Log that the app has accepted the checkpoint of a turn."""
        text, newer = "The checkpoint of turn %d of %s is published%s", "" if turn.latest else "; there is a newer one"
        log.info(text, turn.epoch, self._node, newer, extra={"action": "turn_publish_taken", "epoch": turn.epoch, **self._who})

    def unpublished(self, turn: Turn, why: Exception) -> None:
        """Log that the checkpoint of a turn does not count."""
        text = "The checkpoint of turn %d of %s is not published: %s"
        log.info(text, turn.epoch, self._node, why, extra={"action": "turn_publish_refused", "epoch": turn.epoch, **self._who})

    def lost(self, turn: Turn) -> None:
        """Log that the body of a turn must end."""
        extra = {"action": "turn_lost", "epoch": turn.epoch, "reason": turn.lost, **self._who}
        log.info("Turn %d of %s is lost: %s", turn.epoch, self._node, turn.lost, extra=extra)

    def report_problem(self, problem: str, text: str, *about: object, trace: bool = False) -> None:
        """Warn that a report could not be made or got no good answer; once for consecutive equal problems. text: its first %s is the
        node."""
        if self._problem != problem:
            self._problem = problem
            extra = {"action": "turn_report_failed", "problem": problem, **self._who}
            log.warning(text, self._node, *about, exc_info=trace, extra=extra)

    def answered(self) -> None:
        """Log that reports are answered again, if there was a problem."""
        if self._problem:
            self._problem = ""
            log.info("Reports of %s are answered again", self._node, extra={"action": "turn_reports_answered", **self._who})


def explain_refusal(refused: Refused, fleet: str) -> Refused:
    """Return the refusal of a replica's first report with a text for the person who starts it."""
    if not isinstance(refused, NotFound):
        return refused
    if refused.code:
        detail = f"there is no fleet {fleet!r} for this key; create it with PUT /api/v1/fleets/{fleet}, or check its name and the tenant"
    else:
        detail = f"{refused.detail}; this is not the address of the app; give it without /api"
    return NotFound(refused.status, refused.code, detail, call=refused.call, type=refused.type, title=refused.title)
