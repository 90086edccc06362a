"""Requests that failed: what is left out meanwhile rests on their number, and somebody should know."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from ...core.errors import Rejected, StorageError
from .keeper_state import Desk

log = logging.getLogger(__name__)

_AWAY: Final = 3
"""Requests in a row that storage did not answer, after which somebody should know."""


class Failures:
    """One per keeper, for the loop that beats. The number in a row is on the desk, which that loop sets to 0 when a beat succeeds."""

    def __init__(self, server: str, desk: Desk) -> None:
        self._server, self._desk = server, desk
        self._streak: Counter[bool] = Counter()

    def missed(self) -> None:
        """Another one in a row: its answer was lost."""
        if not self._desk.failures:
            self._streak.clear()
        self._desk.failures += 1

    def failed(self, error: StorageError) -> None:
        """Another one in a row, and why."""
        self.missed()
        self._desk.counts["failed"] += 1
        refused = isinstance(error, Rejected)
        self._streak[refused] += 1
        # What storage will never do needs somebody's help; say so once, not with every try.
        level = logging.ERROR if refused and self._streak[refused] == 1 else logging.DEBUG
        log.log(level, "A lease request failed: %s", error, extra={"action": "lease_request_failed"})
        if not refused and self._streak[refused] == _AWAY:
            text = "Storage does not answer server %s, which goes on trying: %s"
            log.warning(text, self._server, error, extra={"action": "lease_storage_away"})
