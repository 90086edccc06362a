"""An owner's permission to start deliveries: its last heartbeat and, for a mirrored shard, its last observation of the fence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...core.clock import Clock
from ...engine.effects import Steps
from ...storage.ports import Props
from ..timings import HEARTBEAT_EVERY, OWNER_MAY_START

if TYPE_CHECKING:
    from ..unmirrored import ShardGuard


class StartPermission:
    """The permission of one owner. A delivery starts only while it holds."""

    def __init__(self, clock: Clock, asked_at: float, guard: ShardGuard) -> None:
        """asked_at: monotonic time at which the request to take the shard was sent."""
        self._clock, self._heartbeat_at, self._guard = clock, asked_at, guard
        self._renewed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self.ended = False
        """Nothing more may be started: another owner has the shard, or this one has ended."""
        self.shard_lost = False
        """Another owner or the other account has taken the shard."""

    def covers_now(self) -> bool:
        """Return True if the last heartbeat, and the last observation of the fence, cover a delivery that starts now."""
        return not self.ended and self._clock.monotonic() - self._heartbeat_at < OWNER_MAY_START and self._guard.may_start

    async def wait_to_start(self) -> bool:
        """Wait until a delivery may start; return False if none may start any more."""
        while not self.ended:
            if self.covers_now():
                return True
            await self._renewed.wait()
        return False

    def heartbeat_due(self) -> bool:
        """Return True if the owner must send a heartbeat although nothing else is to be written."""
        return self._clock.monotonic() - self._heartbeat_at >= HEARTBEAT_EVERY

    def renew(self, sent: float) -> None:
        """Note a transaction that succeeded. sent: monotonic time at which it was sent; validity counts from there."""
        self._heartbeat_at = sent
        self._guard.note_change()
        self._wake_waiting()

    def lose_shard(self) -> None:
        """Note that another owner or the other account has the shard."""
        self.ended = self.shard_lost = True

    def end(self) -> None:
        """Let nothing more start."""
        self.ended = True
        self._renewed.set()

    def _wake_waiting(self) -> None:
        """Let deliveries that wait for permission check it again."""
        self._renewed.set()
        self._renewed = asyncio.Event()

    async def confirm_side(self) -> bool:
        """Observe the fence and bring the copy up to date; return False if the other account serves the shard."""
        return await self._guard.look()

    def start_watch(self) -> None:
        """Observe the fence and keep the copy up to date in a task of its own."""
        self._watch = self._guard.start_watch(self._overtaken, self._wake_waiting)

    def cancel_watch(self) -> None:
        """Ask the task of `start_watch` to end."""
        if self._watch is not None:
            self._watch.cancel()

    async def watch_ended(self) -> None:
        """Wait for the end of the task of `start_watch`."""
        if self._watch is not None:
            await asyncio.gather(self._watch, return_exceptions=True)

    def _overtaken(self) -> None:
        """Note that the other account serves the shard now."""
        self.lose_shard()
        self._wake_waiting()

    def before_end(self, entry: Props) -> Steps[bool]:
        """Return the steps between a done gate and its ledger row."""
        return self._guard.before_end(entry)
