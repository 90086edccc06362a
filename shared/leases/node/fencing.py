"""`FencedBatch`: writes to Table storage that a former owner cannot make.

`owns` tells a process that it must stop, but the process can be suspended for an hour between the check and the write that follows. Here
storage decides: each batch names the token row of its epoch, and a successor deletes that row. docs/how-to/fence-your-writes.md explains
its use.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.clock import steady
from ...core.errors import OutcomeUnknown, Rejected, TocsinError
from ...engine.thread_runner import ThreadRunner
from ...storage.blocking import BlockingTables
from ...storage.ports import Applied, Op, WriteRefused
from ..protocol import fencing


class StaleEpoch(TocsinError):
    """A higher epoch is in force: this process no longer owns the partition, and nothing was written."""


class FencedBatch:
    """Writes one data partition (`table`, `pk`) under one epoch of a lease.

    ::

        def on_gained(partition, epoch):
            rows = FencedBatch(tables, "Orders", f"{partition:05d}", epoch)
            rows.create_table()
            rows.take()                                    # from here on the former owner is refused
            ...
            rows.write([Insert("order-17", {"state": "paid"})])

    Call `take` before you read the former owner's data. The former owner's writes before `take` are then visible, and later ones are
    refused. The row keys `fence` and `fence-{epoch}` are reserved for the tokens, and every writer of the partition must use
    `FencedBatch`. timeout: of one request, seconds.
    """

    def __init__(self, tables: BlockingTables, table: str, pk: str, epoch: int, *, timeout: float = 5.0) -> None:
        self._runner = ThreadRunner(tables, steady, timeout)
        self._tables, self._timeout = tables, timeout
        self.table, self.pk, self.epoch = table, pk, epoch

    def create_table(self) -> None:
        """Create the table if it is missing. One call per process is enough. Raises `Unavailable` or `Rejected`."""
        self._tables.ensure(self.table, timeout=self._timeout)

    def take(self) -> None:
        """Put the epoch in force; can be repeated.

        Raises `StaleEpoch` if a higher epoch is in force, `StorageError`, and `ValueError` if another program wrote the token rows.
        """
        if self._runner.run(fencing.take(self.table, self.pk, self.epoch)) == "stale":
            raise StaleEpoch(f"a higher epoch than {self.epoch} is in force")

    def write(self, ops: Sequence[Op]) -> Applied | WriteRefused:
        """Apply all of `ops` (1 to 99) or none, like `Tables.write`. Raises `StaleEpoch`, `OutcomeUnknown` and other `StorageError`s."""
        if not 0 < len(ops) <= fencing.MAX_OPS:
            raise Rejected(f"InvalidInput: {len(ops)} operations in a fenced batch; send 1 to {fencing.MAX_OPS}")
        if any(op.rk == fencing.HEAD or op.rk.startswith(f"{fencing.HEAD}-") for op in ops):
            raise Rejected(f"InvalidInput: row keys `{fencing.HEAD}` and `{fencing.HEAD}-...` are reserved for the tokens")
        found = self._runner.run(fencing.batch(self.table, self.pk, self.epoch, ops))
        if found == "stale":
            raise StaleEpoch(f"epoch {self.epoch} is no longer in force")
        if found == "unknown":
            raise OutcomeUnknown("the answer to the batch was lost; read the rows to see whether it was applied")
        assert isinstance(found, Applied | WriteRefused)
        return found
