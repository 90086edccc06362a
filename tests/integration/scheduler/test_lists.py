"""Lists, their filters and cursors, statistics, and bringing dead letters back in bulk."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .conftest import FINAL, System, Tenant, eventually, millis_of, now_ms, text_of
from .receiver import status

HOUR = 3_600_000


async def test_list_goes_page_by_page_through_shards_each_event_once(tenant: Tenant) -> None:
    start = now_ms() + HOUR
    ids = await tenant.api.batch([{"due": text_of(start + number * 1_000), "payload": number} for number in range(500)])
    pages = await tenant.api.pages("events?limit=7")
    assert all(len(page) <= 7 for page in pages)
    found = [event["id"] for page in pages for event in page]
    assert sorted(found) == sorted(ids)
    assert sorted(event["id"] for event in (await tenant.api.get("events?limit=1000")).json()["items"]) == sorted(ids)


async def test_list_filters_by_due_time_state_and_channel(tenant: Tenant) -> None:
    await tenant.channel("other", f"{tenant.path}/other")
    await tenant.channel("bad", f"{tenant.path}/bad")
    tenant.receiver.script(f"{tenant.path}/bad", status(422))
    start = now_ms() // 60_000 * 60_000 + HOUR
    later = await tenant.api.batch([{"due": text_of(start + number * 10_000), "payload": number} for number in range(60)])
    elsewhere = await tenant.api.batch([{"due": text_of(start), "payload": 0, "channel": "other"}])
    done = await tenant.api.create(delay="PT0S")
    dead = await tenant.api.create(delay="PT0S", channel="bad")
    cancelled = await tenant.api.create(delay="PT2H")
    assert (await tenant.api.call("DELETE", f"events/{cancelled}")).status == 204
    await asyncio.gather(tenant.api.ended(done, "delivered"), tenant.api.ended(dead, "dead"))

    async def ids(query: str) -> set[str]:
        found = await tenant.api.all(f"events?limit=25&{query}")
        assert len({event["id"] for event in found}) == len(found)
        return {event["id"] for event in found}

    assert await ids("state=scheduled") == {*later, *elsewhere}
    assert await ids("state=delivered") == {done}
    assert await ids("state=dead") == {dead}
    assert await ids("state=cancelled") == {cancelled}
    assert await ids("state=firing") == set()
    assert await ids("channel=other") == set(elsewhere)
    assert await ids("channel=default&state=delivered") == {done}
    first, end = text_of(start + 100_000), text_of(start + 300_000)
    assert await ids(f"from={first}&to={end}") == set(later[10:30]), "from is inclusive, to is not"
    assert await ids(f"from={first}&to={end}&channel=other") == set()
    assert await ids(f"to={text_of(start)}") == {done, dead}
    assert await ids(f"from={text_of(start + HOUR // 2)}") == {*later[180:], cancelled}


async def test_job_cancels_all_events_with_a_label_and_no_others(tenant: Tenant) -> None:
    due = text_of(now_ms() + HOUR)
    ids = await tenant.api.batch([{"due": due, "payload": number, "labels": {"order": "a,b"}} for number in range(150)])
    others = await tenant.api.batch([{"due": due, "payload": number, "labels": {"order": "a"}} for number in range(5)])
    assert {event["id"] for event in await tenant.api.all("events?limit=70&label=order%3Da%5C%2Cb")} == set(ids)
    made = await tenant.api.post("jobs", {"action": "cancel", "filter": {"labels": {"order": "a,b"}}})
    assert made.status == 201
    path = f"jobs/{made.json()['id']}"

    async def in_state(state: str) -> dict[str, Any] | None:
        job = (await tenant.api.get(path)).json()
        return job if job["state"] == state else None

    job = await eventually(lambda: in_state("counted"), "the events to be counted")
    assert job["count"] == 150
    assert (await tenant.api.post(f"{path}/confirm", {"confirmation": job["confirmation"]})).status == 202
    job = await eventually(lambda: in_state("done"), "the job to end")
    assert (job["done"], job["skipped"], job["failed"]) == (150, 0, 0)
    assert {event["id"] for event in await tenant.api.all("events?state=cancelled")} == set(ids)
    assert {event["id"] for event in await tenant.api.all("events?state=scheduled")} == set(others)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "cursor=nonsense", "state=lost", "from=yesterday", "colour=blue", "channel=NO"])
async def test_list_refuses_what_it_does_not_understand(tenant: Tenant, query: str) -> None:
    assert (await tenant.api.get(f"events?{query}")).status == 422


async def test_cursor_of_one_list_is_refused_by_another(tenant: Tenant) -> None:
    await tenant.api.batch([{"delay": "PT1H", "payload": number} for number in range(5)])
    cursor = (await tenant.api.get("events?limit=2")).json()["next"]
    assert cursor and (await tenant.api.get(f"dead-letters?cursor={cursor}")).status == 422


async def test_stats_add_up_open_and_final(tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(204))
    await tenant.channel("bad", f"{tenant.path}/bad")
    tenant.receiver.script(f"{tenant.path}/bad", status(422))
    now = now_ms()
    await tenant.api.batch([{"due": text_of(now), "payload": n} for n in range(30)])
    await tenant.api.batch([{"due": text_of(now), "payload": n, "channel": "bad"} for n in range(7)])
    await tenant.api.batch([{"due": "2020-01-01T00:00:00Z", "expires": "PT1S", "payload": n} for n in range(5)])
    ahead = await tenant.api.batch([{"delay": "PT1H", "payload": n} for n in range(11)])

    expected = {"open": 11, "overdue": 0, "delivered": 30, "dead": 7, "lapsed": 5, "cancelled": 0}

    async def figures_counted() -> dict[str, Any] | None:
        stats = await tenant.api.stats()
        # A shard's lateness is known when it has finished.
        return stats if expected.items() <= stats.items() and set(stats["channels"]) == {"default", "bad"} else None

    stats = await eventually(figures_counted, "the near ones to end and to be counted")
    assert stats["channels"]["default"]["delivered"] == 30
    worst = max(hit.late_ms for hit in tenant.hits)
    assert stats["late_ms"]["max"] == worst and stats["late_ms"]["p50"] <= stats["late_ms"]["p99"]
    assert {event["state"] for event in await tenant.api.all("events") if event["id"] not in ahead} <= FINAL


async def test_dead_letters_are_redriven_by_channel_and_time_and_only_those(tenant: Tenant) -> None:
    await tenant.channel("a", f"{tenant.path}/a")
    await tenant.channel("b", f"{tenant.path}/b")
    for channel in "ab":
        tenant.receiver.script(f"{tenant.path}/{channel}", status(422))
    a = await tenant.api.batch([{"delay": "PT0S", "payload": n, "channel": "a"} for n in range(250)])
    b = await tenant.api.batch([{"delay": "PT0S", "payload": n, "channel": "b"} for n in range(20)])
    await tenant.api.drained()

    async def each_once() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = await tenant.api.all("dead-letters?limit=100")
        assert {event["id"] for event in found} == {*a, *b}
        # A shard that finishes while a list is paged may show its events twice.
        return found if len(found) == 270 else None

    dead = await eventually(each_once, "the shards to be finished")
    assert {event["id"] for event in await tenant.api.all("dead-letters?channel=b")} == set(b)
    last = max(millis_of(event["due"]) for event in dead)
    assert await tenant.api.all(f"dead-letters?from={text_of(last + 1)}") == []

    tenant.receiver.script(f"{tenant.path}/a", status(204))
    nothing = await tenant.api.post("dead-letters/redrive", {"channel": "a", "from": text_of(last + 1)})
    assert nothing.status == 202 and nothing.json() == {"redriven": 0}
    answer = await tenant.api.post("dead-letters/redrive", {"channel": "a", "to": text_of(last + 1)})
    assert answer.status == 202 and answer.json() == {"redriven": 250}
    await tenant.api.drained()
    assert {(await tenant.api.event(event_id))["state"] for event_id in a} == {"delivered"}
    assert {event["id"] for event in await tenant.api.all("dead-letters")} == set(b)
    by_id = tenant.receiver.by_id(f"{tenant.path}/a")
    assert set(by_id) == set(a) and all(len(hits) == 2 for hits in by_id.values())
    assert (await tenant.api.post("dead-letters/redrive", {"channel": "a"})).json() == {"redriven": 0}


async def test_event_that_dies_again_can_be_redriven_again(tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(422), status(422), status(422), status(204))
    await tenant.api.create(id="stubborn", delay="PT0S")
    for deaths in range(1, 4):
        await eventually(lambda deaths=deaths: len(tenant.hits) == deaths, "the next delivery")
        await tenant.api.ended("stubborn", "dead")
        assert [event["id"] for event in await tenant.api.all("dead-letters")] == ["stubborn"]
        assert (await tenant.api.post("events/stubborn/redrive")).status == 202
    event = await tenant.api.in_state("stubborn", "delivered")
    assert [attempt["outcome"] for attempt in event["attempts"]] == ["final"] * 3 + ["delivered"]


async def test_redrives_that_race_bring_an_event_back_once(tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(422))
    ids = await tenant.api.batch([{"delay": "PT0S", "payload": number} for number in range(30)])
    await tenant.api.drained()
    tenant.receiver.script(tenant.path, status(204))
    calls = [tenant.api.post("dead-letters/redrive", {}) for _ in range(4)]
    calls += [tenant.api.post(f"events/{event_id}/redrive") for event_id in ids[:10]]
    answers = await asyncio.gather(*calls)
    assert {answer.status for answer in answers} <= {202, 409}
    await tenant.api.drained()
    for event_id in ids:
        await tenant.api.in_state(event_id, "delivered")
    assert all(len(hits) == 2 for hits in tenant.by_id().values())
    assert await tenant.api.all("dead-letters") == []


async def test_a_dead_event_reaches_the_channels_of_its_callback_and_of_its_tenants_notices(system: System) -> None:
    async with system.tenant(notices={"channel": "ops", "kinds": ["event.dead"]}) as tenant:
        for name in ("bad", "told", "ops"):
            await tenant.channel(name, f"{tenant.path}/{name}")
        tenant.receiver.script(f"{tenant.path}/bad", status(422))
        event_id = await tenant.api.create(delay="PT0S", channel="bad", on_dead="told", labels={"team": "blue"})
        called = (await eventually(lambda: tenant.receiver.at(f"{tenant.path}/told"), "a callback"))[0]
        said = called.json()
        assert (said["type"], said["event"], said["status"], said["labels"]) == ("event.dead", event_id, 422, {"team": "blue"})
        assert (await tenant.api.event(called.id))["callback_of"] == event_id

        async def noted() -> bool:
            return (await tenant.api.event(event_id)).get("callback") == called.id

        await eventually(noted, "the callback's id at its event")
        notice = (await eventually(lambda: tenant.receiver.at(f"{tenant.path}/ops"), "a notice"))[0]
        assert (notice.json()["type"], notice.json()["subjects"][0]["subject"]) == ("event.dead", "bad")
        assert {hit.id for hit in tenant.receiver.at(f"{tenant.path}/told")} == {called.id}
