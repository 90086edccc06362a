"""A replica's reports: registration, lost and refused reports, disputes about its name, unreadable health, and what is logged."""

from __future__ import annotations

import asyncio
import logging
import traceback

import pytest

from shared.checkpoints import CheckpointParticipant, Health, NameInUse, TurnLost
from shared.client.errors import Forbidden, NotFound
from tests.logs import actions

from ..participants import KEY, TURN, Body, World, loss_reason


@pytest.mark.parametrize("fault", ["gone", "lost", (503, "storage-unavailable"), (429, "too-many")])
async def test_reports_go_on_after_trouble_and_each_has_its_own_seq(fault: str | tuple[int, str]) -> None:
    async with World() as world:
        await world.until(lambda: world.app.reports, "a report")
        world.app.faults.extend([fault] * 3)
        await world.pass_(30)
        seqs = [report["seq"] for report in world.app.reports]
        assert seqs == sorted(set(seqs)) and seqs[-1] >= 6
        assert world.participant.counts["unanswered"] == 3


async def test_the_log_says_why_a_report_was_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with World() as world:
        world.app.faults.append("late")
        await world.until(lambda: world.app.reports, "a report")
    [line] = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "turn_report_failed"]
    assert line == "A report of s7 was not answered: no answer came in time"


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
        assert await loss_reason(body) == "forgotten"
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
        assert body.ended and await loss_reason(body) == "promoted"


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


@pytest.mark.parametrize(
    "wrong", [{"role": "leader"}, {"term": -1}, {"term": True}, {"applied": 1.5}, {"lag": -1}, {"load": float("nan")}, {"load": -0.1}]
)
def test_health_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        Health(**wrong)  # type: ignore[arg-type]


def test_key_and_address_that_cannot_be_are_refused_without_showing_the_key() -> None:
    with pytest.raises(ValueError, match="the key is malformed") as raised:
        CheckpointParticipant("f", "n", "https://app.example", "short", health=Health)
    assert "short" not in str(raised.value)
    with pytest.raises(ValueError, match="url"):
        CheckpointParticipant("f", "n", "ftp://app.example", KEY, health=Health)
    with pytest.raises(ValueError, match="grace"):
        CheckpointParticipant("f", "n", "https://app.example", KEY, health=Health, grace=-1)


async def test_waiting_the_grant_and_what_becomes_of_the_checkpoint_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with World() as world:
        for epoch, action in ((5, "turn_publish_taken"), (6, "turn_publish_refused")):
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
            assert actions(caplog, "INFO") == ["turn_waiting", "turn_granted", action]
            assert all({"fleet", "node"} <= vars(record).keys() for record in caplog.records if hasattr(record, "action"))
            if action == "turn_publish_refused":
                assert await loss_reason(body) == "late"


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
    assert traceback_text.count("Traceback") == 1 and "in _report\n" not in traceback_text, traceback_text


async def test_address_that_is_not_the_apps_is_no_missing_fleet() -> None:
    world = World()
    world.app.faults.extend([(404, "")])
    async with world:
        body = Body(world)
        await world.until(body.task.done, "its end")
    with pytest.raises(NotFound, match="address") as raised:
        await body.task
    assert "PUT" not in str(raised.value)


@pytest.mark.parametrize("value", [None, "secondary", {"role": "secondary"}])
async def test_health_that_is_none_is_reported_and_a_turn_ends_at_its_limit_with_it(
    value: object, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[object] = [Health()]
    async with World(health=lambda: answers[0]) as world:  # type: ignore[arg-type,return-value]
        body = Body(world)
        world.app.turn = TURN
        await world.until(lambda: body.begun, "its turn")
        answers[0] = value
        await world.until(lambda: body.cancelled, "its end", 60)
        assert await loss_reason(body) == "limit"
        assert "health() returns a Health, not" in caplog.text
