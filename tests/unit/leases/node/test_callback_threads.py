"""The threads of the user's callbacks: order within a partition, and what comes between."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from shared.leases.node.callback_threads import THREADS, URGENT, CallbackThreads
from tests.logs import actions

from ..conftest import until


@pytest.fixture
def calls() -> Iterator[CallbackThreads]:
    found = CallbackThreads("test")
    found.start()
    yield found
    found.close()


def test_what_comes_between_waits_for_all_before_and_holds_up_all_after(calls: CallbackThreads) -> None:
    called: list[str] = []
    may_go_on, began = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert may_go_on.wait(60)
        called.append("before")

    calls.put(THREADS - 1, slow)
    calls.between(lambda: called.append("between"))
    for partition in range(2 * THREADS):
        calls.put(partition, lambda: called.append("after"))
    assert began.wait(60)
    assert called == []
    may_go_on.set()
    until(lambda: len(called) == 2 + 2 * THREADS, "all have run")
    assert called == ["before", "between", *["after"] * 2 * THREADS]


def test_what_fails_between_is_logged_and_the_rest_goes_on(calls: CallbackThreads, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise ValueError("no")

    calls.between(fail)
    calls.put(1, done.set)
    assert done.wait(60)
    assert actions(caplog) == ["lease_callback_failed"]


def test_a_call_that_does_not_return_holds_up_its_own_partition_only(calls: CallbackThreads) -> None:
    gate, called = threading.Event(), list[int]()
    for _ in range(2):
        calls.put(0, lambda: gate.wait(60))
    calls.put(0, lambda: called.append(0))
    for partition in range(1, 5 * THREADS):
        calls.put(partition, lambda partition=partition: called.append(partition))  # type: ignore[misc]
    until(lambda: sorted(called) == list(range(1, 5 * THREADS)), "the others")
    gate.set()
    until(lambda: 0 in called, "its own")


def test_calls_of_one_partition_keep_their_order(calls: CallbackThreads) -> None:
    called: list[tuple[int, int]] = []
    for number in range(200):
        for partition in range(2 * THREADS):
            calls.put(partition, lambda found=(partition, number): called.append(found))  # type: ignore[misc]
    until(lambda: len(called) == 400 * THREADS, "all have run")
    assert all([n for p, n in called if p == partition] == list(range(200)) for partition in range(2 * THREADS))


def test_what_is_urgent_waits_for_nothing_and_several_between_come_in_turn(calls: CallbackThreads) -> None:
    gate, called = threading.Event(), list[str]()
    for partition in range(2 * THREADS):
        calls.put(partition, lambda: gate.wait(60))
    calls.between(lambda: called.append("first"))
    calls.put(0, lambda: called.append("then"))
    calls.between(lambda: called.append("second"))
    calls.put(URGENT, lambda: called.append("urgent"))
    until(lambda: called == ["urgent"], "the urgent one")
    gate.set()
    until(lambda: called == ["urgent", "first", "then", "second"], "all in their order")


def test_closing_ends_the_threads_after_what_was_put() -> None:
    calls, gate, called, threads = CallbackThreads("test"), threading.Event(), list[int](), set[threading.Thread]()

    def call(number: int) -> None:
        gate.wait(60)
        threads.add(threading.current_thread())
        called.append(number)

    for number in range(3 * THREADS):
        calls.put(number % 2, lambda number=number: call(number))  # type: ignore[misc]
    calls.between(lambda: called.append(-1))
    calls.put(URGENT, lambda: threads.add(threading.current_thread()))
    calls.start()
    calls.close()
    gate.set()
    until(lambda: len(called) == 3 * THREADS + 1, "all have run")
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
