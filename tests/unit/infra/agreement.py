"""More checks of infra/: that it agrees with the code, in settings, tables, queues, and in what operators are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tree_sitter import Node

from . import facts
from .bicep import at, literal, properties, strings, text_of, walk
from .checks import Project, check

SETTINGS = ("homeSettings", "mirrorSettings", "hostSettings")
"""Variables that hold the app's settings."""

# --- What the code knows --------------------------------------------------------------------------------------------


def settings_set(project: Project) -> dict[str, str]:
    """Settings of the app: name -> the expression it is set to."""
    found: dict[str, str] = {}
    for file in project.files.values():
        for variable in SETTINGS:
            for node in walk(file.variables[variable]) if variable in file.variables else ():
                if node.type == "object":
                    found |= {name: text_of(value) for name, value in properties(node).items()}
    return found


@check
def settings(project: Project) -> Iterator[str]:
    """Every setting that is set is read by somebody, and every one that the code reads is set, or left out for a reason."""
    given, read = set(settings_set(project)), facts.settings_read()
    yield from (f"{name} is set, and nobody reads it" for name in sorted(given - read - set(facts.READ_ELSEWHERE)))
    yield from (f"{name} is read, and is neither set nor left out for a reason" for name in sorted(read - given - set(facts.LEFT_OUT)))
    yield from (f"{name} is left out for a reason, and set" for name in sorted(given & set(facts.LEFT_OUT)))
    yield from (f"{name} is left out for a reason, and nobody reads it" for name in sorted(set(facts.LEFT_OUT) - read))
    yield from (f"{name} is for others to read, and not set" for name in sorted(set(facts.READ_ELSEWHERE) - given))


@check
def forbidden(project: Project) -> Iterator[str]:
    """Settings that the platform does not take are nowhere."""
    for file in project.files.values():
        for node in file.nodes:
            if node.type in ("identifier", "string_content") and text_of(node) in facts.FORBIDDEN:
                yield f"{file.line(node)}: {text_of(node)} must not be set"


@check
def keys(project: Project) -> Iterator[str]:
    """The two keys come from the vault, by reference."""
    given = settings_set(project)
    for name in ("TOCSIN_ADMIN_KEY", "TOCSIN_SIGNING_KEY"):
        if not given.get(name, "").startswith("'@Microsoft.KeyVault(SecretUri=${vault.outputs."):
            yield f"{name} is not a reference to the vault"
    site = next(resource for _, resource in project.resources() if resource.type == "Microsoft.Web/sites")
    if not at(site.body, "properties.keyVaultReferenceIdentity"):
        yield "modules/app.bicep: the app does not say as whom it reads the vault"


ENDPOINTS = {"TocsinStorage": "home", "TocsinMirror": "mirror"}
"""Connection -> the module of its account."""


@check
def connections(project: Project) -> Iterator[str]:
    """Each connection leads to its own account, by the address of the service that its setting is named after, as the app's identity."""
    given = settings_set(project)
    for connection, module in ENDPOINTS.items():
        made = f"{module}!" if connection == "TocsinMirror" else module
        wanted = {
            "tableServiceUri": f"{made}.outputs.tableUri",
            "queueServiceUri": f"{made}.outputs.queueUri",
            "credential": "'managedidentity'",
            "clientId": "identity.outputs.clientId",
        }
        yield from _differ(given, {f"{connection}__{name}": value for name, value in wanted.items()})
    host = {"blobServiceUri": "hostBlobUri", "credential": "'managedidentity'", "clientId": "clientId"}
    yield from _differ(given, {f"AzureWebJobsStorage__{name}": value for name, value in host.items()})
    for path, name, wanted_output in (
        ("modules/storage.bicep", "tableUri", "account.properties.primaryEndpoints.table"),
        ("modules/storage.bicep", "queueUri", "account.properties.primaryEndpoints.queue"),
        ("modules/host.bicep", "blobUri", "account.properties.primaryEndpoints.blob"),
    ):
        if text_of(project.files[path].outputs.get(name)) != wanted_output:
            yield f"{path}: the output {name} is not {wanted_output}"


def _differ(given: dict[str, str], wanted: dict[str, str]) -> Iterator[str]:
    for name, value in wanted.items():
        if given.get(name) != value:
            yield f"{name} is {given.get(name)}, not {value}"


@check
def identities(project: Project) -> Iterator[str]:
    """The app has the one identity, and reads vault and package as that one: a system-assigned one would have no role."""
    site = next(resource for _, resource in project.resources() if resource.type == "Microsoft.Web/sites")
    held = at(site.body, "identity.userAssignedIdentities")
    if text_of(at(site.body, "identity.type")) != "'UserAssigned'" or set(properties(held)) != {"'${identityId}'"}:
        yield "modules/app.bicep: the app does not have the one identity"
    storing = "properties.functionAppConfig.deployment.storage"
    for path, wanted in (
        ("properties.keyVaultReferenceIdentity", "identityId"),
        (f"{storing}.authentication.userAssignedIdentityResourceId", "identityId"),
        (f"{storing}.type", "'blobContainer'"),
        (f"{storing}.value", "'${hostBlobUri}${deploymentContainer}'"),
    ):
        if text_of(at(site.body, path)) != wanted:
            yield f"modules/app.bicep: {path} is not {wanted}"


@check
def zones(project: Project) -> Iterator[str]:
    """Each private endpoint finds the zone that names what it leads to, and the app's subnet is one that Flex Consumption may use."""
    file = project.files["modules/network.bicep"]
    zone_names = [text_of(each) for each in file.variables["zoneNames"].named_children]
    ids = properties(file.outputs["zoneIds"])
    for group, zone in ids.items():
        number = re.search(r"zones\[(\d+)\]\.id", text_of(zone))
        name = zone_names[int(number[1])] if number and int(number[1]) < len(zone_names) else ""
        if not name.startswith("'privatelink.vaultcore." if group == "vault" else f"'privatelink.{group}."):
            yield f"modules/network.bicep: the zone of {group} is {name or 'none'}"
    asked = {text_of(module.params["group"]).strip("'") for _, module in project.modules() if module.path == "modules/endpoint.bicep"}
    asked |= {literal(value) or "" for name in ("homeTargets", "mirrorTargets") for value in _values(project.main.variables[name], "group")}
    yield from (f"no zone names endpoints of {group}" for group in sorted(asked - {"target.group", *ids}))
    if "'Microsoft.App/environments'" not in [text_of(value) for value in _values(file.root, "serviceName")]:
        yield "modules/network.bicep: no subnet is delegated to Microsoft.App/environments"


def _values(node: Node, name: str) -> Iterator[Node]:
    """Return the values of a property, wherever it stands below a node."""
    for each in walk(node):
        if each.type == "object" and name in properties(each):
            yield properties(each)[name]


@check
def storage(project: Project) -> Iterator[str]:
    """Each account has the tables and queues that the code keeps there, and no others."""
    kept = {"home": (facts.tables(), facts.queues()), "mirror": (facts.tables(), facts.queues()), "scale": (facts.shard_tables(), set())}
    accounts = {name: module for name, module in project.main.modules.items() if module.path == "modules/storage.bicep"}
    yield from (f"{name} is no account that the code knows" for name in sorted(set(accounts) ^ set(kept)))
    for name in accounts.keys() & kept.keys():
        for what, wanted in zip(("tables", "queues"), kept[name], strict=True):
            found = strings(project.main, accounts[name].params.get(what))
            if len(found) != len(set(found)):
                yield f"{name}: {what} are named twice"
            yield from (f"{name}: {each} is not among its {what}" for each in sorted(wanted - set(found)))
            yield from (f"{name}: {each} is among its {what}, and the code does not know it" for each in sorted(set(found) - wanted))


# --- What operators see ---------------------------------------------------------------------------------------------

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


def rules(project: Project) -> dict[str, dict[str, str]]:
    """The alert rules by name."""
    file = project.files["modules/alerts.bicep"]
    found = [properties(each) for each in file.variables["rules"].named_children]
    # An interpolated figure says nothing of names.
    texts = [{key: literal(value) or text_of(value).strip("'") for key, value in each.items()} for each in found]
    return {each["name"]: each for each in texts}


def misnamed(query: str, known: facts.Observable) -> Iterator[str]:
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
def alerts(project: Project) -> Iterator[str]:
    """Each alert asks for what the code has; those that were promised are there."""
    known = facts.observable()
    found = rules(project)
    yield from (f"the alert {name} is missing" for name in sorted(PROMISED - set(found)))
    for name, rule in found.items():
        yield from (f"the alert {name}: {fault}" for fault in misnamed(rule["query"], known))
        if not re.match(r"App[A-Z]\w+ \|", rule["query"]):
            yield f"the alert {name}: Azure wants a query that starts with a table"
        if not rule.get("about", "").endswith(".") or rule["severity"] not in "01234":
            yield f"the alert {name} says too little of itself"


@check
def workbook(project: Project) -> Iterator[str]:
    """The workbook's charts ask for what the code has, or for Azure's own figures of storage."""
    known = facts.observable()
    charts = [item for item in json.loads(project.sources["workbook.json"])["items"] if item["type"] == 3]
    if len(charts) < 8:
        yield "workbook.json: the main charts are missing"
    for chart in charts:
        query = chart["content"]["query"]
        if query.startswith(("AzureMetrics ", "AppTraces | where SeverityLevel")):
            continue
        yield from (f"workbook.json, {chart['name']}: {fault}" for fault in misnamed(query, known))
