"""Work of an owner beside its deliveries: it carries out what is owed to events that have ended, such as their callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from ...core import backoff
from ...core.clock import Clock
from ...core.errors import StorageError
from ...storage.ports import Row
from .. import rules

if TYPE_CHECKING:
    from ..outcomes.callback_writer import TellOutcomes

log = logging.getLogger(__name__)

TOGETHER = 100
"""Most ended events whose callbacks are stored together."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between tries to store callbacks that storage did not take."""


class OwedOutcomes:
    """The ended events of one owner's shard to which something is owed."""

    def __init__(self, clock: Clock, tell: TellOutcomes, settle: Callable[[str, rules.RowOutcome], None]) -> None:
        """settle: takes the change of a row, for the owner's next transaction."""
        self._clock, self._tell, self._settle = clock, tell, settle
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._again_at = clock.monotonic()

    def start(self, rows: Sequence[Row]) -> None:
        """Begin what is owed to these rows, unless some of it is under way, or failed a short time ago."""
        if self._task is None and rows and self._clock.monotonic() >= self._again_at:
            self._task = asyncio.create_task(self._run(rows[:TOGETHER]))

    def cancel(self) -> None:
        """Stop. The next owner finds what is owed."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, rows: Sequence[Row]) -> None:
        changes = {}
        try:
            changes = await self._tell(rows)
        except StorageError as error:
            log.debug("Callbacks could not be stored yet: %s", error, extra={"action": "callback_postponed"})
        except Exception:
            log.exception("Storing callbacks raised an unexpected error", extra={"action": "callback_failed"})
        finally:
            self._task = None
        self._failures = 0 if len(changes) == len(rows) else self._failures + 1
        if self._failures:
            self._again_at = self._clock.monotonic() + backoff.exponential(FIRST_PAUSE, self._failures - 1, LONGEST_PAUSE, 10)
        for row in rows:
            if row.rk in changes:
                self._settle(row.rk, rules.RowOutcome(cast(rules.EndState, row.props["state"]), changes[row.rk]))
