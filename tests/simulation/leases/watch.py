"""The promises of leases, checked in true time at each change of the store and of what a server takes for its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shared.leases.node.notifications import OwnershipView
from shared.leases.protocol.fencing import HEAD
from shared.leases.rows import PARTITIONS, Partition
from shared.storage.names import FLEETS
from shared.storage.ports import Insert, Merge, Op, Replace
from tests.simulation.checks.truth import Violation

from .node import Node
from .world import DATA, World


class Watch:
    """Give `seen` to the nodes. Raises `Violation` where a promise breaks.

    In all partitions: at most one server owns at a time; who owns has the epoch that the store says; epochs grow with each claim; an epoch
    belongs to one incarnation; no write under an epoch is accepted once a higher one was put in force.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.epochs: dict[int, int] = {}
        self.owner: dict[int, str] = {}
        self._claimed: dict[tuple[int, int], str] = {}
        self._taken: dict[str, int] = {}
        self._views: dict[Node, OwnershipView] = {}
        self._until: dict[int, dict[Node, tuple[float, int]]] = {}
        self._free: dict[int, float] = {}
        self.gaps: list[tuple[int, float, float]] = []
        """For each gap since a partition was first owned: the partition, the seconds without an owner, and the end of the gap."""
        self._lenient = 0.0
        world.store.listeners.append(self.applied)

    def rolled_back(self, rows: Iterable[Partition], lenient: float) -> None:
        """Storage has lost writes and has these rows again. For `lenient` seconds servers may act on what was lost."""
        now = self.world.time.seconds
        for row in rows:
            self.epochs[row.number], self.owner[row.number] = row.epoch, row.owner
        self._claimed = {(number, epoch): who for (number, epoch), who in self._claimed.items() if epoch <= self.epochs[number]}
        self._lenient = now + lenient
        self.world.at(self._lenient, self._look_again, self._lenient)

    def _look_again(self, lenient: float) -> None:
        """Check that servers act on the rows that storage went back to."""
        if lenient < self._lenient:
            return
        now = self.world.time.seconds
        for partition, owners in self._until.items():
            acting = [(node, epoch) for node, (end, epoch) in owners.items() if node.running and now < end]
            for node, epoch in acting:
                if self.epochs.get(partition) != epoch:
                    raise Violation(f"{node.host.name} owns {partition} under {epoch}, and the store says {self.epochs.get(partition)}")
            if len(acting) > 1:
                raise Violation(f"two owners of {partition}: {[node.host.name for node, _ in acting]}")

    # -- what servers take for their own

    def seen(self, node: Node) -> None:
        """The node's view may have changed."""
        view = node.view
        if node.running and self._views.get(node) is view:
            return
        before = self._views.get(node)
        self._views[node] = view
        now = self.world.time.seconds
        epochs, until = view if node.running else ({}, 0.0)
        end = node.host.true(until) if epochs else 0.0
        for partition in before.epochs if before is not None else ():
            if partition not in epochs and (gone := self._until[partition].pop(node, None)) is not None:
                self._free[partition] = max(self._free.get(partition, 0.0), min(now, gone[0]))
        for partition, epoch in epochs.items():
            owners = self._until.setdefault(partition, {})
            if now < end and not any(now < until for until, _ in owners.values()):
                free = max([self._free.get(partition, -1.0), *(until for until, _ in owners.values())])
                if free >= 0:
                    self.gaps.append((partition, now - free, now))
            if self._lenient <= now < end:
                for other, (their_end, theirs) in owners.items():
                    if other is not node and now < their_end:
                        raise Violation(
                            f"two owners of {partition}: {other.host.name} under {theirs} until {their_end:.4f}, "
                            f"{node.host.name} under {epoch} until {end:.4f}"
                        )
                stored = self.epochs.get(partition)
                if stored != epoch:
                    raise Violation(f"{node.host.name} owns {partition} under {epoch}, and the store says {stored}")
            owners[node] = (end, epoch)

    def owners(self, partition: int) -> list[Node]:
        """Return the present owner."""
        now = self.world.time.seconds
        return [node for node, (end, _) in self._until.get(partition, {}).items() if node.running and now < end]

    # -- what the store accepts

    def applied(self, table: str, pk: str, ops: Sequence[Op]) -> None:
        """The store has applied this."""
        if table == DATA:
            self._written(pk, ops)
        elif table == FLEETS:
            for op in ops:
                if op.rk.startswith(PARTITIONS[0]) and isinstance(op, Insert | Replace):
                    self._changed(int(op.rk[2:]), op)
                elif op.rk.startswith(PARTITIONS[0]) and isinstance(op, Merge):
                    self._raised(int(op.rk[2:]), int(op.props["epoch"]))

    def _changed(self, partition: int, op: Insert | Replace) -> None:
        epoch, owner = int(op.props["epoch"]), str(op.props["owner"])
        before = self.epochs.get(partition, -1)
        if epoch < before or (owner and epoch == before):
            raise Violation(f"the epoch of {partition} goes from {before} to {epoch}")
        now = self.world.time.seconds
        for node, (end, theirs) in self._until.get(partition, {}).items():
            if node.running and self._lenient <= now < end:
                raise Violation(f"{partition} becomes {owner or 'nobody'}'s under {epoch} while {node.host.name} owns it under {theirs}")
        if owner:
            incarnation = str(op.props["incarnation"])
            if self._claimed.setdefault((partition, epoch), incarnation) != incarnation:
                raise Violation(f"epoch {epoch} of {partition} belongs to two incarnations")
            self.world.counts["claims"] += 1
        self.epochs[partition], self.owner[partition] = epoch, owner

    def _raised(self, partition: int, epoch: int) -> None:
        """Only the epoch was raised: no server may own the partition."""
        now = self.world.time.seconds
        owners = self._until.get(partition, {})
        acting = [node.host.name for node, (end, _) in owners.items() if node.running and self._lenient <= now < end]
        if acting or epoch < self.epochs.get(partition, -1):
            raise Violation(f"the epoch of {partition} is set to {epoch} from {self.epochs.get(partition)}, and {acting} own it")
        self.epochs[partition] = epoch

    def _written(self, pk: str, ops: Sequence[Op]) -> None:
        for op in ops:
            if op.rk == HEAD and isinstance(op, Insert | Replace):
                self._taken[pk] = max(self._taken.get(pk, -1), int(op.props["epoch"]))
            elif op.rk == "w" and not isinstance(op, Merge):
                epoch = int(op.props["epoch"])  # type: ignore[union-attr]
                if epoch < self._taken.get(pk, -1):
                    raise Violation(f"a write to {pk} under {epoch} is accepted, and {self._taken[pk]} is in force")
                self.world.counts["writes"] += 1
