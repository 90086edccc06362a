"""The alert rule runs on exports of the code: it finds each fault, and nothing while there is no fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import Metric as Family

from shared.app.timers import PERIODS
from shared.core.clock import Millis, SettableClock, to_text
from shared.delivery import tracing as delivery_tracing
from shared.delivery.channels.ports import Verdict
from shared.engine.sweeps import OTHER_FLEETS
from shared.fleets.watch.alarms import KINDS, Kind
from shared.fleets.watch.figures import FleetFigures
from shared.maintenance.service.alarms import ALARMS as MAINTENANCE_ALARMS
from shared.maintenance.service.figures import MaintenanceFigures as MaintenanceFigures
from shared.ops.export.points import CounterForm, metrics_data
from shared.ops.metrics.families import MetricsSnapshot, TenantFigures, collected
from shared.scheduler.shard.event_clock import EventClock
from shared.storage.server_time import ServerTimeEstimator, time_etag
from tests.unit.scheduler.harness import World

from . import kql
from .snapshots import alarm_query, deployed

AT = 1_700_000_000_000
MINUTE = 60_000
WELL = dict.fromkeys(PERIODS, AT)


def records(families: Iterable[Family], at: Millis) -> list[kql.Row]:
    """The rows of `AppMetrics` that a look leaves."""
    [found] = metrics_data(families, at * 1_000_000, CounterForm.GAUGES, Resource.get_empty()).resource_metrics
    rows = []
    for metric in found.scope_metrics[0].metrics:
        for point in metric.data.data_points:
            value: Any = point
            assert value.time_unix_nano == at * 1_000_000
            rows.append({"TimeGenerated": at, "Name": metric.name, "Sum": value.value, "Properties": dict(value.attributes)})
    return rows


def looked(**seen: Any) -> list[kql.Row]:
    """The rows of one look, at `now`."""
    seen = {"now": AT, "ticks": WELL, **seen}
    return records(collected(MetricsSnapshot(**seen)), seen["now"])


@pytest.fixture
def fire() -> Any:
    """The alarms that the rule finds in rows of `AppMetrics`, `AppDependencies` and `AppTraces`."""
    query = alarm_query(deployed("defaults"))

    def fired(metrics: Sequence[kql.Row], spans: Sequence[kql.Row] = (), traces: Sequence[kql.Row] = ()) -> set[str]:
        tables = {"AppMetrics": metrics, "AppDependencies": spans, "AppTraces": traces}
        return {row["alarm"] for row in kql.run(query, tables)}

    return fired


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The application on storage in memory, its timers just run."""
    world = await World().open()
    yield world
    await world.close()


async def minute(world: World) -> list[kql.Row]:
    """The rows that the minute's look leaves."""
    await world.clock.advance(60)
    for timer in ("scheduler_scan", "lease_scan", "stale_scan"):
        await world.app.timers.run_once(timer)
    return records(await world.app.metrics.families(), world.clock.now())


def test_nothing_fires_while_all_is_well(fire: Any) -> None:
    fleet = FleetFigures("acme", "db", 3, 2, 0, 0, 1.5, ())
    tenant = TenantFigures()
    tenant.total.counts.update(accepted=4, delivered=3, dead=1)
    rows = [
        row
        for number in range(10)
        for row in looked(
            now=AT + number * MINUTE,
            ticks=dict.fromkeys(PERIODS, AT + number * MINUTE - 15_000),
            tenants={"acme": tenant},
            fleets=[fleet],
            maintenance=[MaintenanceFigures("acme", "db", Counter())],
        )
    ]
    assert fire(rows) == set()


def test_where_nothing_comes_in_it_is_the_timers_that_are_said_to_be_silent(fire: Any) -> None:
    assert fire([]) == {"timer-silent"}


@pytest.mark.parametrize("timer", ["scheduler_scan", "lease_scan", "stale_scan", "ingest_kafka"])
def test_a_timer_that_stopped_is_found_though_the_others_tick(fire: Any, timer: str) -> None:
    assert fire(looked(ticks=WELL | {timer: AT - 599_000})) == set()
    assert fire(looked(ticks=WELL | {timer: AT - 600_000})) == {"timer-silent"}
    late = looked(now=AT + MINUTE, ticks=dict.fromkeys(WELL, AT + MINUTE) | {timer: AT + MINUTE})
    assert fire(looked(ticks=WELL | {timer: AT - 700_000}) + late) == set(), "it is back"


def test_retention_is_given_three_hours(fire: Any) -> None:
    assert fire(looked(ticks=WELL | {"retention_scan": AT - 10_799_000})) == set()
    assert fire(looked(ticks=WELL | {"retention_scan": AT - 10_800_000})) == {"retention-silent"}


@pytest.mark.parametrize("timer", ["scheduler_scan", "lease_scan"])
async def test_a_timer_that_never_ticked_is_found_too(fire: Any, world: World, timer: str) -> None:
    seen: list[kql.Row] = []
    for number in range(11):
        for each in {"scheduler_scan", "lease_scan", "stale_scan"} - {timer}:
            await world.app.timers.run_once(each)
        seen = records(await world.app.metrics.families(), world.clock.now())
        if number < 9:
            assert fire(seen) == set()
        await world.clock.advance(60)
    assert fire(seen) == {"timer-silent"}


@pytest.mark.parametrize(("error", "action"), [(0, None), (119_000, "clock_wrong"), (900, None), (None, "clock_unproved")])
async def test_a_clock_that_is_not_proven_right_is_reported(
    fire: Any, caplog: pytest.LogCaptureFixture, error: Millis | None, action: str | None
) -> None:
    """error: how far the clock is ahead; None: no write has shown it."""
    clock = SettableClock(AT)
    times = ServerTimeEstimator(clock)
    if error is not None:
        times.note(0.0, 0.0, [time_etag(to_text(AT - error), 1)])
    EventClock(clock, (times,), Counter()).check()
    found = [{"TimeGenerated": AT, "Properties": {"action": getattr(record, "action", "")}} for record in caplog.records]
    assert [row["Properties"]["action"] for row in found] == ([action] if action else [])
    assert fire(looked(), (), found) == ({"clock-unproved"} if action else set())


def test_an_illegal_step_of_a_protocol_is_reported(fire: Any) -> None:
    found = [{"TimeGenerated": AT, "Properties": {"action": "protocol_violation"}}]
    assert fire(looked(), (), found) == {"illegal-step"}


async def test_timers_that_are_no_longer_deployed_are_not_missed(fire: Any, world: World) -> None:
    await world.tables.write("TocsinSweeps", "tick", [_insert("ingest_kafka", at=world.clock.now() - 86_400_000)])
    assert fire(await minute(world)) == set()


def _insert(rk: str, **props: Any) -> Any:
    from shared.storage.ports import Upsert

    return Upsert(rk, props)


async def test_a_dead_letter_is_reported_though_others_of_its_minute_are_tried_for_hours(fire: Any, world: World) -> None:
    retry = {"attempts": 5, "first": "PT2H", "within": "P1D"}
    events = [{"delay": "PT5S", "payload": 1, "retry": each} for each in (retry, {"attempts": 1})]
    made = (await world.demo.post("/api/v1/events/batch", events)).json()["results"]
    for each in made:
        world.receiver.script(each["id"], Verdict("retry", 503))
    rows = records(await world.app.metrics.families(), world.clock.now())
    await world.run(30)
    rows += await minute(world)
    assert [(await world.demo.event(each["id"]))["state"] for each in made] == ["retrying", "dead"]
    assert fire(rows) == {"dead-letters"}
    assert fire(await minute(world) + await minute(world)) == set(), "a reported fault is not reported again"


@pytest.mark.parametrize("period", [MINUTE, 5 * MINUTE])
@pytest.mark.parametrize("latency", [0, 5 * MINUTE])
def test_every_death_is_found_between_two_runs_of_the_rule(period: Millis, latency: Millis) -> None:
    """period: milliseconds between two exports of the metrics. latency: time until rows can be found. The rule runs every 15 minutes."""
    query = alarm_query(deployed("defaults"))
    alive, dead = {"acme": TenantFigures()}, {"acme": TenantFigures()}
    dead["acme"].total.counts.update(accepted=1, dead=1)
    states = [[row for row in looked(tenants=each) if row["Properties"].get("state") == "dead"] for each in (alive, dead)]
    sent = range(AT, AT + 50 * MINUTE, period)
    for death in range(AT + 15 * MINUTE, AT + 30 * MINUTE, 4 * MINUTE):
        rows = [row | {"TimeGenerated": at} for at in sent for row in states[at >= death]]
        found = set()
        for look in range(AT + 15 * MINUTE + 7, AT + 65 * MINUTE, 15 * MINUTE):
            seen = [row for row in rows if row["TimeGenerated"] <= look - latency]
            found |= {row["alarm"] for row in kql.run(query, {"AppMetrics": seen}, look)}
        assert "dead-letters" in found, death


@pytest.mark.parametrize(("age", "fires"), [(14, False), (15, True)])
def test_metrics_that_no_longer_arrive_are_reported_after_a_quarter_of_an_hour(age: int, fires: bool) -> None:
    found = kql.run(alarm_query(deployed("defaults")), {"AppMetrics": looked()}, AT + age * MINUTE)
    assert [row["alarm"] for row in found] == ["timer-silent"] * fires


def test_a_ledger_gap_is_found_whichever_way_it_goes(fire: Any) -> None:
    for accepted, delivered in ((4, 3), (3, 4)):
        tenant = TenantFigures()
        tenant.total.counts.update(accepted=accepted, delivered=delivered)
        assert fire(looked(tenants={"acme": tenant, "well": TenantFigures()})) == {"ledger-gap"}


def test_stuck_events_are_found(fire: Any) -> None:
    assert fire(looked(tenants={"acme": TenantFigures(overdue=3, stuck=1)})) == {"shard-stuck"}


def test_partitions_without_a_server_are_found(fire: Any) -> None:
    assert fire(looked(fleets=[FleetFigures("acme", "db", 3, 2, 2, 1, 1.5, ())])) == {"stale-lease"}


@pytest.mark.parametrize("kind", KINDS)
def test_alarms_of_fleets_are_reported_by_the_alert_that_is_theirs(fire: Any, kind: Kind) -> None:
    wanted = {"unserved": {"unowned-partitions"}, "missing": {"unowned-partitions"}, "turns": {"turn-stuck"}}
    assert fire(looked(fleets=[FleetFigures("acme", "db", 3, 2, 0, 0, 1.5, (kind,))])) == wanted.get(kind, set())


@pytest.mark.parametrize("kind", MAINTENANCE_ALARMS)
def test_alarms_of_maintenance_are_reported_by_the_alert_that_is_theirs(fire: Any, kind: str) -> None:
    wanted = {"restore-failed": "restore-failed", "single-monitor": "single-monitor", "monitors-together": "single-monitor"}
    found = fire(looked(maintenance=[MaintenanceFigures("acme", "db", Counter({kind: 2}))]))
    assert found == ({wanted[kind]} if kind in wanted else set())


def test_fleets_beyond_those_distinguished_are_reported_too(fire: Any) -> None:
    others = FleetFigures(OTHER_FLEETS, OTHER_FLEETS, 0, 0, 0, 0, 0.0, ())
    assert fire(looked(fleets=[others], maintenance=[MaintenanceFigures(OTHER_FLEETS, OTHER_FLEETS, Counter())])) == set()
    assert fire(looked(fleets=[others._replace(stale=1, alarms=("turns", "missing", "turns"))])) == {
        "stale-lease",
        "turn-stuck",
        "unowned-partitions",
    }
    assert fire(looked(maintenance=[MaintenanceFigures(OTHER_FLEETS, OTHER_FLEETS, Counter({"restore-failed": 2}))])) == {"restore-failed"}


@pytest.mark.parametrize(
    ("first", "fires"),
    [([5] * 98 + [1_000] * 2, False), ([5] * 98 + [1_001] * 2, True), ([60_000] * 19, False), ([5] * 19 + [2_000], True)],
)
def test_first_attempts_that_are_late_are_found(monkeypatch: pytest.MonkeyPatch, fire: Any, first: list[int], fires: bool) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    target: Any = SimpleNamespace(spec=SimpleNamespace(type="http"), tenant="acme", name="default")
    # A second attempt is late by its nature.
    for late, attempt in [*((each, 1) for each in first), *((3_600_000, 2) for _ in range(50))]:
        delivery: Any = SimpleNamespace(id="e", attempt=attempt, late_ms=late, traceparent=None)
        with delivery_tracing.delivering(target, delivery) as span:
            delivery_tracing.delivered(span, Verdict("delivered", 200))
    spans = [
        {"TimeGenerated": AT, "Name": span.name, "Properties": {key: str(value) for key, value in (span.attributes or {}).items()}}
        for span in kept.get_finished_spans()
    ]
    assert fire(looked(), spans) == ({"late-p99"} if fires else set())


@pytest.mark.parametrize(
    "query", ["T | where", "T | where a", "T | take 5", "T | where a == b c", "T | summarize x = avg(a)", "T | where a ~ b"]
)
def test_what_the_reader_does_not_know_it_refuses(query: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        kql.run(query, {"T": [{"a": 1}]})
