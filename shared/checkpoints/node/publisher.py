"""Publishes the checkpoints of turns, and keeps each until its publish is settled, also over restarts."""

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
from ...core.errors import TocsinError, text_of
from .state_file import MadeCheckpoint, ReplicaFile, ReplicaMemory
from .timings import MAX_PUBLISH_PAUSE, PUBLISH_PATIENCE
from .turn import TurnLost

log = logging.getLogger(__name__)

PASSING: Final = (Unreachable, Unreadable, ServerFailed, TooMany, TimeoutError)

"""Errors that pass by themselves, after which it is unknown whether the request was applied."""


class CheckpointPublisher:
    """Publishes for one replica. path: returns the path of a turn's publish. counts: gets `published` and `late`."""

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
        """True once the participant ends: no publish is retried any more."""

    def open(self, file: ReplicaFile) -> None:
        """Continue from the state in the file. Without a file, nothing is kept over restarts."""
        self._file, self.memory = file, file.read()

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()

    async def publish(self, made: MadeCheckpoint, until: float) -> bool:
        """Publish a checkpoint. Returns true if it is the fleet's latest now. until: the turn's limit.

        Raises `TurnLost` (late, unanswered), `Refused`.
        """
        # Reports carry its sequence only once the publish is settled: the app treats a turn with a reported checkpoint as done, and grants
        # the next one.
        await self._save(replace(self.memory, unpublished=made))
        settled = ReplicaMemory(max(self.memory.last, made.sequence))
        try:
            latest = await self._post(made, until)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) or (self.ended and isinstance(error, TurnLost) and error.reason == "unanswered"):
                # The file keeps it as unpublished, for the next start.
                self.memory = settled
            else:
                await self._save(settled)
            raise
        await self._save(settled)
        self._counts["published"] += 1
        return latest

    async def catch_up(self) -> None:
        """Repeat the publish of an earlier process that ended without an answer; a single attempt."""
        made = self.memory.unpublished
        if made is None:
            return
        try:
            await self.publish(made, self._steady() - PUBLISH_PATIENCE)
        except (TurnLost, Refused) as refused:
            log.info("The checkpoint of turn %d stays unpublished: %s", made.epoch, refused, extra={"action": "turn_publish_dropped"})

    async def _post(self, made: MadeCheckpoint, until: float) -> bool:
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
                if self.ended or self._steady() + pause >= until + PUBLISH_PATIENCE:
                    raise TurnLost(made.epoch, "unanswered") from passing
                extra = {"action": "turn_publish_unanswered"}
                log.info("The publish of turn %d was not answered: %s", made.epoch, text_of(passing), extra=extra)
            await self._clock.sleep(pause)
            pause = min(2 * pause, MAX_PUBLISH_PAUSE)

    async def _save(self, memory: ReplicaMemory) -> None:
        self.memory = memory
        if self._file is None:
            return
        try:
            await asyncio.to_thread(self._file.write, memory)
        except TocsinError as error:
            # The publish may still succeed. The checkpoint is lost only if the process restarts before that.
            log.warning("%s", error, extra={"action": "turn_memory_failed"})
