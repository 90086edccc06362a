"""A replica of a twin that takes checkpoints when it has the turn. Its decisions, and the app's, are production's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from ...app.application import Application
from ...checkpoints.model import PublishIn, TurnReportIn
from ...checkpoints.node import rules
from ...core.errors import Problem, StorageError
from .machine import NodePlace

CHECKPOINT_TOOK: Final = (60.0, 120.0, 180.0)
"""Seconds of the checkpoints of a fleet of which none is known."""
PUBLISH_TRIES: Final = 5
PUBLISH_PAUSE: Final = 10.0


class TwinReplica:
    """One replica. took: seconds of checkpoints, from which it draws one for each turn."""

    def __init__(
        self,
        app: Application,
        tenant: str,
        place: NodePlace,
        *,
        primary: bool,
        took: Sequence[float],
    ) -> None:
        self._app, self._tenant, self._primary = app, tenant, primary
        self._fleet, self._name, self._clock, self._machine, seed = place
        self._chance = random.Random(seed)
        self._took = tuple(took) or CHECKPOINT_TOOK
        self._me = rules.ReplicaState()
        self._last = 0
        self._failures = 0
        self.lost = 0
        """Turns without a checkpoint that was published in time."""

    async def play(self) -> None:
        """Report, and take turns."""
        taking: asyncio.Task[None] | None = None
        await asyncio.sleep(self._chance.random())
        try:
            while True:
                await self._machine.thawed()
                interval, begun = await self._report()
                if begun is not None:
                    taking = asyncio.create_task(self._take(begun))
                await asyncio.sleep(interval * self._chance.uniform(0.9, 1.0))
        finally:
            if taking is not None:
                taking.cancel()

    async def _report(self) -> tuple[float, rules.HeldTurn | None]:
        """Send a report. Return the seconds until the next one, and the turn that begins."""
        self._me = rules.start_report(self._me, self._clock.monotonic())
        seq, held = self._me.seq, self._me.held
        body = {
            "seq": seq,
            "role": "primary" if self._primary else "secondary",
            "term": 1,
            "applied": int(self._clock.monotonic()),
            "failures": self._failures,
            "last_checkpoint": self._last,
            "taking": {"epoch": held.epoch} if held is not None else None,
            "mono_ms": int(self._clock.monotonic() * 1000),
            "incarnation": self._name,
        }
        try:
            answer = await self._app.checkpoints.report(self._tenant, self._fleet, self._name, TurnReportIn.model_validate(body))
        except (Problem, StorageError):
            self._me = rules.report_failed(self._me)
            return 5.0, None
        turn = answer["turn"]
        reply = rules.ReportReply((turn["epoch"], turn["limit_ms"] / 1000) if turn else None, frozenset(answer["revoked"]))
        self._me, act = rules.apply_answer(self._me, seq, reply, self._clock.monotonic(), may=not self._primary)
        if isinstance(act, rules.StopTurn):
            self._me = rules.end_turn(self._me)
        return answer["report_ms"] / 1000, act.held if isinstance(act, rules.BeginTurn) else None

    async def _take(self, held: rules.HeldTurn) -> None:
        """Take a checkpoint, and publish it if the turn has not ended."""
        await asyncio.sleep(self._chance.choice(self._took))
        await self._machine.thawed()
        published = False
        if self._clock.monotonic() < held.until and self._me.held is not None:
            self._last = max(self._last + 1, int(self._clock.monotonic()))
            body = PublishIn(node=self._name, sequence=self._last, location=f"checkpoint/{self._last}", bytes=1)
            for _ in range(PUBLISH_TRIES):
                try:
                    await self._app.checkpoints.publish(self._tenant, self._fleet, held.epoch, body)
                    published = True
                    break
                except Problem:
                    break
                except StorageError:
                    await asyncio.sleep(PUBLISH_PAUSE)
        self._failures = 0 if published else self._failures + 1
        self.lost += not published
        self._me = rules.end_turn(self._me)
