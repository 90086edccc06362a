"""Each check of infra/ can fail: one edit of the files a row, and which check sees it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from . import agreement, wholeness  # noqa: F401  (their import has their checks run too)
from .checks import CHECKS, Project

MAIN, APP, STORAGE, VAULT = "main.bicep", "modules/app.bicep", "modules/storage.bicep", "modules/vault.bicep"
HOST, PLACE, ALERTS, TOPIC = "modules/host.bicep", "modules/place.bicep", "modules/alerts.bicep", "modules/topic.bicep"
MONITORING, NETWORK, PARAMETERS, CHARTS = "modules/monitoring.bicep", "modules/network.bicep", "main.parameters.json", "workbook.json"

MUTANTS: list[tuple[str, str, str, str]] = [
    # check, file, what is there, what is there instead
    ("syntax", MAIN, "param location string", "param location string string"),
    ("syntax", APP, "kind: 'functionapp,linux'", "kind: 'functionapp,linux"),
    ("names", MAIN, "workspaceId: monitoring.outputs.workspaceId\n    email", "workspaceId: monitor.outputs.workspaceId\n    email"),
    ("names", APP, "serverFarmId: plan.id", "serverFarmId: plans.id"),
    ("names", STORAGE, "[for table in tables: {", "[for each in tables: {"),
    ("names", MAIN, "'tocsin${number}${token}'", "'tocsin${numbers}${token}'"),
    ("names", APP, "param instanceMemory int\n", "param instanceMemory int\nparam instanceMemories int = 1\n"),
    ("names", HOST, "var blobOwner =", "var spare = 'x'\nvar blobOwner ="),
    ("names", NETWORK, "var appSubnet = 'app'", "var appSubnet = 'app'\nvar appSubnet = 'other'"),
    ("names", APP, "insights.properties.ConnectionString", "listKeys(insights.id, '2020-02-02').key"),
    ("names", VAULT, "guid(vault.id, adminKeyName, principalId, secretsUser)", "newGuid()"),
    ("versions", STORAGE, "Microsoft.Storage/storageAccounts@2023-05-01'", "Microsoft.Storage/storageAccounts@2023-05-02'"),
    ("versions", TOPIC, "Microsoft.EventGrid/topics@", "Microsoft.EventGrid/topic@"),
    ("modules", MAIN, "modules/topic.bicep", "modules/topics.bicep"),
    ("modules", MAIN, "    logDays: logDays\n", ""),
    ("modules", MAIN, "    email: alertEmail\n", "    mail: alertEmail\n"),
    ("modules", MAIN, "    adminKey: adminKey\n", "    adminKey: environmentName\n"),
    ("modules", MAIN, "@secure()\nparam signingKey", "param signingKey"),
    ("modules", PLACE, "module network 'network.bicep'", "module network 'app.bicep'"),
    ("outputs", MAIN, "mirror!.outputs.tableUri", "mirror!.outputs.tablesUri"),
    ("outputs", MAIN, "eventGridTopic ? topic!.outputs.endpoint : ''", "topic!.outputs.endpoint"),
    ("outputs", MAIN, "scale[index].outputs.id]", "scale[index].outputs.ids]"),
    ("types", MAIN, "    tables: shardTables\n", "    tables: token\n"),
    ("types", MAIN, "    auditLogs: auditLogs\n", "    auditLogs: storageAudit\n"),
    ("types", MAIN, "    workspaceId: monitoring.outputs.workspaceId\n    email", "    workspaceId: 17\n    email"),
    ("types", PLACE, "    deploymentContainer: host.outputs.deploymentContainer\n", "    deploymentContainer: network!.outputs.zoneIds\n"),
    ("types", STORAGE, "output id string = account.id", "output id array = account.id"),
    ("types", MAIN, "param logDays int = 30", "param logDays int = '30'"),
    ("texts", "modules/workbook.bicep", "'../workbook.json'", "'workbook.json'"),
    ("parameters", PARAMETERS, '"environmentName"', '"environment"'),
    ("parameters", PARAMETERS, "${TOCSIN_ADMIN_KEY=}", "a key"),
    ("demands", STORAGE, "allowSharedKeyAccess: false", "allowSharedKeyAccess: true"),
    ("demands", HOST, "    allowSharedKeyAccess: false\n", ""),
    ("demands", STORAGE, "'TLS1_2'", "'TLS1_1'"),
    ("demands", STORAGE, "privateOnly ? 'Disabled' : 'Enabled'", "privateOnly ? 'Enabled' : 'Disabled'"),
    ("demands", VAULT, "privateOnly ? 'Deny' : 'Allow'", "'Allow'"),
    ("demands", STORAGE, "supportsHttpsTrafficOnly: true", "supportsHttpsTrafficOnly: false"),
    ("demands", APP, "httpsOnly: true", "httpsOnly: false"),
    ("demands", APP, "minTlsVersion: '1.2'\n", "minTlsVersion: '1.0'\n"),
    ("demands", APP, "version: '3.13'", "version: '3.12'"),
    ("demands", APP, "perInstanceConcurrency: httpConcurrency", "perInstanceConcurrency: 1"),
    ("demands", APP, "    allow: false\n", "    allow: true\n"),
    ("demands", MONITORING, "DisableLocalAuth: true", "DisableLocalAuth: false"),
    ("demands", TOPIC, "disableLocalAuth: true", "disableLocalAuth: false"),
    ("demands", VAULT, "enableRbacAuthorization: true", "enableRbacAuthorization: false"),
    ("spelling", APP, "serverFarmId: plan.id", "serverFarmID: plan.id"),
    ("spelling", ALERTS, "evaluationFrequency: rule.every", "frequency: rule.every"),
    ("spelling", NETWORK, "delegations: [", "delegation: ["),
    ("tags", STORAGE, "  tags: tags\n", ""),
    ("diagnostics", STORAGE, "scope: queueService", "scope: tableService"),
    ("diagnostics", VAULT, "scope: vault\n", "scope: adminKeySecret\n"),
    ("secrets", VAULT, "output id string = vault.id", "output id string = adminKey"),
    ("secrets", VAULT, "output id string = vault.id", "output id string = writtenAdminKey.properties.value"),
    ("secrets", APP, "output name string = app.name", "output name string = insights.properties.ConnectionString"),
    ("roles", STORAGE, "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3", "17d1049b-9a84-46fb-8f53-869881c3d3ab"),
    ("roles", STORAGE, "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3", "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"),
    ("roles", STORAGE, "  scope: account\n", ""),
    ("roles", VAULT, "scope: adminKeySecret", "scope: vault"),
    ("roles", HOST, "guid(account.id, principalId, blobOwner)", "guid(account.id)"),
    ("roles", TOPIC, "principalType: 'ServicePrincipal'", "principalType: 'User'"),
    ("roles", "agent/key.bicep", "scope: secret\n", "scope: vault\n"),
    ("roles", "agent/wheel.bicep", "scope: packages\n", "scope: account\n"),
    ("modules", "agent/agent.bicep", "    secretName: '${secretPrefix}${name}'\n", ""),
    ("settings", MAIN, "TOCSIN_NEW_SHARDS:", "TOCSIN_NEW_SHARD:"),
    ("settings", MAIN, "  TOCSIN_BACKLOG_PER_SECOND: string(backlogPerSecond)\n", ""),
    ("settings", MAIN, "TocsinMirror__queueServiceUri:", "TocsinMirror__queueUri:"),
    ("settings", MAIN, "  TOCSIN_NEW_SHARDS: newShards\n", "  TOCSIN_NEW_SHARDS: newShards\n  TOCSIN_LOCAL: 'true'\n"),
    ("settings", APP, "  AzureWebJobsStorage__credential: 'managedidentity'\n", ""),
    *(
        ("forbidden", MAIN, "  TOCSIN_NEW_SHARDS: newShards\n", f"  TOCSIN_NEW_SHARDS: newShards\n  {name}: 'x'\n")
        for name in ("TZ", "WEBSITE_TIME_ZONE", "FUNCTIONS_WORKER_RUNTIME", "FUNCTIONS_EXTENSION_VERSION", "WEBSITE_RUN_FROM_PACKAGE")
    ),
    ("keys", MAIN, "'@Microsoft.KeyVault(SecretUri=${vault.outputs.adminKeyUri})'", "adminKey"),
    ("keys", APP, "    keyVaultReferenceIdentity: identityId\n", ""),
    ("connections", MAIN, "TocsinStorage__tableServiceUri: home.outputs.tableUri", "TocsinStorage__tableServiceUri: home.outputs.queueUri"),
    ("connections", MAIN, "TocsinMirror__queueServiceUri: mirror!.outputs", "TocsinMirror__queueServiceUri: home.outputs"),
    ("connections", APP, "AzureWebJobsStorage__clientId: clientId", "AzureWebJobsStorage__clientId: identityId"),
    ("connections", STORAGE, "primaryEndpoints.queue", "primaryEndpoints.table"),
    ("identities", APP, "type: 'UserAssigned'\n", "type: 'SystemAssigned'\n"),
    ("identities", APP, "    keyVaultReferenceIdentity: identityId\n", "    keyVaultReferenceIdentity: clientId\n"),
    ("identities", APP, "'${hostBlobUri}${deploymentContainer}'", "'${hostBlobUri}/${deploymentContainer}'"),
    ("zones", NETWORK, "blob: zones[0].id", "blob: zones[1].id"),
    ("zones", NETWORK, "  vault: zones[3].id\n", ""),
    ("zones", NETWORK, "Microsoft.App/environments", "Microsoft.Web/serverFarms"),
    ("zones", MAIN, "group: 'vault' }", "group: 'secrets' }"),
    ("required", APP, "    serverFarmId: plan.id\n", ""),
    ("required", APP, "  parent: app\n", ""),
    ("required", APP, "    tier: 'FlexConsumption'\n", ""),
    ("required", STORAGE, "    principalId: principalId\n", ""),
    ("required", STORAGE, "  location: location\n", ""),
    ("required", STORAGE, "    workspaceId: workspaceId\n", ""),
    ("required", VAULT, "    tenantId: tenant().tenantId\n", ""),
    ("required", VAULT, "  name: adminKeyName\n", ""),
    ("required", MAIN, "  scope: group\n", ""),
    ("required", MAIN, "targetScope = 'subscription'\n", ""),
    ("required", PLACE, "  name: '${service}-app'\n", ""),
    ("watching", ALERTS, "    window: 'PT15M'\n", ""),
    ("watching", ALERTS, "every: 'PT5M'", "every: 'PT30M'"),
    ("watching", ALERTS, "          threshold: 0\n", ""),
    ("watching", ALERTS, "[people.id]", "[]"),
    ("private", MAIN, "  { name: 'home-queue', id: home.outputs.id, group: 'queue' }\n", ""),
    ("private", PLACE, "    endpoints\n", ""),
    ("private", PLACE, "    group: 'blob'\n", "    group: 'queue'\n"),
    ("private", "modules/endpoint.bicep", "            group\n", ""),
    ("storage", MAIN, "  'TocsinTurns'\n", ""),
    ("storage", MAIN, "  'TocsinTurns'\n", "  'TocsinTurn'\n"),
    ("storage", MAIN, "  'tocsin-shards-poison'\n", ""),
    ("storage", MAIN, "  'tocsin-shards'\n", "  'tocsin-shards'\n  'tocsin-more'\n"),
    ("storage", MAIN, "    tables: shardTables\n", "    tables: allTables\n"),
    ("alerts", ALERTS, "query: 'AppMetrics | where Name ==", "query: 'search * | where Name =="),
    ("parameters", PARAMETERS, '"kafkaSources": {\n      "value": []', '"kafkaSources": {\n      "value": "${TOCSIN_KAFKA_SOURCES=}"'),
    ("alerts", ALERTS, "tocsin_ledger_gap", "tocsin_ledger_hole"),
    ("alerts", ALERTS, '"tocsin_events_stuck"', '"tocsin_events_stick"'),
    ("alerts", ALERTS, '"restore-failed"', '"restoring-failed"'),
    ("alerts", ALERTS, "tocsin.late_ms", "tocsin.lateness"),
    ("alerts", ALERTS, '"lease_scan"', '"leases_scan"'),
    ("alerts", ALERTS, '"missing"', '"lost"'),
    ("alerts", ALERTS, 'where Name == "tocsin_events_stuck" | where Sum > 0', 'where tostring(Properties.action) == "shard_sticks"'),
    ("alerts", ALERTS, 'where Name == "tocsin_events_stuck" | where Sum > 0', 'where tostring(Properties.action) == "turn_published"'),
    ("alerts", ALERTS, '"clock_unproved"', '"clock_unproven"'),
    ("alerts", ALERTS, "name: 'single-monitor'", "name: 'one-monitor'"),
    ("alerts", ALERTS, 'AppMetrics | where Name == "tocsin_events_stuck" | where Sum > 0', "AppTraces | where SeverityLevel > 2"),
    ("workbook", CHARTS, "tocsin_queue_messages", "tocsin_queue_lengths"),
    ("workbook", CHARTS, "maintenance_posted", "maintenance_pasted"),
]


@pytest.mark.parametrize(("name", "path", "there", "instead"), MUTANTS)
def test_a_check_sees_what_it_is_for(name: str, path: str, there: str, instead: str, sources: Mapping[str, str]) -> None:
    assert there in sources[path], "the edit has nothing to edit"
    assert list(CHECKS[name](Project({**sources, path: sources[path].replace(there, instead, 1)})))


def test_every_check_is_shown_to_fail() -> None:
    assert {name for name, *_ in MUTANTS} == set(CHECKS)
