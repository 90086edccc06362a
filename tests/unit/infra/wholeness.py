"""Checks of infra/ for what is not there: properties that Azure refuses a resource without, and parts that only work together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .agreement import rules
from .bicep import at, body_of, properties, text_of, walk
from .checks import MAIN, Project, check
from .facts import TAGGED

REQUIRED = {
    "Microsoft.Authorization/roleAssignments": "properties.principalId properties.roleDefinitionId",
    "Microsoft.Compute/virtualMachines/extensions": "properties.publisher properties.type properties.typeHandlerVersion",
    "Microsoft.Insights/actionGroups": "properties.groupShortName properties.enabled",
    "Microsoft.Insights/components": "kind properties.Application_Type properties.WorkspaceResourceId",
    "Microsoft.Insights/diagnosticSettings": "scope properties.workspaceId properties.metrics",
    "Microsoft.Insights/scheduledQueryRules": (
        "properties.severity properties.enabled properties.scopes properties.evaluationFrequency properties.windowSize properties.criteria "
        "properties.actions properties.skipQueryValidation"
    ),
    "Microsoft.Insights/workbooks": "kind properties.displayName properties.serializedData properties.category properties.sourceId",
    "Microsoft.KeyVault/vaults": "properties.tenantId properties.sku",
    "Microsoft.KeyVault/vaults/secrets": "properties.value",
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks": "properties.virtualNetwork.id properties.registrationEnabled",
    "Microsoft.Network/privateEndpoints": "properties.subnet.id properties.privateLinkServiceConnections",
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups": "properties.privateDnsZoneConfigs",
    "Microsoft.Network/virtualNetworks": "properties.addressSpace.addressPrefixes properties.subnets",
    "Microsoft.OperationalInsights/workspaces": "properties.sku",
    "Microsoft.Storage/storageAccounts": "kind sku.name",
    "Microsoft.Web/serverfarms": "kind sku.name sku.tier",
    "Microsoft.Web/sites": "kind identity properties.serverFarmId",
    "Microsoft.Web/sites/config": "properties",
}
"""Type -> what a resource of it cannot do without, beside its name, its parent and its place."""


@check
def required(project: Project) -> Iterator[str]:
    """Each resource has a name, a child its parent, what lies in a region that, and each its type's own necessities; so has each module."""
    for file, resource in project.resources():
        wanted = ["name", *(["parent"] if resource.type.count("/") > 1 else [])]
        if not resource.existing:
            wanted += [*(["location"] if resource.type in TAGGED else []), *REQUIRED.get(resource.type, "").split()]
        yield from (f"{file.line(resource.node)}: {resource.symbol} has no {path}" for path in wanted if at(resource.body, path) is None)
    for file, module in project.modules():
        body = body_of(module.node)
        # A subscription holds no such resources itself.
        for name in ("name", "scope") if file.path == MAIN else ("name",):
            if at(body, name) is None:
                yield f"{file.line(module.node)}: the module {module.symbol} has no {name}"
    if "targetScope = 'subscription'" not in project.main.source:
        yield f"{MAIN}: resource groups are made in a subscription"


PERIODS = {"PT5M": 5, "PT10M": 10, "PT15M": 15, "PT30M": 30, "PT1H": 60, "PT2H": 120, "PT3H": 180, "PT6H": 360}
"""Windows that a rule may have, in minutes."""


@check
def watching(project: Project) -> Iterator[str]:
    """Each alert says how often it looks and how far back, without gaps; its condition is whole; every receiver gets the alert."""
    for name, rule in rules(project).items():
        window, every = PERIODS.get(rule.get("window", "")), PERIODS.get(rule.get("every", ""))
        if window is None or every is None or every > window:
            yield f"the alert {name} looks back {rule.get('window')} every {rule.get('every')}"
    file = project.files["modules/alerts.bicep"]
    body = file.resources["alerts"].body
    needed = {"query", "timeAggregation", "operator", "threshold", "failingPeriods"}
    conditions = [set(properties(node)) for node in walk(body) if "failingPeriods" in properties(node)] if body is not None else []
    if not conditions or not all(needed <= each for each in conditions):
        yield "modules/alerts.bicep: the condition is not whole"
    if text_of(at(body, "properties.actions.actionGroups")) != "empty(email) ? [] : [people.id]":
        yield "modules/alerts.bicep: the alerts have no receiver"


LED_TO = {
    ("home.outputs.id", "table"),
    ("home.outputs.id", "queue"),
    ("vault.outputs.id", "vault"),
    ("mirrorId", "table"),
    ("mirrorId", "queue"),
}
"""Hosts that the app has to reach in a private network, beside host and further accounts."""


@check
def private(project: Project) -> Iterator[str]:
    """All that is closed to the internet has its endpoint, and the app is not made before they are."""
    led: set[tuple[str, str]] = set()
    for variable in ("homeTargets", "mirrorTargets"):
        for node in walk(project.main.variables[variable]):
            if "group" in properties(node):
                led.add((text_of(properties(node).get("id")), text_of(properties(node)["group"]).strip("'")))
    yield from (f"{MAIN}: no private endpoint leads to {what} of {target}" for target, what in sorted(LED_TO - led))
    place = project.files["modules/place.bicep"]
    awaited = set(re.findall(r"\w+", text_of(at(body_of(place.modules["app"].node), "dependsOn"))))
    endpoints = {module.symbol for module in place.modules.values() if module.path == "modules/endpoint.bicep"}
    yield from (f"modules/place.bicep: the app does not wait for {name}" for name in sorted(endpoints - awaited))
    if text_of(place.modules["hostEndpoint"].params.get("group")) != "'blob'":
        yield "modules/place.bicep: the host's account is reached for blobs"
    endpoint = project.files["modules/endpoint.bicep"].resources["endpoint"].body
    groups = [text_of(properties(node)["groupIds"]) for node in walk(endpoint) if "groupIds" in properties(node)] if endpoint else []
    if [re.sub(r"\s", "", each) for each in groups] != ["[group]"]:
        yield "modules/endpoint.bicep: it does not say what it leads to"
