"""The promises of leases, checked in true time at each change of the store and of what a server takes for its own."""

from __future__ import annotations

from collections.abc import Sequence

from shared.leases.node.notifications import OwnershipView
from shared.leases.protocol.fencing import HEAD
from shared.leases.rows import PARTITIONS
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
        """Partition, seconds that nobody owned it, and when that ended: since it was first owned."""
        world.store.listeners.append(self.applied)

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
            if now < end:
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
        """Who owns it now."""
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

    def _changed(self, partition: int, op: Insert | Replace) -> None:
        epoch, owner = int(op.props["epoch"]), str(op.props["owner"])
        before = self.epochs.get(partition, -1)
        if epoch < before or (owner and epoch == before):
            raise Violation(f"the epoch of {partition} goes from {before} to {epoch}")
        now = self.world.time.seconds
        for node, (end, theirs) in self._until.get(partition, {}).items():
            if node.running and now < end:
                raise Violation(f"{partition} becomes {owner or 'nobody'}'s under {epoch} while {node.host.name} owns it under {theirs}")
        if owner:
            incarnation = str(op.props["incarnation"])
            if self._claimed.setdefault((partition, epoch), incarnation) != incarnation:
                raise Violation(f"epoch {epoch} of {partition} belongs to two incarnations")
            self.world.counts["claims"] += 1
        self.epochs[partition], self.owner[partition] = epoch, owner

    def _written(self, pk: str, ops: Sequence[Op]) -> None:
        for op in ops:
            if op.rk == HEAD and isinstance(op, Insert | Replace):
                self._taken[pk] = max(self._taken.get(pk, -1), int(op.props["epoch"]))
            elif op.rk == "w" and not isinstance(op, Merge):
                epoch = int(op.props["epoch"])  # type: ignore[union-attr]
                if epoch < self._taken.get(pk, -1):
                    raise Violation(f"a write to {pk} under {epoch} is accepted, and {self._taken[pk]} is in force")
                self.world.counts["writes"] += 1
