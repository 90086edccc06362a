"""A replica with its turns, on virtual time: what it says, when it begins, and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shared.checkpoints import CheckpointParticipant, Health, NameInUse, Turn, TurnLost
from shared.checkpoints.node import state_file
from shared.checkpoints.node.rules import ReportReply
from shared.checkpoints.node.state_file import ReplicaFile, ReplicaMemory
from shared.client.errors import Forbidden, NotFound
from shared.core.errors import TocsinError
from tests.logs import actions

from .participants import KEY, World

TURN = {"epoch": 5, "limit_ms": 40_000}


class Body:
    """Takes a turn that lasts until the test sets the result."""

    def __init__(self, world: World) -> None:
        self.begun = self.ended = self.cancelled = False
        self.epoch = 0
        self.finish: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.latest: bool | None = None
        self.task = asyncio.create_task(self._take(world.participant))

    async def _take(self, participant: CheckpointParticipant) -> None:
        async with participant.turn() as turn:
            self.begun, self.epoch = True, turn.epoch
            try:
                turn.result(await self.finish, "blob/5", 7)
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            finally:
                self.ended = True
        self.latest = turn.latest


async def lost(body: Body) -> str:
    with pytest.raises(TurnLost) as raised:
        await body.task
    return raised.value.reason


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
        assert await lost(body) == "limit"
        await world.until(lambda: world.app.reports[-1]["failures"] == 1, "telling so")
        assert world.app.published == []


async def test_answer_that_comes_after_the_limit_begins_nothing() -> None:
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
        assert await lost(body) == "limit"


async def test_revoked_turn_ends_at_once() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        world.app.revoked = [5]
        await world.until(lambda: body.cancelled, "its end", 6)
        assert await lost(body) == "revoked" and world.participant.counts["revoked"] == 1
        await world.until(lambda: world.app.reports[-1]["taking"] is None, "telling so", 1)


async def test_promoted_replica_ends_its_turn_within_a_tick_and_recheck_returns_when_it_has_ended() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        world.health = Health("primary", 4, 120)
        await world.participant.recheck()
        assert body.cancelled and body.ended
        assert await lost(body) == "promoted"
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
        assert await lost(again) == "promoted"


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
        assert await lost(body) == "late" and world.participant.counts["late"] == 1
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
        assert await lost(body) == "unanswered"
        world.app.faults.clear()
        await world.until(lambda: world.app.reports[-1]["last_checkpoint"] == 100, "telling so")


@pytest.mark.parametrize("fault", ["gone", "lost", (503, "storage-unavailable"), (429, "too-many")])
async def test_reports_go_on_after_trouble_and_each_has_its_own_seq(fault: str | tuple[int, str]) -> None:
    async with World() as world:
        await world.until(lambda: world.app.reports, "a report")
        world.app.faults.extend([fault] * 3)
        await world.pass_(30)
        seqs = [report["seq"] for report in world.app.reports]
        assert seqs == sorted(set(seqs)) and seqs[-1] >= 6
        assert world.participant.counts["unanswered"] == 3


async def test_turn_in_an_answer_that_got_lost_is_not_begun() -> None:
    async with World() as world:
        await world.until(lambda: world.app.reports, "a report")
        world.app.faults.extend(["lost"])
        world.app.turn = TURN
        body = Body(world)
        await world.pass_(2)
        assert world.app.turn is None and not body.begun
        world.app.turn = TURN
        await world.until(lambda: body.begun, "the same turn, handed out again")
        body.task.cancel()


async def test_replica_that_is_not_known_any_more_ends_its_turn_and_starts_over() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun and world.app.reports[-1]["taking"], "its turn")
        world.app.faults.extend([(409, "unknown-replica")])
        before = len(world.app.reports)
        await world.until(lambda: len(world.app.reports) > before, "a report")
        assert await lost(body) == "forgotten"
        assert (world.app.reports[before]["seq"], world.app.reports[before]["taking"]) == (1, None)


async def test_two_processes_that_make_each_other_start_over_do_not_go_on_for_ever() -> None:
    async with World() as world:
        for _ in range(4):
            seen = len(world.app.reports)
            await world.until(lambda seen=seen: len(world.app.reports) > seen and world.app.reports[-1]["seq"] > 1, "a report")
            world.app.faults.extend([(409, "unknown-replica")])
            await world.until(lambda: not world.app.faults, "the refusal")
        await world.pass_(1)
        with pytest.raises(NameInUse, match="s7"):
            async with world.participant.turn():
                pass


async def test_replica_that_is_forgotten_now_and_then_goes_on() -> None:
    async with World() as world:
        for _ in range(6):
            await world.until(lambda: world.app.reports and world.app.reports[-1]["seq"] > 10, "reports")
            world.app.faults.extend([(409, "unknown-replica")])
            await world.until(lambda: world.app.reports[-1]["seq"] == 1, "the next life")
        assert len({report["incarnation"] for report in world.app.reports}) == 1


async def test_replica_whose_registration_is_refused_or_lost_time_and_again_is_in_no_dispute_about_its_name() -> None:
    async with World() as world:
        # The app stores nothing of a report it refuses: the second one is of an unknown replica.
        world.app.faults.extend([(409, "term-conflict")] * 8)
        world.app.faults.extend(["gone", (409, "unknown-replica")] * 8)
        await world.until(lambda: world.app.reports, "a report that is taken")
        assert world.app.reports[0]["seq"] == 1
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        body.task.cancel()


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


@pytest.mark.parametrize("code", ["stale-term", "term-conflict"])
async def test_refused_claim_of_a_primary_is_reported_once_and_tried_again(code: str, caplog: pytest.LogCaptureFixture) -> None:
    async with World() as world:
        world.health = Health("primary", 2)
        world.app.faults.extend([(409, code)] * 3)
        await world.pass_(30)
        assert [report["seq"] for report in world.app.reports][:2] == [1, 2], "a registration that was refused registers nobody"
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
        assert KEY not in caplog.text


async def test_refused_first_report_is_the_callers_error_and_a_later_one_is_not() -> None:
    async with World() as world:
        world.app.faults.extend([(403, "forbidden")])
        await world.pass_(1)
        with pytest.raises(Forbidden):
            async with world.participant.turn():
                pass
    async with World() as world:
        await world.until(lambda: world.app.reports, "a report")
        world.app.faults.extend([(403, "forbidden")])
        body = Body(world)
        await world.pass_(6)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        body.task.cancel()


async def test_unreadable_health_sends_nothing_and_lets_a_turn_go_on(caplog: pytest.LogCaptureFixture) -> None:
    failing = False

    def health() -> Health:
        if failing:
            raise OSError("database is busy")
        return Health()

    async with World(health=health) as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun and world.app.reports[-1]["taking"], "its turn")
        failing, before = True, len(world.app.reports)
        await world.pass_(20)
        assert len(world.app.reports) == before and not body.ended
        assert caplog.text.count("health() of replica") == 1
        failing = False
        body.finish.set_result(1)
        await world.until(body.task.done, "its end")


async def test_recheck_ends_the_body_when_the_role_cannot_be_read() -> None:
    known: list[Health] = [Health()]
    async with World(health=lambda: known[0]) as world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        known.clear()
        await world.participant.recheck()
        assert body.ended and await lost(body) == "promoted"


async def test_turn_that_comes_while_the_role_cannot_be_read_is_not_begun() -> None:
    known: list[Health] = [Health()]
    async with World(health=lambda: known[0]) as world:
        body = Body(world)
        world.app.turn, world.app.hold = TURN, asyncio.Event()
        await world.until(lambda: world.app.turn is None, "the report that asks")
        known.clear()
        await world.participant.recheck()
        world.app.hold.set()
        await world.pass_(6)
        assert not body.begun, "who has become primary has asked"
        known.append(Health())
        world.app.turn = TURN | {"epoch": 6}
        await world.until(lambda: body.begun, "its turn")
        body.task.cancel()


async def test_a_caller_that_stops_waiting_is_handed_nothing() -> None:
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


async def test_a_body_that_stops_waiting_at_the_moment_of_the_hand_out_takes_nothing() -> None:
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


async def test_promoted_between_report_and_answer_it_begins_nothing() -> None:
    async with World() as world:
        body = Body(world)
        world.app.turn, world.app.hold = TURN, asyncio.Event()
        await world.until(lambda: world.app.turn is None, "the report that asks")
        world.health = Health("primary", 4, 100)
        world.app.hold.set()
        await world.pass_(6)
        assert not body.begun and world.app.reports[-1]["taking"] is None and world.participant.counts["begun"] == 0
        body.task.cancel()


async def test_replica_that_is_not_known_registers_only_when_its_body_has_ended() -> None:
    async with World() as world:
        world.app.turn = TURN
        ended = asyncio.Event()

        async def take() -> None:
            async with world.participant.turn():
                try:
                    await asyncio.Event().wait()
                finally:
                    await ended.wait()

        task = asyncio.create_task(take())
        await world.until(lambda: world.app.reports and world.app.reports[-1]["taking"], "its turn")
        world.app.faults.extend([(409, "unknown-replica")])
        await world.until(lambda: not world.app.faults, "the refusal")
        before = len(world.app.reports)
        await world.pass_(6)
        assert len(world.app.reports) == before and not task.done()
        ended.set()
        with pytest.raises(TurnLost, match="does not know"):
            await world.until(task.done, "its end")
            await task
        assert world.app.reports[-1]["seq"] == 1


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


async def test_body_that_makes_nothing_publishes_nothing() -> None:
    async with World() as world:
        world.app.turn = TURN
        task = asyncio.create_task(_nothing(world.participant))
        await world.until(task.done, "its end")
        await world.pass_(1)
        assert world.app.published == [] and world.app.reports[-1]["taking"] is None


async def _nothing(participant: CheckpointParticipant) -> None:
    async with participant.turn():
        pass


async def test_leaving_ends_the_body_and_says_so() -> None:
    world = World()
    async with world:
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun and world.app.reports[-1]["taking"], "its turn")
    assert await lost(body) == "stopped" and body.cancelled
    assert world.app.reports[-1]["taking"] is None and not world.app.reports[-1]["ready"]
    with pytest.raises(RuntimeError, match="enter the participant"):
        await _nothing(world.participant)


async def test_leaving_wakes_callers_that_wait_for_a_turn() -> None:
    world = World()
    async with world:
        body = Body(world)
        await world.until(lambda: world.app.reports and world.app.reports[-1]["ready"], "waiting")
    with pytest.raises(TocsinError, match="has ended"):
        await body.task


async def test_two_turns_at_a_time_are_a_mistake() -> None:
    async with World() as world:
        body = Body(world)
        await world.pass_(1)
        with pytest.raises(RuntimeError, match="take one turn at a time"):
            await _nothing(world.participant)
        body.task.cancel()


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


@pytest.mark.parametrize(
    "wrong", [{"role": "leader"}, {"term": -1}, {"term": True}, {"applied": 1.5}, {"lag": -1}, {"load": float("nan")}, {"load": -0.1}]
)
def test_health_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        Health(**wrong)  # type: ignore[arg-type]


# -- over restarts


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
        tries = next(world.app.tries)
        body.finish.set_result(100)
        await settle(world, lambda: next(world.app.tries) > tries + 2)
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


def test_key_and_address_that_cannot_be_are_refused_without_showing_the_key() -> None:
    with pytest.raises(ValueError, match="the key is malformed") as raised:
        CheckpointParticipant("f", "n", "https://app.example", "short", health=Health)
    assert "short" not in str(raised.value)
    with pytest.raises(ValueError, match="url"):
        CheckpointParticipant("f", "n", "ftp://app.example", KEY, health=Health)
    with pytest.raises(ValueError, match="grace"):
        CheckpointParticipant("f", "n", "https://app.example", KEY, health=Health, grace=-1)


# -- what it says


async def test_waiting_the_grant_and_what_becomes_of_the_checkpoint_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with World() as world:
        for epoch, said in ((5, "turn_publish_taken"), (6, "turn_publish_refused")):
            caplog.clear()
            world.app.fence = 5
            body = Body(world)
            await world.until(lambda: "turn_waiting" in actions(caplog), "saying that it waits")
            await world.pass_(60)
            assert actions(caplog) == ["turn_waiting"], "once"
            world.app.turn = TURN | {"epoch": epoch}
            await world.until(lambda body=body: body.begun, "its turn")
            body.finish.set_result(100)
            await world.until(body.task.done, "its end")
            assert actions(caplog, "INFO") == ["turn_waiting", "turn_granted", said]
            assert all({"fleet", "node"} <= vars(record).keys() for record in caplog.records if hasattr(record, "action"))
            if said == "turn_publish_refused":
                assert await lost(body) == "late"


@pytest.mark.parametrize("waits", [True, False], ids=["while the caller waits", "before the caller asks"])
async def test_missing_fleet_is_logged_once_with_advice(waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    # The first report gets no answer, so that the second finds the caller waiting.
    world.app.faults.extend(["gone", (404, "not-found")] if waits else [(404, "not-found")])
    async with world:
        if not waits:
            await world.pass_(1)
            assert actions(caplog, "ERROR") == ["turn_participant_ended"], "nobody else would hear of it"
            caplog.clear()
        body = Body(world)
        await world.until(body.task.done, "its end")
    assert "turn_participant_ended" not in actions(caplog)
    with pytest.raises(NotFound) as raised:
        await body.task
    assert "no fleet 'search'" in str(raised.value) and "PUT /api/v1/fleets/search" in str(raised.value)
    traceback_text = "".join(traceback.format_exception(raised.value))
    assert traceback_text.count("Traceback") == 1 and "_report" not in traceback_text, traceback_text


async def test_address_that_is_not_the_apps_is_no_missing_fleet() -> None:
    world = World()
    world.app.faults.extend([(404, "")])
    async with world:
        body = Body(world)
        await world.until(body.task.done, "its end")
    with pytest.raises(NotFound, match="address") as raised:
        await body.task
    assert "PUT" not in str(raised.value)


# -- what its application may do to it


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
        assert await lost(body) == "stopped" and body.cancelled
        with pytest.raises(TocsinError, match="cancelled"):
            await _nothing(world.participant)


async def test_a_waiting_body_learns_that_the_reports_were_cancelled() -> None:
    async with World() as world:
        body = Body(world)
        await world.until(lambda: world.app.reports and world.app.reports[-1]["ready"], "waiting")
        for task in asyncio.all_tasks():
            if task.get_name() == "checkpoint-s7-reports":
                task.cancel()
        with pytest.raises(TocsinError, match="cancelled"):
            await body.task


@pytest.mark.parametrize("said", [None, "secondary", {"role": "secondary"}])
async def test_health_that_is_none_is_reported_and_a_turn_ends_at_its_limit_with_it(said: object, caplog: pytest.LogCaptureFixture) -> None:
    traceback_text: list[object] = [Health()]
    async with World(health=lambda: traceback_text[0]) as world:  # type: ignore[arg-type,return-value]
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        traceback_text[0] = said
        await world.until(lambda: body.cancelled, "its end", 60)
        assert await lost(body) == "limit"
        assert "health() returns a Health, not" in caplog.text
