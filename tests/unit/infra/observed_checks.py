"""Checks of what operators see of a deployment: diagnostic settings, tags, alerts and charts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from . import code_facts
from .checks import ACCOUNTS, POLICIES, SITES, TOPICS, VAULTS, at, check, differ
from .snapshots import RULES, Deployment, alarms

DIAGNOSTICS, WORKSPACES = "Microsoft.Insights/diagnosticSettings", "Microsoft.OperationalInsights/workspaces"
SERVICES = tuple(f"{ACCOUNTS}/{each}Services" for each in ("table", "queue", "blob"))


@check
def observed(made: Deployment) -> Iterator[str]:
    """Resources with a place have the environment's tag. Readings of the vault are logged. Azure's metrics are stored of all or none."""
    for each in made.resources:
        if "location" in each and each["type"] != POLICIES and at(each, "tags.azd-env-name") != "test":
            yield f"{each['name']} has no tag of the environment"
    workspace = made.one(WORKSPACES)["id"]
    for each in made.of(DIAGNOSTICS):
        yield from differ(each, {"properties.workspaceId": workspace})
    if "AuditEvent" not in diagnosed(made, "logs").get(made.one(VAULTS)["id"], ()):
        yield "nobody would know who has read the keys"
    if measured := diagnosed(made, "metrics"):
        for kind in (SITES, VAULTS, TOPICS, *SERVICES):
            yield from (f"the metrics of {each['id']} are not stored" for each in made.of(kind) if each["id"] not in measured)


def diagnosed(made: Deployment, what: str) -> dict[str, set[str]]:
    """The categories of `logs` or `metrics` that are stored: id of the resource -> categories."""
    found = {
        each["id"].partition(f"/providers/{DIAGNOSTICS}/")[0]: {
            one["category"] for one in each["properties"].get(what, ()) if one["enabled"]
        }
        for each in made.of(DIAGNOSTICS)
    }
    return {resource: categories for resource, categories in found.items() if categories}


PROMISED = frozenset(
    {
        "clock-unproved",
        "illegal-step",
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
"""Alarms that have to be there."""
PERIODS = ("PT5M", "PT10M", "PT15M")
"""Times between two runs of the rule that have a price of their own."""
LOOKED_BACK = re.compile(r"App[A-Z]\w+ \| where TimeGenerated > ago\((15|30)m\) \|")
"""The beginning of an alarm's query: its table, and a window without gaps if the rule runs every quarter of an hour."""


@check
def alerts(made: Deployment) -> Iterator[str]:
    """Each alarm queries data that the code sends, covers all times without gaps, and reaches the action group under its own name."""
    known, found = code_facts.observable(), alarms(made)
    rule = made.one(RULES)
    about = at(rule, "properties.description")
    yield from (f"the alarm {name} is missing" for name in sorted(PROMISED - set(found)))
    for name, query in found.items():
        yield from (f"the alarm {name}: {fault}" for fault in misnamed(query, known))
        if not LOOKED_BACK.match(query):
            yield f"the alarm {name}: a query starts with a table and with the time for which it looks back"
        if not re.search(rf"(^|\. ){name}: [A-Z][^:]+", about):
            yield f"the alarm {name} says nothing of itself"
    if len(about) > 4096:
        yield "Azure takes no description of more than 4,096 characters"
    if at(rule, "properties.evaluationFrequency") not in PERIODS:
        yield f"there is no price for a rule that runs every {at(rule, 'properties.evaluationFrequency')}"
    wanted = {
        "properties.enabled": True,
        "properties.actions.actionGroups": [each["id"] for each in made.of("Microsoft.Insights/actionGroups")],
        "properties.scopes": [made.one(WORKSPACES)["id"]],
        "properties.skipQueryValidation": True,
        "properties.windowSize": "PT30M",
    }
    yield from differ(rule, wanted)
    [condition] = at(rule, "properties.criteria.allOf")
    if (condition.get("timeAggregation"), condition.get("operator"), condition.get("threshold")) != ("Count", "GreaterThan", 0):
        yield f"{rule['name']} does not fire at the first row"
    if condition.get("dimensions") != [{"name": "alarm", "operator": "Include", "values": ["*"]}]:
        yield f"{rule['name']} sends one alert for all alarms together"


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
