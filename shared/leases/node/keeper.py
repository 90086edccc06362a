"""`LeaseKeeper`: runs in a server process and keeps its share of a fleet's partitions.

Two daemon threads run the heartbeat loop, which only sends heartbeats with claims and releases, and the scan loop, which reads the fleet.
Callbacks run on threads of their own. `owns` reads one immutable value and the clock, without locks and I/O.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from ...core.clock import SystemClock, steady
from ...core.errors import TocsinError
from ...core.ids import Ids, SystemIds
from ...engine.thread_runner import ThreadRunner
from ...storage.blocking import BlockingTables
from ...storage.transition_trace import traced_blocking
from ..loads import MOST
from ..owners import endpoint_fault
from ..protocol.membership import ServerReport
from ..rows import MAX_PARTITIONS, Fleet, fleet_key, server_key
from .callback_threads import CallbackThreads
from .heartbeat_loop import HeartbeatLoop
from .keeper_state import KeeperState
from .notifications import ApplicationNotifier, Callbacks, OwnershipView
from .registration import FleetMissing
from .scan_loop import ScanLoop
from .state_file import NameInUse, StateFile

__all__ = ["FleetMissing", "LeaseKeeper", "NameInUse"]

log = logging.getLogger(__name__)

_FIRST_REQUEST = 2.5
"""Timeout of requests in seconds until the fleet's profile is known."""
_DOMAIN: Final = 256
_HALF: Final = re.compile("[\\ud800-\\udfff]")
_keepers: weakref.WeakSet[LeaseKeeper] = weakref.WeakSet()


def _check(*, domain: str = "", load: float | None = None, capacity: int | None = None) -> None:
    """Raise ValueError for values that storage would refuse, together with the heartbeat that carries them."""
    if len(domain) > _DOMAIN or _HALF.search(domain):
        raise ValueError(f"domain must have at most {_DOMAIN} characters, without lone surrogates")
    if load is not None and not math.isfinite(load):
        raise ValueError(f"load must be a finite number, not {load!r}")
    if capacity is not None and not 0 <= capacity <= MAX_PARTITIONS:
        raise ValueError(f"capacity must be 0 to {MAX_PARTITIONS}, not {capacity!r}")


def _check_partition(partition: int) -> None:
    """Raise ValueError unless it is a possible partition: every server of the fleet reads the value that is written."""
    if type(partition) is not int or not 0 <= partition < MAX_PARTITIONS:
        raise ValueError(f"partition must be an integer from 0 to {MAX_PARTITIONS - 1}, not {partition!r}")


class LeaseKeeper:
    """Keeps one server's leases in one fleet.

    ::

        with LeaseKeeper("search", "s7", tables, on_gained=load, on_lost=unload) as keeper:
            ...
            if keeper.owns(partition):      # right before each step that must not be done twice
                ...

    Callbacks:

    - `on_gained(partition, epoch)`: the server owns the partition from now on. The epoch is the fencing token.
    - `on_lost(partition, reason)`: the server no longer owns the partition. Reasons are `handed-off` (stop within the fleet's drain time;
      the successor starts when the callback returns), `expired`, `fenced`, `stopped`, `failed`, `resized`. After `expired` the same
      partition may return under the same epoch, if no other server owned it meanwhile.
    - `on_danger(seconds)`: heartbeats fail, and the validity ends in so many seconds.
    - `on_exit()`: an operator wants this process to end. Everything is handed over, and the keeper has left the fleet.
    - `on_resized(generation, partitions)`: the partition count has changed. All partitions were lost with the reason `resized` before, and
      later ones have the new numbers.

    folder: local folder for the proof that an earlier process has ended. Without it, a restart after a crash waits T.
    """

    def __init__(
        self,
        fleet: str,
        server: str,
        tables: BlockingTables,
        *,
        tenant: str = "default",
        on_gained: Callable[[int, int], object] = lambda partition, epoch: None,
        on_lost: Callable[[int, str], object] = lambda partition, reason: None,
        on_danger: Callable[[float], object] = lambda seconds: None,
        on_exit: Callable[[], object] = lambda: None,
        on_resized: Callable[[int, int], object] = lambda generation, partitions: None,
        domain: str = "",
        capacity: int = 0,
        endpoint: str = "",
        folder: Path | str | None = None,
        ids: Ids | None = None,
    ) -> None:
        """Prepare a keeper; `start` starts it. Raises ValueError for an invalid name, domain, capacity or endpoint.

        capacity: partitions that this server can own; 0 for no limit of its own. domain: fault domain, up to 256 characters.
        endpoint: the address at which this server takes deliveries of fleet channels, `https://10.2.0.7:8443`; '' for none.
        """
        self._key = fleet_key(tenant, fleet)
        server_key(server)
        _check(domain=domain, capacity=capacity)
        if endpoint and (fault := endpoint_fault(endpoint)):
            raise ValueError(f"endpoint {fault}, not {endpoint!r}")
        self.fleet, self.server = fleet, server
        self._ids, self._wall = ids or SystemIds(), SystemClock().now
        self._folder = Path(folder) if folder is not None else None
        self._file: StateFile | None = None
        tables = traced_blocking(tables, os.environ.get("TOCSIN_TRACE", "").strip() or "off", self._wall)
        self._runner, self._scans = ThreadRunner(tables, steady, _FIRST_REQUEST), ThreadRunner(tables, steady, _FIRST_REQUEST)
        self._keeper_state = KeeperState(steady)
        self._calls = CallbackThreads(f"lease-{server}", lambda: self._keeper_state.about())
        self._keeper_state.wake_beats, self._keeper_state.wake_scans = self._runner.wake, self._scans.wake
        self._scanner: ScanLoop | None = None
        self._ready, self._publishing = threading.Event(), threading.RLock()
        self._notifier = ApplicationNotifier(self._calls, Callbacks(on_gained, on_lost, on_danger, on_exit, self._ready.set, on_resized))
        self._heartbeats = HeartbeatLoop(
            self._key,
            server,
            self._keeper_state,
            self._notifier,
            steady,
            self._wall,
            self._ids,
            ServerReport(domain, capacity, endpoint=endpoint),
        )
        self._problem: TocsinError | None = None
        self._thread: threading.Thread | None = None
        _keepers.add(self)

    # -- for the application

    def owns(self, partition: int) -> bool:
        """Return True if this process may act on the partition now. Takes less than a microsecond: call it before each action."""
        epochs, until = self._notifier.view
        return partition in epochs and steady() < until

    def epoch(self, partition: int) -> int | None:
        """Return the partition's fencing token; None unless it is owned."""
        epochs, until = self._notifier.view
        return epochs.get(partition) if steady() < until else None

    def owned(self) -> dict[int, int]:
        """Return all owned partitions with their epochs."""
        epochs, until = self._notifier.view
        return dict(epochs) if steady() < until else {}

    def find(self, number: int) -> tuple[int, int] | None:
        """Return the partition of a key with this hash and its epoch, or None if it is not owned.

        The result is also right while the partition count changes. The epochs of a key only grow, also over such a change.
        """
        spread, (epochs, until) = self._notifier.spread, self._notifier.view
        if spread is None or spread != self._notifier.spread:
            return None
        partition = number % spread.partitions
        return (partition, epochs[partition]) if partition in epochs and steady() < until else None

    def holds(self, generation: int, partition: int, epoch: int) -> bool:
        """Return True if this process may act on the partition of this generation under this epoch now."""
        return self._notifier.holds(generation, partition, epoch, steady)

    @property
    def partitions(self) -> int:
        """The fleet's partition count; 0 before the first registration."""
        return self._notifier.spread.partitions if self._notifier.spread is not None else 0

    @property
    def generation(self) -> int:
        """The generation of the partition count, which each resize increments; 0 before the first registration."""
        return self._notifier.spread.generation if self._notifier.spread is not None else 0

    @property
    def counts(self) -> Counter[str]:
        """Counters of what the keeper has done, by name (docs/how-to/serve-partitions.md)."""
        return self._keeper_state.counts

    def publish(self, *, load: float | None = None, capacity: int | None = None) -> None:
        """Report load or capacity to the planner with the next heartbeat. load: a measure that all servers share. Raises ValueError."""
        _check(load=load, capacity=capacity)
        with self._publishing:
            now = self._heartbeats.publish
            self._heartbeats.publish = replace(
                now, capacity=now.capacity if capacity is None else capacity, load=now.load if load is None else load
            )

    def publish_load(self, partition: int, number: float) -> None:
        """Report that the load of an owned partition is `number` from now on, in a unit that all servers of the fleet share.

        Call it as often as you measure, at best every few seconds: the keeper smooths the numbers over a minute, and its heartbeats carry
        the result. The planner then balances load instead of shares. A report on a partition that the server does not own has no effect.
        number: 0 to 1e15. Raises ValueError.
        """
        if not 0 <= number <= MOST:
            raise ValueError(f"number must be from 0 to {MOST:g}, not {number!r}")
        _check_partition(partition)
        if partition in self._notifier.view.epochs:
            self._keeper_state.loads.report(partition, float(number))

    def drop(self, partition: int) -> None:
        """Hand off a partition as if it were ordered. Raises ValueError for an invalid partition.

        The partition does not return for a minute, unless no other server can own it. The planner keeps shares equal, so another partition
        may come instead.
        """
        _check_partition(partition)
        self._keeper_state.drop(partition)

    def start(self) -> Self:
        """Start the threads and return at once; `wait` waits for the registration. A keeper that was stopped before ends at once."""
        if self._thread is not None or self._keeper_state.ended:
            raise RuntimeError("a keeper can be started once, and not again in a forked child; create a new one")
        self._calls.start()
        self._thread = threading.Thread(target=self._run, name=f"lease-{self.server}-beats", daemon=True)
        self._thread.start()
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server is registered. Raises `NameInUse`, `FleetMissing`, or the error that ended the keeper."""
        self._ready.wait(timeout)
        if self._problem is not None:
            raise self._problem
        return self._keeper_state.session is not None

    def ended(self, timeout: float | None = None) -> bool:
        """Wait until the keeper has ended: it was stopped, an operator asked it to exit, or it failed (`wait` raises the error).

        timeout: seconds; 0 to return at once.
        """
        if self._thread is not None:
            self._thread.join(timeout)
        return self._keeper_state.ended

    def drain(self) -> None:
        """Hand off all partitions, and claim none until `undrain`."""
        self._keeper_state.drain(True)

    def undrain(self) -> None:
        """End a drain: claim partitions again."""
        self._keeper_state.drain(False)

    def stop(self, timeout: float | None = None, *, keep: bool = False) -> bool:
        """Hand off all partitions, leave the fleet, and end the threads.

        keep: stop serving, but keep the partitions: for a quick restart under the same name. A server of that name that registers within
        V takes them again at once, and no partition moves. Nobody serves them meanwhile; after T the other servers take them.

        Return False if this takes longer than `timeout` seconds; the keeper then continues and ends in bounded time. A call before `start`,
        for example from a signal handler, counts too.
        """
        self._keeper_state.stop(keep=keep)
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    # -- the threads

    def _run(self) -> None:
        try:
            while (fleet := self._runner.run(self._heartbeats.open())) is not None:
                if self._serve(fleet):
                    break
        except TocsinError as problem:
            self._problem = problem
            extra = {"action": "lease_keeper_ended", **self._keeper_state.about()}
            log.error("The lease keeper of %s ended: %s", self.server, problem, extra=extra)
        except Exception as error:
            self._problem = TocsinError(f"the lease keeper failed: {type(error).__name__}")
            log.exception("The lease keeper failed", extra={"action": "lease_keeper_failed", **self._keeper_state.about()})
        finally:
            self._heartbeats.end("stopped" if self._problem is None else "failed")
            self._keeper_state.ended = True
            self._keeper_state.wake_scans()
            self._calls.close()
            if self._file is not None:
                self._file.close()
            self._ready.set()

    def _serve(self, fleet: Fleet) -> bool:
        """Run the loops. Return False if the fleet was changed before this server was registered."""
        self._runner.request = self._scans.request = fleet.profile.request
        if self._folder is not None and self._file is None:
            self._file = StateFile(self._folder, self._key, self.server)
        if self._scanner is None:
            self._scanner = ScanLoop(self._key, self.server, self._keeper_state, steady, self._wall, self._ids.chance)
            threading.Thread(target=self._scans.run, args=(self._scanner.run(),), name=f"lease-{self.server}-scans", daemon=True).start()
        return self._runner.run(self._heartbeats.serve(self._file.begin if self._file is not None else lambda incarnation: ()))

    def _forked(self) -> None:
        """Disable the keeper in a forked child: the parent continues alone. A keeper that is not started works in both."""
        # Another thread of the parent may hold the lock.
        self._publishing = threading.RLock()
        if self._thread is None:
            return
        self._notifier.view = OwnershipView({}, float("-inf"))
        self._keeper_state = KeeperState(steady)
        self._keeper_state.ended, self._thread = True, None
        self._ready = threading.Event()
        self._ready.set()
        if self._file is not None:
            self._file.close()


def _forked() -> None:
    for keeper in list(_keepers):
        keeper._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
