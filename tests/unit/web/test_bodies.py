"""Turns of bodies that are read at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from shared.web import bodies
from shared.web.bodies import Reader, take_turn


async def test_bodies_share_no_turn_and_leave_the_turns_between_to_others() -> None:
    loop = asyncio.get_running_loop()
    turn, ended, taken = 0, False, []

    def count() -> None:
        nonlocal turn
        turn += 1
        if not ended:
            loop.call_soon(count)

    async def work() -> None:
        for _ in range(5):
            await bodies.take_turn()
            taken.append(turn)

    count()
    await asyncio.gather(*(work() for _ in range(20)))
    ended = True
    assert len(taken) == 100
    assert all(after - before >= bodies.REST for before, after in pairwise(taken))


async def _read(name: str, steps: int, order: list[str], reader: Reader | None = None) -> None:
    """Note each step of a body that is read by itself."""
    reader = reader or Reader()
    for _ in range(steps):
        await take_turn(reader)
        order.append(name)


async def test_the_oldest_body_has_every_second_turn_and_the_others_share_the_rest_in_a_circle() -> None:
    order: list[str] = []
    await asyncio.gather(*(_read(name, 12, order) for name in "abcd"))
    # By the turn of the circle, a comes first as well.
    assert "".join(order[:14]) == "aabacadabacada"
    assert order[-1] in "bcd" and Counter(order) == dict.fromkeys("abcd", 12)


async def test_age_is_that_of_the_reader_and_not_the_order_of_asking() -> None:
    older, younger = Reader(), Reader()
    order: list[str] = []
    await asyncio.gather(_read("younger", 20, order, younger), _read("older", 9, order, older), _read("third", 20, order))
    assert [at for at, name in enumerate(order) if name == "older"][-1] <= 2 * 9
    assert Counter(order[:9])["younger"] >= 2


async def test_a_stream_of_older_bodies_slows_another_by_at_most_a_factor_of_two() -> None:
    order: list[str] = []
    ended = False

    async def stream() -> None:
        while not ended:
            await _read("stream", 5, order)

    older = [Reader() for _ in range(3)]
    streams = [asyncio.create_task(stream()) for _ in range(2)]
    large = [asyncio.create_task(_read("large", 1_000, order, each)) for each in older]
    await _read("small", 10, order)
    ended = True
    for task in (*streams, *large):
        task.cancel()
    await asyncio.gather(*streams, *large, return_exceptions=True)
    # Six bodies are read at the same time, so that the circle alone gives every sixth turn.
    assert len(order) <= 2 * 6 * 10 + 6


async def test_cancelled_bodies_take_no_turn_and_the_others_go_on() -> None:
    order: list[str] = []
    waiting = [asyncio.create_task(_read(str(number), 1, order)) for number in range(40)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert sorted(map(int, order)) == list(range(1, 40, 2))
    await asyncio.wait_for(take_turn(), 5)


async def test_a_body_that_is_cancelled_with_its_turn_at_hand_leaves_it_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "REST", 1)
    order: list[str] = []
    first, second = (asyncio.create_task(_read(name, 1, order)) for name in ("first", "second"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, 5)
    assert order == ["second"] and first.cancelled()


async def test_what_is_kept_of_waiting_bodies_is_bounded_by_their_number() -> None:
    order: list[str] = []
    oldest = Reader()
    tasks = [asyncio.create_task(_read("oldest", 400, order, oldest)), *(asyncio.create_task(_read("other", 50, order)) for _ in range(8))]
    turns = None
    kept = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turns = bodies._turns[asyncio.get_running_loop()]
        kept.append(len(turns._by_age))
    assert turns is not None and not turns._waiting and not turns._by_age
    assert max(kept) <= 3 * len(tasks) + bodies.REST
