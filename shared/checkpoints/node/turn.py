"""A turn, as the code that takes the checkpoint sees it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import re
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ...core.errors import TocsinError
from .rules import HeldTurn, StopReason
from .state_file import MadeCheckpoint

if TYPE_CHECKING:
    from .participant import CheckpointParticipant

_LOCATION: Final = re.compile(r"[^\x00-\x1f\x7f]{1,2048}")

_SAID: Final = {
    "limit": "its time is over",
    "revoked": "an operator took it back",
    "promoted": "this replica has become the primary",
    "forgotten": "the app does not know this replica any more",
    "stopped": "the participant has ended",
    "late": "its checkpoint came too late to be published",
    "ended": "its body has ended",
    "unanswered": "nobody answered its publish; the checkpoint is told with the next reports",
}


class TurnLost(TocsinError):
    """The turn ended before its checkpoint was published. reason: limit, revoked, promoted, forgotten, stopped, late, unanswered or
    ended (docs/checkpoints.md)."""

    def __init__(self, epoch: int, reason: str) -> None:
        super().__init__(f"turn {epoch} is lost: {_SAID[reason]}")
        self.epoch, self.reason = epoch, reason


class Turn:
    """A turn in hand: only this replica of its fleet takes a checkpoint, until `remaining` is 0."""

    def __init__(self, held: HeldTurn, steady: Callable[[], float]) -> None:
        self._held, self._steady = held, steady
        self.lost: StopReason | None = None
        """Why it must end."""
        self.made: MadeCheckpoint | None = None
        """What `result` was told."""
        self.ended = False
        """Whether the body has."""
        self.latest: bool | None = None
        """After its end: whether what was published is the fleet's latest checkpoint; False when a newer one is there."""

    @property
    def epoch(self) -> int:
        """Its number: each turn of a fleet has a higher one."""
        return self._held.epoch

    @property
    def until(self) -> float:
        """When its time is over, in seconds of `tocsin.clock.steady`."""
        return self._held.until

    def remaining(self) -> float:
        """Seconds left."""
        return max(0.0, self._held.until - self._steady())

    def check(self) -> None:
        """Raise `TurnLost` unless the turn still is this replica's. For what runs in threads: it cannot be cancelled, and asks before each
        step."""
        reason = self.lost or ("ended" if self.ended else "limit" if self.remaining() == 0 else None)
        if reason is not None:
            raise TurnLost(self.epoch, reason)

    async def on_thread[**P, T](self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that blocks on a thread; it calls `check` before each step. Whatever cancels the body, this returns only when the
        function has: until then the turn is told as taken."""
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        # No task: who cancels all of those would not end the thread.
        work = asyncio.get_running_loop().run_in_executor(None, call)
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            # What the function raises then is its answer to `check`, as a rule.
            work.exception()
            raise cancelled
        return work.result()

    def result(self, sequence: int, location: str, bytes: int = 0) -> None:
        """What was made, published when the body ends. sequence: up to which the checkpoint applies, 1 or more. location: where it is, up
        to 2,048 characters. bytes: its size. ValueError for what cannot be published."""
        if type(sequence) is not int or not 1 <= sequence < 2**53:
            raise ValueError(f"sequence: {sequence!r} is no whole number from 1")
        if not isinstance(location, str) or not _LOCATION.fullmatch(location):
            raise ValueError(f"location: {location!r} is no text of 1 to 2048 characters without control characters")
        if type(bytes) is not int or not 0 <= bytes < 2**53:
            raise ValueError(f"bytes: {bytes!r} is no whole number from 0")
        self.made = MadeCheckpoint(self.epoch, sequence, location, bytes)


class TurnContext:
    """`async with participant.turn()`: waits for the turn, bounds the body, publishes."""

    def __init__(self, participant: CheckpointParticipant) -> None:
        self._participant = participant
        self._turn: Turn | None = None
        self._cancelling = 0

    async def __aenter__(self) -> Turn:
        task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        self._turn = await self._participant._granted(task)
        return self._turn

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        turn, task = self._turn, asyncio.current_task()
        assert turn is not None and task is not None
        turn.ended = True
        self._participant._out()
        if turn.lost is not None:
            self._participant._over(failed=turn.lost in ("limit", "forgotten"))
            # As asyncio.timeout has it: only when nobody else cancels this task, too.
            ours = task.uncancel() <= self._cancelling
            if ours and (kind is None or issubclass(kind, asyncio.CancelledError)):
                raise TurnLost(turn.epoch, turn.lost) from error
            return False
        if kind is not None or turn.made is None:
            self._participant._over(failed=kind is not None and issubclass(kind, Exception))
            return False
        try:
            await self._participant._publish(turn)
        finally:
            self._participant._over(failed=False)
        return False
