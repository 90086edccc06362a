"""Carries out the effects of protocol generators on the app's event loop. `thread_runner` does so on a thread."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

from ..core import backoff
from ..core.clock import Clock
from ..core.errors import OutcomeUnknown, Rejected, StorageError, Unavailable
from ..storage.ports import Applied, Queues, Row, RowQuery, Tables
from .effects import LOST, Effect, Get, Load, LoadFirst, Receiving, Send, Sending, Steps, Write, Written, first_rows, load_rows
from .validity import ReceivedAt, SentAt

log = logging.getLogger(__name__)

FIRST_WAIT = 0.05
"""Half of the longest wait in seconds after the first lost answer; it doubles with each."""
LONGEST_ASKED_WAIT = 5.0
"""Seconds of a `Retry-After` that are waited for at most: an owner's heartbeat must go on."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 4.0
"""Longest pause in seconds before steps are repeated for the first time; it doubles up to the second figure."""


class AsyncRunner:
    """Carries out effects on real storage. One per process; holds no state between calls.

    queues: takes the messages of `Send`; without it a generator that sends raises TypeError.
    max_lost: lost answers to writes in a row after which `Unavailable` is raised. The runner waits after each, before the fence, the read
    and the decision that follow: at random up to a limit that doubles, and not before the service's `Retry-After`. None: each lost answer
    is given to the generator at once, for protocols whose answers have deadlines.
    chance: returns a random number in [0, 1).
    admits_doubt: once a write was applied, or its answer was lost, `Unavailable` is raised as `OutcomeUnknown`.
    """

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        *,
        queues: Queues | None = None,
        max_lost: int | None = None,
        admits_doubt: bool = False,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.tables, self.clock, self._queues = tables, clock, queues
        self._max_lost, self._admits_doubt, self.chance = max_lost, admits_doubt, chance

    async def run[T](self, steps: Steps[T]) -> T:
        """Run `steps` to the end and return its result. Raises `StorageError`; without `admits_doubt` the request that failed changed
        nothing, and what was written before stays."""
        lost, doubt = 0, False
        try:
            effect = next(steps)
            while True:
                try:
                    answer: Any
                    if isinstance(effect, Write):
                        try:
                            answer = await self.tables.perform(effect)
                            lost, doubt = 0, doubt or isinstance(answer, Applied)
                        except OutcomeUnknown as unknown:
                            lost, doubt = lost + 1, True
                            answer = await self._lost(lost, unknown)
                    elif isinstance(effect, Get):
                        answer = await self.tables.perform(effect)
                    else:
                        answer = await self._perform(effect)
                except StorageError as error:
                    # Something is changed, or may be: the caller must not report that nothing was.
                    unsure = self._admits_doubt and doubt and isinstance(error, Unavailable)
                    effect = steps.throw(OutcomeUnknown(f"half-way: {error}") if unsure else error)
                else:
                    effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def insist[T](self, make: Callable[[], Steps[T]], still: Callable[[], bool]) -> T:
        """Run the steps that `make` returns. While storage fails and `still()` holds, run them again after a pause, made anew.

        For steps that may be repeated after an error half-way. Raises `StorageError`: `OutcomeUnknown` if any of the runs did, since what
        that run has written may be stored, although a later run was refused.
        """
        repeated = 0
        doubt: OutcomeUnknown | None = None
        while True:
            try:
                return await self.run(make())
            except StorageError as error:
                doubt = error if isinstance(error, OutcomeUnknown) else doubt
                if isinstance(error, Rejected) or not still():
                    if doubt is None or doubt is error:
                        raise
                    raise OutcomeUnknown(f"{doubt}; then {error}") from error
            await self.clock.sleep(self.chance() * backoff.exponential(FIRST_PAUSE, repeated, LONGEST_PAUSE))
            repeated += 1

    async def _lost(self, lost: int, unknown: OutcomeUnknown) -> Written:
        if self._max_lost is not None:
            if lost >= self._max_lost:
                raise Unavailable(f"answers of table storage keep getting lost: {unknown}") from unknown
            # Full jitter: throttled writers that all lost an answer must not fence, read and write again in step.
            wait = self.chance() * backoff.unbounded(FIRST_WAIT, lost)
            if unknown.retry_after is not None:
                wait += min(unknown.retry_after, LONGEST_ASKED_WAIT)
            await self.clock.sleep(wait)
        return LOST

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Load():
                return await load_rows(self.tables, RowQuery(effect.table, effect.pk, effect.first, effect.end))
            case LoadFirst():
                return await self._load_first(effect)
            case Send() if self._queues is not None:
                return await self._send(self._queues, effect)
            case Sending():
                return SentAt(self.clock.monotonic())
            case Receiving():
                return ReceivedAt(self.clock.monotonic())
            case _:
                raise TypeError(f"not an effect that this runner carries out: {effect!r}")

    async def _load_first(self, effect: LoadFirst) -> list[Row]:
        rows, _ = await first_rows(self.tables, RowQuery(effect.table, effect.pk, first=effect.first, end=effect.end), effect.most)
        return rows

    async def _send(self, queues: Queues, effect: Send) -> bool:
        try:
            await queues.send(effect.queue, effect.text, visible_in=max(0.0, (effect.at - self.clock.now()) / 1000))
        except StorageError as error:
            # A message only speeds things up: the index row is still there, and the sweep finds it.
            log.warning("A shard's message could not be sent; the sweep sends it: %s", error, extra={"action": "message_unsent"})
            return False
        return True
