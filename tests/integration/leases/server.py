"""One server of a fleet, as a process: `server.py NAME FOLDER`, the rest in the environment. It writes what happens to its output.

It writes to each partition that it was given, without ever asking whether it still owns it: what a process does that was suspended between
asking and writing. Only the store can refuse it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

from shared.core.errors import StorageError
from shared.leases.node.fencing import FencedBatch, StaleEpoch
from shared.leases.node.keeper import LeaseKeeper, NameInUse
from shared.storage.blocking import HttpTables
from shared.storage.ports import Insert

_lock = threading.Lock()


def tell(*words: object) -> None:
    with _lock:
        print(*words, flush=True)


class Data:
    """The partitions this process writes to."""

    def __init__(self, tables: HttpTables, table: str) -> None:
        self.tables, self.table = tables, table
        self.batches: dict[int, FencedBatch] = {}

    def gained(self, partition: int, epoch: int) -> None:
        batch = FencedBatch(self.tables, self.table, f"d{partition}", epoch, timeout=1)
        while True:
            try:
                batch.take()
                break
            except StaleEpoch:
                tell("refused", partition, epoch)
                return
            except StorageError as error:
                tell("failed", partition, type(error).__name__)
                time.sleep(0.05)
        self.batches[partition] = batch
        tell("gained", partition, epoch)

    def lost(self, partition: int, reason: str) -> None:
        if reason == "handed-off":
            # A planned hand-off stops the writing; what expired or was fenced goes on, to be refused.
            self.batches.pop(partition, None)
        tell("lost", partition, reason)

    def write_on(self, server: str) -> None:
        for number in range(10**9):
            for partition, batch in list(self.batches.items()):
                key = f"w-{server}-{os.getpid()}-{number:09d}"
                try:
                    batch.write([Insert(key, {"epoch": batch.epoch, "server": server})])
                except StaleEpoch:
                    if self.batches.get(partition) is batch:
                        del self.batches[partition]
                    tell("refused", partition, batch.epoch)
                except StorageError as error:
                    tell("failed", partition, type(error).__name__)
            time.sleep(0.05)


def main() -> None:
    server, folder = sys.argv[1:]
    if log := os.environ.get("SERVER_LOG"):
        logging.basicConfig(filename=log, level=logging.INFO)
    tables = HttpTables.from_connection_string(os.environ["TABLES"])
    data = Data(tables, os.environ["DATA_TABLE"])
    with LeaseKeeper("fleet", server, tables, folder=folder, on_gained=data.gained, on_lost=data.lost) as keeper:
        try:
            keeper.wait()
        except NameInUse:
            tell("in-use")
            return
        tell("in")
        threading.Thread(target=data.write_on, args=(server,), daemon=True).start()
        sys.stdin.read()
    tell("left")


if __name__ == "__main__":
    main()
