"""`/api/metrics`, read back by Prometheus's own parser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shared.core.clock import Millis
from shared.core.errors import Unavailable
from shared.delivery.channels.ports import Verdict
from shared.ops.metrics import families
from shared.ops.metrics.families import MetricsSnapshot, TenantFigures
from shared.scheduler.shard import ledger
from shared.storage.names import ALL_QUEUES, EVENTS, POISON_QUEUES, SHARDS
from shared.storage.ports import RowQuery
from tests.unit.scheduler.harness import World

METRICS = "/api/metrics"
type Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The application on storage in memory."""
    world = await World().open()
    yield world
    await world.close()


def parsed(text: bytes) -> Series:
    """Every sample, by name and labels; each name has its type and is there once."""
    found: Series = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.name.startswith("tocsin_") and family.documentation and family.type in ("gauge", "counter", "histogram")
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


async def look(world: World) -> Series:
    """A fresh look."""
    await world.clock.advance(10)
    answer = await world.admin.get(METRICS)
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parsed(answer.body)


def of(found: Series, name: str, **labels: str) -> float:
    return found[f"tocsin_{name}", tuple(sorted(labels.items()))]


async def test_figures_show_open_and_finished_events(world: World) -> None:
    answer = await world.demo.post("/api/v1/events/batch", [{"delay": "PT8S", "payload": number} for number in range(7)])
    dead, retried, *_ = (line["id"] for line in answer.json()["results"])
    await world.demo.create(delay="PT1H")
    world.receiver.script(dead, Verdict("final", 400))
    world.receiver.script(retried, Verdict("retry", 503, retry_after=600.0), Verdict("delivered", 200))
    first = await look(world)
    assert of(first, "events", tenant="demo", state="scheduled") == 8
    assert of(first, "events_accepted_total", tenant="demo") == 0
    await world.run(30)
    seen = await look(world)
    states = {state: of(seen, "events", tenant="demo", state=state) for state in families.UNFINISHED}
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert (stats["open"], stats["retrying"], stats["dead"]) == (2, 1, 1)
    assert states == {"scheduled": 1, "retrying": 1, "delivered": 5, "dead": 1, "lapsed": 0, "cancelled": 0, "moved": 0}
    await world.run(620)
    seen = await look(world)
    assert of(seen, "events", tenant="demo", state="retrying") == of(seen, "events_overdue", tenant="demo") == 0
    ends = {state: of(seen, "events_finished_total", tenant="demo", state=state) for state in families.FINISHED}
    assert ends == {"delivered": 6, "dead": 1, "lapsed": 0, "cancelled": 0, "moved": 0}
    assert of(seen, "events_accepted_total", tenant="demo") == 7 and of(seen, "ledger_gap", tenant="demo") == 0
    assert of(seen, "channel_dead_total", tenant="demo", channel="default") == 1
    assert of(seen, "lateness_seconds_count", tenant="demo", channel="default") == 6
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert (stats["dead"], stats["retrying"]) == (1, 0)
    assert {name: stats["channels"]["default"][name] for name in ("delivered", "dead")} == {"delivered": 6, "dead": 1}
    assert of(seen, "shards_read") == sum(of(seen, "shards", state=state) for state in ("pending", "sent", "resting")) == 1


async def test_counters_never_fall_though_the_ledger_is_emptied(world: World) -> None:
    await world.demo.create(delay="PT1S")
    await world.run(5)
    before = await look(world)
    await world.clock.advance(8 * 86_400)
    await world.app.timers.run_once("retention_scan")
    await world.demo.create(delay="PT1S")
    await world.run(30)
    after = await look(world)
    assert of(before, "events_finished_total", tenant="demo", state="delivered") == 1
    assert of(after, "events_finished_total", tenant="demo", state="delivered") == 2
    # Whatever Prometheus takes for a counter.
    rising = {key: value for key, value in before.items() if key[0].endswith(("_total", "_bucket", "_count", "_sum"))}
    assert rising and all(after[key] >= value for key, value in rising.items())


async def test_overdue_events_without_an_owner_are_reported(world: World) -> None:
    for _ in range(3):
        await world.demo.create(delay="PT1S")
    await world.clock.advance(60)
    assert of(await look(world), "events_overdue", tenant="demo") == 3


async def test_blocked_channels_are_reported_with_their_reason(world: World) -> None:
    assert not [name for name, _ in await look(world) if name == "tocsin_channel_blocked"]
    assert (await world.admin.post("/api/v1/tenants/demo/channels/default/pause")).status == 200
    assert of(await look(world), "channel_blocked", tenant="demo", channel="default", reason="paused") == 1


async def test_queues_and_timers_are_shown(world: World) -> None:
    await world.queues.send("tocsin-shards", "x")
    await world.app.timers.run_once("stale_scan")
    seen = await look(world)
    assert {dict(labels)["queue"] for name, labels in seen if name == "tocsin_queue_messages"} == {*ALL_QUEUES, *POISON_QUEUES}
    assert of(seen, "queue_messages", queue="tocsin-shards") == 1 and of(seen, "timer_age_seconds", timer="stale_scan") == 10
    await world.queues.send("tocsin-shards-poison", "x")
    assert of(await look(world), "queue_messages", queue="tocsin-shards-poison") == 1


async def test_process_exports_its_counts_under_its_own_name(world: World) -> None:
    await world.demo.create(delay="PT1S")
    await world.run(5)
    seen = await look(world)
    [(labels, count)] = [(dict(labels), value) for (name, labels), value in seen.items() if "deliveries_delivered" in dict(labels).values()]
    assert count == 1 and len(labels["process"]) == 16
    assert {dict(labels)["process"] for name, labels in await look(world) if name == "tocsin_process_total"} == {labels["process"]}


async def test_look_is_used_again_for_ten_seconds(world: World) -> None:
    one = await world.admin.get(METRICS)
    before = world.tables.transactions.total()
    await world.demo.create(delay="PT1H")
    written = world.tables.transactions.total() - before
    assert (await world.admin.get(METRICS)).body == one.body
    assert world.tables.transactions.total() == before + written
    await world.clock.advance(10)
    assert (await world.admin.get(METRICS)).body != one.body


async def test_metrics_are_the_operators(world: World) -> None:
    assert (await world.nobody.get(METRICS)).status == 401
    assert (await world.demo.get(METRICS)).status == 403
    assert (await world.admin.get(f"{METRICS}?tenant=demo")).status == 422


async def test_what_is_far_off_does_not_make_a_look_dear(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.ops.metrics.service.MOST_GATES", 3)
    for hours in range(1, 8):
        await world.demo.create(delay=f"PT{hours}H")
    await world.demo.create(delay="PT1M")
    seen = await look(world)
    assert of(seen, "shards_read") == 3 and of(seen, "events", tenant="demo", state="scheduled") == 3
    assert len(world.rows(SHARDS)) == sum(of(seen, "shards", state=state) for state in ("pending", "sent", "resting")) == 8


async def test_account_that_does_not_answer_does_not_silence_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.demo.create(delay="PT1H")
    [filed] = world.rows(SHARDS)
    query, get = world.tables.query, world.tables.get

    async def no_query(asked: RowQuery) -> Any:
        if asked.table == SHARDS and asked.pk != filed.pk:
            raise Unavailable("away")
        return await query(asked)

    async def no_get(table: str, pk: str, rk: str) -> Any:
        if table == EVENTS:
            raise Unavailable("away")
        return await get(table, pk, rk)

    monkeypatch.setattr(world.tables, "query", no_query)
    seen = await look(world)
    assert (of(seen, "partitions_unread"), of(seen, "events", tenant="demo", state="scheduled")) == (15, 1)
    monkeypatch.setattr(world.tables, "get", no_get)
    seen = await look(world)
    assert (of(seen, "shards_read"), of(seen, "shards", state="pending")) == (0, 1)


async def test_longest_stall_of_the_process_is_shown(world: World) -> None:
    world.app.stalls.record(0.25)
    stalls = {
        dict(labels)["process"]: value for (name, labels), value in (await look(world)).items() if name == "tocsin_event_loop_stall_seconds"
    }
    assert list(stalls.values()) == [0.25]


def observed(tenants: int, late: dict[int, int] | None = None, now: Millis = 0) -> MetricsSnapshot:
    seen = MetricsSnapshot(now, process="p")
    for number in range(tenants):
        tenant = seen.tenants[f"t{number:04}"] = TenantFigures(overdue=1)
        tenant.total.channels["c"] = ledger.DeliveryFigures(dict(late or {}), 0, 1_500, 2)
    return seen


def test_tenants_beyond_a_hundred_are_reported_together() -> None:
    found = parsed(families.exposition(observed(130, {0: 1})))
    names = {dict(labels)["tenant"] for name, labels in found if name == "tocsin_events_overdue"}
    assert len(names) == families.MOST_TENANTS + 1
    assert of(found, "events_overdue", tenant="*") == 30 and of(found, "channel_dead_total", tenant="*", channel="c") == 60
    assert of(found, "lateness_seconds_count", tenant="*", channel="c") == 30


def test_histogram_is_cumulative_and_in_seconds() -> None:
    late = {ledger.bucket_of(value): 1 for value in (0, 2, 7, 15_000, 10**9)}
    found = parsed(families.exposition(observed(1, late)))
    series = [(dict(labels)["le"], value) for (name, labels), value in found.items() if name == "tocsin_lateness_seconds_bucket"]
    assert [float(le) for le, _ in series] == [*(bound / 1000 for bound in families.BOUNDS), float("inf")]
    counts = dict(series)
    assert [counts[le] for le in ("0.001", "0.002", "0.005", "0.01", "10.0", "50.0", "10000.0", "+Inf")] == [1, 2, 2, 3, 3, 4, 4, 5]
    assert sorted(counts.values()) == list(counts.values())
    assert of(found, "lateness_seconds_count", tenant="t0000", channel="c") == 5
    assert of(found, "lateness_seconds_sum", tenant="t0000", channel="c") == 1.5


def test_bounds_of_the_histogram_are_bounds_of_the_ledger() -> None:
    assert set(families.BOUNDS) <= set(ledger.BOUNDS)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "ü"])
def test_odd_names_are_written_so_that_they_can_be_read(name: Any) -> None:
    seen = observed(0)
    seen.queues[name] = 1
    assert of(parsed(families.exposition(seen)), "queue_messages", queue=name) == 1


async def test_a_key_of_the_scope_metrics_reads_metrics_and_nothing_else(world: World) -> None:
    scraper = await world.key("demo", ["metrics"])
    assert (await scraper.get(METRICS)).status == 200
    for path in ("/api/v1/stats", "/api/v1/tenants", "/api/v1/fleets"):
        assert (await scraper.get(path)).status == 403, path
    assert (await world.demo.get(METRICS)).status == 403


async def test_counters_of_locks_are_shown_beside_those_of_events(world: World) -> None:
    world.app.scheduler.counters["something"] += 3
    for _ in range(2):
        assert (await world.demo.put("/api/v1/locks/nightly", {"holder": "a", "nonce": "n1"})).status == 200
    found = {dict(labels)["what"]: value for (name, labels), value in (await look(world)).items() if name == "tocsin_process_total"}
    assert (found["something"], found["lock_granted"], found["lock_renewed"]) == (3, 1, 1)
