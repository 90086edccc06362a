"""The resources of a deployment that have fixed costs, read from infra/snapshots, so that they follow the Bicep sources."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final

from devhost.azurite import ROOT

from .rules import Deployed

SNAPSHOTS: Final = ROOT / "infra" / "snapshots"
OWN: Final = ("OTEL_", "TOCSIN_")
"""Prefixes of the settings that a measurement uses as deployed."""
LOCAL: Final = {"TOCSIN_ADMIN_KEY", "TOCSIN_SIGNING_KEY", "TOCSIN_EGRESS_ALLOW", "TOCSIN_ACCOUNTS"}
"""Settings for which a measurement needs values of its own."""


def resources(name: str = "defaults") -> list[dict[str, Any]]:
    """Return the resources of a snapshot that are deployed."""
    found = json.loads((SNAPSHOTS / f"{name}.snapshot.json").read_text())["predictedResources"]
    return [each for each in found if each.get("condition", True) is True]


def load(name: str = "defaults") -> Deployed:
    """Return the resources with fixed costs of a snapshot's deployment."""
    found = resources(name)
    kinds = Counter(each["type"] for each in found)
    rules = [each["properties"] for each in found if each["type"] == "Microsoft.Insights/scheduledQueryRules"]
    diagnostics = [each for each in found if each["type"] == "Microsoft.Insights/diagnosticSettings"]
    copying = [each["id"] for each in diagnostics if _copies_metrics(each["properties"])]
    sites = sum("Microsoft.Web/sites" in each for each in copying)
    metric_alerts = [each["properties"] for each in found if each["type"] == "Microsoft.Insights/metricAlerts"]
    return Deployed(
        log_alerts=Counter(minutes(rule["evaluationFrequency"]) for rule in rules if rule.get("enabled", True)),
        metric_alerts=sum(len(rule["criteria"].get("allOf", [0])) for rule in metric_alerts if rule.get("enabled", True)),
        secrets=sum("@Microsoft.KeyVault(" in str(value) for value in _settings(found).values()),
        site_diagnostics=sites,
        service_diagnostics=len(copying) - sites,
        private_endpoints=kinds["Microsoft.Network/privateEndpoints"],
        nat_gateways=kinds["Microsoft.Network/natGateways"],
    )


def settings(name: str = "defaults") -> dict[str, str]:
    """Return the app's settings that a measurement uses as deployed."""
    return {
        key: value
        for key, value in _settings(resources(name)).items()
        if key.startswith(OWN) and key not in LOCAL and isinstance(value, str) and value and not value.startswith(("[", "@"))
    }


def memory(name: str = "defaults") -> int:
    """Return the memory of an instance in MB."""
    found = next(each["properties"] for each in resources(name) if each["type"] == "Microsoft.Web/sites")
    return int(found["functionAppConfig"]["scaleAndConcurrency"]["instanceMemoryMB"])


def _settings(found: list[dict[str, Any]]) -> dict[str, Any]:
    sites = [each["properties"] for each in found if each["type"] == "Microsoft.Web/sites/config"]
    # A standby has a second app with the same settings.
    return dict(sites[0]) if sites and isinstance(sites[0], dict) else {}


def _copies_metrics(properties: dict[str, Any]) -> bool:
    return any(each.get("enabled") for each in properties.get("metrics", ()))


def minutes(duration: str) -> float:
    """Return the minutes of an ISO 8601 duration such as PT5M, PT1H or P1D."""
    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?)?", duration)
    if found is None:
        raise ValueError(f"{duration!r} is not a duration of days, hours and minutes")
    days, hours, least = (int(each or 0) for each in found.groups())
    return days * 1440 + hours * 60 + least
