"""A replica's turns, on virtual time: when it begins one, how it reports it, and when it ends it."""

from __future__ import annotations

import asyncio

import pytest

from shared.checkpoints import Health

from ..participants import TURN, Body, World, loss_reason, take_nothing


async def test_turn_is_reported_taken_and_published() -> None:
    async with World() as world:
        await world.until(lambda: world.app.reports, "a report")
        stands = {"role": "secondary", "term": 3, "applied": 100, "lag": 0, "load": 0.5, "failures": 0, "last_checkpoint": 0}
        first = world.app.reports[0]
        assert len(first.pop("incarnation")) == 36
        assert first == stands | {"seq": 1, "taking": None, "mono_ms": 0, "ready": False}
        body = Body(world)
        await world.until(lambda: any(report["ready"] for report in world.app.reports), "wanting one")
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        await world.until(lambda: world.app.reports[-1]["taking"] == {"epoch": 5}, "telling so")
        body.finish.set_result(100)
        await world.until(body.task.done, "its end")
        assert body.latest and world.app.published == [(5, {"node": "s7", "sequence": 100, "location": "blob/5", "bytes": 7})]
        await world.until(lambda: world.app.reports[-1]["taking"] is None, "telling so")
        assert world.app.reports[-1]["last_checkpoint"] == 100 == world.participant.last_checkpoint
        assert [report["seq"] for report in world.app.reports] == list(range(1, len(world.app.reports) + 1))


async def test_body_is_cancelled_before_its_limit_counted_from_the_report_that_asked() -> None:
    async with World(grace=1.0) as world:
        body = Body(world)
        world.app.turn, world.app.hold = TURN, asyncio.Event()
        await world.until(lambda: world.app.turn is None, "the report that asks")
        sent = world.app.reports[-1]["mono_ms"] / 1000
        await world.pass_(10)
        world.app.hold.set()
        await world.until(lambda: body.begun, "its turn")
        await world.until(lambda: body.cancelled, "its end")
        assert 38.5 < world.clock.monotonic() - sent <= 39.25
        assert await loss_reason(body) == "limit"
        await world.until(lambda: world.app.reports[-1]["failures"] == 1, "telling so")
        assert world.app.published == []


async def test_answer_that_comes_after_the_limit_beginstake_nothing() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn, world.app.hold = TURN, asyncio.Event()
        await world.until(lambda: world.app.turn is None, "the report that asks")
        await world.pass_(39)
        world.app.hold.set()
        await world.pass_(10)
        assert not body.begun and world.app.reports[-1]["taking"] is None and world.app.reports[-1]["ready"]
        body.task.cancel()


async def test_turn_that_is_shorter_than_the_grace_is_not_begun_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with World(grace=60) as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: world.participant.counts["short"], "the hand-out")
        assert not body.begun and "grace of 60" in caplog.text
        body.task.cancel()


async def test_machine_suspended_past_the_limit_ends_the_body_when_it_wakes() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        # No timer fires in between.
        world.clock._elapsed += 3600
        await world.until(lambda: body.cancelled, "its end", 1)
        assert await loss_reason(body) == "limit"


async def test_revoked_turn_ends_at_once() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        world.app.revoked = [5]
        await world.until(lambda: body.cancelled, "its end", 6)
        assert await loss_reason(body) == "revoked" and world.participant.counts["revoked"] == 1
        await world.until(lambda: world.app.reports[-1]["taking"] is None, "telling so", 1)


async def test_promoted_replica_ends_its_turn_within_a_tick_and_recheck_returns_when_it_has_ended() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        world.health = Health("primary", 4, 120)
        await world.participant.recheck()
        assert body.cancelled and body.ended
        assert await loss_reason(body) == "promoted"
        await world.until(lambda: world.app.reports[-1]["role"] == "primary", "telling so", 1)
        again = Body(world)
        world.app.turn = {"epoch": 6, "limit_ms": 40_000}
        await world.pass_(30)
        assert not again.begun
        world.health = Health("secondary", 5, 130)
        world.app.turn = {"epoch": 7, "limit_ms": 40_000}
        await world.until(lambda: again.begun, "its turn as a secondary")
        world.health = Health("primary", 6, 130)
        await world.until(lambda: again.cancelled, "its end without a recheck", 0.5)
        assert await loss_reason(again) == "promoted"


async def test_body_that_fails_is_reported_and_its_error_is_the_callers() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        body.finish.set_exception(OSError("disk full"))
        await world.until(lambda: world.app.reports[-1]["failures"] == 1, "telling so")
        with pytest.raises(OSError, match="disk full"):
            await body.task
        assert world.app.reports[-1]["taking"] is None and world.app.published == []
        second = Body(world)
        world.app.turn = {"epoch": 6, "limit_ms": 40_000}
        await world.until(lambda: second.begun, "the next turn")
        second.finish.set_result(120)
        await world.until(lambda: world.app.reports[-1]["failures"] == 0 and second.task.done(), "a success that makes it good")


async def test_turn_that_comes_again_in_the_same_process_is_not_begun_twice() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        body.finish.set_exception(OSError("disk full"))
        await world.until(body.task.done, "its end")
        again = Body(world)
        world.app.turn = TURN
        await world.pass_(10)
        assert world.app.turn is None and not again.begun and isinstance(body.task.exception(), OSError)
        world.app.turn = {"epoch": 6, "limit_ms": 40_000}
        await world.until(lambda: again.begun, "the next turn")
        again.task.cancel()


async def test_promoted_between_report_and_answer_it_beginstake_nothing() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn, world.app.hold = TURN, asyncio.Event()
        await world.until(lambda: world.app.turn is None, "the report that asks")
        world.health = Health("primary", 4, 100)
        world.app.hold.set()
        await world.pass_(6)
        assert not body.begun and world.app.reports[-1]["taking"] is None and world.participant.counts["begun"] == 0
        body.task.cancel()


async def test_two_turns_at_a_time_are_a_mistake() -> None:
    async with World() as world:
        body = Body(world)
        await world.pass_(1)
        with pytest.raises(RuntimeError, match="take one turn at a time"):
            await take_nothing(world.participant)
        body.task.cancel()
