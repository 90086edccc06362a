"""Thousands of events through, exactly accounted for."""

from __future__ import annotations

from typing import Any

from .conftest import Tenant, eventually, millis_of, now_ms, text_of

COUNT = 3_000
AHEAD, SPREAD = 5_000, 4_000  # milliseconds


async def test_thousands_of_events_are_each_delivered_once_and_none_early(tenant: Tenant) -> None:
    start = now_ms() + AHEAD
    due = [start + number * SPREAD // COUNT for number in range(COUNT)]
    filler = "x" * 100
    ids = await tenant.api.batch([{"due": text_of(due[n]), "payload": {"n": n, "filler": filler}} for n in range(COUNT)])
    assert len(set(ids)) == COUNT

    async def all_counted() -> dict[str, Any] | None:
        stats = await tenant.api.stats()
        assert stats["delivered"] + stats["open"] <= COUNT, "never more than there are, not even while shards finish"
        # A shard's lateness is known when it has finished.
        return stats if stats["channels"].get("default", {}).get("delivered") == COUNT else None

    stats = await eventually(all_counted, "all in the statistics", 300, pause=0.1)
    assert {name: stats[name] for name in ("open", "overdue", "delivered", "dead", "lapsed", "cancelled")} == {
        "open": 0,
        "overdue": 0,
        "delivered": COUNT,
        "dead": 0,
        "lapsed": 0,
        "cancelled": 0,
    }

    hits = tenant.hits
    by_id = tenant.by_id()
    assert set(by_id) == set(ids), "nothing lost, nothing invented"
    assert len(hits) == COUNT, "without faults nothing arrives twice"
    assert all(hit.attempt == 1 for hit in hits)
    for number, event_id in enumerate(ids):
        [hit] = by_id[event_id]
        assert hit.json()["n"] == number
        assert hit.at >= due[number] and millis_of(hit.headers["ce-tocsinfired"]) >= due[number] == millis_of(hit.due)

    shown = await tenant.api.all("events?limit=1000")
    assert {event["id"] for event in shown} == set(ids) and {event["state"] for event in shown} == {"delivered"}
    assert max(event["late_ms"] for event in shown) == stats["late_ms"]["max"] == max(hit.late_ms for hit in hits)
    late = sorted(hit.at - millis_of(hit.due) for hit in hits)
    print(f"\nlateness at the receiver, ms: p50 {late[COUNT // 2]}, p99 {late[COUNT * 99 // 100]}, max {late[-1]}")
