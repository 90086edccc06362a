"""Requests that failed: what is left out meanwhile rests on their number, and somebody should know."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from ...core.errors import Rejected, StorageError
from .keeper_state import KeeperState

log = logging.getLogger(__name__)

_AWAY: Final = 3
"""Requests in a row that storage did not answer, after which somebody should know."""


class RequestFailures:
    """Counts failed requests of the heartbeat loop. One per keeper.

    The number in a row is `KeeperState.failures`; the loop sets it to 0 when a heartbeat succeeds.
    """

    def __init__(self, server: str, keeper_state: KeeperState) -> None:
        self._server, self._keeper_state = server, keeper_state
        self._streak: Counter[bool] = Counter()

    def missed(self) -> None:
        """Another one in a row: its answer was lost."""
        if not self._keeper_state.failures:
            self._streak.clear()
        self._keeper_state.failures += 1

    def failed(self, error: StorageError) -> None:
        """Another one in a row, and why."""
        self.missed()
        self._keeper_state.counts["failed"] += 1
        refused = isinstance(error, Rejected)
        self._streak[refused] += 1
        # What storage will never do needs somebody's help; say so once, not with every try.
        level = logging.ERROR if refused and self._streak[refused] == 1 else logging.DEBUG
        log.log(level, "A lease request failed: %s", error, extra={"action": "lease_request_failed"})
        if not refused and self._streak[refused] == _AWAY:
            text = "Storage does not answer server %s, which goes on trying: %s"
            log.warning(text, self._server, error, extra={"action": "lease_storage_away"})
