"""Real server processes on Azurite, killed, stopped, and cut off: every partition comes back, and no former owner's write is taken."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from devhost.azurite import ROOT, Azurite
from shared.core.clock import steady
from shared.engine.thread_runner import ThreadRunner
from shared.leases.profiles import Profile, unsafe_reason
from shared.leases.protocol import takeover
from shared.leases.rows import Fleet, MoveLimits, Partition, fleet_key, parse_partition
from shared.storage.azure.tables import AzureTables
from shared.storage.blocking import HttpTables
from shared.storage.names import FLEETS
from shared.storage.ports import Row, RowQuery
from tests.waiting import ended, wait_until

from .proxy import Proxy

PROFILE = Profile(0.4, 1.2, 2.3)
PATIENT = Profile(0.4, 1.2, 60)
"""Nobody takes over within the test, however long a process needs to start: what comes back at once was resumed."""
PARTITIONS = 6
DATA = "Data"
KEY = fleet_key("default", "fleet")
BUSY = 180.0
"""Seconds allowed beyond what the protocol needs, for a machine that does much else."""


class Process:
    """A server process and what it said."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "tests.integration.leases.server", name, str(folder)]
        self.name = name
        self.said: list[tuple[str, ...]] = []
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(tuple(line.split()))

    def said_of(self, what: str) -> list[tuple[str, ...]]:
        return [words for words in list(self.said) if words[0] == what]

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def leave(self) -> None:
        """End like an application that gets SIGTERM."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert ended(self._process, f"server {self.name}", BUSY, lambda: self.said) == 0

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        self.kill()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Fixture:
    """An emulator with a fleet, and the processes on it."""

    def __init__(self, tables: HttpTables, connection: str, folder: Path) -> None:
        self.tables, self.folder, self.port = tables, folder, int(connection.rpartition(":")[2].partition("/")[0])
        self.runner = ThreadRunner(tables, steady, 5)
        self.processes: list[Process] = []
        self._environment = {**os.environ, "TABLES": connection, "DATA_TABLE": DATA, "PYTHONPATH": str(ROOT)}

    def start(self, name: str, through: Proxy | None = None) -> Process:
        environment = self._environment
        if through is not None:
            tables = re.sub(r"(TableEndpoint=http://127.0.0.1):\d+", rf"\1:{through.port}", environment["TABLES"])
            environment = environment | {"TABLES": tables}
        process = Process(name, self.folder, environment)
        self.processes.append(process)
        return process

    def check_writes(self) -> None:
        """In each partition, epochs grow with the writes, and each is one server's."""
        for number in range(PARTITIONS):
            written = sorted((row.timestamp, int(row.props["epoch"])) for row in self.data(number))
            epochs = [epoch for _, epoch in written]
            assert epochs == sorted(epochs), f"partition {number} took a former owner's write"
            for epoch in set(epochs):
                assert len({row.props["server"] for row in self.data(number) if row.props["epoch"] == epoch}) == 1

    def owners(self) -> dict[int, Partition]:
        page = self.tables.query(RowQuery(FLEETS, KEY, first="p:", end="p;", cursor=None), timeout=60)
        return {row.number: row for row in map(parse_partition, page.rows)}

    def has(self, name: str) -> set[int]:
        return {number for number, partition in self.owners().items() if partition.owner == name}

    def data(self, partition: int, first: str = "w-", end: str = "w.") -> list[Row]:
        rows: list[Row] = []
        cursor = None
        while True:
            page = self.tables.query(RowQuery(DATA, f"d{partition}", first=first, end=end, cursor=cursor), timeout=60)
            rows += page.rows
            cursor = page.next
            if cursor is None:
                return rows


def until(look: Callable[[], object], seconds: float, what: str) -> None:
    wait_until(look, what, seconds)


@pytest.fixture
async def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Fixture]:
    profile = getattr(request, "param", PROFILE)
    assert unsafe_reason(profile, 0.8) is None
    with Azurite(memory=True) as azurite:
        setup = AzureTables.from_connection_string(azurite.connection_string)
        await setup.ensure([FLEETS, DATA])
        await setup.close()
        tables = HttpTables.from_connection_string(azurite.connection_string)
        fixture = Fixture(tables, azurite.connection_string, tmp_path)
        limits = MoveLimits(claims_per_cycle=PARTITIONS, drain=0.8)
        assert fixture.runner.run(takeover.create_fleet(KEY, Fleet(PARTITIONS, profile, limits)))
        yield fixture
        for process in fixture.processes:
            process.close()
        tables.close()


def shared_out(fleet: Fixture, *names: str) -> bool:
    return all(len(fleet.has(name)) == PARTITIONS // len(names) for name in names)


def written_by(fleet: Fixture, partition: int, server: str) -> int:
    return sum(row.props["server"] == server for row in fleet.data(partition))


def test_killed_and_stopped_servers_are_replaced_and_none_of_their_writes_is_taken(fleet: Fixture) -> None:
    a, b, c = (fleet.start(name) for name in "abc")
    until(lambda: shared_out(fleet, "a", "b", "c"), BUSY, "equal shares")
    until(lambda: all(fleet.data(number) for number in range(PARTITIONS)), BUSY, "writes to all partitions")

    # Killed: others take over.
    lost = {number: partition.epoch for number, partition in fleet.owners().items() if partition.owner == "a"}
    a.kill()
    bound = PROFILE.takeover + PROFILE.beat + 2 + BUSY
    until(lambda: all(fleet.owners()[number].owner in ("b", "c") for number in lost), bound, "take-over of the killed")
    assert all(fleet.owners()[number].epoch > epoch for number, epoch in lost.items())
    until(lambda: shared_out(fleet, "b", "c"), BUSY, "equal shares of two")

    # Stopped for longer than T, then woken: it goes on writing at once, and is refused.
    until(lambda: all(written_by(fleet, number, "b") for number in fleet.has("b")), BUSY, "writes of b")
    had = fleet.has("b")
    b.send(signal.SIGSTOP)
    until(lambda: fleet.has("c") == set(range(PARTITIONS)), bound, "take-over of the stopped")
    until(lambda: all(written_by(fleet, number, "c") for number in had), BUSY, "writes of the successor")
    b.send(signal.SIGCONT)
    until(lambda: {int(words[1]) for words in b.said_of("refused")} >= had, BUSY, "refusals of the woken")
    until(lambda: {int(words[1]) for words in b.said_of("lost") if words[2] in ("expired", "fenced")} >= had, BUSY, "its losses")

    # It comes back, as another incarnation.
    until(lambda: shared_out(fleet, "b", "c"), BUSY, "equal shares of two again")
    until(
        lambda: all(fleet.owners()[number].epoch == int(rows[-1][2]) for number in fleet.has("b") if (rows := _gains(b, number))), BUSY, "b"
    )

    c.leave()
    until(lambda: fleet.has("b") == set(range(PARTITIONS)), BUSY, "hand-off of the one that left")
    b.leave()
    fleet.check_writes()


def _gains(process: Process, partition: int) -> list[tuple[str, ...]]:
    return [words for words in process.said_of("gained") if int(words[1]) == partition]


@pytest.mark.parametrize("fleet", [PATIENT], indirect=True, ids=["patient"])
def test_a_server_that_was_killed_takes_up_its_own_partitions_without_waiting(fleet: Fixture) -> None:
    a, b = fleet.start("a"), fleet.start("b")
    until(lambda: shared_out(fleet, "a", "b"), BUSY, "equal shares")
    before, losses = fleet.owners(), len(b.said_of("lost"))
    a.kill()
    again = fleet.start("a")
    until(
        lambda: all(fleet.owners()[number].epoch > before[number].epoch for number in before if before[number].owner == "a"), BUSY, "resume"
    )
    after = fleet.owners()
    assert {number: partition.owner for number, partition in after.items()} == {number: each.owner for number, each in before.items()}
    assert {each.epoch - before[number].epoch for number, each in after.items() if each.owner == "a"} == {1}

    # Its name is taken, and so is the lock on its file.
    twin = fleet.start("a")
    until(lambda: twin.said_of("in-use"), BUSY, "refusal of a namesake")
    assert again.said_of("in") and len(b.said_of("lost")) == losses


def _last(fleet: Fixture, partition: int, name: str, after: str = "") -> str:
    """The row key of the last write of one server after another one of its writes, '' for none."""
    rows = fleet.data(partition, first=f"{after}!" if after else f"w-{name}-", end=f"w-{name}.")
    return rows[-1].rk if rows else ""


def served_anew(fleet: Fixture, names: str, what: str) -> float:
    """Wait until each partition takes writes of one of these servers, made from now on. Returns after how many seconds."""
    start = time.monotonic()
    last = {(number, name): _last(fleet, number, name) for number in range(PARTITIONS) for name in names}
    waiting = set(range(PARTITIONS))

    def all_served() -> bool:
        found = {number for number in waiting if any(_last(fleet, number, name, last[number, name]) for name in names)}
        waiting.difference_update(found)
        return not waiting

    until(all_served, PROFILE.takeover + PROFILE.beat + 2 + BUSY, what)
    return time.monotonic() - start


def test_where_answers_get_lost_and_storage_goes_away_no_former_owners_write_is_taken(fleet: Fixture) -> None:
    with Proxy(fleet.port, seed=7) as proxy:
        a, b, c = (fleet.start(name, through=proxy) for name in "abc")
        served_anew(fleet, "abc", "all partitions served")
        proxy.drop, proxy.delay = 0.15, PROFILE.beat / 8
        dropped = proxy.dropped
        until(lambda: proxy.dropped > dropped + 40, BUSY, "lost answers")

        a.kill()
        print(f"served {served_anew(fleet, 'bc', 'the partitions of the killed'):.1f} s after the kill")

        had = fleet.has("b")
        b.send(signal.SIGSTOP)
        print(f"served {served_anew(fleet, 'c', 'the partitions of the stopped'):.1f} s after the stop")
        b.send(signal.SIGCONT)
        until(lambda: {int(words[1]) for words in b.said_of("refused")} >= had, BUSY, "refusals of the woken")

        # Storage is away for longer than V and T: every server gives up its partitions, and they are claimed again afterwards.
        marks = len(b.said), len(c.said)
        proxy.away = True
        for process, mark in zip((b, c), marks, strict=True):
            until(lambda process=process: _ends(process), BUSY, f"{process.name} serves nothing")  # type: ignore[misc]
            assert not [words for words in process.said[mark:] if words[0] == "left"]
        passed = proxy.passed
        time_up = time.monotonic() + PROFILE.takeover
        until(lambda: time.monotonic() > time_up, BUSY, "T")
        assert proxy.passed == passed
        proxy.away, proxy.drop, proxy.delay = False, 0.0, 0.0
        print(f"served {served_anew(fleet, 'bc', 'everything again'):.1f} s after the outage")
        c.leave()
        b.leave()
    fleet.check_writes()


def _ends(process: Process) -> bool:
    """Return whether the last callback for each partition was that of a loss."""
    last = {words[1]: words[0] for words in list(process.said) if words[0] in ("gained", "lost")}
    return "gained" not in last.values()
