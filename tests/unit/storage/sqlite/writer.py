"""A process that writes rows and messages to a folder until it is killed, and prints each number once it was acknowledged."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from shared.core.clock import SystemClock
from shared.storage.ports import Applied, Insert, Upsert
from shared.storage.sqlite.database import Database
from shared.storage.sqlite.queues import FolderQueues
from shared.storage.sqlite.tables import FolderTables

TABLE, QUEUE = "Rows", "messages"
SIDE = 20
"""Rows of each transaction beside the one that the number names."""


async def write(folder: Path, writers: int) -> None:
    """Write until the end. Each of the writers has a partition of its own."""
    database, clock = Database(folder), SystemClock()
    tables, queues = FolderTables(database, clock), FolderQueues(database, clock)
    await tables.ensure([TABLE])
    await queues.ensure([QUEUE])

    async def writer(name: int) -> None:
        number = 0
        while True:
            rows = [Upsert(f"side-{at}", {"number": number, "text": "x" * 500}) for at in range(SIDE)]
            done = await tables.write(TABLE, f"p{name}", [Insert(f"{number:08}", {"number": number}), *rows])
            assert isinstance(done, Applied)
            await queues.send(QUEUE, f"p{name} {number}")
            print(f"p{name} {number}", flush=True)
            number += 1

    await asyncio.gather(*map(writer, range(writers)))


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
