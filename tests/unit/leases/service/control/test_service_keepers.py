"""Operators' verbs and the watch beside real keepers, on their own threads, with durations of fractions of a second."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from shared.core.clock import SystemClock
from shared.engine.async_runner import AsyncRunner
from shared.leases.node.keeper import LeaseKeeper
from shared.leases.profiles import Profile
from shared.leases.rows import NO_PARTITION
from shared.leases.service.control.service import ManualControls
from shared.leases.service.control.verbs import ControlRequest
from shared.leases.service.maintenance_drain import MaintenanceDrain
from shared.leases.service.planning import Planning
from shared.storage.ports import Applied, Op, Page, Row, RowQuery, StoringTables, WriteRefused

from ...conftest import FaultyTables, quick_fleet, until

PARTITIONS = 6
ALL = set(range(PARTITIONS))


class Awaited(StoringTables):
    """The keepers' tables for the app: calls that are over at once, under the same lock."""

    def __init__(self, tables: FaultyTables) -> None:
        self._tables = tables

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        return self._tables.get(table, pk, rk, timeout=1)

    async def query(self, query: RowQuery) -> Page:
        return self._tables.query(query, timeout=1)

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        return self._tables.write(table, pk, ops, timeout=1)

    async def ensure(self, tables: Sequence[str]) -> None:
        """Nothing to create."""

    async def close(self) -> None:
        """Nothing to release."""


class Operator:
    """Says words, from a thread without a loop."""

    def __init__(self, tables: FaultyTables) -> None:
        runner = AsyncRunner(Awaited(tables), SystemClock())
        self._control = ManualControls(runner, Planning(runner), SystemClock())

    def say(self, verb: Any, partition: int = NO_PARTITION, server: str = "", **more: Any) -> None:
        word = ControlRequest(verb, partition, server, "why", "abc", SystemClock().now(), **more)
        asyncio.run(self._control.apply("default", "fleet", word))


@pytest.fixture
def tables() -> FaultyTables:
    # The validity is long, so that no server is fenced on a busy machine, which would raise epochs too.
    return quick_fleet(PARTITIONS, Profile(0.2, 20.0, 22.0))


@pytest.fixture
def start(tables: FaultyTables) -> Iterator[Callable[..., LeaseKeeper]]:
    keepers: list[LeaseKeeper] = []

    def one(name: str, **options: Any) -> LeaseKeeper:
        keepers.append(LeaseKeeper("fleet", name, tables, **options).start())
        assert keepers[-1].wait(60)
        return keepers[-1]

    yield one
    for keeper in keepers:
        assert keeper.stop(60)


def test_keepers_obey_every_verb(tables: FaultyTables, start: Callable[..., LeaseKeeper]) -> None:
    operator = Operator(tables)
    a, b = start("a"), start("b")
    until(lambda: len(a.owned()) == len(b.owned()) == PARTITIONS // 2, "shares")
    number = min(a.owned())
    epoch = a.epoch(number) or 0
    operator.say("bump", number)
    until(lambda: (a.epoch(number) or 0) > epoch, "bumped")
    operator.say("offline", number)
    until(lambda: number not in set(a.owned()) | set(b.owned()), "offline")
    operator.say("prohibit", number, "a")
    operator.say("online", number)
    until(lambda: (b.epoch(number) or 0) > epoch + 1, "claimed by the only one that may")
    other = min(set(b.owned()) - {number})
    operator.say("pin", other, "a")
    until(lambda: a.owns(other), "pinned")
    operator.say("drain", server="b")
    until(lambda: set(b.owned()) == {number} and set(a.owned()) == ALL - {number}, "drained, but for what nobody else may have")
    operator.say("permit", number, "a")
    until(lambda: set(a.owned()) == ALL, "permitted")
    operator.say("undrain", server="b")
    until(lambda: len(b.owned()) == PARTITIONS // 2, "balanced again")


def test_lines_of_a_keeper_name_the_event_for_which_its_partitions_leave(
    tables: FaultyTables, start: Callable[..., LeaseKeeper], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shared.leases")

    def lines(action: str) -> list[Any]:
        return [record for record in caplog.records if getattr(record, "action", "") == action]

    a, b = start("a"), start("b")
    until(lambda: len(a.owned()) == len(b.owned()) == PARTITIONS // 2, "shares")
    runner = AsyncRunner(Awaited(tables), SystemClock())
    drain = MaintenanceDrain(runner, Planning(runner), SystemClock())
    asyncio.run(drain.leave("default:fleet", {"a": True, "b": False}, {"a": ("e1", "e2")}))
    until(lambda: set(b.owned()) == ALL and len(lines("lease_maintenance_begins")) == 1, "the partitions leave")
    asyncio.run(drain.leave("default:fleet", {"a": False}, {"a": ("e1", "e2")}))
    until(lambda: len(lines("lease_maintenance_ends")) == 1, "they may return")
    for action in ("lease_maintenance_begins", "lease_maintenance_ends", "lease_maintenance"):
        assert {(record.event_id, record.event_ids) for record in lines(action)} == {("e1", "e1 e2")}


def test_a_drained_server_that_must_exit_hands_everything_over_and_ends(tables: FaultyTables, start: Callable[..., LeaseKeeper]) -> None:
    left = threading.Event()
    a, b = start("a", on_exit=left.set), start("b")
    until(lambda: len(a.owned()) == len(b.owned()) == PARTITIONS // 2, "shares")
    Operator(tables).say("drain", server="a", exit=True)
    until(lambda: set(b.owned()) == ALL, "handed over")
    until(left.is_set, "told to end")
