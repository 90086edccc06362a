"""Publishes what turns made, and remembers it until that is settled, over restarts too."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ...client.concurrent import AsyncClient
from ...client.errors import Conflict, Refused, ServerFailed, TooMany, Unreachable, Unreadable
from ...core.clock import Clock
from ...core.errors import TocsinError
from .state_file import MadeCheckpoint, ReplicaFile, ReplicaMemory
from .turn import TurnLost

log = logging.getLogger(__name__)

PATIENCE: Final = 60.0
"""Seconds past a turn's limit for which its publish is tried."""
LONGEST: Final = 5.0
"""Seconds between two tries, at most."""
PASSING: Final = (Unreachable, Unreadable, ServerFailed, TooMany, TimeoutError)
"""Trouble that ends by itself: nobody knows whether anything was done."""


class CheckpointPublisher:
    """One replica's. path: that of a turn's publish. file: None to remember nothing over restarts. counts: gets `published` and `late`."""

    def __init__(
        self,
        client: AsyncClient,
        node: str,
        path: Callable[[int], str],
        *,
        timeout: float,
        clock: Clock,
        steady: Callable[[], float],
        counts: Counter[str],
    ) -> None:
        self._client, self._node, self._path, self._timeout = client, node, path, timeout
        self._clock, self._steady, self._counts = clock, steady, counts
        self._file: ReplicaFile | None = None
        self.memory = ReplicaMemory()
        self.ended = False
        """Nothing is tried a second time any more."""

    def open(self, file: ReplicaFile) -> None:
        """Go on from what the file says."""
        self._file, self.memory = file, file.read()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    async def publish(self, made: MadeCheckpoint, until: float) -> bool:
        """Whether it is the fleet's latest checkpoint now. until: the turn's limit. Raises `TurnLost` (late, unanswered), `Refused`."""
        # Reports tell it only once the publish is settled: the app takes a turn whose checkpoint is told for done, and grants the next.
        await self._remember(replace(self.memory, unpublished=made))
        settled = ReplicaMemory(max(self.memory.last, made.sequence))
        try:
            latest = await self._ask(made, until)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) or (self.ended and isinstance(error, TurnLost) and error.reason == "unanswered"):
                # On disk it stays as it is, for the next start.
                self.memory = settled
            else:
                await self._remember(settled)
            raise
        await self._remember(settled)
        self._counts["published"] += 1
        return latest

    async def catch_up(self) -> None:
        """The process before this one ended before its publish was answered: once more, and no longer than it takes."""
        made = self.memory.unpublished
        if made is None:
            return
        try:
            await self.publish(made, self._steady() - PATIENCE)
        except (TurnLost, Refused) as refused:
            log.info("The checkpoint of turn %d stays unpublished: %s", made.epoch, refused, extra={"action": "turn_publish_dropped"})

    async def _ask(self, made: MadeCheckpoint, until: float) -> bool:
        pause = 0.5
        while True:
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await self._client.call("POST", self._path(made.epoch), made.body(self._node))
                return isinstance(answer, dict) and answer.get("latest") is True
            except Conflict as refused:
                self._counts["late"] += 1
                raise TurnLost(made.epoch, "late") from refused
            except PASSING as passing:
                if self.ended or self._steady() + pause >= until + PATIENCE:
                    raise TurnLost(made.epoch, "unanswered") from passing
                log.info("The publish of turn %d is not answered: %s", made.epoch, passing, extra={"action": "turn_publish_unanswered"})
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST)

    async def _remember(self, memory: ReplicaMemory) -> None:
        self.memory = memory
        if self._file is None:
            return
        try:
            await asyncio.to_thread(self._file.write, memory)
        except TocsinError as error:
            # The publish may still succeed; only over a restart something is lost.
            log.warning("%s", error, extra={"action": "turn_memory_failed"})
