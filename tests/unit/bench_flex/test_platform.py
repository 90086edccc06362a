"""The model of the platform does what its sources say of instances, the controller and a queue."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bench.flex.platform import Instance, Platform, QueueGroup
from bench.flex.timeline import Timeline

STEADY = Platform(poll=10, cold=6, jitter=0.0, idle=30)


class Queue:
    """A group whose invocations take no time. taken: times at which its messages were taken, in milliseconds."""

    def __init__(self, platform: Platform = STEADY, *, always: bool = False) -> None:
        self.line = Timeline()
        self.taken: list[int] = []
        self.group = QueueGroup("fire", self.line, platform, Random(1), lambda made: None, serve=self._serve, always=always)
        self.group.phase = 3_000

    def _serve(self, instance: Instance, text: str) -> None:
        self.taken.append(self.line.now)
        self.group.enter(instance)
        self.group.finished(instance)

    def send_at(self, time: int, visible: int) -> None:
        self.line.at(time, self.group.send, "m", visible)


def test_a_message_from_zero_waits_for_the_controller_and_for_the_start() -> None:
    queue = Queue()
    queue.send_at(4_000, 4_000)
    queue.line.run(60_000)
    assert queue.taken == [13_000 + 6_000]


def test_a_hidden_message_starts_no_instance_before_it_is_visible() -> None:
    queue = Queue()
    queue.send_at(0, 100_000)
    queue.line.run(200_000)
    assert queue.taken == [103_000 + 6_000]


def test_a_message_becomes_visible_whole_seconds_after_it_was_sent() -> None:
    queue = Queue(always=True)
    queue.send_at(250, 1_000)
    queue.line.run(10_000)
    # A second after 250 ms, at the next poll of a listener that has found nothing: 0.1, 0.3, 0.7 and 1.5 s after the start.
    assert queue.taken == [1_500]


def test_the_pauses_of_a_listener_double_up_to_two_seconds() -> None:
    queue = Queue(always=True)
    for time in (20_000, 20_150, 20_701, 29_001):
        queue.send_at(time, time)
    queue.line.run(60_000)
    first = queue.taken[0]
    assert 0 <= first - 20_000 <= 2_000
    assert all(0 <= taken - sent <= 2_000 for taken, sent in zip(queue.taken, (20_000, 20_150, 20_701, 29_001), strict=True))
    assert queue.group._next_poll(queue.group.instances[0]) >= 60_000


@pytest.mark.parametrize(("pause", "lives"), [(29_000, True), (33_000, False)])
def test_an_instance_goes_when_it_has_done_nothing_for_the_idle_time(pause: int, lives: bool) -> None:
    queue = Queue()
    queue.send_at(4_000, 4_000)
    queue.send_at(19_000 + pause, 19_000 + pause)
    queue.line.run(120_000)
    assert (queue.taken[1] - queue.taken[0] <= pause + 2_000) is lives
    assert len(queue.group.ever()) == (1 if lives else 2)


def test_an_always_ready_instance_never_goes() -> None:
    queue = Queue(always=True)
    queue.send_at(3_600_000, 3_600_000)
    queue.line.run(3_700_000)
    assert queue.taken[0] <= 3_602_000


def test_the_controller_counts_hidden_messages_once_one_is_visible() -> None:
    queue = Queue()
    for number in range(129):
        queue.send_at(0, 100_000 if number else 0)
    queue.line.run(30_000)
    assert queue.group.most == 3


def test_a_stuck_message_comes_back_after_ten_minutes() -> None:
    queue = Queue(replace(STEADY, stuck=1.0))
    queue.send_at(4_000, 4_000)
    queue.line.run(600_000)
    assert queue.taken == []
    queue.group.platform = STEADY
    queue.line.run(700_000)
    assert queue.taken and queue.taken[0] >= 19_000 + 600_000


def test_votes_take_an_instance_that_works_between_two_looks_of_the_controller() -> None:
    queue = Queue(replace(STEADY, votes=2))
    for number in range(10):
        queue.send_at(19_500 + 4_000 * number, 19_500 + 4_000 * number)
    queue.line.run(120_000)
    assert len(queue.group.ever()) > 1
