"""`FencedBatch`: writes to Table storage that a former owner cannot make.

`owns` tells a process that it should stop; between its answer and the write that follows, a process can be suspended for an hour. Here the
store judges: each batch names the token row of its epoch, and that row is gone once a successor has taken over (rule 4 of docs/leases.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.clock import steady
from ...core.errors import OutcomeUnknown, Rejected, TocsinError
from ...engine.thread_runner import ThreadRunner
from ...storage.blocking import BlockingTables
from ...storage.ports import Applied, Op, Refused
from ..protocol import fencing


class StaleEpoch(TocsinError):
    """A higher epoch is in force: this process no longer has the partition, and nothing was written."""


class FencedBatch:
    """Writes one data partition (`table`, `pk`) under one epoch of a lease.

    ::

        def on_gained(partition, epoch):
            rows = FencedBatch(tables, "Orders", f"{partition:05d}", epoch)
            rows.take()                                    # from here on the former owner is refused
            ...
            rows.write([Insert("order-17", {"state": "paid"})])

    Call `take` before reading what the former owner left: what it still writes before is read, what comes after is refused. Row keys
    `fence` and `fence-{epoch}` of the partition belong to the tokens; every writer of the partition has to go this way. timeout: of one
    request, seconds.
    """

    def __init__(self, tables: BlockingTables, table: str, pk: str, epoch: int, *, timeout: float = 5.0) -> None:
        self._runner = ThreadRunner(tables, steady, timeout)
        self.table, self.pk, self.epoch = table, pk, epoch

    def take(self) -> None:
        """Put the epoch in force; again is harmless. Raises `StaleEpoch` when a higher one is, `StorageError`; `ValueError` when somebody
        else wrote the token rows."""
        if self._runner.run(fencing.take(self.table, self.pk, self.epoch)) == "stale":
            raise StaleEpoch(f"a higher epoch than {self.epoch} is in force")

    def write(self, ops: Sequence[Op]) -> Applied | Refused:
        """Apply all of `ops` (1 to 99) or none, as `Tables.write` does. Raises `StaleEpoch`, `OutcomeUnknown` and other `StorageError`s."""
        if not 0 < len(ops) <= fencing.MAX_OPS:
            raise Rejected(f"InvalidInput: {len(ops)} operations in a fenced batch; 1 to {fencing.MAX_OPS} can be sent")
        if any(op.rk == fencing.HEAD or op.rk.startswith(f"{fencing.HEAD}-") for op in ops):
            raise Rejected("InvalidInput: the row keys of the tokens are not for batches")
        found = self._runner.run(fencing.batch(self.table, self.pk, self.epoch, ops))
        if found == "stale":
            raise StaleEpoch(f"epoch {self.epoch} is no longer in force")
        if found == "unknown":
            raise OutcomeUnknown("the batch's answer is lost")
        assert isinstance(found, Applied | Refused)
        return found
