"""A server of a fleet that takes deliveries: `python -m bench.tools.owner_receiver FLEET SERVER TENANT`, the rest in the environment.

TABLES is the connection string of the leases, CHANNEL_SECRET the secret of the fleet channel. Requests for `OWNED` are checked as a server
of the fleet checks them; all others are answered with 204. Prints `port N`, then `ready`, and for each delivery that it takes
`arrived ID AT DUE` (milliseconds since 1970) before it answers, so that nothing is missing when it is killed. Serves until SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import datetime
from typing import Final

from devhost.loops import chosen_loop, loop_factory
from shared.leases import HttpTables, LeaseKeeper, OwnerGuard, RefusedDelivery

from .receiver import NO_CONTENT, Arrivals, Connection, headers_of

OWNED: Final = "/owned"
"""The path of the fleet channel."""


class OwnerConnection(Connection):
    """Serves one client, as the owner of partitions."""

    def __init__(self, guard: OwnerGuard) -> None:
        super().__init__(Arrivals())
        self._guard = guard

    def take(self, head: bytes, body: bytes) -> bytes:
        """See `Connection`."""
        at, headers = time.time() * 1000, headers_of(head)
        if head.split(b" ", 2)[1] == OWNED.encode():
            found = self._guard.check(headers, body)
            if isinstance(found, RefusedDelivery):
                return b"HTTP/1.1 %d Refused\r\nContent-Length: 0\r\n\r\n" % found.status
        due = datetime.fromisoformat(headers["ce-tocsindue"]).timestamp() * 1000
        print("arrived", headers["ce-id"], at, due, flush=True)
        return NO_CONTENT


async def main(fleet: str, server: str, tenant: str) -> None:
    """Serve until SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    guards: list[OwnerGuard] = []
    listening = await loop.create_server(lambda: OwnerConnection(guards[0]), "127.0.0.1", 0, backlog=1024)
    port = listening.sockets[0].getsockname()[1]
    print("port", port, flush=True)
    tables = HttpTables.from_connection_string(os.environ["TABLES"])
    keeper = LeaseKeeper(fleet, server, tables, tenant=tenant, endpoint=f"http://127.0.0.1:{port}")
    guards.append(OwnerGuard(keeper, [os.environ["CHANNEL_SECRET"]]))
    async with keeper:
        await asyncio.to_thread(keeper.wait)
        print("ready", flush=True)
        await ended.wait()
    listening.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]), loop_factory=loop_factory(chosen_loop(os.environ)))
