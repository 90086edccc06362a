"""What a replica says of its turns: log lines (docs/checkpoints.md, "Log actions of members"), and what to do about a refusal."""

from __future__ import annotations

import logging

from ...client.errors import NotFound, Refused
from .turn import Turn

log = logging.getLogger(__name__)


class ParticipantLog:
    """One replica's words. Each line has `action`, `fleet` and `node`."""

    def __init__(self, fleet: str, node: str) -> None:
        self._fleet, self._node = fleet, node
        self._who = {"fleet": fleet, "node": node}
        self._complaint = ""

    def waits(self) -> None:
        """The application asked for a turn."""
        log.info("%s waits for its turn in fleet %s", self._node, self._fleet, extra={"action": "turn_waiting", **self._who})

    def granted(self, turn: Turn) -> None:
        """Its body begins."""
        text, seconds = "%s has turn %d of fleet %s, for %.0f seconds", turn.remaining()
        log.info(text, self._node, turn.epoch, self._fleet, seconds, extra={"action": "turn_granted", "epoch": turn.epoch, **self._who})

    def too_short(self, epoch: int, limit: float, grace: float) -> None:
        """It was handed out and is not begun: who has a grace longer than its turns would wait for ever and never know why."""
        text = "Turn %d of %s is not begun: of its %.1f seconds too little is left, with a grace of %g"
        log.warning(text, epoch, self._node, limit, grace, extra={"action": "turn_too_short", "epoch": epoch, **self._who})

    def published(self, turn: Turn) -> None:
        """The app has taken what was made in it."""
        text, newer = "The checkpoint of turn %d of %s is published%s", "" if turn.latest else "; a newer one is there"
        log.info(text, turn.epoch, self._node, newer, extra={"action": "turn_publish_taken", "epoch": turn.epoch, **self._who})

    def unpublished(self, turn: Turn, why: Exception) -> None:
        """What was made in it does not count."""
        text = "The checkpoint of turn %d of %s is not published: %s"
        log.info(text, turn.epoch, self._node, why, extra={"action": "turn_publish_refused", "epoch": turn.epoch, **self._who})

    def lost(self, turn: Turn) -> None:
        """Its body must end."""
        extra = {"action": "turn_lost", "epoch": turn.epoch, "reason": turn.lost, **self._who}
        log.info("Turn %d of %s is lost: %s", turn.epoch, self._node, turn.lost, extra=extra)

    def complain(self, what: str, text: str, *about: object, trace: bool = False) -> None:
        """A report could not be made, or got no good answer: told once for each kind in a row. text: its first %s is the node."""
        if self._complaint != what:
            self._complaint = what
            extra = {"action": "turn_report_failed", "problem": what, **self._who}
            log.warning(text, self._node, *about, exc_info=trace, extra=extra)

    def answered(self) -> None:
        """A report was answered."""
        if self._complaint:
            self._complaint = ""
            log.info("Reports of %s are answered", self._node, extra={"action": "turn_reports_answered", **self._who})


def unwelcome(refused: Refused, fleet: str) -> Refused:
    """The refusal of a replica's first report, in words for whoever starts it."""
    if not isinstance(refused, NotFound):
        return refused
    if refused.code:
        detail = f"there is no fleet {fleet!r} for this key; create it with PUT /api/v1/fleets/{fleet}, or check its name and the tenant"
    else:
        detail = f"{refused.detail}; this is not the address of the app (which is given without /api)"
    return NotFound(refused.status, refused.code, detail, call=refused.call, type=refused.type, title=refused.title)
