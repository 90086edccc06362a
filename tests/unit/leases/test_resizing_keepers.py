"""The partition count changes under real keepers with work in hand: no key is ever acted on by two, and each is served again."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import lcm
from typing import Any

import pytest

from shared.core.clock import steady
from shared.engine.thread_runner import ThreadRunner
from shared.leases.node.keeper import LeaseKeeper
from shared.leases.planner_input import read_planner_input
from shared.leases.profiles import Profile
from shared.leases.protocol import resizing
from shared.leases.protocol.resizing import ResizeBegun
from shared.leases.rows import FLEET, parse_fleet
from shared.storage.names import FLEETS

from .conftest import KEY, FaultyTables, quick_fleet, until

COUNTS = (4, 8, 3)
KEYS = lcm(*COUNTS)
PATIENT = Profile(0.2, 10, 12)
"""Nobody's validity ends within a test, however slow the machine."""
MORTAL = Profile(0.2, 0.8, 4)


class Keys:
    """Records the server and the epochs of each key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.busy: dict[int, str] = {}
        self.epochs: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.wrong: list[str] = []

    def take(self, keys: list[int], who: str, epoch: int) -> None:
        with self.lock:
            for key in keys:
                if key in self.busy:
                    self.wrong.append(f"{who} takes key {key} from {self.busy[key]}")
                before = self.epochs[key][-1:]
                # What expired may come back to its owner under the same epoch.
                if before and before[0] >= (epoch, "") and before[0] != (epoch, who):
                    self.wrong.append(f"{who} takes key {key} under {epoch}, after {self.epochs[key]}")
                self.busy[key] = who
                self.epochs[key].append((epoch, who))

    def leave(self, keys: list[int], who: str) -> None:
        with self.lock:
            for key in keys:
                if self.busy.pop(key, None) != who:
                    self.wrong.append(f"{who} leaves key {key}, which it does not have")


class Worker:
    """A keeper whose application holds a partition's keys from `on_gained` until `on_lost`."""

    def __init__(self, tables: FaultyTables, name: str, keys: Keys) -> None:
        self.name, self.keys = name, keys
        self.mine: dict[int, list[int]] = {}
        self.callbacks: list[Any] = []
        self.partitions = 0
        self.may_stop = threading.Event()
        self.may_stop.set()
        self.keeper = LeaseKeeper("fleet", name, tables, on_gained=self.gained, on_lost=self.lost, on_resized=self.resized)

    def start(self) -> None:
        self.keeper.start()
        assert self.keeper.wait(60)
        self.partitions = self.partitions or self.keeper.partitions

    def gained(self, partition: int, epoch: int) -> None:
        until(lambda: self.partitions, "the count is known")
        self.mine[partition] = [key for key in range(KEYS) if key % self.partitions == partition]
        self.keys.take(self.mine[partition], self.name, epoch)
        self.callbacks.append(("gained", partition))

    def lost(self, partition: int, reason: str) -> None:
        self.may_stop.wait(60)
        self.keys.leave(self.mine.pop(partition), self.name)
        self.callbacks.append((reason, partition))

    def resized(self, generation: int, partitions: int) -> None:
        assert not self.mine, "everything was lost before"
        self.partitions = partitions
        self.callbacks.append(("resized to", generation, partitions))


class Fleet:
    """Workers on one fleet, and the one who changes its count."""

    def __init__(self, profile: Profile) -> None:
        self.tables = quick_fleet(COUNTS[0], profile)
        self.keys = Keys()
        self.workers: dict[str, Worker] = {}
        self.runner = ThreadRunner(self.tables, steady, 1)
        self.strict = True

    def start(self, name: str) -> Worker:
        self.workers[name] = Worker(self.tables, name, self.keys)
        self.workers[name].start()
        return self.workers[name]

    def resize(self, partitions: int) -> None:
        found = self.runner.run(resizing.begin(KEY, partitions, 0))
        assert isinstance(found, ResizeBegun)

    def served(self, partitions: int) -> Callable[[], bool]:
        """Return whether all keys are worked on, by who has them under that count."""

        def look() -> bool:
            row = self.tables.get(FLEETS, KEY, FLEET, timeout=1)
            assert row is not None
            fleet = parse_fleet(row.props)
            with self.keys.lock:
                busy = dict(self.keys.busy)
            whole = (fleet.partitions, fleet.former) == (partitions, 0) and len(busy) == KEYS
            return whole and all(self.workers[who].keeper.find(key) is not None for key, who in busy.items())

        return look


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    found = Fleet(getattr(request, "param", PATIENT))
    yield found
    for worker in found.workers.values():
        worker.may_stop.set()
    for worker in found.workers.values():
        assert worker.keeper.stop(60)
    assert found.keys.wrong == [] or not found.strict


def test_each_key_has_one_owner_through_doubling_and_a_coprime_count(fleet: Fleet) -> None:
    workers = [fleet.start(name) for name in "abc"]
    until(fleet.served(COUNTS[0]), "all keys")
    for partitions in COUNTS[1:]:
        fleet.resize(partitions)
        until(fleet.served(partitions), f"all keys again, of {partitions}")
        assert {worker.keeper.partitions for worker in workers} == {partitions}
    assert [each.keeper.generation for each in workers] == [3, 3, 3]
    for worker in workers:
        until(lambda worker=worker: [each[0] for each in worker.callbacks].count("resized to") == 2, "both changes are reported")
        assert {each[0] for each in worker.callbacks} <= {"gained", "resized", "resized to", "handed-off"}


def test_an_owner_that_does_not_stop_is_awaited_until_the_drain_time_is_up(fleet: Fleet) -> None:
    a, b = fleet.start("a"), fleet.start("b")
    until(fleet.served(4), "all keys")
    a.may_stop.clear()
    fleet.resize(3)
    until(lambda: b.keeper.generation == 2 and not a.keeper.owned(), "both have heard")
    until(lambda: b.keeper.owned(), "b goes on when a's time is up")
    assert a.mine
    # What its application still does, only `FencedBatch` can refuse.
    fleet.keys.wrong.clear()
    fleet.strict = False


def test_a_server_that_starts_in_the_middle_works_by_the_new_count(fleet: Fleet) -> None:
    a = fleet.start("a")
    until(fleet.served(4), "all keys")
    a.may_stop.clear()
    fleet.resize(8)
    b = fleet.start("b")
    assert (b.keeper.generation, b.keeper.partitions) == (2, 8)
    a.may_stop.set()
    until(fleet.served(8), "all keys again")
    assert ("resized to", 2, 8) not in b.callbacks
    assert ("resized to", 2, 8) in a.callbacks


@pytest.mark.parametrize("fleet", [MORTAL], indirect=True)
def test_a_server_that_is_killed_in_the_middle_holds_nothing_up_for_longer_than_a_take_over(fleet: Fleet) -> None:
    a, b = fleet.start("a"), fleet.start("b")
    until(lambda: fleet.served(4)() and a.mine and b.mine, "all keys, shared")
    before = dict(fleet.keys.busy)
    # As a process that stands still: no request of its leaves any more.
    a.keeper._runner._tables = a.keeper._scans._tables = down = FaultyTables(fleet.tables.tables)
    down.down = True
    fleet.resize(3)
    until(lambda: len(b.keeper.owned()) == 3, "b has taken all over")
    until(lambda: not a.mine, "a has stopped by itself")
    until(lambda: len(fleet.keys.busy) == KEYS, "all keys")
    assert {key for key, who in before.items() if who == "a"}


def test_a_change_that_is_done_leaves_rows_that_go_on_counting(fleet: Fleet) -> None:
    fleet.start("a")
    until(fleet.served(4), "all keys")
    for partitions in (2, 4):
        fleet.resize(partitions)
        until(fleet.served(partitions), "all keys again")
    facts = fleet.runner.run(read_planner_input(KEY, 0))
    assert facts is not None
    assert [row.epoch for row in facts.partitions.values()] == [3, 3, 3, 3]


def test_a_look_at_the_fleet_that_comes_late_does_not_bring_the_former_count_back(fleet: Fleet) -> None:
    a = fleet.start("a")
    until(fleet.served(4), "all keys")
    before = a.keeper._keeper_state.fleet
    fleet.resize(3)
    until(fleet.served(3), "all keys again")
    a.keeper._keeper_state.update_fleet(before)
    beats = a.keeper.counts["beats"]
    until(lambda: a.keeper.counts["beats"] > beats + 2, "it goes on")
    assert (a.keeper.partitions, a.keeper.generation) == (3, 2)
    assert [each for each in a.callbacks if each[0] == "resized to"] == [("resized to", 2, 3)]


def test_a_key_is_found_by_the_count_of_now_and_only_where_it_is_owned(fleet: Fleet) -> None:
    unknown = LeaseKeeper("fleet", "z", fleet.tables)
    assert (unknown.find(5), unknown.partitions, unknown.generation) == (None, 0, 0)
    a = fleet.start("a")
    until(fleet.served(4), "all keys")
    assert (a.keeper.find(6), a.keeper.find(7), a.keeper.partitions) == ((2, 1), (3, 1), 4)
    fleet.resize(3)
    until(fleet.served(3), "all keys again")
    assert (a.keeper.find(6), a.keeper.find(7), a.keeper.partitions) == ((0, 2), (1, 2), 3)
    b = fleet.start("b")
    until(lambda: len(b.keeper.owned()) == 1, "shares")
    [partition] = b.keeper.owned()
    assert (a.keeper.find(partition), b.keeper.find(partition + 3)) == (None, (partition, 3))
