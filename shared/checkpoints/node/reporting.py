"""Log lines of a replica about its turns (docs/reference/log-actions.md), and the explanation of a refusal."""

from __future__ import annotations

import logging

from ...client.errors import NotFound, Refused
from .turn import Turn

log = logging.getLogger(__name__)


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
