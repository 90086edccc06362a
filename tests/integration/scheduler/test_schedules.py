"""A recurring schedule over HTTP, real storage and real deliveries."""

from __future__ import annotations

from .conftest import Tenant, eventually


async def test_schedule_fires_on_time_follows_a_change_and_stops_when_it_is_deleted(tenant: Tenant) -> None:
    made = await tenant.api.call("PUT", "schedules/tick", {"every": "PT1S", "payload": {"v": 1}})
    assert made.status == 201, made
    assert made.headers["location"] == "/api/v1/schedules/tick"

    async def some(version: int, count: int) -> bool:
        return sum(hit.json() == {"v": version} for hit in tenant.hits) >= count

    await eventually(lambda: some(1, 2), "two occurrences of the first version")
    changed = await tenant.api.call("PUT", "schedules/tick", {"every": "PT1S", "payload": {"v": 2}})
    assert (changed.status, changed.json()["revision"]) == (200, 2)
    await eventually(lambda: some(2, 2), "two occurrences of the second version")
    assert (await tenant.api.call("DELETE", "schedules/tick")).status == 204
    assert (await tenant.api.get("schedules/tick")).status == 404

    # What was being delivered ends, everything else is taken back: nothing of the schedule is open.
    async def none_open() -> bool:
        events = await tenant.api.all("events")
        return all(event["state"] in ("delivered", "cancelled") for event in events)

    await eventually(none_open, "no occurrence that still fires")
    occurrences = [hit.id.partition("~")[0] for hit in tenant.hits]
    assert len(set(occurrences)) == len(occurrences), "none fired under two revisions"
    events = {event["id"]: event for event in await tenant.api.all("events?state=delivered")}
    assert {hit.id for hit in tenant.hits} == set(events)
    assert all(event["late_ms"] >= 0 for event in events.values())
