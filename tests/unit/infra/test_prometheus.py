"""The alert rules for Prometheus and the dashboard for Grafana ask for what `/api/metrics` has, in PromQL that a parser accepts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any, get_args

import promql_parser
import pytest
import yaml

from devhost.pages.metrics import CHECK
from shared.app.timers import PERIODS
from shared.checkpoints.service.views import TurnFigures
from shared.fleets.watch.figures import FleetFigures
from shared.maintenance.service.figures import MaintenanceFigures
from shared.ops.metrics.families import MetricsSnapshot, TenantFigures, collected
from shared.scheduler.shard import ledger
from shared.scheduler.shard.event_clock import ClockState

from .code_facts import ROOT
from .snapshots import alarms, deployed

PROMETHEUS = ROOT / "infra" / "prometheus"
RULES = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
BOARD = json.loads((ROOT / "infra" / "grafana" / "tocsin.json").read_text())
PANELS = [each for each in BOARD["panels"] if each["type"] != "row"]
CHOSEN = {"state", "alarm", "timer", "what"}
"""Labels whose values the code chooses. Those of the others are names that users give, or variables of the dashboard."""


@pytest.fixture(scope="module")
def series() -> dict[str, dict[str, set[str]]]:
    """All series of an installation that has one of everything: name of a sample -> label -> its values."""
    tenant = TenantFigures()
    ledger.add_channel(tenant.total.channels, "default", ledger.DeliveryFigures())
    seen = MetricsSnapshot(
        now=1_700_000_000_000,
        tenants={"acme": tenant},
        blocked=[("acme", "default", "paused")],
        queues={"tocsin-due": 0},
        ticks=dict.fromkeys(PERIODS, 1_700_000_000_000),
        process="one",
        fleets=[FleetFigures("acme", "db", 1, 1, 0, 0, 0.0, ())],
        turns=[TurnFigures("acme", "db", 1, 0, 0, 0.0, 0.0, 0, 1, 1, 0.0)],
        maintenance=[MaintenanceFigures("acme", "db", Counter())],
        counters=dict.fromkeys((*(f"clock_{state}" for state in get_args(ClockState.__value__)), "trace_illegal"), 0),
    )
    found: dict[str, dict[str, set[str]]] = {}
    for family in collected(seen):
        for sample in family.samples:
            for label, value in sample.labels.items():
                found.setdefault(sample.name, {}).setdefault(label, set()).add(value)
            found.setdefault(sample.name, {})
    return found


def selectors(query: str) -> list[Any]:
    """The vector selectors of a query. Raises `ValueError` at one that is no PromQL."""
    found: list[Any] = []

    def note(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        elif isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)

    # Grafana replaces its variables before Prometheus sees the query.
    promql_parser.walk(promql_parser.parse(query.replace("$__rate_interval", "5m")), note)
    return list({each.prettify(): each for each in found}.values())


def faults(query: str, series: dict[str, dict[str, set[str]]]) -> Iterator[str]:
    """Name what a query asks for and no metric has."""
    asked = selectors(query)
    if not asked:
        yield "it selects nothing"
    for each in asked:
        labels = series.get(each.name)
        if labels is None:
            yield f"there is no series {each.name}"
            continue
        for matcher in each.matchers.matchers:
            if matcher.name not in labels:
                yield f"{each.name} has no label {matcher.name}"
            elif matcher.name in CHOSEN:
                yield from (f"{each.name} has no {matcher.name} {value}" for value in set(matcher.value.split("|")) - labels[matcher.name])


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(tocsin_event)", "there is no series tocsin_event"),
        ("rate(tocsin_events_finished[5m])", "there is no series tocsin_events_finished"),
        ('tocsin_events{fleet="db"}', "tocsin_events has no label fleet"),
        ('rate(tocsin_events_finished_total{state=~"dead|died"}[5m])', "tocsin_events_finished_total has no state died"),
    ],
)
def test_a_query_for_something_else_is_found(query: str, fault: str, series: dict[str, dict[str, set[str]]]) -> None:
    assert list(faults(query, series)) == [fault]


def test_alert_rules_have_the_names_of_the_alarms_on_azure_and_ask_for_metrics(series: dict[str, dict[str, set[str]]]) -> None:
    assert {each["alert"] for each in RULES} == {*alarms(deployed("defaults")), "event-loop-stall"}
    for rule in RULES:
        assert list(faults(rule["expr"], series)) == [], rule["alert"]
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]


def test_the_example_of_a_scrape_reads_the_route_and_loads_the_rules() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    [job] = config["scrape_configs"]
    assert job["metrics_path"] == "/api/metrics" and job["scheme"] == "https"
    assert [(PROMETHEUS / name).is_file() for name in config["rule_files"]] == [True]


def test_the_dashboard_asks_for_metrics(series: dict[str, dict[str, set[str]]]) -> None:
    for panel in PANELS:
        assert panel["title"] and panel["description"], panel["id"]
        for target in panel["targets"]:
            assert list(faults(target["expr"], series)) == [], panel["title"]
            assert target["datasource"]["uid"] == "${datasource}", "a board that is imported has another data source"
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert all(label in series[each.name] for each in selectors(target["expr"])), panel["title"]
    for variable in BOARD["templating"]["list"][1:]:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert found and list(faults(found[1], series)) == [] and found[2] in series[selectors(found[1])[0].name]


def test_stalls_of_the_event_loop_are_alarmed_and_shown() -> None:
    asked = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]
    assert len([each for each in asked if "tocsin_event_loop_stall_seconds" in each]) == 2


def test_panels_stand_beside_each_other() -> None:
    assert len({each["id"] for each in BOARD["panels"]}) == len(BOARD["panels"])
    places = [each["gridPos"] for each in BOARD["panels"]]
    assert all(each["x"] + each["w"] <= 24 for each in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


def test_each_metric_that_a_person_should_check_is_on_the_dashboard() -> None:
    shown = {each.name for panel in PANELS for target in panel["targets"] for each in selectors(target["expr"])}
    named = {re.sub(r"_bucket$", "", name) for name in shown}
    assert set(CHECK) - named == {"tocsin_turn_age_seconds"}, "tocsin_turns_granted_total tells of the same"
