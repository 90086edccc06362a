"""An app that grants turns as the test sets, and a participant on a clock that only the test moves."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from shared.checkpoints.node.participant import CheckpointParticipant, Health, TurnLost
from shared.core.clock import SettableClock

KEY = "a-very-secret-key"
TURN = {"epoch": 5, "limit_ms": 40_000}


class App:
    """The service, as a participant sees it.

    turn: the turn in the answer to the next report that wants one. faults: one for each of the next requests: `lost` (applied, without an
    answer), `gone` (does not arrive), `late` (the time for it ends), a status with a code, '' (no fault). fence: a publish of another epoch
    is late; None accepts all.
    """

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.published: list[tuple[int, dict[str, Any]]] = []
        self.turn: dict[str, Any] | None = None
        self.revoked: list[int] = []
        self.faults: deque[str | tuple[int, str]] = deque()
        self.fence: int | None = None
        self.hold: asyncio.Event | None = None
        """The answer that grants a turn waits until this event is set; None: it does not wait."""
        self.report_ms = 5000
        self.publish_tries = 0
        """Publish requests that were sent, also those that did not arrive."""

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.publish_tries += request.url.path.endswith("/publish")
        assert request.headers["authorization"] == f"Bearer {KEY}"
        fault = self.faults.popleft() if self.faults else ""
        if fault == "gone":
            raise httpx.ConnectError("nobody listens")
        if fault == "late":
            # As `asyncio.timeout` ends a call: without a text.
            raise TimeoutError
        if isinstance(fault, tuple):
            status, code = fault
            return httpx.Response(status, json={"type": f"x/{code}", "title": "No", "status": status, "detail": "no"})
        body, path = json.loads(request.content), request.url.path.removeprefix("/api/v1/fleets/search/")
        answer = self._report(path, body) if path.startswith("replicas") else self._publish(path, body)
        if self.hold is not None and json.loads(answer.content).get("turn") is not None:
            await self.hold.wait()
        if fault == "lost":
            raise httpx.ReadError("the connection broke")
        return answer

    def _report(self, path: str, body: dict[str, Any]) -> httpx.Response:
        assert path == "replicas/s7/report"
        self.reports.append(body)
        turn = self.turn if body["ready"] and body["taking"] is None else None
        if turn is not None:
            self.turn = None
        return httpx.Response(200, json={"turn": turn, "revoked": self.revoked, "report_ms": self.report_ms})

    def _publish(self, path: str, body: dict[str, Any]) -> httpx.Response:
        epoch = int(path.split("/")[1])
        if self.fence is not None and epoch != self.fence:
            return httpx.Response(409, json={"type": "x/late", "title": "Late", "status": 409, "detail": "the turn is over"})
        self.published.append((epoch, body))
        return httpx.Response(200, json={"latest": True})


class World:
    """The app, the time, and a replica."""

    def __init__(self, folder: Path | None = None, health: Callable[[], Health] | None = None, **more: Any) -> None:
        self.app, self.clock = App(), SettableClock()
        self.health = Health("secondary", 3, 100, 0, 0.5)
        self._folder, self._read_health, self._more = folder, health, more
        self.participant = self.make()

    def make(self) -> CheckpointParticipant:
        """Return a participant of the same replica: its next process."""
        return CheckpointParticipant(
            *("search", "s7", "https://app.example", KEY),
            health=self._read_health or (lambda: self.health),
            folder=self._folder,
            transport=httpx.MockTransport(self.app),
            clock=self.clock,
            steady=self.clock.monotonic,
            **self._more,
        )

    async def __aenter__(self) -> Self:
        await self.participant.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.participant.__aexit__()

    async def pass_(self, seconds: float) -> None:
        """Move the clock, in steps that are shorter than every timer."""
        while seconds > 0:
            step = min(seconds, 0.25)
            await self.clock.advance(step)
            seconds -= step

    async def until(self, look: Callable[[], object], what: str, seconds: float = 600) -> None:
        """Move the clock until `look()` is true. Fails after `seconds`."""
        for _ in range(int(seconds / 0.25)):
            if look():
                return
            await self.clock.advance(0.25)
        raise AssertionError(f"not within {seconds} s: {what}")


class Body:
    """Takes a turn that lasts until the test sets the result."""

    def __init__(self, world: World) -> None:
        self.begun = self.ended = self.cancelled = False
        self.epoch = 0
        self.finish: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.latest: bool | None = None
        self.task = asyncio.create_task(self._take(world.participant))

    async def _take(self, participant: CheckpointParticipant) -> None:
        async with participant.turn() as turn:
            self.begun, self.epoch = True, turn.epoch
            try:
                turn.result(await self.finish, "blob/5", 7)
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            finally:
                self.ended = True
        self.latest = turn.latest


async def loss_reason(body: Body) -> str:
    """Wait until the body has ended, and return the reason for which its turn was lost."""
    with pytest.raises(TurnLost) as raised:
        await body.task
    return raised.value.reason


async def take_nothing(participant: CheckpointParticipant) -> None:
    """Take a turn without a checkpoint."""
    async with participant.turn():
        pass
