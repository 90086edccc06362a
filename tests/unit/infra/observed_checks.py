"""Checks of what operators see of a deployment: diagnostic settings, tags, alerts and charts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from . import code_facts
from .checks import ACCOUNTS, POLICIES, SITES, TOPICS, VAULTS, at, check, differ
from .snapshots import Deployment, rules

DIAGNOSTICS, WORKSPACES = "Microsoft.Insights/diagnosticSettings", "Microsoft.OperationalInsights/workspaces"
SERVICES = tuple(f"{ACCOUNTS}/{each}Services" for each in ("table", "queue", "blob"))


@check
def observed(made: Deployment) -> Iterator[str]:
    """Each resource with a place has the environment's tag; each that serves requests has a diagnostic setting with metrics."""
    for each in made.resources:
        if "location" in each and each["type"] != POLICIES and at(each, "tags.azd-env-name") != "test":
            yield f"{each['name']} has no tag of the environment"
    workspace = made.one(WORKSPACES)["id"]
    watched = {
        each["id"].partition(f"/providers/{DIAGNOSTICS}/")[0]
        for each in made.of(DIAGNOSTICS)
        if each["properties"]["workspaceId"] == workspace and each["properties"]["metrics"]
    }
    for kind in (SITES, VAULTS, TOPICS, *SERVICES):
        yield from (f"{each['id']} has no diagnostic setting" for each in made.of(kind) if each["id"] not in watched)


PROMISED = frozenset(
    {
        "clock-unproved",
        "dead-letters",
        "late-p99",
        "ledger-gap",
        "restore-failed",
        "single-monitor",
        "stale-lease",
        "timer-silent",
        "turn-stuck",
        "unowned-partitions",
    }
)
"""Alerts that have to be there."""
PERIODS = {"PT5M": 5, "PT10M": 10, "PT15M": 15, "PT30M": 30, "PT1H": 60, "PT2H": 120, "PT3H": 180, "PT6H": 360}
"""Windows that a rule may have, in minutes."""


@check
def alerts(made: Deployment) -> Iterator[str]:
    """Each alert asks for what the code has, looks back without gaps, and reaches the people there are."""
    known, found = code_facts.observable(), rules(made)
    yield from (f"the alert {name} is missing" for name in sorted(PROMISED - set(found)))
    for name, rule in found.items():
        yield from (f"the alert {name}: {fault}" for fault in misnamed(rule["query"], known))
        if not re.match(r"App[A-Z]\w+ \|", rule["query"]):
            yield f"the alert {name}: Azure wants a query that starts with a table"
        if not rule["about"].endswith(".") or rule["severity"] not in "01234":
            yield f"the alert {name} says too little of itself"
        window, every = PERIODS.get(rule["window"]), PERIODS.get(rule["every"])
        if window is None or every is None or every > window:
            yield f"the alert {name} looks back {rule['window']} every {rule['every']}"
    people = [each["id"] for each in made.of("Microsoft.Insights/actionGroups")]
    wanted = {
        "properties.enabled": True,
        "properties.actions.actionGroups": people,
        "properties.scopes": [made.one(WORKSPACES)["id"]],
        "properties.skipQueryValidation": True,
    }
    for each in made.of("Microsoft.Insights/scheduledQueryRules"):
        yield from differ(each, wanted)
        [condition] = at(each, "properties.criteria.allOf")
        if (condition.get("timeAggregation"), condition.get("operator"), condition.get("threshold")) != ("Count", "GreaterThan", 0):
            yield f"{each['name']} does not fire at the first row"


def misnamed(query: str, known: code_facts.Observable) -> Iterator[str]:
    """Return the names that a query uses and the code does not have; a query that asks for nothing of ours is a fault too."""
    metrics = set(re.findall(r'"(tocsin_[a-z_]+)"', query))
    spans = set(re.findall(r'"(tocsin\.[a-z_]+)"', query))
    alarms = set(re.findall(r'alarm\) (?:startswith|==) "([a-z-]+)"', query))
    actions: set[str] = set()
    for one, several in re.findall(r'action\)? (?:== "([^"]+)"|in \(([^)]+)\))', query):
        actions |= {one} - {""} | set(re.findall(r'"([^"]+)"', several))
    timers = set(re.findall(r'"([a-z_]+_scan)"', query))
    for what, asked, there in (
        ("metric", metrics, known.metrics),
        ("span attribute", spans, known.spans),
        ("alarm", alarms, known.alarms),
        ("log action", actions, known.actions),
        ("timer", timers, known.timers),
    ):
        yield from (f"the code has no {what} {name}" for name in sorted(asked - there))
    if re.search(r"\bName (==|in)", query) and not metrics | timers:
        yield "it asks for a name that is none of ours"
    if not metrics | spans | actions | timers:
        yield "it asks for nothing that the code has"


@check
def workbook(made: Deployment) -> Iterator[str]:
    """The workbook's charts ask for what the code has, or for Azure's own figures of storage."""
    known = code_facts.observable()
    content = json.loads(made.one("Microsoft.Insights/workbooks")["properties"]["serializedData"])
    charts = [item["content"] | {"name": item["name"]} for item in content["items"] if item["type"] == 3]
    if len(charts) < 8:
        yield "the main charts are missing"
    for chart in charts:
        if not chart["query"].startswith(("AzureMetrics ", "AppTraces | where SeverityLevel")):
            yield from (f"chart {chart['name']}: {fault}" for fault in misnamed(chart["query"], known))
