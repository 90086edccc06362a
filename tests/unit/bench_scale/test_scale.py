"""The model of many instances on Flex Consumption: what limits count, and what the loads show."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from bench.flex.platform import Instance, Platform
from bench.flex.timeline import Timeline
from bench.scale import figures
from bench.scale.meters import LIMITS, Meters
from bench.scale.polled import BATCH, PolledQueue
from bench.scale.service import SMALL
from bench.tools.stage import Run

STEADY = Platform(poll=10, cold=6, jitter=0.0, idle=30)


class Queue:
    """A group whose invocations take a second. taken: the instance and the time of each message, in milliseconds."""

    def __init__(self, platform: Platform = STEADY) -> None:
        self.line, self.operations = Timeline(), Counter[int]()
        self.taken: list[tuple[int, int]] = []
        self.group = PolledQueue("fire", self.line, platform, Random(1), lambda made: None, serve=self._serve, operations=self.operations)
        self.group.phase = 3_000

    def _serve(self, instance: Instance, text: str) -> None:
        self.taken.append((self.group.instances.index(instance), self.line.now))
        self.group.enter(instance)
        self.line.at(self.line.now + 1_000, self.group.finished, instance)

    def send(self, many: int) -> None:
        for number in range(many):
            self.group.send(f"m{number}", 0)


def test_an_instance_takes_a_batch_at_each_poll_and_no_more_than_it_has_slots_for() -> None:
    queue = Queue()
    queue.send(64)
    queue.line.run(60_000)
    assert len(queue.taken) == 64 and queue.group.slots == 64 and len(queue.group.ever()) == 1
    assert [at - 9_000 for _, at in queue.taken] == [100 * (number // BATCH) for number in range(64)]


def test_the_controller_starts_an_instance_for_each_64_messages_and_they_share_the_work() -> None:
    queue = Queue()
    queue.send(130)
    queue.line.run(60_000)
    by_instance = Counter(number for number, _ in queue.taken)
    assert sorted(by_instance) == [0, 1, 2] and min(by_instance.values()) >= 2 * BATCH and by_instance.total() == 130


def test_each_message_is_sent_taken_and_deleted() -> None:
    queue = Queue()
    queue.send(5)
    queue.line.run(60_000)
    assert queue.operations == {0: 5, 9: 5, 10: 5}


def test_accounts_are_those_that_serve_the_busiest_second() -> None:
    meters = Meters()
    meters.rows(500, 1, 1_000)
    meters.rows(999, 2, round(LIMITS.account))
    meters.file(1_500, 300, 1)
    assert meters.accounts == 2
    assert meters.used()["one account"] == pytest.approx(1.05) and meters.used()["a shard's partition"] == pytest.approx(10.0)
    meters.window = range(1, 2)
    assert meters.accounts == 1 and meters.used()["one account"] == pytest.approx(300 / LIMITS.account)


def test_a_load_for_one_instance_is_punctual_once_it_has_started() -> None:
    found = figures.steady(1, figures.QUICK_STEADY)
    assert found.events == pytest.approx(found.rate * figures.QUICK_STEADY, abs=990)
    assert found.steady["p99"] <= figures.MOST_P99 and found.accounts == 1
    assert 3 < found.entities < 6 and 0.03 < found.transactions < 0.2


def test_a_herd_takes_as_long_as_its_instances_need_to_deliver_it() -> None:
    found = figures.herd(2)
    assert found.events == 2 * figures.HERD and not found.first
    assert found.steady["max"] == pytest.approx(1000 * found.events * SMALL.deliver / found.started, rel=0.05)


def test_each_size_has_a_row_for_both_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "QUICK_SIZES", (1,))
    rows = asyncio.run(figures.measure(Run(quick=True)))
    assert [row.name.partition(":")[0] for row in rows] == ["load for 1 of 512 MB", "herd for 1 of 512 MB", "load for 1 of 2,048 MB"]
    assert rows[0].limit == figures.MOST_P99 and rows[1].limit is None
    assert rows[0].details["usd"]["compute"] > 0
