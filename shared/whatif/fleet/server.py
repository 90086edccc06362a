"""A server of a fleet on virtual time: the loops that `LeaseKeeper` runs on threads, as tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ...core.errors import TocsinError
from ...core.ids import SeededIds
from ...leases.node.heartbeat_loop import HeartbeatLoop
from ...leases.node.keeper_state import KeeperState
from ...leases.node.notifications import ApplicationNotifier, Callbacks
from ...leases.node.scan_loop import ScanLoop
from ...leases.protocol.membership import ServerReport
from ...leases.rows import fleet_key
from ...storage.ports import Tables
from .machine import LoopRunner, MachineTables, NodePlace

CALLBACK: Final = 0.01
"""Seconds that an application's callback takes."""


class _LoopCallbacks:
    """`CallbackRunner` on the event loop."""

    def put(self, partition: int, call: Callable[[], object], done: Callable[[], object] | None = None) -> None:
        """See `CallbackRunner.put`."""
        loop = asyncio.get_running_loop()
        loop.call_later(CALLBACK, call)
        if done is not None:
            loop.call_later(2 * CALLBACK, done)

    def between(self, call: Callable[[], object]) -> None:
        """See `CallbackRunner.between`."""
        asyncio.get_running_loop().call_later(3 * CALLBACK, call)


class TwinServer:
    """One server process. `play` runs until it has left the fleet, or is cancelled."""

    def __init__(self, tenant: str, place: NodePlace, tables: Tables, report: ServerReport) -> None:
        fleet, name, clock, machine, seed = place
        self.name, self.machine, self._clock = name, machine, clock
        key, ids = fleet_key(tenant, fleet), SeededIds(seed)
        behind = MachineTables(tables, machine)
        self._beats, self._scans = LoopRunner(behind, clock, machine), LoopRunner(behind, clock, machine)
        self._state = KeeperState(clock.monotonic)
        self._state.wake_beats, self._state.wake_scans = self._beats.wake, self._scans.wake
        self._notifier = ApplicationNotifier(_LoopCallbacks(), Callbacks())
        self._heartbeats = HeartbeatLoop(key, name, self._state, self._notifier, clock.monotonic, clock.now, ids, report)
        self._scanner = ScanLoop(key, name, self._state, clock.monotonic, clock.now, ids.chance)
        self.left = False
        """True once it has left, or has failed."""

    async def play(self) -> None:
        """Register, send heartbeats and scan."""
        scanning: asyncio.Task[None] | None = None
        try:
            while await self._beats.run_loop(self._heartbeats.open()) is not None:
                if scanning is None:
                    scanning = asyncio.create_task(self._scans.run_loop(self._scanner.run()))
                if await self._beats.run_loop(self._heartbeats.serve(lambda incarnation: ())):
                    break
        except TocsinError:
            # The server cannot go on, for example because another one uses its name.
            pass
        finally:
            self.left = True
            self._heartbeats.end("stopped")
            self._state.ended = True
            self._state.wake_scans()
            if scanning is not None:
                scanning.cancel()

    def stop(self) -> None:
        """Hand off all partitions, and leave."""
        self._state.stop()

    def serves(self) -> dict[int, int]:
        """Return the partitions that it serves now, with their epochs."""
        epochs, until = self._notifier.view
        return epochs if not self.left and not self.machine.frozen and self._clock.monotonic() < until else {}
