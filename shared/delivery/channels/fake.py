"""A receiver in memory: the twin of every Sender, for the simulator and for users' own tests.

receiver = FakeReceiver(clock)
receiver.script("order-17", Verdict("retry", 503), Verdict("delivered", 200))
...
assert [got.delivery.attempt for got in receiver.of("order-17")] == [1, 2]
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from ...core.clock import Clock, Millis, SystemClock
from .content import JSON
from .ports import OutgoingDelivery, Target, Verdict

type ScriptedAnswer = Verdict | Callable[[Target, OutgoingDelivery], Verdict | Awaitable[Verdict]]
"""A verdict, or a function that returns or awaits one. It may raise: the exception leaves `send`, like a bug in a sender."""

DELIVERED = Verdict("delivered", 200)


class ReceivedAttempt(NamedTuple):
    """One attempt that reached the receiver: its start and end (wall time) and its verdict."""

    target: Target
    delivery: OutgoingDelivery
    began: Millis
    ended: Millis
    verdict: Verdict

    @property
    def id(self) -> str:
        """The event's id."""
        return self.delivery.id

    @property
    def payload(self) -> Any:
        """The parsed JSON of the payload; None without one. For another content type: the bytes."""
        if self.delivery.content_type != JSON:
            return self.delivery.body
        return orjson.loads(self.delivery.body) if self.delivery.body else None


class FakeReceiver:
    """Receives deliveries of all channel types, answers as scripted (otherwise with `otherwise`), and keeps them in order of their end.

    An attempt takes `takes` seconds of the clock's time.
    """

    def __init__(self, clock: Clock | None = None, *, otherwise: ScriptedAnswer = DELIVERED, takes: float = 0.0) -> None:
        self.received: list[ReceivedAttempt] = []
        self.otherwise = otherwise
        self.takes = takes
        self.in_flight = 0
        self.closed = False
        self._clock: Clock = clock or SystemClock()
        self._scripts: dict[str, list[ScriptedAnswer]] = {}
        self._changed = asyncio.Event()

    def script(self, event_id: str, *answers: ScriptedAnswer) -> None:
        """Answer the attempts at this event in this order; the last answer is repeated."""
        if not answers:
            raise ValueError("a script needs at least one answer")
        self._scripts[event_id] = list(answers)

    def first(self, event_id: str, *answers: ScriptedAnswer) -> None:
        """Answer the first attempts at this event with these, and later ones as usual."""
        self.script(event_id, *answers, self._usual)

    def _usual(self, target: Target, delivery: OutgoingDelivery) -> Verdict | Awaitable[Verdict]:
        return self.otherwise if isinstance(self.otherwise, Verdict) else self.otherwise(target, delivery)

    def of(self, event_id: str) -> list[ReceivedAttempt]:
        """Return the attempts at one event so far."""
        return [got for got in self.received if got.delivery.id == event_id]

    def delivered(self) -> list[str]:
        """Return the ids of accepted deliveries in order; an id that was delivered twice occurs twice."""
        return [got.delivery.id for got in self.received if got.verdict.outcome == "delivered"]

    async def until(self, count: int) -> list[ReceivedAttempt]:
        """Wait until `count` attempts have ended."""
        while len(self.received) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.received[:count]

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Record the attempt and answer as scripted."""
        # A copy, because the scheduler may use the object again for the next attempt.
        taken, began = replace(delivery), self._clock.now()
        self.in_flight += 1
        try:
            if self.takes:
                await self._clock.sleep(self.takes)
            answer = self._answer(taken.id)
            verdict = answer if isinstance(answer, Verdict) else answer(target, taken)
            if not isinstance(verdict, Verdict):
                verdict = await verdict
        finally:
            self.in_flight -= 1
        self.received.append(ReceivedAttempt(target, taken, began, self._clock.now(), verdict))
        self._changed.set()
        return verdict

    def _answer(self, event_id: str) -> ScriptedAnswer:
        script = self._scripts.get(event_id)
        if script is None:
            return self.otherwise
        return script.pop(0) if len(script) > 1 else script[0]

    async def close(self) -> None:
        """Note that it was closed; nothing is released."""
        self.closed = True
