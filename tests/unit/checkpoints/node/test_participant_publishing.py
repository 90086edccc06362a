"""A replica's publishes: repeated after a lost answer, late ones, and its state file over restarts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shared.checkpoints import NameInUse
from shared.checkpoints.node import state_file
from shared.checkpoints.node.state_file import ReplicaFile, ReplicaMemory

from ..participants import TURN, Body, World, loss_reason, take_nothing


async def test_publish_is_retried_and_the_turn_is_meanwhile_reported_without_its_checkpoint() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        await world.pass_(1)
        world.app.faults.extend(["lost"])
        before = len(world.app.reports)
        body.finish.set_result(100)
        await world.pass_(0.25)
        await world.participant.recheck()
        await world.pass_(0.1)
        assert world.app.reports[before:], "a report between two tries"
        assert all(report["taking"] == {"epoch": 5} and report["last_checkpoint"] == 0 for report in world.app.reports[before:])
        await world.until(body.task.done, "its end")
        assert [epoch for epoch, _ in world.app.published] == [5, 5] and body.latest
        await world.until(lambda: world.app.reports[-1]["last_checkpoint"] == 100, "telling so")


async def test_late_checkpoint_is_lost_and_is_reported_all_the_same() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn, world.app.fence = TURN, 6
        await world.until(lambda: body.begun, "its turn")
        body.finish.set_result(100)
        assert await loss_reason(body) == "late" and world.participant.counts["late"] == 1
        await world.until(lambda: world.app.reports[-1]["taking"] is None, "telling so")
        assert world.app.reports[-1]["last_checkpoint"] == 100


async def test_publish_that_nobody_answers_is_given_up_and_reported_with_the_reports() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        world.app.faults.extend(["gone"] * 500)
        body.finish.set_result(100)
        await world.until(body.task.done, "giving up", 120)
        assert await loss_reason(body) == "unanswered"
        world.app.faults.clear()
        await world.until(lambda: world.app.reports[-1]["last_checkpoint"] == 100, "telling so")


async def test_body_that_makes_nothing_publishestake_nothing() -> None:
    async with World() as world:
        world.app.turn = TURN
        task = asyncio.create_task(take_nothing(world.participant))
        await world.until(task.done, "its end")
        await world.pass_(1)
        assert world.app.published == [] and world.app.reports[-1]["taking"] is None


@pytest.mark.parametrize(
    ("sequence", "location", "size"),
    [(0, "b", 0), (-1, "b", 0), (True, "b", 0), (2**53, "b", 0), (1, "x" * 2049, 0), (1, "", 0), (1, "a\n", 0), (1, "b", -1)],
)
async def test_result_that_cannot_be_published_is_refused_at_once(sequence: int, location: str, size: int) -> None:
    async with World() as world:
        world.app.turn = TURN

        async def take() -> None:
            async with world.participant.turn() as turn:
                with pytest.raises(ValueError, match=r"expected "):
                    turn.result(sequence, location, size)

        task = asyncio.create_task(take())
        await world.until(task.done, "its end")
        await task


async def settle(world: World, look: object) -> None:
    """Files are written by threads of their own."""
    for _ in range(6000):
        if look():  # type: ignore[operator]
            return
        await world.clock.advance(0.01)
        await asyncio.sleep(0.01)
    raise AssertionError("never came")


async def test_last_checkpoint_is_remembered_over_restarts(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world:
        body = Body(world)
        world.app.turn = TURN
        await settle(world, lambda: body.begun)
        body.finish.set_result(100)
        await settle(world, body.task.done)
    world.participant = world.make()
    async with world:
        before = len(world.app.reports)
        await world.until(lambda: len(world.app.reports) > before, "a report")
        assert (world.app.reports[-1]["seq"], world.app.reports[-1]["last_checkpoint"]) == (1, 100)


async def test_publish_that_was_cut_off_is_made_good_by_the_next_life(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world:
        body = Body(world)
        world.app.turn = TURN
        await settle(world, lambda: body.begun)
        world.app.faults.extend(["gone"] * 1000)
        body.finish.set_result(100)
        await settle(world, lambda: world.app.publish_tries > 2)
        body.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await body.task
    world.app.faults.clear()
    assert world.app.published == []
    world.participant = world.make()
    async with world:
        await settle(world, lambda: world.app.published)
        assert world.app.published == [(5, {"node": "s7", "sequence": 100, "location": "blob/5", "bytes": 7})]
        await settle(world, lambda: world.app.reports[-1]["last_checkpoint"] == 100)


def test_writes_of_one_file_come_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose publish was cancelled may still be under way on its thread."""
    file = ReplicaFile(tmp_path, "search", "s7")
    entered, go = threading.Event(), threading.Event()
    plain, inside = state_file.replace_file, []

    def slow(path: Path, text: str) -> None:
        inside.append(text)
        assert len(inside) == 1, "two at once would write to one file beside it"
        entered.set()
        assert go.wait(60)
        plain(path, text)
        inside.clear()

    monkeypatch.setattr(state_file, "replace_file", slow)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(file.write, ReplicaMemory(1))
        assert entered.wait(60)
        second = threads.submit(file.write, ReplicaMemory(2))
        with pytest.raises(TimeoutError):
            second.result(0.1)
        go.set()
        first.result(60)
        second.result(60)
    assert file.read() == ReplicaMemory(2)
    file.close()


async def test_two_processes_of_one_machine_cannot_be_the_same_replica(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        with pytest.raises(NameInUse, match="another process"):
            await world.make().__aenter__()


async def test_memory_that_is_damaged_counts_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "search~s7.turns").write_text('{"last": 5')
    async with World(tmp_path) as world:
        assert world.participant.last_checkpoint == 0
    assert "cannot be read" in caplog.text
