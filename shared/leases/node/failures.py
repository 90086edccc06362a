"""Failed requests of a keeper. Their number decides which duties are left out, and when a person is warned."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from ...core.errors import Rejected, StorageError
from .keeper_state import KeeperState

log = logging.getLogger(__name__)

_AWAY: Final = 3
"""Unanswered requests in a row after which a warning is logged."""


class RequestFailures:
    """Counts failed requests of the heartbeat loop. One per keeper.

    The number in a row is `KeeperState.failures`; the loop sets it to 0 when a heartbeat succeeds.
    """

    def __init__(self, server: str, keeper_state: KeeperState) -> None:
        self._server, self._keeper_state = server, keeper_state
        self._streak: Counter[bool] = Counter()
        self._high = False

    def record(self, refused: bool) -> None:
        """Count a request to storage, and log it once when storage begins to refuse many of them, and once when that ends."""
        self._keeper_state.record_request(refused)
        high = self._keeper_state.stretch > 1
        if high and not self._high:
            text = "Storage refuses or does not answer many requests of server %s: scans are less frequent, heartbeats as before"
            log.warning(text, self._server, extra={"action": "lease_storage_throttled"})
        elif self._high and not high:
            log.info("Storage accepts the requests of server %s again", self._server, extra={"action": "lease_storage_recovered"})
        self._high = high

    def missed(self) -> None:
        """Count a request with a lost answer."""
        if not self._keeper_state.failures:
            self._streak.clear()
        self._keeper_state.failures += 1

    def failed(self, error: StorageError) -> None:
        """Count a failed request and log its error."""
        self.missed()
        self._keeper_state.counts["failed"] += 1
        refused = isinstance(error, Rejected)
        self._streak[refused] += 1
        # A person must act on a request that storage refuses. Log this once, not for every attempt.
        level = logging.ERROR if refused and self._streak[refused] == 1 else logging.DEBUG
        log.log(level, "A lease request failed: %s", error, extra={"action": "lease_request_failed", **self._keeper_state.about()})
        # While storage throttles, a few refusals in a row are usual.
        if not refused and self._streak[refused] == _AWAY and not self._high:
            text = "Storage does not answer server %s, which keeps trying: %s"
            log.warning(text, self._server, error, extra={"action": "lease_storage_away", **self._keeper_state.about()})
