"""Facts about Azure and about the code: names that infra/ has to agree with."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from shared.app.timers import SCHEDULES
from shared.core.settings import Settings, env_name
from shared.fleets.watch.alarms import ALARMS, KINDS
from shared.maintenance.service.notifications import SENTENCES
from shared.storage import names
from shared.storage.several.tables import SpreadTables
from tests.paths import ROOT
from tests.unit.test_log_actions import actions

VERSIONS = {
    "Microsoft.Authorization/roleAssignments": "2022-04-01",
    "Microsoft.Compute/virtualMachines": "2024-07-01",
    "Microsoft.Compute/virtualMachines/extensions": "2024-07-01",
    "Microsoft.EventGrid/topics": "2022-06-15",
    "Microsoft.Insights/actionGroups": "2023-01-01",
    "Microsoft.Insights/components": "2020-02-02",
    "Microsoft.Insights/diagnosticSettings": "2021-05-01-preview",
    "Microsoft.Insights/scheduledQueryRules": "2022-06-15",
    "Microsoft.Insights/workbooks": "2022-04-01",
    "Microsoft.KeyVault/vaults": "2023-07-01",
    "Microsoft.KeyVault/vaults/secrets": "2023-07-01",
    "Microsoft.ManagedIdentity/userAssignedIdentities": "2023-01-31",
    "Microsoft.Network/privateDnsZones": "2020-06-01",
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks": "2020-06-01",
    "Microsoft.Network/privateEndpoints": "2024-01-01",
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups": "2024-01-01",
    "Microsoft.Network/virtualNetworks": "2024-01-01",
    "Microsoft.OperationalInsights/workspaces": "2022-10-01",
    "Microsoft.Resources/resourceGroups": "2024-03-01",
    "Microsoft.Storage/storageAccounts": "2023-05-01",
    "Microsoft.Storage/storageAccounts/blobServices": "2023-05-01",
    "Microsoft.Storage/storageAccounts/blobServices/containers": "2023-05-01",
    "Microsoft.Storage/storageAccounts/queueServices": "2023-05-01",
    "Microsoft.Storage/storageAccounts/queueServices/queues": "2023-05-01",
    "Microsoft.Storage/storageAccounts/tableServices": "2023-05-01",
    "Microsoft.Storage/storageAccounts/tableServices/tables": "2023-05-01",
    "Microsoft.Web/serverfarms": "2024-04-01",
    "Microsoft.Web/sites": "2024-04-01",
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": "2024-04-01",
    "Microsoft.Web/sites/config": "2024-04-01",
}
"""The one API version of each type that may be used."""

TAGGED = frozenset(
    {
        "Microsoft.Compute/virtualMachines/extensions",
        "Microsoft.EventGrid/topics",
        "Microsoft.Insights/actionGroups",
        "Microsoft.Insights/components",
        "Microsoft.Insights/scheduledQueryRules",
        "Microsoft.Insights/workbooks",
        "Microsoft.KeyVault/vaults",
        "Microsoft.ManagedIdentity/userAssignedIdentities",
        "Microsoft.Network/privateDnsZones",
        "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
        "Microsoft.Network/privateEndpoints",
        "Microsoft.Network/virtualNetworks",
        "Microsoft.OperationalInsights/workspaces",
        "Microsoft.Resources/resourceGroups",
        "Microsoft.Storage/storageAccounts",
        "Microsoft.Web/serverfarms",
        "Microsoft.Web/sites",
    }
)
"""Types that take tags, and so have them."""

DIAGNOSED = frozenset(
    {
        "Microsoft.EventGrid/topics",
        "Microsoft.KeyVault/vaults",
        "Microsoft.Storage/storageAccounts/blobServices",
        "Microsoft.Storage/storageAccounts/queueServices",
        "Microsoft.Storage/storageAccounts/tableServices",
        "Microsoft.Web/sites",
    }
)
"""Types whose resources have a diagnostic setting."""

DEMANDED = {
    "Microsoft.EventGrid/topics": {"disableLocalAuth": "true", "inputSchema": "'CloudEventSchemaV1_0'"},
    "Microsoft.Insights/components": {"DisableLocalAuth": "true"},
    "Microsoft.KeyVault/vaults": {
        "enableRbacAuthorization": "true",
        "enableSoftDelete": "true",
        "enablePurgeProtection": "true",
        "publicNetworkAccess": "privateOnly ? 'Disabled' : 'Enabled'",
        "networkAcls.defaultAction": "privateOnly ? 'Deny' : 'Allow'",
    },
    "Microsoft.OperationalInsights/workspaces": {"features.disableLocalAuth": "true"},
    "Microsoft.Storage/storageAccounts": {
        "allowBlobPublicAccess": "false",
        "allowCrossTenantReplication": "false",
        "allowSharedKeyAccess": "false",
        "defaultToOAuthAuthentication": "true",
        "minimumTlsVersion": "'TLS1_2'",
        "supportsHttpsTrafficOnly": "true",
        "publicNetworkAccess": "privateOnly ? 'Disabled' : 'Enabled'",
        "networkAcls.defaultAction": "privateOnly ? 'Deny' : 'Allow'",
    },
    "Microsoft.Storage/storageAccounts/blobServices/containers": {"publicAccess": "'None'"},
    "Microsoft.Web/serverfarms": {"reserved": "true"},
    "Microsoft.Web/sites": {
        "httpsOnly": "true",
        "siteConfig.minTlsVersion": "'1.2'",
        "siteConfig.scmMinTlsVersion": "'1.2'",
        "siteConfig.ftpsState": "'Disabled'",
        "functionAppConfig.runtime.name": "'python'",
        "functionAppConfig.runtime.version": "'3.13'",
        "functionAppConfig.deployment.storage.authentication.type": "'UserAssignedIdentity'",
        "functionAppConfig.scaleAndConcurrency.triggers.http.perInstanceConcurrency": "httpConcurrency",
        "functionAppConfig.scaleAndConcurrency.alwaysReady": "alwaysReady",
    },
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": {"allow": "false"},
}
"""The required members of `properties` of each type."""

SPELLED = {
    "Microsoft.Authorization/roleAssignments": "principalId principalType roleDefinitionId",
    "Microsoft.Compute/virtualMachines/extensions": ("autoUpgradeMinorVersion protectedSettings publisher script type typeHandlerVersion"),
    "Microsoft.EventGrid/topics": "disableLocalAuth inputSchema publicNetworkAccess",
    "Microsoft.Insights/actionGroups": "emailAddress emailReceivers enabled groupShortName name useCommonAlertSchema",
    "Microsoft.Insights/components": "Application_Type DisableLocalAuth WorkspaceResourceId",
    "Microsoft.Insights/diagnosticSettings": "category enabled logs metrics workspaceId",
    "Microsoft.Insights/scheduledQueryRules": (
        "actionGroups actions allOf autoMitigate criteria description displayName enabled evaluationFrequency failingPeriods "
        "minFailingPeriodsToAlert numberOfEvaluationPeriods operator query scopes severity skipQueryValidation threshold "
        "timeAggregation windowSize"
    ),
    "Microsoft.Insights/workbooks": "category displayName serializedData sourceId",
    "Microsoft.KeyVault/vaults": (
        "bypass defaultAction enablePurgeProtection enableRbacAuthorization enableSoftDelete family name networkAcls "
        "publicNetworkAccess sku softDeleteRetentionInDays tenantId"
    ),
    "Microsoft.KeyVault/vaults/secrets": "contentType value",
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks": "id registrationEnabled virtualNetwork",
    "Microsoft.Network/privateEndpoints": "groupIds id name privateLinkServiceConnections privateLinkServiceId properties subnet",
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups": "name privateDnsZoneConfigs privateDnsZoneId properties",
    "Microsoft.Network/virtualNetworks": (
        "addressPrefix addressPrefixes addressSpace delegations name privateEndpointNetworkPolicies properties serviceName subnets"
    ),
    "Microsoft.OperationalInsights/workspaces": "disableLocalAuth features name retentionInDays sku",
    "Microsoft.Storage/storageAccounts": (
        "allowBlobPublicAccess allowCrossTenantReplication allowSharedKeyAccess bypass defaultAction defaultToOAuthAuthentication "
        "minimumTlsVersion networkAcls publicNetworkAccess supportsHttpsTrafficOnly"
    ),
    "Microsoft.Storage/storageAccounts/blobServices/containers": "publicAccess",
    "Microsoft.Web/serverfarms": "reserved",
    "Microsoft.Web/sites": (
        "alwaysReady authentication deployment ftpsState functionAppConfig http httpsOnly instanceMemoryMB "
        "keyVaultReferenceIdentity maximumInstanceCount minTlsVersion name perInstanceConcurrency runtime scaleAndConcurrency "
        "scmMinTlsVersion serverFarmId siteConfig storage triggers type userAssignedIdentityResourceId value version "
        "virtualNetworkSubnetId"
    ),
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": "allow",
}
"""Type -> the names that its `properties` may hold at any depth, as Azure's published type definitions spell them: those that are used."""

FORBIDDEN = frozenset({"TZ", "WEBSITE_TIME_ZONE", "FUNCTIONS_WORKER_RUNTIME", "FUNCTIONS_EXTENSION_VERSION", "WEBSITE_RUN_FROM_PACKAGE"})
"""Settings that Flex Consumption does not take, or that break it."""

ROLES = {
    "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": ("Storage Blob Data Owner", "Microsoft.Storage/storageAccounts"),
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": ("Storage Blob Data Reader", "Microsoft.Storage/storageAccounts/blobServices/containers"),
    "974c5e8b-45b9-4653-ba55-5f855dd0fb88": ("Storage Queue Data Contributor", "Microsoft.Storage/storageAccounts"),
    "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": ("Storage Table Data Contributor", "Microsoft.Storage/storageAccounts"),
    "3913510d-42f4-4e42-8a64-420c390055eb": ("Monitoring Metrics Publisher", "Microsoft.Insights/components"),
    "d5a91429-5739-47e2-a06b-3470a27159e7": ("EventGrid Data Sender", "Microsoft.EventGrid/topics"),
    "4633458b-17de-408a-b874-0445c86b69e6": ("Key Vault Secrets User", "Microsoft.KeyVault/vaults/secrets"),
    "b67fe603-310e-4889-b9ee-8257d09d353d": ("Scheduled Events Contributor", ""),
}
"""Role -> its name, and the type it is given for; '' is a whole resource group."""

BLOB_ROLES = frozenset({"b7e6dc6d-f1e8-4753-8033-0f276bb0955b"})
"""Roles that no account with events gives."""

FUNCTIONS = frozenset(
    {
        "base64",
        "concat",
        "empty",
        "environment",
        "format",
        "guid",
        "length",
        "loadTextContent",
        "range",
        "replace",
        "resourceGroup",
        "string",
        "subscription",
        "subscriptionResourceId",
        "tenant",
        "toLower",
        "union",
        "uniqueString",
    }
)
"""Functions that the files may call: none that gives a key away, none that makes a deployment differ from the one before."""

READ_ELSEWHERE = {
    "AzureWebJobsStorage__blobServiceUri": "the Functions host: locks of timers, and the deployed package",
    "AzureWebJobsStorage__credential": "the same",
    "AzureWebJobsStorage__clientId": "the same",
    "TocsinStorage__credential": "the Functions host: it listens to the queues",
    "TocsinMirror__credential": "the same, for those of the second account",
    "APPLICATIONINSIGHTS_CONNECTION_STRING": "the host and the worker: where telemetry goes",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING": "the same: as whom",
    "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "the host: larger bodies never reach the app",
    "PYTHON_ENABLE_OPENTELEMETRY": "the worker: the app exports its own logs and spans, so the host is not to send them again",
}
"""Settings that no code of ours reads -> who does."""

LEFT_OUT = {
    "TocsinStorage": "no connection string: the app comes as its identity",
    "TocsinMirror": "the same",
    "TOCSIN_MIRROR_STOP_SECONDS": "the default; both figures change together, with nobody serving",
    "TOCSIN_MIRROR_TAKE_SECONDS": "the same",
    "TOCSIN_LOCAL": "for the emulator only",
    "TOCSIN_RECEIVER": "the same",
    "TOCSIN_BIGBEN_OPEN": "the same",
    "TOCSIN_EGRESS_PLAIN": "off: an operator who needs it says so by hand",
    "TOCSIN_KAFKA_POLL_SECONDS": "the default fits the timer's period",
    "TOCSIN_BUCKET_SECONDS": "one figure only",
    "TOCSIN_SHARD_EVENTS": "the default fits a storage transaction and a page",
    "TOCSIN_SHARD_BYTES": "the same",
    "TOCSIN_FIRE_BYTES": "the default fits an instance of 2 GB",
    "TOCSIN_DELIVER_CONCURRENCY": "the same",
    "TOCSIN_TENANT_CONCURRENCY": "the same",
    "TOCSIN_TARGET_CONCURRENCY": "the same",
    "TOCSIN_OWNERS": "what host.json lets in",
}
"""Settings that the code reads and Bicep leaves at their default -> why."""


def settings_read() -> set[str]:
    """Every setting that the class has, by its name in the environment."""
    return {env_name(name) for name in Settings.model_fields}


def tables() -> set[str]:
    """The tables of the home account."""
    return set(names.ALL_TABLES)


def queues() -> set[str]:
    """The queues of the home account, with those for what failed five times."""
    return {queue + end for queue in names.ALL_QUEUES for end in ("", "-poison")}


def readers_of_the_environment() -> dict[str, set[str]]:
    """Files of the service that look into the environment -> what they say there, as source."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "function_app.py", *sorted((ROOT / "shared").rglob("*.py"))):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if "environ" in source or "getenv" in source else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv"):
                found.setdefault(path.relative_to(ROOT).as_posix(), set())
            match node:
                case ast.Call(ast.Attribute(ast.Attribute(ast.Name("os"), "environ"), "get"), [name, *_]):
                    found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(ast.unparse(name))
    return found


class _Asked:
    """A tables port that only notes what it is asked to make."""

    def __init__(self) -> None:
        self.made: set[str] = set()

    async def ensure(self, asked: Sequence[str]) -> None:
        """Note it."""
        self.made |= set(asked)


@cache
def shard_tables() -> frozenset[str]:
    """The tables of a further account: those that the code itself makes there where nobody provisions them."""
    home, further = _Asked(), _Asked()
    spread = SpreadTables(cast(Any, home), {"0": cast(Any, home), "1": cast(Any, further)})
    asyncio.run(spread.ensure(names.ALL_TABLES))
    return frozenset(further.made)


@dataclass(frozen=True)
class Observable:
    """Return the metrics that alerts and charts may use."""

    metrics: frozenset[str]
    actions: frozenset[str]
    spans: frozenset[str]
    alarms: frozenset[str]
    timers: frozenset[str]


@cache
def observable() -> Observable:
    """All that the code exports or logs, by name. Metrics are those of `/api/metrics`, counters without the `_total` of its text."""
    sources = {path: text for path in (ROOT / "shared").rglob("*.py") if '"action"' in (text := path.read_text())}
    families = (ROOT / "shared" / "ops" / "metrics" / "families.py").read_text()
    telemetry = (ROOT / "shared" / "delivery" / "tracing.py").read_text()
    logged = {action for source in sources.values() for action in (*actions(source), *re.findall(r'"action": "([a-z_.-]+)"', source))}
    # Lines are exported from INFO on.
    quiet = re.findall(r"^\| (`.*?) \| debug \|", (ROOT / "docs" / "reference" / "log-actions.md").read_text(), re.MULTILINE)
    logged -= {name for names in quiet for name in re.findall(r"`([^`]+)`", names)}
    return Observable(
        frozenset(re.findall(r'MetricFamily\(\s*"(tocsin_[a-z_]+)"', families)),
        frozenset(logged | {alarm.action for alarm in ALARMS.values()}),
        frozenset(re.findall(r'"(tocsin\.[a-z_]+)"', telemetry)),
        frozenset({*SENTENCES, *KINDS}),
        frozenset(SCHEDULES),
    )
