"""Answers of receivers: kept with the attempt that they belong to, as long as the event, and read by nobody else."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from shared.delivery.channels.answer_heads import KEPT_BODY, AnswerHead
from shared.delivery.channels.ports import Verdict
from shared.scheduler.firing.owner import ANSWER_BYTES
from shared.scheduler.properties.attempts import END_ANSWERS, FIRST_ANSWER, kept
from shared.storage.names import EVENTS, LEDGER
from shared.storage.ports import MAX_EGT_BYTES, MAX_EGT_ROWS, Merge, Op, Row, Upsert

from ..harness import World

DAY = 86_400


def refused(text: str | None, status: int = 503) -> Verdict:
    return Verdict("retry", status, f"answered {status}", answer=AnswerHead("text/plain", text))


def answers(world: World) -> list[Row]:
    return [row for row in world.rows(EVENTS) if FIRST_ANSWER <= row.rk < END_ANSWERS]


def bodies(event: dict[str, Any]) -> list[str | None]:
    return [attempt.get("answer", {}).get("body") for attempt in event["attempts"]]


async def test_each_attempt_shows_its_own_answer_and_only_the_event_itself_shows_them(world: World) -> None:
    made = await world.demo.create(delay="PT0S", retry={"schedule": ["PT1S"] * 30})
    script = [refused(f"busy {number}") for number in range(24)]
    world.receiver.script(made["id"], *script, Verdict("retry", None, "no answer"), Verdict("delivered", 200))
    await world.run(60)
    event = await world.demo.event(made["id"])
    assert bodies(event) == [*(f"busy {number}" for number in range(6, 24)), None, None], "of the last 20 attempts"
    assert event["attempts"][0]["answer"] == {"content_type": "text/plain", "body": "busy 6"}
    [listed] = (await world.demo.get("/api/v1/events")).json()["items"]
    assert bodies(listed) == [None] * 20 and [entry["at"] for entry in listed["attempts"]] == [entry["at"] for entry in event["attempts"]]


async def test_answers_follow_an_event_that_is_moved_and_one_that_is_redriven(world: World) -> None:
    made = await world.demo.create(delay="PT0S", retry={"schedule": ["PT1M"]})
    world.receiver.script(made["id"], refused("first"), refused("second"), refused("third"), Verdict("delivered", 200))
    await world.run(2)
    assert (await world.demo.patch(f"/api/v1/events/{made['id']}", {"delay": "PT5M"})).status == 200
    assert bodies(await world.demo.event(made["id"])) == ["first"]
    await world.run(400)
    event = await world.demo.event(made["id"])
    assert (event["state"], bodies(event)) == ("dead", ["first", "second"])
    assert (await world.demo.post(f"/api/v1/events/{made['id']}/redrive")).status == 202
    await world.run(90)
    event = await world.demo.event(made["id"])
    assert (event["state"], bodies(event)) == ("delivered", ["first", "second", "third", None])


async def test_a_transaction_with_answers_stays_within_the_bounds_of_the_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, int, int]] = []
    write = world.tables.write

    async def watch(table: str, pk: str, ops: list[Op]) -> Any:
        if table == EVENTS:
            size = sum(len(orjson.dumps(dict(op.props))) for op in ops if isinstance(op, Merge | Upsert))
            written.append((len(ops), size, sum(isinstance(op, Upsert) for op in ops)))
        return await write(table, pk, ops)

    made = await world.demo.post("/api/v1/events/batch", [{"due": "2027-01-15T08:00:01Z", "payload": 1}] * 150)
    for line in made.json()["results"]:
        # Not one that opens the circuit breaker.
        world.receiver.script(line["id"], Verdict("final", 400, answer=AnswerHead("text/plain", '"\\' * (KEPT_BODY // 2))))
    monkeypatch.setattr(world.tables, "write", watch)
    await world.run(20)
    assert sum(count for _, _, count in written) == len(answers(world)) == 150
    assert max(rows for rows, _, _ in written) <= MAX_EGT_ROWS and max(size for _, size, _ in written) < MAX_EGT_BYTES / 2
    assert max(count for _, _, count in written) > 20, "they share transactions"


def test_one_answer_always_fits() -> None:
    worst = kept(AnswerHead("x" * 200, '"' * KEPT_BODY, True, {"x": "\\" * 2048}), 0, 1)
    assert worst is not None and worst.size < ANSWER_BYTES / 20


async def test_retention_removes_answers_with_their_events(world: World) -> None:
    made = await world.demo.create(delay="PT0S", retry={"schedule": ["PT1S"]})
    world.receiver.script(made["id"], refused("no"), Verdict("delivered", 200))
    await world.run(10)
    assert len(answers(world)) == 1
    await world.clock.advance(8 * DAY)
    assert (await world.app.timers.run_once("retention_scan"))["retention"] == {"removed": 1}
    assert answers(world) == [] and world.rows(EVENTS) == [] and world.rows(LEDGER) == []


async def test_the_channel_says_what_is_kept(world: World) -> None:
    path, spec = "/api/v1/tenants/demo/channels/audit", {"type": "http", "url": "https://hooks.example.com/a"}
    shown = (await world.admin.put(path, spec)).json()
    assert (shown["answers"], shown["answer_headers"]) == ("failed", False)
    changed = (await world.admin.put(path, {**spec, "answers": "all", "answer_headers": True})).json()
    assert (changed["answers"], changed["answer_headers"]) == ("all", True)
    assert (await world.admin.get(path)).json()["answers"] == "all"
    refusal = await world.admin.put(path, {**spec, "answers": "some"})
    assert (refusal.status, refusal.json()["errors"][0]["pointer"]) == (422, "/answers")
