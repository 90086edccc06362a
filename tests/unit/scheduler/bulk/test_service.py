"""Bulk jobs: what they count, what they change, and how they go on after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import pytest

from shared.core.errors import OutcomeUnknown, Unavailable
from shared.delivery.channels.ports import Verdict
from shared.scheduler.bulk import service
from shared.scheduler.bulk.model import BulkAction
from shared.scheduler.bulk.rows import CONFIRM_WITHIN, KEEP_JOBS, OPEN_ROW, PK_OPEN
from shared.scheduler.bulk.service import LEASE, STORED_WITHIN
from shared.scheduler.changes.table import VERBS
from shared.scheduler.queries.event_filter import EventFilter
from shared.scheduler.queries.lookup import LEDGER_PHASE, START, ListPosition
from shared.storage.names import BULK_JOBS, EVENTS, PK_TICKS, SWEEPS
from shared.storage.ports import Op

from ..harness import World

JOBS = "/api/v1/jobs"
LIST = "/api/v1/events"


async def events(world: World, count: int, **fields: Any) -> list[str]:
    """Store events of a batch, due tomorrow, and return their ids."""
    batch = [{"due": "2027-01-16T09:00:00Z", "payload": number, "labels": {"order": "17"}, **fields} for number in range(count)]
    answer = (await world.demo.post(f"{LIST}/batch", batch)).json()
    assert answer["accepted"] == count
    return [line["id"] for line in answer["results"]]


async def counted(world: World, action: str, filter: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    made = await world.demo.post(JOBS, {"action": action, "filter": filter or {"labels": {"order": "17"}}, **fields})
    assert made.status == 201, made.json()
    return dict(made.json())


async def confirm(world: World, job: dict[str, Any]) -> None:
    confirmed = await world.demo.post(f"{JOBS}/{job['id']}/confirm", {"confirmation": job["confirmation"]})
    assert confirmed.status == 202, confirmed.json()


async def ended(world: World, job: dict[str, Any]) -> dict[str, Any]:
    """Run the job as its messages do; return it when it has ended."""
    for _ in range(20):
        await world.do(world.app.timers.run_once(BULK_JOBS))
        found = dict((await world.demo.get(f"{JOBS}/{job['id']}")).json())
        if found["state"] not in ("counting", "counted", "running"):
            return found
    raise AssertionError("the job does not end")


async def states(world: World, ids: list[str]) -> set[str]:
    return {(await world.demo.get(f"{LIST}/{each}")).json()["state"] for each in ids}


async def test_job_counts_and_changes_nothing_before_it_is_confirmed(world: World) -> None:
    ids = await events(world, 130)
    await events(world, 5, labels={"order": "18"})
    job = await counted(world, "cancel")
    assert (job["state"], job["count"], len(job["sample"])) == ("counted", 130, 10)
    assert {each["id"] for each in job["sample"]} <= set(ids) and job["confirmation"].startswith("130-")
    for wrong in ("", "130", "131-" + job["confirmation"][4:]):
        assert (await world.demo.post(f"{JOBS}/{job['id']}/confirm", {"confirmation": wrong})).status in (409, 422)
    await world.do(world.app.timers.run_once(BULK_JOBS))
    assert await states(world, ids[:20]) == {"scheduled"}
    await confirm(world, job)
    await confirm(world, job)
    report = await ended(world, job)
    assert (report["state"], report["done"], report["skipped"], report["failed"]) == ("done", 130, 0, 0)
    assert await states(world, ids) == {"cancelled"}
    assert len(await world.demo.all(f"{LIST}?state=scheduled")) == 5
    await world.do(world.app.timers.run_once(BULK_JOBS))
    assert [row.rk for row in world.rows(SWEEPS) if row.pk == "jobs:demo"] == [f"j:{job['id']}"], "counted events are removed"


async def test_events_of_a_shard_that_finishes_between_two_pages_are_counted_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await events(world, 7)
    plain = world.app.scheduler.lookup.matching

    async def again(tenant: str, chosen: EventFilter, page: int, start: ListPosition) -> Any:
        """Show four events, and then all: their shard is in the ledger meanwhile."""
        found, _ = await plain(tenant, chosen, page, START)
        return (found[:4], ListPosition(LEDGER_PHASE, 0, "", "")) if start == START else (found, None)

    monkeypatch.setattr(world.app.scheduler.lookup, "matching", again)
    job = await counted(world, "cancel")
    assert (job["count"], len({each["id"] for each in job["sample"]})) == (7, 7)
    await confirm(world, job)
    report = await ended(world, job)
    assert (report["done"], report["skipped"], report["failed"]) == (7, 0, 0)


async def test_job_acts_on_events_that_matched_then_and_still_match(world: World) -> None:
    first, second, third = await events(world, 3)
    job = await counted(world, "cancel", {"labels": {"order": "17"}, "to": "2027-01-17T00:00:00Z"})
    later = await events(world, 1)
    assert (await world.demo.patch(f"{LIST}/{first}", {"due": "2027-03-01T00:00:00Z"})).status == 200
    assert (await world.demo.delete(f"{LIST}/{second}")).status == 204
    assert (await world.demo.patch(f"{LIST}/{third}", {"due": "2027-01-16T10:00:00Z"})).status == 200
    await confirm(world, job)
    report = await ended(world, job)
    assert (report["done"], report["skipped"], report["reasons"]) == (1, 2, {"changed": 2})
    assert await states(world, [first, *later]) == {"scheduled"} and await states(world, [third]) == {"cancelled"}


async def test_job_moves_by_a_duration_and_to_a_time(world: World) -> None:
    ids = await events(world, 3)
    flexible = await events(world, 1, flex="PT1H")
    job = await counted(world, "move", later="PT90M")
    await confirm(world, job)
    assert (await ended(world, job))["done"] == 4
    dues = {(await world.demo.get(f"{LIST}/{each}")).json()["due"] for each in ids + flexible}
    assert dues == {"2027-01-16T10:30:00.000Z"}
    job = await counted(world, "move", due="2027-01-20T00:00:00Z")
    await confirm(world, job)
    await ended(world, job)
    dues = {(await world.demo.get(f"{LIST}/{each}")).json()["due"] for each in ids + flexible}
    assert dues == {"2027-01-20T00:00:00.000Z"}
    job = await counted(world, "move", earlier="P1D")
    await confirm(world, job)
    await ended(world, job)
    assert (await world.demo.get(f"{LIST}/{ids[0]}")).json()["due"] == "2027-01-19T00:00:00.000Z"


async def test_job_fires_and_redrives(world: World) -> None:
    ids = await events(world, 4)
    for each in ids:
        world.receiver.script(each, Verdict("final", 400, "refused"), Verdict("delivered", 204))
    job = await counted(world, "fire")
    await confirm(world, job)
    assert (await ended(world, job))["done"] == 4
    await world.run(20)
    assert await states(world, ids) == {"dead"}
    job = await counted(world, "redrive", {"error": "refused"})
    assert job["count"] == 4
    await confirm(world, job)
    assert (await ended(world, job))["done"] == 4
    # A redrive leaves the announcement of its shards to the queue.
    await world.run(60)
    assert await states(world, ids) == {"delivered"}


async def test_events_of_a_shard_are_cancelled_in_one_transaction_and_singly_if_one_has_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await events(world, 150)
    job = await counted(world, "cancel")
    await confirm(world, job)
    writes: list[int] = []
    write = world.tables.write

    async def changed_meanwhile(table: str, pk: str, ops: Sequence[Op]) -> Any:
        if table == EVENTS:
            writes.append(len(ops))
            if len(ops) == 50:
                monkeypatch.setattr(world.tables, "write", write)
                await world.put_props("demo", ids[120], note=1)
                monkeypatch.setattr(world.tables, "write", changed_meanwhile)
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", changed_meanwhile)
    report = await ended(world, job)
    assert (report["done"], report["skipped"], report["failed"]) == (150, 0, 0)
    assert await states(world, ids) == {"cancelled"}
    assert writes == [100, 50] + 50 * [1]


async def test_job_that_is_continued_after_a_crash_moves_no_event_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await events(world, 150)
    job = await counted(world, "move", later="PT1H")
    await confirm(world, job)
    bulk = world.app.scheduler.bulk
    stored, plain = 0, bulk._merge

    async def crash(*given: Any) -> str:
        nonlocal stored
        stored += 1
        if stored > 1:
            raise Unavailable("the process ends before it stores what it has done")
        return await plain(*given)

    monkeypatch.setattr(bulk, "_merge", crash)
    await world.do(world.app.timers.run_once(BULK_JOBS))
    monkeypatch.setattr(bulk, "_merge", plain)
    assert (await world.demo.get(f"{JOBS}/{job['id']}")).json()["done"] == 0
    await world.do(world.app.timers.run_once(BULK_JOBS))
    assert (await world.demo.get(f"{JOBS}/{job['id']}")).json()["done"] == 0, "the lease of the other process holds"
    # Another job moves the same events meanwhile.
    other = await counted(world, "move", later="PT1M")
    await confirm(world, other)
    assert (await ended(world, other))["done"] == 150
    await world.run(LEASE / 1000 + 1)
    assert (await ended(world, job))["done"] == 150
    assert {(await world.demo.get(f"{LIST}/{each}")).json()["due"] for each in ids} == {"2027-01-16T10:01:00.000Z"}


async def test_long_count_and_long_run_go_on_in_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for minute in range(5):
        await events(world, 30, due=f"2027-01-16T09:0{minute}:00Z")
    monkeypatch.setattr(service, "COUNT_PAGE", 20)
    monkeypatch.setattr(service, "COUNT_AT_ONCE", 0.0)
    monkeypatch.setattr(service, "RUN_FOR", 0.0)
    monkeypatch.setattr(service, "CHUNK", 40)
    job = await counted(world, "cancel")
    assert job["state"] == "counting" and 0 < job["count"] < 150
    for _ in range(30):
        await world.do(world.app.timers.run_once(BULK_JOBS))
        job = (await world.demo.get(f"{JOBS}/{job['id']}")).json()
        if job["state"] == "counted":
            break
    assert (job["state"], job["count"]) == ("counted", 150)
    await confirm(world, job)
    await world.do(world.app.timers.run_once(BULK_JOBS))
    half = (await world.demo.get(f"{JOBS}/{job['id']}")).json()
    assert half["state"] == "running" and 0 < half["done"] < 150
    stopped = (await world.demo.post(f"{JOBS}/{job['id']}/cancel")).json()
    assert stopped["state"] == "cancelled" and stopped["done"] == half["done"]
    await world.do(world.app.timers.run_once(BULK_JOBS))
    assert len(await world.demo.all(f"{LIST}?state=cancelled")) == half["done"]


async def test_job_keeps_to_its_rate(world: World) -> None:
    await events(world, 500)
    job = await counted(world, "cancel")
    await confirm(world, job)
    began = world.clock.monotonic()
    assert (await ended(world, job))["done"] == 500
    assert world.clock.monotonic() - began >= 500 / service.PER_SECOND


async def test_count_that_is_not_confirmed_expires_and_jobs_are_removed(world: World) -> None:
    await events(world, 1)
    job = await counted(world, "cancel")
    await world.clock.advance(CONFIRM_WITHIN / 1000)
    late = await world.demo.post(f"{JOBS}/{job['id']}/confirm", {"confirmation": job["confirmation"]})
    assert late.status == 409 and late.json()["type"].endswith("job-ended")
    assert (await ended(world, job))["state"] == "expired"
    await world.do(world.app.timers.run_once(BULK_JOBS))
    assert [each["id"] for each in await world.demo.all(JOBS)] == [job["id"]]
    await world.clock.advance(KEEP_JOBS / 1000)
    await world.do(world.app.timers.run_once(BULK_JOBS))
    assert (await world.demo.get(f"{JOBS}/{job['id']}")).status == 404
    assert not [row for row in world.rows(SWEEPS) if row.pk in (PK_OPEN, "jobs:demo")]


async def test_without_jobs_a_sweep_makes_no_request_for_them(world: World) -> None:
    await world.do(world.app.timers.sweep())
    before = dict(world.tables.transactions)
    await world.do(world.app.timers.sweep())
    plain = sum(world.tables.transactions.values()) - sum(before.values())
    await events(world, 1)
    await ended(world, await counted_and_confirmed(world))
    await world.clock.advance(KEEP_JOBS / 1000)
    for _ in range(3):
        await world.do(world.app.timers.run_once(BULK_JOBS))
    [marker] = [row for row in world.rows(SWEEPS) if row.pk == PK_TICKS and row.rk == OPEN_ROW]
    assert marker.props["open"] is False
    await world.do(world.app.timers.sweep())
    before = dict(world.tables.transactions)
    await world.do(world.app.timers.sweep())
    assert sum(world.tables.transactions.values()) - sum(before.values()) <= plain + 2, "a shard waits in the index"


async def counted_and_confirmed(world: World) -> dict[str, Any]:
    job = await counted(world, "cancel")
    await confirm(world, job)
    return job


async def test_start_of_a_job_is_in_the_audit_trail_and_read_keys_cannot_make_one(world: World) -> None:
    await events(world, 2)
    job = await counted_and_confirmed(world)
    records = (await world.admin.get("/api/v1/audit?tenant=demo")).json()["items"]
    assert [each["action"] for each in records if each["path"].startswith(JOBS)] == ["jobs_confirm"]
    made = await world.admin.post("/api/v1/tenants/demo/keys", {"scopes": ["read"]})
    reader = world.client(made.json()["key"])
    assert (await reader.get(f"{JOBS}/{job['id']}")).status == 200
    assert (await reader.post(JOBS, {"action": "cancel", "filter": {}})).status == 403
    assert (await reader.post(f"{JOBS}/{job['id']}/cancel")).status == 403


def test_jobs_have_an_action_for_each_verb() -> None:
    assert get_args(BulkAction.__value__) == tuple(VERBS)


@pytest.mark.parametrize(
    "body",
    [
        {"action": "cancel"},
        {"action": "stop", "filter": {}},
        {"action": "move", "filter": {}},
        {"action": "move", "filter": {}, "later": "PT1H", "earlier": "PT1H"},
        {"action": "cancel", "filter": {}, "due": "2027-01-16T09:00:00Z"},
        {"action": "cancel", "filter": {"state": "dead"}},
        {"action": "redrive", "filter": {"state": "scheduled"}},
        {"action": "cancel", "filter": {"labels": {str(number): "x" for number in range(5)}}},
    ],
)
async def test_job_that_makes_no_sense_is_refused(world: World, body: dict[str, Any]) -> None:
    assert (await world.demo.post(JOBS, body)).status == 422
    assert not [row for row in world.rows(EVENTS)]


async def test_tenant_has_a_bounded_number_of_unfinished_jobs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_UNFINISHED", 2)
    await events(world, 1)
    jobs = [await counted(world, "cancel") for _ in range(2)]
    refused = await world.demo.post(JOBS, {"action": "cancel", "filter": {}})
    assert refused.status == 429
    assert (await world.demo.post(f"{JOBS}/{jobs[0]['id']}/cancel")).json()["state"] == "cancelled"
    await counted(world, "cancel")


async def test_job_that_nobody_confirms_makes_room_for_a_further_one_after_a_minute(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the answers that named the jobs had been lost."""
    monkeypatch.setattr(service, "MOST_UNFINISHED", 2)
    await events(world, 1)
    first = await counted(world, "cancel")
    await world.run(30)
    second = await counted(world, "cancel")
    await world.run(30)
    third = await counted(world, "cancel")
    assert (await world.demo.post(JOBS, {"action": "cancel", "filter": {}})).status == 429
    states = {each["id"]: (await world.demo.get(f"{JOBS}/{each['id']}")).json()["state"] for each in (first, second, third)}
    assert states == {first["id"]: "cancelled", second["id"]: "counted", third["id"]: "counted"}
    late = await world.demo.post(f"{JOBS}/{first['id']}/confirm", {"confirmation": first["confirmation"]})
    assert (late.status, late.json()["type"].rpartition("/")[2]) == (409, "job-ended")


async def test_job_at_work_makes_no_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_UNFINISHED", 1)
    await events(world, 1)
    await confirm(world, await counted(world, "cancel"))
    await world.clock.advance(120, settle=3)
    assert (await world.demo.post(JOBS, {"action": "cancel", "filter": {}})).status == 429


async def test_run_that_sees_a_job_before_it_is_stored_does_not_lose_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await events(world, 3)
    bulk = world.app.scheduler.bulk
    plain = bulk._wake

    async def run_between(tenant: str, job_id: str) -> None:
        await plain(tenant, job_id)
        monkeypatch.setattr(bulk, "_wake", plain)
        await bulk.run_once(world.now)

    monkeypatch.setattr(bulk, "_wake", run_between)
    monkeypatch.setattr(service, "COUNT_AT_ONCE", 0.0)
    monkeypatch.setattr(service, "COUNT_PAGE", 1)
    job = await counted(world, "cancel")
    assert job["state"] == "counting"
    for _ in range(5):
        await world.do(world.app.timers.run_once(BULK_JOBS))
    assert (await world.demo.get(f"{JOBS}/{job['id']}")).json()["count"] == 3


async def test_job_that_is_stored_long_after_its_request_is_carried_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await events(world, 3)
    plain, late = world.tables.write, list[Any]()

    async def delayed(table: str, pk: str, ops: Any) -> Any:
        if not late and any(op.rk.startswith("j:") for op in ops):
            late.append((table, pk, ops))
            raise OutcomeUnknown("the answer does not come")
        return await plain(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", delayed)
    body = {"action": "cancel", "filter": {}}
    assert (await world.demo.post(JOBS, body)).status == 503
    await world.do(world.app.timers.run_once(BULK_JOBS))
    await plain(*late[0])
    await world.run(STORED_WITHIN / 1000)
    await world.do(world.app.timers.run_once(BULK_JOBS))
    [job] = (await world.demo.get(JOBS)).json()["items"]
    assert (job["state"], job["count"]) == ("counted", 3)


async def test_oldest_jobs_that_have_ended_make_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_KEPT", 3)
    await events(world, 1)
    jobs = []
    for _ in range(5):
        jobs.append(await counted(world, "cancel"))
        await world.demo.post(f"{JOBS}/{jobs[-1]['id']}/cancel")
        await world.clock.advance(1)
    last = await counted(world, "cancel")
    kept = {each["id"] for each in await world.demo.all(JOBS)}
    assert last["id"] in kept and jobs[0]["id"] not in kept and len(kept) <= 4
    left = [row.rk for row in world.rows(SWEEPS) if row.pk in (PK_OPEN, "jobs:demo")]
    assert not [rk for rk in left if jobs[0]["id"] in rk]


async def test_jobs_of_all_tenants_take_turns(world: World) -> None:
    found = world.app.scheduler.bulk._in_turn(["a:1", "a:2", "a:3", "b:4", "c:5"])
    assert {each[0] for each in found[:3]} == {"a", "b", "c"} and found[3:] == ["a:2", "a:3"]
    assert world.app.scheduler.bulk._in_turn([]) == []


async def test_name_of_a_tenant_stays_in_use_while_its_jobs_are_kept(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/gone", {})).status == 201
    made = await world.admin.post("/api/v1/jobs?tenant=gone", {"action": "cancel", "filter": {}})
    assert made.status == 201 and made.json()["count"] == 0
    assert (await world.admin.delete("/api/v1/tenants/gone")).status == 204
    assert (await world.admin.put("/api/v1/tenants/gone", {})).json()["type"].endswith("events-left")
