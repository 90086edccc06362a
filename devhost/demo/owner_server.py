"""One server of `devhost.demo.owners`: it counts events by key in its partitions, in rows that only the partition's owner can write.

`python -m devhost.demo.owner_server NAME PORT`, the rest in the environment. An event counts once, however often it arrives: its id and the
new count are stored in one transaction under the epoch of the lease.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from shared.core.errors import StorageError
from shared.leases import (
    FencedBatch,
    HttpTables,
    Insert,
    LeaseKeeper,
    OwnedDelivery,
    OwnerGuard,
    RefusedDelivery,
    Replace,
    StaleEpoch,
)
from shared.storage.ports import Applied, Op

FLEET: Final = "counters"
TABLE: Final = "Counters"
STALE: Final = 421
TIMEOUT: Final = 2.0


class Counters:
    """The counters of the partitions that this server owns."""

    def __init__(self, tables: HttpTables) -> None:
        self._tables = tables
        self._batches: dict[int, FencedBatch] = {}
        self._lock = threading.Lock()

    def add(self, found: OwnedDelivery) -> int:
        """Count an event once; return the status of the answer."""
        batch = self._batches.get(found.partition)
        with self._lock:
            try:
                if batch is None or batch.epoch != found.epoch:
                    batch = FencedBatch(self._tables, TABLE, f"p{found.partition}", found.epoch, timeout=TIMEOUT)
                    batch.take()
                    self._batches[found.partition] = batch
                return self._store(batch, found)
            except StaleEpoch:
                return STALE
            except StorageError:
                return 503

    def _store(self, batch: FencedBatch, found: OwnedDelivery) -> int:
        if self._tables.get(TABLE, batch.pk, f"id-{found.id}", timeout=TIMEOUT) is not None:
            return 204
        name = f"key-{found.payload['key']}"
        row = self._tables.get(TABLE, batch.pk, name, timeout=TIMEOUT)
        count = int(row.props["count"]) + 1 if row is not None else 1
        counted: Op = Replace(name, {"count": count}, row.etag) if row is not None else Insert(name, {"count": count})
        stored = batch.write([Insert(f"id-{found.id}", {"epoch": found.epoch}), counted])
        # A refusal means that an earlier request of this event was stored, and its answer was lost.
        return 204 if isinstance(stored, Applied) else 503


def serve(name: str, port: int) -> None:
    """Serve until SIGTERM."""
    tables = HttpTables.from_connection_string(os.environ["TABLES"])
    counters = Counters(tables)
    keeper = LeaseKeeper(FLEET, name, tables, tenant="demo", endpoint=f"http://127.0.0.1:{port}")
    guard = OwnerGuard(keeper, [os.environ["CHANNEL_SECRET"]])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found = guard.check(dict(self.headers.items()), body)
            status = found.status if isinstance(found, RefusedDelivery) else counters.add(found)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: keeper.stop(timeout=0))
    with keeper:
        keeper.wait()
        print("ready", flush=True)
        keeper.ended()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
