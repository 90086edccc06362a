"""Servers with keepers on real threads, and what their callbacks were called with."""

from __future__ import annotations

import threading
from typing import Any

from shared.leases.node.keeper import LeaseKeeper

from ..conftest import FaultyTables

PARTITIONS = 8
ALL = set(range(PARTITIONS))


class Server:
    """A keeper and the calls of its callbacks."""

    def __init__(self, tables: FaultyTables, name: str, **options: Any) -> None:
        self.callbacks: list[tuple[str, int, object]] = []
        self.may_stop = threading.Event()
        self.may_stop.set()
        self.keeper = LeaseKeeper(
            "fleet",
            name,
            tables,
            on_gained=self.gained,
            on_lost=self.lost,
            on_danger=lambda left: self.callbacks.append(("danger", -1, left)),
            **options,
        )

    def gained(self, partition: int, epoch: int) -> None:
        self.callbacks.append(("gained", partition, epoch))

    def lost(self, partition: int, reason: str) -> None:
        self.may_stop.wait(60)
        self.callbacks.append(("lost", partition, reason))

    def reasons(self) -> set[object]:
        return {reason for what, _, reason in list(self.callbacks) if what == "lost"}

    def has(self) -> set[int]:
        return set(self.keeper.owned())


class Servers:
    def __init__(self, tables: FaultyTables) -> None:
        self.tables = tables
        self.all: list[Server] = []

    def start(self, name: str, **options: Any) -> Server:
        server = Server(self.tables, name, **options)
        self.all.append(server)
        server.keeper.start()
        return server

    def stop(self) -> None:
        """End all servers. Each of them must end within a minute."""
        self.tables.down = False
        for server in self.all:
            server.may_stop.set()
            assert server.keeper.stop(60)
