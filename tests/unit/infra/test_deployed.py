"""The deployments of infra/, by their snapshots: they pass every check, and each check can fail."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from shared.core.settings import LEAST_BODY_LIMIT, SHORTEST_KEY
from shared.scheduler.model import MAX_BATCH_BYTES

from . import checks, observed_checks
from .checks import ACCOUNTS, CHECKS, NETWORKS, POLICIES, SITES, VAULTS, assigned
from .observed_checks import DIAGNOSTICS
from .snapshots import (
    CLIENT_ID,
    FIRST,
    FOLDER,
    INFRA,
    KEYS,
    NAMES,
    RULES,
    TOKEN_IDENTITY,
    Deployment,
    Resource,
    deployed,
    evaluated,
    load,
    parameters,
)

PLAN, LOCKS = "Microsoft.Web/serverfarms", "Microsoft.Authorization/locks"
WITHOUT_DIGEST = {"check.sh", "main.parameters.json", "snapshots/sources.sha256"}
"""Files of infra/ that no snapshot depends on."""


def test_the_snapshots_are_those_of_the_present_sources() -> None:
    files = {
        path.relative_to(INFRA).as_posix(): path for path in INFRA.rglob("*") if path.is_file() and not path.name.endswith(".snapshot.json")
    }
    others = {name for name in files if name.startswith(("hooks/", "agent/kubernetes/"))}
    now = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items() if name not in WITHOUT_DIGEST | others}
    lines = (FOLDER / "sources.sha256").read_text().splitlines()
    then = {name.removeprefix("./"): digest for digest, name in (line.split("  ") for line in lines)}
    changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    assert not changed, "infra/ has changed since its snapshots were made: run `make snapshots` and read what differs in them"


def test_every_set_of_parameters_has_its_snapshot_and_every_parameter_is_in_one() -> None:
    assert {path.name.partition(".")[0] for path in FOLDER.glob("*.bicepparam")} == {*NAMES, "agent"}
    assert {path.name.partition(".")[0] for path in FOLDER.glob("*.snapshot.json")} == {*NAMES, "agent"}
    given = {name for each in NAMES for name in re.findall(r"^param (\w+)", (FOLDER / f"{each}.bicepparam").read_text(), re.MULTILINE)}
    # The compiler never puts the value of a secret parameter into a snapshot.
    assert given == set(parameters()) - set(KEYS)
    assert {name for name, kind in parameters().items() if not kind.endswith("?")} == {"environmentName", "location", *FIRST}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHECKS)
def test_nothing_is_wrong_with_a_deployment(name: str, check: str) -> None:
    assert list(CHECKS[check](deployed(name))) == []


@pytest.mark.parametrize("given", [[], ["adminKey"], ["signingKey"], ["adminKey", "signingKey"]])
@pytest.mark.parametrize("generated", [[], ["firstAdminKey"], ["firstAdminKey", "firstSigningKey"]])
def test_a_role_on_a_secret_is_assigned_where_the_deployment_writes_the_secret(given: list[str], generated: list[str]) -> None:
    values = {name: KEYS[name] for name in given} | {name: FIRST[name].upper() for name in generated}
    made = load("defaults", **values)
    wanted = {"tocsin-admin-key": ("adminKey", "firstAdminKey"), "tocsin-signing-key": ("signingKey", "firstSigningKey")}
    written = {each["name"].rpartition("/")[2]: each["properties"]["value"] for each in made.of(f"{VAULTS}/secrets")}
    chosen = {name: values.get(own) or values.get(first) for name, (own, first) in wanted.items()}
    assert written == {name: value for name, value in chosen.items() if value}, "a given key comes before a generated one"
    assert len(made.of(f"{VAULTS}/secrets")) == len(written)
    assert {scope.rpartition("/")[2] for role, scope, _ in assigned(made) if role == "Key Vault Secrets User"} == set(written)


def test_a_generated_key_never_replaces_one_that_the_vault_has() -> None:
    """The compiler's snapshots do not show this."""
    modules = {path.name: path.read_text() for path in (INFRA / "modules").glob("*.bicep")}
    [written] = re.findall(r"^(.*)\nresource \w+ 'Microsoft.KeyVault/vaults/secrets@", modules["first-secret.bicep"], re.MULTILINE)
    assert written == "@onlyIfNotExists()"
    users = re.findall(r"^module first(\w+)KeySecret 'first-secret.bicep' = if \((.*)\) \{$", modules["vault.bicep"], re.MULTILINE)
    assert [(who, f"!keysInVault && empty({who.lower()}Key)" in condition) for who, condition in users] == [
        ("Admin", True),
        ("Signing", True),
    ]


def test_azd_generates_keys_that_the_app_takes() -> None:
    source = (INFRA / "main.bicep").read_text()
    for name in FIRST:
        [metadata] = re.findall(rf"@secure\(\)\n@metadata\(\{{\n((?:  .*\n)+)\}}\)\nparam {name} string\n", source)
        assert "type: 'generate'" in metadata and "noSpecial: true" in metadata
        [length] = re.findall(r"length: (\d+)", metadata)
        assert int(length) >= SHORTEST_KEY


def test_a_vault_that_holds_the_keys_gets_the_roles_and_no_secret() -> None:
    made = load("everything", **FIRST)
    assert made.of(f"{VAULTS}/secrets") == []
    # On the two keys, and on the two client certificates of this snapshot.
    assert len([role for role, _, _ in assigned(made) if role == "Key Vault Secrets User"]) == 4


@pytest.mark.parametrize(
    ("name", "memory", "at_once", "largest", "shards"),
    [("defaults", 512, 16, 4_000_000, 16), ("mirrored", 2048, 16, MAX_BATCH_BYTES, 64), ("private", 4096, 32, MAX_BATCH_BYTES, 64)],
)
def test_an_instance_takes_as_many_requests_as_its_memory_has_room_for_their_bodies(
    name: str, memory: int, at_once: int, largest: int, shards: int
) -> None:
    made = deployed(name)
    scale = made.of(SITES)[0]["properties"]["functionAppConfig"]["scaleAndConcurrency"]
    assert (scale["instanceMemoryMB"], scale["triggers"]["http"]["perInstanceConcurrency"]) == (memory, at_once)
    assert made.settings()["FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"] == str(largest)
    assert largest >= LEAST_BODY_LIMIT and at_once * largest <= memory * 1024 * 1024 / 8
    assert made.settings()["TOCSIN_FIRE_BYTES"] == str(shards * 1024 * 1024)


def test_parameters_reach_what_they_are_for() -> None:
    made = deployed("everything")
    app, standby = made.of(SITES)
    assert (app["tags"]["azd-service-name"], standby["tags"]["azd-service-name"]) == ("app", "standby")
    assert (app["location"], standby["location"]) == ("westeurope", "northeurope")
    for site in (app, standby):
        assert site["properties"]["functionAppConfig"]["siteUpdateStrategy"] == {"type": "RollingUpdate"}
        assert site["properties"]["functionAppConfig"]["scaleAndConcurrency"]["maximumInstanceCount"] == 2
        assert made.settings(site["name"] + "/")["TOCSIN_OWNERS"] == "16"
    ready = [each["properties"]["functionAppConfig"]["scaleAndConcurrency"]["alwaysReady"] for each in (app, standby)]
    kept = [{"name": "http", "instanceCount": 1}, {"name": "function:fire_shard", "instanceCount": 2}]
    assert ready == [kept, []], "a standby is not kept ready"
    assert [each["properties"]["zoneRedundant"] for each in made.of(PLAN)] == [True, False]
    assert {each["sku"]["name"] for each in made.of(ACCOUNTS)} == {"Standard_GZRS"}, "without its package no app starts"
    locked = {each["id"].partition("/providers/Microsoft.Authorization/locks/")[0] for each in made.of(LOCKS)}
    assert locked == {each["id"] for each in made.of(ACCOUNTS) if checks.kind_of(each) != "host"}
    assert {each["properties"]["level"] for each in made.of(LOCKS)} == {"CanNotDelete"}
    assert {each["location"] for each in made.of(ACCOUNTS) if each["name"].startswith("tocsinm")} == {"northeurope"}
    logged = [
        {log["category"] for log in each["properties"].get("logs", ())} for each in made.of(DIAGNOSTICS) if "/tableServices/" in each["id"]
    ]
    assert logged and all(each == {"StorageWrite", "StorageDelete"} for each in logged)
    assert made.one(RULES)["properties"]["evaluationFrequency"] == "PT5M"
    [people] = made.of("Microsoft.Insights/actionGroups")
    assert [each["emailAddress"] for each in people["properties"]["emailReceivers"]] == ["ops@example.com"]
    assert all(each["tags"]["team"] == "shop" for each in made.resources if "tags" in each)


@pytest.mark.parametrize("name", ["defaults", "mirrored", "private"])
def test_by_default_only_the_log_of_the_vault_is_stored_at_a_price(name: str) -> None:
    made = deployed(name)
    assert observed_checks.diagnosed(made, "metrics") == {}
    assert observed_checks.diagnosed(made, "logs") == {made.one(VAULTS)["id"]: {"AuditEvent"}}
    assert made.one(observed_checks.WORKSPACES)["properties"]["retentionInDays"] == 30, "Azure keeps logs for this long free of charge"


def test_one_request_in_ten_is_traced_unless_a_parameter_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, share in (("defaults", 0.1), ("everything", 1.0)):
        for setting in ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"):
            monkeypatch.setenv(setting, deployed(name).settings()[setting])
        assert TracerProvider().sampler.get_description() == ParentBasedTraceIdRatio(share).get_description()


def test_the_volume_of_logs_may_be_bounded() -> None:
    quotas = [deployed(name).one(observed_checks.WORKSPACES)["properties"]["workspaceCapping"] for name in ("defaults", "everything")]
    assert quotas == [{"dailyQuotaGb": -1}, {"dailyQuotaGb": 5}]


def test_an_address_that_stays_needs_no_private_endpoints() -> None:
    made = deployed("mirrored")
    assert made.of(checks.GATEWAYS) and not made.of(checks.ENDPOINTS) and not made.of("Microsoft.Network/privateDnsZones")
    [app] = (each for each in made.one(NETWORKS)["properties"]["subnets"] if each["name"] == "app")
    assert app["properties"]["serviceEndpoints"] == [{"service": "Microsoft.Storage"}], "the gateway bills each byte"
    assert made.outputs["TOCSIN_OUTBOUND_ADDRESS"] == "203.0.113.7" and deployed("private").outputs["TOCSIN_OUTBOUND_ADDRESS"] == ""


def test_the_regions_are_listed_and_those_without_zones_are_some_of_them() -> None:
    source = (INFRA / "main.bicep").read_text()
    [allowed] = re.findall(r"@allowed\(\[\n((?:  '\w+'\n)+)\]\)\n@metadata\(\{\n  azd: \{\n    type: 'location'\n", source)
    [zoneless] = re.findall(r"^var withoutZones = \[\n((?:  '\w+'\n)+)\]", source, re.MULTILINE)
    regions, without = allowed.split(), zoneless.split()
    assert regions == sorted(regions) and len(regions) > 25 and set(without) < set(regions)


def test_by_default_updates_recreate_and_no_request_to_storage_is_logged() -> None:
    made = deployed("defaults")
    assert not made.of(LOCKS) and not made.of(NETWORKS) and made.one(PLAN)["properties"]["zoneRedundant"] is False
    assert {each["sku"]["name"] for each in made.of(ACCOUNTS)} == {"Standard_ZRS"}
    assert made.one(SITES)["properties"]["functionAppConfig"]["siteUpdateStrategy"] == {"type": "Recreate"}
    scale = made.one(SITES)["properties"]["functionAppConfig"]["scaleAndConcurrency"]
    assert scale["alwaysReady"] == [], "an always-ready instance is billed all month"
    assert not any(each["properties"].get("logs") for each in made.of(DIAGNOSTICS) if "/storageAccounts/" in each["id"])


def test_a_vm_reads_the_key_of_its_own_node_and_the_wheel() -> None:
    group = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups"
    wheels = f"{group}/wheels/providers/Microsoft.Storage/storageAccounts/wheels/blobServices/default/containers/wheels"
    assert assigned(deployed("agent")) == {
        (role, scope, f"principal of {vm}")
        for vm, secret in (("db1", "agent-db1"), ("db_2", "agent-db--u2"))
        for role, scope in (
            ("Key Vault Secrets User", f"{group}/vaults/providers/Microsoft.KeyVault/vaults/vault/secrets/{secret}"),
            ("Storage Blob Data Reader", wheels),
        )
    }


@pytest.mark.parametrize("text", ["[unknown('x')]", "[format('{1}', 'x')]", "[reference('x').nothing]"])
def test_an_expression_that_is_not_known_is_an_error(text: str) -> None:
    with pytest.raises((KeyError, IndexError)):
        evaluated(text, {})


# --- Each check can fail --------------------------------------------------------------------------------------------

type Edit = Callable[[list[Resource]], Any]
GONE = object()


def put(kind: str, path: str, value: object, name: str = "") -> Edit:
    """Set a value in the first resource of a type whose name begins so, or take it away."""

    def edit(resources: list[Resource]) -> None:
        place = next(each for each in resources if each["type"] == kind and each["name"].startswith(name))
        *above, last = path.split(".")
        for part in above:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if value is GONE:
            del place[last]
        else:
            place[int(last) if isinstance(place, list) else last] = value  # type: ignore[index]

    return edit


def without(kind: str, name: str) -> Edit:
    """Take the first resource of a type away whose id ends so."""
    return lambda resources: resources.remove(next(each for each in resources if each["type"] == kind and each["id"].endswith(name)))


def moved(role: str, scope: str) -> Edit:
    """Assign a role somewhere above the place where it belongs: cut its scope off."""

    def edit(resources: list[Resource]) -> None:
        found = next(
            each for each in resources if each["type"] == checks.ASSIGNMENTS and each["properties"]["roleDefinitionId"].endswith(role)
        )
        found["id"] = found["id"].replace(scope, "", 1)

    return edit


def asked(old: str, new: str) -> Edit:
    """Change the query of the alert rule."""

    def edit(resources: list[Resource]) -> None:
        [condition] = next(each for each in resources if each["type"] == RULES)["properties"]["criteria"]["allOf"]
        assert old in condition["query"]
        condition["query"] = condition["query"].replace(old, new, 1)

    return edit


SETTING, CONFIG = "properties.{}", f"{SITES}/config"
ENDPOINT, ZONES = "Microsoft.Network/privateEndpoints", "Microsoft.Network/privateEndpoints/privateDnsZoneGroups"
CONNECTION = "properties.privateLinkServiceConnections.0.properties"
SECRETS_USER, BLOB_OWNER = "4633458b-17de-408a-b874-0445c86b69e6", "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"

MUTANTS: list[tuple[str, Edit]] = [
    *(("refused", put(SITES, f"properties.siteConfig.{name}", "x")) for name in sorted(checks.REFUSED)),
    ("refused", put(POLICIES, "location", GONE)),
    ("refused", put(POLICIES, "name", "func/ftp")),
    ("hosting", put(SITES, "properties.keyVaultReferenceIdentity", GONE)),
    ("hosting", put(SITES, "identity.type", "SystemAssigned")),
    ("hosting", put(SITES, "properties.functionAppConfig.runtime.version", "3.12")),
    ("hosting", put(SITES, "properties.functionAppConfig.deployment.storage.value", "https://host.blob.core.windows.net//packages")),
    ("hosting", put(SITES, "properties.functionAppConfig.scaleAndConcurrency.triggers.http.perInstanceConcurrency", 32)),
    ("hosting", put(CONFIG, "properties.FUNCTIONS_REQUEST_BODY_SIZE_LIMIT", "40000000")),
    ("hosting", put(PLAN, "sku.tier", "Dynamic")),
    *(
        ("settings", put(CONFIG, SETTING.format(name), "x"))
        for name in ("TOCSIN_LOCAL", "TOCSIN_NEW_SHARD", "TZ", "WEBSITE_RUN_FROM_PACKAGE")
    ),
    ("settings", put(CONFIG, "properties.TOCSIN_BACKLOG_PER_SECOND", GONE)),
    ("settings", put(CONFIG, "properties.TocsinMirror__queueServiceUri", GONE)),
    ("connections", put(CONFIG, "properties.TocsinStorage__tableServiceUri", "https://tocsin07ulcqxxwesckw.queue.core.windows.net/")),
    ("connections", put(CONFIG, "properties.TocsinMirror__queueServiceUri", "https://tocsin07ulcqxxwesckw.queue.core.windows.net/")),
    ("connections", put(CONFIG, "properties.AzureWebJobsStorage__clientId", "another")),
    ("connections", put(CONFIG, "properties.AzureWebJobsStorage__blobServiceUri", GONE)),
    ("connections", put(CONFIG, "properties.TOCSIN_ADMIN_KEY", "a key")),
    ("connections", put(CONFIG, "properties.TOCSIN_TOKEN_CLIENT_ID", CLIENT_ID)),
    ("connections", put(CONFIG, "properties.TOCSIN_ACCOUNTS", "[]")),
    ("storage", without(f"{ACCOUNTS}/tableServices/tables", "tocsinm7ulcqxxwesckw/tableServices/default/tables/TocsinTurns")),
    ("storage", without(f"{ACCOUNTS}/queueServices/queues", "/tocsin-shards-poison")),
    ("storage", without(f"{ACCOUNTS}/blobServices/containers", "/packages")),
    (
        "storage",
        put(
            f"{ACCOUNTS}/tableServices/tables",
            "id",
            f"{checks.SUBSCRIPTION}/resourceGroups/rg-tocsin-test/providers/{ACCOUNTS}/tocsin17ulcqxxwesckw/x",
        ),
    ),
    ("roles", without(checks.ASSIGNMENTS, "974c5e8b-45b9-4653-ba55-5f855dd0fb88")),
    ("roles", moved(SECRETS_USER, "/secrets/tocsin-admin-key")),
    ("roles", moved(BLOB_OWNER, "/providers/Microsoft.Storage/storageAccounts/host7ulcqxxwesckw")),
    ("roles", put(checks.ASSIGNMENTS, "properties.principalId", "principal of another")),
    ("roles", put(checks.ASSIGNMENTS, "properties.principalId", f"principal of {TOKEN_IDENTITY}7ulcqxxwesckw")),
    ("roles", put(checks.ASSIGNMENTS, "properties.principalType", "User")),
    ("roles", put(checks.ASSIGNMENTS, "name", "6c1b3bd4-7a53-4a4b-9a4a-0a5f4a2f6f3e")),
    *(("demands", put(kind, f"properties.{path}", "another")) for kind, wanted in checks.DEMANDED.items() for path in wanted),
    ("demands", put(ACCOUNTS, "properties.allowSharedKeyAccess", GONE, "host")),
    ("demands", put(VAULTS, "properties.publicNetworkAccess", "Enabled")),
    ("demands", put(ACCOUNTS, "properties.networkAcls.defaultAction", "Allow", "tocsinm")),
    ("secrets", put(CONFIG, "properties.TOCSIN_SIGNING_KEY", KEYS["signingKey"])),
    ("network", without(ENDPOINT, "pep-vault-7ulcqxxwesckw")),
    ("network", put(ENDPOINT, f"{CONNECTION}.groupIds", ["queue"], "pep-host")),
    ("network", put(ENDPOINT, "properties.subnet.id", "/subnets/endpoints", "pep-home")),
    ("network", put(ZONES, "properties.privateDnsZoneConfigs.0.properties.privateDnsZoneId", "/privatelink.file.core.windows.net")),
    (
        "network",
        without(
            "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
            "privatelink.table.core.windows.net/virtualNetworkLinks/tocsin-7ulcqxxwesckw",
        ),
    ),
    ("network", put(NETWORKS, "properties.subnets.0.properties.delegations.0.properties.serviceName", "Microsoft.Web/serverFarms")),
    ("network", put(SITES, "properties.virtualNetworkSubnetId", None)),
    ("outbound", put(NETWORKS, "properties.subnets.0.properties.natGateway", GONE)),
    ("outbound", put(NETWORKS, "properties.subnets.0.properties.natGateway", {"id": "another"})),
    ("outbound", put(SITES, "properties.virtualNetworkSubnetId", None)),
    ("outbound", put(checks.ADDRESSES, "properties.publicIPAllocationMethod", "Dynamic")),
    ("observed", put(SITES, "tags", {})),
    *(
        ("observed", without(DIAGNOSTICS, f"{kind.removesuffix('s')}s/default/providers/{DIAGNOSTICS}/tocsin"))
        for kind in ("tableServices", "queueServices", "blobServices")
    ),
    ("observed", put(DIAGNOSTICS, "properties.workspaceId", "another")),
    ("observed", put(DIAGNOSTICS, "properties.metrics", [])),
    ("observed", put(DIAGNOSTICS, "properties.metrics.0.enabled", False)),
    ("observed", put(DIAGNOSTICS, "properties.logs.0.category", "AllMetrics")),
    ("alerts", asked("AppMetrics |", "search * |")),
    ("alerts", asked("ago(30m)", "ago(10m)")),
    ("alerts", asked("tocsin_ledger_gap", "tocsin_ledger_hole")),
    ("alerts", asked("tocsin_ledger_gap", "ledger_gap")),
    ("alerts", asked('"unserved"', '"lost"')),
    ("alerts", asked("tocsin.late_ms", "tocsin.lateness")),
    ("alerts", asked('"lease_scan"', '"leases_scan"')),
    ("alerts", asked('"clock_unproved")', '"clock_unproven")')),
    ("alerts", asked('in ("clock_wrong", "clock_unproved")', '== "turn_published"')),
    ("alerts", asked('tostring(Properties.action) in ("clock_wrong", "clock_unproved")', "SeverityLevel > 2")),
    ("alerts", asked('extend alarm = "ledger-gap"', 'extend alarm = "another"')),
    ("alerts", put(RULES, "properties.description", "")),
    ("alerts", put(RULES, "properties.windowSize", "PT10M")),
    ("alerts", put(RULES, "properties.evaluationFrequency", "PT30M")),
    ("alerts", put(RULES, "properties.criteria.allOf.0.threshold", GONE)),
    ("alerts", put(RULES, "properties.criteria.allOf.0.dimensions", GONE)),
    ("alerts", put(RULES, "properties.actions.actionGroups", [])),
    ("workbook", put("Microsoft.Insights/workbooks", "properties.serializedData", '{"items": []}')),
]


@pytest.mark.parametrize(("name", "edit"), MUTANTS)
def test_a_check_sees_what_it_is_for(name: str, edit: Edit) -> None:
    made = deployed("everything")
    assert list(CHECKS[name](made)) == []
    resources = copy.deepcopy(list(made.resources))
    edit(resources)
    assert list(CHECKS[name](replace(made, resources=tuple(resources))))


def test_every_check_is_shown_to_fail() -> None:
    assert {name for name, _ in MUTANTS} == set(CHECKS)


@pytest.mark.parametrize("edit", [("tocsin_queue_messages", "tocsin_queue_lengths"), ("maintenance_posted", "maintenance_pasted")])
def test_a_chart_that_asks_for_nothing_that_the_code_has_is_found(edit: tuple[str, str]) -> None:
    made = deployed("defaults")
    resources = copy.deepcopy(list(made.resources))
    found = next(each for each in resources if each["type"] == "Microsoft.Insights/workbooks")["properties"]
    assert edit[0] in found["serializedData"]
    found["serializedData"] = found["serializedData"].replace(*edit)
    assert list(observed_checks.workbook(replace(made, resources=tuple(resources))))


def test_an_output_that_tells_a_secret_is_found() -> None:
    made = deployed("defaults")
    for value in (KEYS["adminKey"], "InstrumentationKey=of appi"):
        assert list(checks.secrets(Deployment(made.resources, {**made.outputs, "MORE": value})))
