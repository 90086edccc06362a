"""The bill, in examples that were computed by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.cost import deployed, prices
from bench.cost.prices import PriceError, Prices
from bench.cost.rules import (
    Deployed,
    Invocation,
    Operations,
    RareTimer,
    Record,
    Usage,
    bill,
    billed,
    controller_polls,
    fixed_costs,
    month,
    per_million,
    periods,
    ready,
    ready_pays_from,
)

PRICES = Prices()


def http(start: float, end: float, function: str = "events_post") -> Invocation:
    return Invocation(function, "http", start, end)


def timer(start: float, end: float, function: str = "sweep") -> Invocation:
    return Invocation(function, f"function:{function}", start, end)


def used(executions: float = 0.0, logs: float = 0.0, events: float = 0.0) -> Usage:
    return Usage({}, {"events_post": executions}, 0.0, 0.0, 0.0, 0.0, {"RequestData": logs}, events)


@pytest.mark.parametrize(
    ("spells", "expected"),
    [
        pytest.param([(0.0, 0.02)], [(0.0, 1.0)], id="a short one is a second"),
        pytest.param([(5.0, 6.01)], [(5.0, 6.1)], id="a longer one is rounded up to a tenth"),
        pytest.param([(5.0, 6.1)], [(5.0, 6.1)], id="and not further"),
        pytest.param([(0.0, 2.0), (1.0, 3.0)], [(0.0, 3.0)], id="two that overlap are one"),
        pytest.param([(0.0, 4.0), (1.0, 2.0)], [(0.0, 4.0)], id="one within the other"),
        pytest.param([(0.0, 0.1), (0.5, 0.6)], [(0.0, 1.0)], id="the second lies in the second that is billed already"),
        pytest.param([(0.0, 0.1), (0.9, 1.7)], [(0.0, 1.7)], id="it outlasts that second"),
        pytest.param([(0.0, 0.1), (2.5, 2.6)], [(0.0, 1.0), (2.5, 3.5)], id="a pause is not billed"),
        pytest.param([(2.5, 2.6), (0.0, 0.1)], [(0.0, 1.0), (2.5, 3.5)], id="in any order"),
    ],
)
def test_periods_of_activity(spells: list[tuple[float, float]], expected: list[tuple[float, float]]) -> None:
    assert [tuple(round(each, 6) for each in spell) for spell in periods(spells, PRICES)] == expected


def test_all_http_functions_share_an_instance_and_every_other_function_has_its_own() -> None:
    ran = [http(0, 2), http(1, 3, "events_get"), timer(0, 2), timer(0, 2, "clean"), timer(30, 30.5)]
    assert billed(Record((0, 60), ran), PRICES) == {"http": 3, "function:sweep": 3, "function:clean": 2}


def test_only_the_part_in_the_window_counts() -> None:
    assert billed(Record((10, 20), [http(5, 12), http(19.8, 25), http(40, 41)]), PRICES) == {"http": pytest.approx(2.2)}


def test_month_of_a_timer_that_ticks_four_times_a_minute() -> None:
    ticks = [timer(15 * n, 15 * n + 0.05) for n in range(4)]
    usage = month(Record((0, 60), ticks, Operations(table=160), timers=["sweep"]), PRICES)
    assert usage.billed_seconds == {"function:sweep": pytest.approx(4 * 43_200)}
    assert usage.executions == {"sweep": pytest.approx(172_800)}
    assert usage.table == pytest.approx(6_912_000)
    # The lease of the timer, renewed twice a minute, and that of the primary host, eight times.
    assert usage.blob == pytest.approx(10 * 43_200)
    half = bill(usage, Deployed(), 512, PRICES)
    # 172,800 s x 0.5 GB = 86,400 GB-s, and 172,800 executions: both within what is free.
    assert (half.gb_seconds, half.parts["compute"], half.parts["executions"]) == (pytest.approx(86_400), 0, 0)
    assert half.parts["tables"] == pytest.approx(691.2 * 0.00036)
    assert half.before_free == pytest.approx(half.usd + 86_400 * 0.000026 + 0.1728 * 0.40)
    # 345,600 GB-s, of which 245,600 are paid for.
    assert bill(usage, Deployed(), 2048, PRICES).parts["compute"] == pytest.approx(6.3856)


def test_executions_beyond_the_free_ones() -> None:
    assert bill(used(executions=1_250_000), Deployed(), 512, PRICES).parts["executions"] == pytest.approx(0.40)
    assert bill(used(executions=1_250_000), None, 512, PRICES).parts["executions"] == pytest.approx(0.50)


def test_an_invocation_counts_in_the_window_in_which_it_ends() -> None:
    usage = month(Record((0, 60), [http(-1, 1), http(59, 61)]), PRICES)
    assert usage.executions == {"events_post": pytest.approx(43_200)}


def test_a_million_events() -> None:
    record = Record((0, 100), [http(0, 10)], Operations(table=70, queue=5), {"RequestData": 2000}, events=1000)
    found = bill(per_million(record, PRICES), None, 512, PRICES)
    assert found.usage.executions == {"events_post": 1000}
    # 10 s a thousand, 10,000 s a million, half a GB each; without free amounts and fixed costs.
    assert found.gb_seconds == pytest.approx(5000)
    expected = {"compute": 0.13, "executions": 0.0004, "tables": 0.00252, "queues": 0.002, "stored": 0.0175, "logs": 0.00552}
    assert {name: found.parts[name] for name in expected} == pytest.approx(expected)


def test_listeners_poll_while_their_instance_is_there() -> None:
    polls = Operations(polls={"shards": 30, "retries": 30})
    ran = [Invocation("serve", "function:serve", 0, 10)]
    record = Record((0, 60), ran, polls, listeners={"serve": "shards", "retry": "retries"})
    # The instance works from 0 s to 10 s, and exists for 20 s more.
    assert month(record, replace(PRICES, warm_s=20)).polls == pytest.approx(15 * 43_200)
    assert month(record, PRICES).polls == pytest.approx(30 * 43_200)
    # The listener of an invocation that ended before the window still runs.
    former = replace(record, invocations=[Invocation("serve", "function:serve", -15, -10)])
    assert month(former, replace(PRICES, warm_s=20)).polls == pytest.approx(5 * 43_200)
    assert month(former, PRICES).executions == {}


def test_a_timer_that_is_too_rare_for_the_window() -> None:
    rare = [RareTimer("clean", 3.0, table=50, queue=2, per_month=720)]
    usage = month(Record((0, 60), [timer(0, 0.1)], rare=rare), PRICES)
    assert usage.billed_seconds == {"function:sweep": pytest.approx(43_200), "function:clean": 2160}
    assert (usage.executions["clean"], usage.table, usage.queue) == (720, 36_000, 1440)


def test_fixed_costs() -> None:
    made = Deployed(
        {5: 11, 60: 1}, metric_alerts=3, secrets=2, site_diagnostics=1, service_diagnostics=4, private_endpoints=2, nat_gateways=1
    )
    expected = {
        "alert rules": 11 * 1.50 + 0.50 + 0.30,
        # 54 values a minute of 400 bytes each, 43,200 minutes: 0.933 GB.
        "platform metrics": 54 * 43_200 * 400 / 1e9 * 2.76,
        "vault": 2 * 24 * 30 * 0.03 / 10_000,
        "network": 14.60 + 36.50,
    }
    assert fixed_costs(made, PRICES) == pytest.approx(expected)


def test_logs_and_what_is_stored() -> None:
    parts = bill(used(logs=2e9, events=1_000_000), Deployed(), 512, replace(PRICES, free_log_gb=1.5)).parts
    # A million events of 1,500 bytes for 7 of 30 days: 0.35 GB.
    assert (parts["logs"], parts["stored"]) == (pytest.approx(0.5 * 2.76), pytest.approx(0.0175))


def test_fixed_costs_are_read_from_the_snapshots() -> None:
    found = deployed.load("defaults")
    assert found.secrets == 2 and found.private_endpoints == 0
    assert deployed.load("everything").private_endpoints > 0 and found.nat_gateways == 0
    assert (deployed.load("everything").nat_gateways, deployed.load("mirrored").nat_gateways) == (2, 1), "one for each region"
    assert deployed.memory() in (512, 2048, 4096)
    assert "TOCSIN_BACKLOG_PER_SECOND" in deployed.settings() and "TOCSIN_ADMIN_KEY" not in deployed.settings()


@pytest.mark.parametrize(("text", "expected"), [("PT5M", 5), ("PT1H", 60), ("P1D", 1440), ("PT1H30M", 90)])
def test_durations(text: str, expected: float) -> None:
    assert deployed.minutes(text) == expected


WRONG = {'{"gb": 1}': "no price is called 'gb'", '{"log_gb": "2"}': "log_gb must be a number", "[]": "no price", "{": "Expecting"}


def test_an_always_ready_instance_costs_its_memory_all_month_and_more_while_it_executes() -> None:
    month = 30 * 86_400 * 0.5
    assert ready(1, 512, 0.0, PRICES) == pytest.approx(month * 0.000004)
    assert ready(2, 1024, 0.5, PRICES) == pytest.approx(2 * 2 * month * (0.000004 + 0.5 * 0.000016))


@pytest.mark.parametrize("memory", [512, 2048])
def test_above_that_share_of_the_time_it_costs_less_than_one_on_demand_and_below_it_more(memory: int) -> None:
    share = ready_pays_from(memory, PRICES)
    assert 0 < share < 1
    for more in (-0.01, 0.01):
        seconds = (share + more) * 30 * 86_400
        on_demand = bill(Usage({"http": seconds}, {}, 0, 0, 0, 0, {}, 0), Deployed(), memory, PRICES).parts["compute"]
        assert (ready(1, memory, share + more, PRICES) < on_demand) is (more > 0)


def test_looks_of_the_scale_controller_are_one_operation_for_each_queue_and_time() -> None:
    assert controller_polls(4, PRICES) == pytest.approx(4 * 12 * 60 * 24 * 30 * 0.004 / 1e4)


def test_prices_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"gb_second": 0.00004}))
    assert prices.load(file) == replace(PRICES, gb_second=0.00004)
    assert prices.load(None) == PRICES
    for text, reason in WRONG.items():
        file.write_text(text)
        with pytest.raises(PriceError, match=reason):
            prices.load(file)
