"""The ends of a turn's body: cancelled, left, with its thread, or with the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shared.checkpoints import Turn, TurnLost
from shared.checkpoints.node.rules import ReportReply
from shared.core.errors import TocsinError

from ..participants import TURN, Body, World, loss_reason, take_nothing


async def test_a_caller_that_stops_waiting_is_handedtake_nothing() -> None:
    async with World() as world:
        body = Body(world)
        await world.pass_(1)
        body.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await body.task
        world.app.turn = TURN
        await world.pass_(20)
        assert not world.app.reports[-1]["ready"] and world.app.turn is not None
        again = Body(world)
        await world.until(lambda: again.begun, "its turn")
        again.task.cancel()


async def test_a_body_that_stops_waiting_at_the_moment_of_the_hand_out_takestake_nothing() -> None:
    async with World() as world:
        body = Body(world)
        await world.until(lambda: world.app.reports and world.app.reports[-1]["ready"], "waiting")
        apply = world.participant._apply

        def apply_and_stop(seq: int, answer: ReportReply) -> None:
            apply(seq, answer)
            if answer.turn is not None:
                body.task.cancel()

        world.participant._apply = apply_and_stop  # type: ignore[method-assign]
        world.app.turn = TURN
        with pytest.raises(asyncio.CancelledError):
            await world.until(body.task.done, "its end")
            await body.task
        await world.until(lambda: world.app.reports[-1]["seq"] > 2, "a report")
        await world.pass_(6)
        assert not body.begun and world.app.reports[-1]["taking"] is None


async def test_cancelled_by_its_application_while_it_is_ended_the_body_ends_as_that_says() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        body.task.cancel()
        world.participant._lose("revoked")
        with pytest.raises(asyncio.CancelledError):
            await body.task


async def test_cancelled_by_its_own_application_the_body_ends_as_that_says() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        body.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await body.task
        await world.until(lambda: world.app.reports[-1]["taking"] is None, "telling so")


async def test_leaving_ends_the_body_and_says_so() -> None:
    world = World()
    async with world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun and world.app.reports[-1]["taking"], "its turn")
    assert await loss_reason(body) == "stopped" and body.cancelled
    assert world.app.reports[-1]["taking"] is None and not world.app.reports[-1]["ready"]
    with pytest.raises(RuntimeError, match="enter the participant"):
        await take_nothing(world.participant)


async def test_leaving_wakes_callers_that_wait_for_a_turn() -> None:
    world = World()
    async with world:
        body = Body(world)
        await world.until(lambda: world.app.reports and world.app.reports[-1]["ready"], "waiting")
    with pytest.raises(TocsinError, match="has ended"):
        await body.task


async def test_check_and_remaining_serve_bodies_in_threads() -> None:
    async with World() as world:
        world.app.turn = TURN

        async def take() -> None:
            async with world.participant.turn() as turn:
                turn.check()
                assert 39 < turn.remaining() <= 40
                world.clock._elapsed += 100
                assert turn.remaining() == 0
                with pytest.raises(TurnLost, match="turn 5 is lost"):
                    turn.check()

        task = asyncio.create_task(take())
        await world.until(task.done, "its end")
        await task


async def test_leaving_while_another_waits_asks_for_no_turn_that_nobody_would_take() -> None:
    world = World()
    async with world:
        body = Body(world)
        await world.until(lambda: world.app.reports and world.app.reports[-1]["ready"], "waiting")
        world.app.turn = TURN
    assert not world.app.reports[-1]["ready"] and world.app.turn is not None
    with pytest.raises(TocsinError, match="has ended"):
        await body.task


async def test_thread_that_outlives_its_body_learns_that_it_must_end() -> None:
    async with World() as world:
        world.app.turn = TURN
        turns: list[Turn] = []

        async def take() -> None:
            async with world.participant.turn() as turn:
                turns.append(turn)
                turn.check()
                await asyncio.Event().wait()

        task = asyncio.create_task(take())
        await world.until(lambda: turns, "its turn")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with pytest.raises(TurnLost, match="its body has ended") as raised:
            turns[0].check()
        assert raised.value.reason == "ended"


async def test_body_on_a_thread_ends_when_the_thread_does_whatever_cancels_it() -> None:
    async with World() as world:
        world.app.turn = TURN
        began, done, checked = threading.Event(), threading.Event(), threading.Event()

        def work(turn: Turn, step: str) -> str:
            began.set()
            assert done.wait(60) and step == "first"
            with pytest.raises(TurnLost):
                turn.check()
            checked.set()
            return "made"

        async def take() -> None:
            async with world.participant.turn() as turn:
                await turn.on_thread(work, turn, "first")

        task = asyncio.create_task(take())
        await world.until(lambda: world.app.reports and world.app.reports[-1]["taking"], "its turn")
        # The time of the turn stands still meanwhile.
        assert await asyncio.to_thread(began.wait, 60)
        world.app.revoked = [5]
        await world.until(lambda: world.participant.counts["revoked"], "the revocation")
        for _ in range(3):
            for each in asyncio.all_tasks() - {asyncio.current_task()}:
                if not each.get_name().startswith("checkpoint-"):
                    each.cancel()
            await world.pass_(6)
            assert not task.done() and world.app.reports[-1]["taking"] == {"epoch": 5}, "the thread is still at it"
        done.set()
        await asyncio.gather(task, return_exceptions=True)
        assert checked.is_set()
        await world.until(lambda: world.app.reports[-1]["taking"] is None, "its end")


async def test_what_a_thread_returns_or_raises_is_the_bodys() -> None:
    async with World() as world:
        world.app.turn = TURN

        def fail() -> None:
            raise OSError("disk full")

        async def take() -> None:
            async with world.participant.turn() as turn:
                assert await turn.on_thread(str.upper, "made") == "MADE"
                with pytest.raises(OSError, match="disk full"):
                    await turn.on_thread(fail)

        task = asyncio.create_task(take())
        for _ in range(2000):
            if task.done():
                break
            await world.clock.advance(0.01)
            await asyncio.sleep(0.01)
        await task


async def test_body_ends_when_its_watch_is_cancelled_with_all_other_tasks() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        for task in asyncio.all_tasks():
            if task.get_name().startswith("checkpoint-"):
                task.cancel()
        assert await loss_reason(body) == "stopped" and body.cancelled
        with pytest.raises(TocsinError, match="cancelled"):
            await take_nothing(world.participant)


async def test_a_waiting_body_learns_that_the_reports_were_cancelled() -> None:
    async with World() as world:
        body = Body(world)
        await world.until(lambda: world.app.reports and world.app.reports[-1]["ready"], "waiting")
        for task in asyncio.all_tasks():
            if task.get_name() == "checkpoint-s7-reports":
                task.cancel()
        with pytest.raises(TocsinError, match="cancelled"):
            await body.task
