"""One server process in a `World`: the loops that `LeaseKeeper` runs on threads, as tasks, and an application on top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shared.core.errors import StorageError
from shared.core.ids import SeededIds
from shared.engine.effects import Wait
from shared.leases.node.heartbeat_loop import HeartbeatLoop
from shared.leases.node.keeper_state import KeeperState
from shared.leases.node.notifications import ApplicationNotifier, Callbacks, OwnershipView
from shared.leases.node.scan_loop import ScanLoop
from shared.leases.node.state_file import NameInUse
from shared.leases.profiles import Profile
from shared.leases.protocol import fencing
from shared.leases.protocol.membership import ServerReport
from shared.storage.ports import Upsert
from tests.simulation.checks.truth import Violation

from .world import DATA, Host, Task, World

_THREADS = 4


@dataclass(slots=True)
class Disk:
    """The remains of the processes of one name on one machine: the state file. locked: by a process that has not ended."""

    incarnations: list[str] = field(default_factory=list)
    locked: Node | None = None


@dataclass(slots=True)
class Application:
    """The behaviour of a node's application. calls: seconds that a callback takes, by chance. writes: under each epoch, every `gap` seconds
    or so. zombie: it goes on writing after the callback that the partition is lost."""

    calls: Callable[[], float] = lambda: 0.01
    writes: int = 0
    gap: float = 0.3
    zombie: bool = False


class _Calls:
    """`calls.Calls` on virtual time."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._free = [0.0] * _THREADS

    def put(self, partition: int, call: Callable[[], object], done: Callable[[], object] | None = None) -> None:
        """See `notifier.Runs`."""
        world, thread = self._node.world, partition % _THREADS
        begins = max(world.time.seconds, self._free[thread]) + 1e-4
        self._free[thread] = begins + self._node.application.calls()
        world.at(begins, self._run, call)
        if done is not None:
            world.at(self._free[thread], self._run, done)

    def between(self, call: Callable[[], object]) -> None:
        """See `notifier.Runs`."""
        begins = max(self._node.world.time.seconds, *self._free) + 1e-4
        self._free = [begins + self._node.application.calls()] * _THREADS
        self._node.world.at(begins, self._run, call)

    def _run(self, call: Callable[[], object]) -> None:
        host = self._node.host
        if host.alive and not host.frozen(self._run, call):
            call()


class Node:
    """A process from its start to its end. `view` is what `owns` reads; `seen` is called each time it may have changed."""

    def __init__(
        self,
        world: World,
        key: str,
        server: str,
        host: Host,
        profile: Profile,
        seen: Callable[[Node], None] = lambda node: None,
        *,
        disk: Disk | None = None,
        application: Application | None = None,
        capacity: int = 0,
        endpoint: str = "",
    ) -> None:
        self.world, self.key, self.server, self.host, self.profile = world, key, server, host, profile
        self.disk, self.application = disk, application or Application()
        self._seen = seen
        ids = SeededIds(f"{host.name} {world.random.random()}")
        self.keeper_state = KeeperState(host.steady)
        callbacks = Callbacks(self._gained, self._lost, lambda left: None, self._exit)
        self.notifier = ApplicationNotifier(_Calls(self), callbacks)
        self.beating = HeartbeatLoop(
            key,
            server,
            self.keeper_state,
            self.notifier,
            host.steady,
            host.wall,
            ids,
            ServerReport(capacity=capacity, endpoint=endpoint),
        )
        self.scanner = ScanLoop(key, server, self.keeper_state, host.steady, host.wall, ids.chance)
        self.ended: Any = None
        """None while it runs; then True, or what it failed with."""
        self.exited = False
        self.serving: dict[int, int] = {}
        self._beats = self._task(self._keep(), self._done)
        self._scans = self._task(self.scanner.run(), lambda result: None)
        self.keeper_state.wake_beats, self.keeper_state.wake_scans = self._beats.wake, self._scans.wake
        self._looks = False

    @property
    def view(self) -> OwnershipView:
        """The partitions that it believes to own, until when on its own clock."""
        return self.notifier.view

    @property
    def running(self) -> bool:
        """Return whether it is a process that can do anything."""
        return self.host.alive and self.ended is None

    def start(self) -> None:
        """Begin now."""
        self.world.note(self.host.name, "starts")
        self._beats.start(self.world.time.seconds)

    def crash(self) -> None:
        """End without deregistering."""
        self.world.note(self.host.name, "crashes")
        self.host.alive = False
        self._unlock()
        self._seen(self)

    def owns(self, partition: int) -> bool:
        """Like `LeaseKeeper.owns`."""
        epochs, until = self.view
        return self.running and partition in epochs and self.host.steady() < until

    def _task(self, steps: Any, done: Callable[[Any], None]) -> Task:
        return Task(self.host, steps, self.profile.request, lambda: self._seen(self), done)

    def _keep(self) -> Any:
        """Run the heartbeat thread's part of `LeaseKeeper`."""
        while (yield from self.beating.open()) is not None:
            proof = self._begin
            if self.disk is None:
                proof = lambda incarnation: ()  # noqa: E731
            elif self.disk.locked not in (None, self):
                raise NameInUse(self.server)
            else:
                self.disk.locked = self
            if not self._looks:
                self._looks = True
                self._scans.start(self.world.time.seconds)
            if (yield from self.beating.serve(proof)):
                return

    def _begin(self, incarnation: str) -> tuple[str, ...]:
        assert self.disk is not None
        gone = tuple(self.disk.incarnations)
        self.disk.incarnations.insert(0, incarnation)
        return gone

    def _done(self, result: Any) -> None:
        failed = isinstance(result, Exception)
        if failed and not isinstance(result, NameInUse):
            raise Violation(f"{self.host.name} failed: {type(result).__name__}: {result}") from result
        self.beating.end("failed" if failed else "stopped")
        self.keeper_state.ended = True
        self.keeper_state.wake_scans()
        self.ended = result if failed else True
        self._unlock()
        self.world.note(self.host.name, "ends", result)
        self._seen(self)

    def _unlock(self) -> None:
        if self.disk is not None and self.disk.locked is self:
            self.disk.locked = None

    # -- the application

    def _gained(self, partition: int, epoch: int) -> None:
        self.serving[partition] = epoch
        if self.application.writes:
            Task(self.host, self._write(partition, epoch), self.profile.request, lambda: None, self._wrote).start(self.world.time.seconds)

    def _lost(self, partition: int, reason: str) -> None:
        self.world.note(self.host.name, f"lost {partition}", reason)
        self.world.counts[f"lost: {reason}"] += 1
        self.serving.pop(partition, None)

    def _exit(self) -> None:
        self.exited = True

    def _write(self, partition: int, epoch: int) -> Any:
        """Writes without ever asking `owns`: only the store can refuse it."""
        pk = f"d{partition}"
        if (yield from fencing.take(DATA, pk, epoch)) == "stale":
            return
        for _ in range(self.application.writes):
            if not self.application.zombie and self.serving.get(partition) != epoch:
                return
            if (yield from fencing.batch(DATA, pk, epoch, [Upsert("w", {"epoch": epoch})])) == "stale":
                self.world.counts["writes refused"] += 1
                return
            yield Wait(self.host.steady() + self.application.gap * (0.5 + self.world.random.random()))

    def _wrote(self, result: Any) -> None:
        if isinstance(result, Exception) and not isinstance(result, StorageError):
            raise Violation(f"{self.host.name}: {result}") from result
