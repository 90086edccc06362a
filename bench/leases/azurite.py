"""Leases for real: keepers on threads, over HTTP, on an Azurite of their own. Two cores carry client and storage both."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from shared.core.clock import steady
from shared.core.errors import Unavailable
from shared.engine.thread_runner import ThreadRunner
from shared.leases.node.keeper import LeaseKeeper
from shared.leases.profiles import PROFILES
from shared.leases.protocol import takeover
from shared.leases.rows import Fleet, fleet_key
from shared.storage.azure.tables import AzureTables
from shared.storage.blocking import HttpTables
from shared.storage.names import FLEETS
from shared.storage.ports import Applied, Op, Page, Row, RowQuery, WriteRefused

from ..report import Figure
from ..tools.stage import Run, emulator
from .virtual_time import PARTITIONS, SERVERS, at

PROFILE = PROFILES["default"]


class Line:
    """The tables as one server sees them. cut: no request goes through any more, as if its machine had ended."""

    def __init__(self, text: str, made: Counter[str]) -> None:
        self._tables, self._made, self.cut = HttpTables.from_connection_string(text), made, False

    def _through(self, kind: str) -> None:
        if self.cut:
            raise Unavailable("the machine is gone")
        self._made[kind] += 1

    def get(self, table: str, pk: str, rk: str, *, timeout: float) -> Row | None:
        """See `BlockingTables`."""
        self._through("get")
        found = self._tables.get(table, pk, rk, timeout=timeout)
        self._made["rows_read"] += found is not None
        return found

    def query(self, query: RowQuery, *, timeout: float) -> Page:
        """See `BlockingTables`."""
        self._through("query")
        page = self._tables.query(query, timeout=timeout)
        self._made["rows_read"] += len(page.rows)
        return page

    def write(self, table: str, pk: str, ops: Sequence[Op], *, timeout: float) -> Applied | WriteRefused:
        """See `BlockingTables`."""
        self._through("write")
        return self._tables.write(table, pk, ops, timeout=timeout)

    def close(self) -> None:
        """See `BlockingTables`."""
        self._tables.close()


class _Fleet:
    def __init__(self, text: str, servers: int) -> None:
        self._text, self.made = text, Counter[str]()
        self.servers = servers
        self.since: dict[int, float] = {}
        """The steady time in seconds at which each partition was lost, until it is gained."""
        self.gaps: list[float] = []
        self.keepers: dict[str, tuple[LeaseKeeper, Line]] = {}
        self._lock = threading.Lock()

    def start(self, name: str) -> None:
        line = Line(self._text, self.made)
        keeper = LeaseKeeper("f", name, line, tenant="t", on_gained=self._gained, on_lost=lambda number, reason: self._lost(line, number))
        self.keepers[name] = keeper.start(), line

    def _gained(self, partition: int, epoch: int) -> None:
        with self._lock:
            began = self.since.pop(partition, None)
            if began is not None:
                self.gaps.append(steady() - began)

    def _lost(self, line: Line, partition: int) -> None:
        if not line.cut:
            with self._lock:
                self.since[partition] = steady()

    def crash(self, name: str) -> None:
        keeper, line = self.keepers.pop(name)
        with self._lock:
            line.cut = True
            self.since |= dict.fromkeys(keeper.owned(), steady())
        # It ends by itself; its requests no longer reach storage.
        threading.Thread(target=keeper.stop, daemon=True).start()

    def shares(self) -> list[int]:
        return [len(keeper.owned()) for keeper, _ in self.keepers.values()]

    def balanced(self) -> bool:
        shares = self.shares()
        return sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

    def until(self, satisfied: Callable[[], bool], most: float) -> float:
        began = steady()
        while not satisfied():
            if steady() - began > most:
                raise TimeoutError(f"not after {most:.0f} s: shares {sorted(self.shares())}")
            time.sleep(0.1)
        return steady() - began

    def end(self) -> None:
        threads = [threading.Thread(target=keeper.stop) for keeper, _ in self.keepers.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)


async def measure(run: Run) -> list[Figure]:
    """Measure the default profile: cost, crashes, planned hand-offs."""
    with emulator() as azurite:
        tables = AzureTables.from_connection_string(azurite.connection_string)
        await tables.ensure([FLEETS])
        await tables.close()
        return await asyncio.to_thread(_measure, run, azurite.connection_string)


def _measure(run: Run, text: str) -> list[Figure]:
    runner = ThreadRunner(HttpTables.from_connection_string(text), steady, 30.0)
    assert runner.run(takeover.create_fleet(fleet_key("t", "f"), Fleet(PARTITIONS, PROFILE)))
    fleet, what = _Fleet(text, SERVERS), f"Azurite, {SERVERS} keepers"
    try:
        run.report_progress("leases on Azurite: all start", 0, 4)
        for number in range(SERVERS):
            fleet.start(f"s{number:03d}")
        came = fleet.until(fleet.balanced, 180.0)
        time.sleep(40.0)
        run.report_progress("leases on Azurite: cost", 1, 4)
        before, cpu, length = Counter(fleet.made), time.process_time(), run.pick(60.0, 30.0)
        time.sleep(length)
        made, cpu = fleet.made - before, time.process_time() - cpu
        run.report_progress("leases on Azurite: crashes", 2, 4)
        fleet.gaps.clear()
        for number in range(run.pick(6, 2)):
            # Among them those who look at the others.
            name = f"s{number * 9:03d}"
            fleet.crash(name)
            fleet.until(lambda: not fleet.since, 120.0)
            fleet.start(name)
            fleet.until(fleet.balanced, 180.0)
        crashes, fleet.gaps = sorted(fleet.gaps), []
        run.report_progress("leases on Azurite: hand-offs", 3, 4)
        for number in range(run.pick(4, 2)):
            name = f"s{number * 7 + 3:03d}"
            keeper, _ = fleet.keepers.pop(name)
            keeper.stop()
            fleet.until(lambda: not fleet.since, 120.0)
            fleet.start(name)
            fleet.until(fleet.balanced, 180.0)
        stops = sorted(fleet.gaps)
    finally:
        with suppress(KeyboardInterrupt):
            fleet.end()
    note = f"{length:.0f} s, without the app; {cpu / length * 100:.0f} % of one core for all keepers"
    return [
        Figure(f"{what}: all served and shared out after a cold start", came, "s"),
        Figure(f"{what}: writes", made["write"] / length, "/s"),
        Figure(f"{what}: entities read", made["rows_read"] / length, "/s", note=note),
        Figure(f"{what}: crash to take-over, p99", at(crashes, 0.99), "s", note=f"p50 {at(crashes, 0.5):.1f} s, {len(crashes)} partitions"),
        Figure(f"{what}: planned hand-off gap, p99", at(stops, 0.99), "s", note=f"p50 {at(stops, 0.5):.2f} s, {len(stops)} partitions"),
    ]
