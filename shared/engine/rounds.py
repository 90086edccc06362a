"""Serves requests for the same key together, one round after the other: one read, all decisions, one write.

Requests that arrive while a round is under way wait for the next one, which begins with a read of its own: none is decided from what was
read before it arrived. A round may ask for a pause before the next one, so that a busy key is not read more often than its partition
serves; what arrives meanwhile shares the round after the pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from ..core.clock import Clock

MOST_KEYS: Final = 10_000
"""Keys whose pauses a process remembers."""


class Served[R](NamedTuple):
    """The outcome of a round: answers or errors to its first requests, in order. The others come first in the next round, which begins
    at once. pause: seconds until the next round otherwise."""

    answers: Sequence[R | Exception]
    pause: float = 0.0


class _Waiting[T, R](NamedTuple):
    request: T
    answer: asyncio.Future[R]


class Rounds[T, R]:
    """Serves requests in rounds, one at a time for each key. One per process; belongs to one event loop."""

    def __init__(self, serve: Callable[[str, Sequence[T]], Awaitable[Served[R]]], clock: Clock, most: int) -> None:
        """serve: serves at least the first of some requests for a key; what it raises is the answer to all of them. most: requests of one
        round."""
        self._serve, self._clock, self._most = serve, clock, most
        self._waiting: dict[str, list[_Waiting[T, R]]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ready: dict[str, float] = {}
        """Monotonic time before which no further round begins."""

    async def ask(self, key: str, request: T) -> R:
        """Return the answer to a request. Raises what the round raises. A caller that is cancelled may have been served."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(_Waiting(request, answer))
        if key not in self._running:
            # A task of its own: when one caller is cancelled, the others still get their answers.
            self._running[key] = asyncio.create_task(self._run(key))
        return await answer

    async def _run(self, key: str) -> None:
        try:
            while waiting := self._still_waiting(key):
                if (wait := self._ready.get(key, 0.0) - self._clock.monotonic()) > 1e-6:
                    await self._clock.sleep(wait)
                else:
                    await self._play(key, waiting[: self._most])
        finally:
            for left in self._waiting.pop(key, ()):
                left.answer.cancel()
            del self._running[key]

    def _still_waiting(self, key: str) -> list[_Waiting[T, R]]:
        """Return the requests without an answer whose callers have not given up."""
        self._waiting[key] = [each for each in self._waiting[key] if not each.answer.done()]
        return self._waiting[key]

    async def _play(self, key: str, some: Sequence[_Waiting[T, R]]) -> None:
        try:
            served = await self._serve(key, [each.request for each in some])
        except Exception as error:
            served = Served([error] * len(some))
        for each, answer in zip(some, served.answers, strict=False):
            if each.answer.done():
                continue
            if isinstance(answer, Exception):
                each.answer.set_exception(answer)
            else:
                each.answer.set_result(answer)
        self._pause(key, served.pause if len(served.answers) >= len(some) else 0.0)

    def _pause(self, key: str, seconds: float) -> None:
        now = self._clock.monotonic()
        if seconds <= 0:
            self._ready.pop(key, None)
            return
        if len(self._ready) >= MOST_KEYS:
            self._ready = {other: at for other, at in self._ready.items() if at > now}
        self._ready[key] = now + seconds
