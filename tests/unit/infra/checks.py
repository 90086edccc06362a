"""Checks of what a deployment makes: each yields one sentence per fault. observed_checks.py has those of what operators see."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from shared.core.setting_names import CONNECTION, MIRROR

from . import code_facts
from .snapshots import CLIENT_ID, TOKEN_CLIENT_ID, TOKEN_IDENTITY, Deployment, Resource

ACCOUNTS, VAULTS, SITES = "Microsoft.Storage/storageAccounts", "Microsoft.KeyVault/vaults", "Microsoft.Web/sites"
INSIGHTS, TOPICS, NETWORKS = "Microsoft.Insights/components", "Microsoft.EventGrid/topics", "Microsoft.Network/virtualNetworks"
ASSIGNMENTS = "Microsoft.Authorization/roleAssignments"
ENDPOINTS, GATEWAYS, ADDRESSES = (f"Microsoft.Network/{each}" for each in ("privateEndpoints", "natGateways", "publicIPAddresses"))
POLICIES = f"{SITES}/basicPublishingCredentialsPolicies"
FURTHER = frozenset({"TOCSIN_OWNERS"})
"""Settings that the snapshot `everything` adds by the parameter `furtherSettings`."""

type Check = Callable[[Deployment], Iterable[str]]
CHECKS: dict[str, Check] = {}


def check(found: Check) -> Check:
    """Have a check run."""
    CHECKS[found.__name__] = found
    return found


def at(resource: Resource, path: str) -> Any:
    """Return the value at a dotted path in a resource; None where there is none."""
    value: Any = resource
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _all_keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _all_keys(each)


def kind_of(account: Resource) -> str:
    """Return what a storage account is for: `host`, `home`, `mirror` or `scale`."""
    name = account["name"]
    return "host" if name.startswith("host") else {"0": "home", "m": "mirror"}.get(name.removeprefix("tocsin")[0], "scale")


def _group(resource: Resource) -> str:
    return str(resource["id"].split("/")[4])


# --- The app --------------------------------------------------------------------------------------------------------

REFUSED = frozenset(
    {"ftpsState", "linuxFxVersion", "alwaysOn", "netFrameworkVersion", "use32BitWorkerProcess", "functionsRuntimeScaleMonitoringEnabled"}
)
"""Properties that the published types of sites have, and that Azure refuses on Flex Consumption, some of them with error 51021."""


@check
def refused(made: Deployment) -> Iterator[str]:
    """Nothing is set that Flex Consumption refuses, and what it asks for beyond the published types is there."""
    for site in made.of(SITES):
        yield from (f"{site['name']}: Flex Consumption refuses {name}" for name in sorted(REFUSED & set(_all_keys(site))))
        policies = [each for each in made.of(POLICIES) if each["name"].startswith(site["name"] + "/")]
        if [each["name"].rpartition("/")[2] for each in policies] != ["scm"]:
            yield f"{site['name']}: passwords of scm, and of nothing else, are to be switched off"
        yield from (f"{each['name']} has no location" for each in policies if each.get("location") != site["location"])


@check
def hosting(made: Deployment) -> Iterator[str]:
    """Each app is on Flex Consumption, is the one identity everywhere, and finds its package in the host account beside it.

    The identity without roles is attached, and used for nothing but tokens that channels send.
    """
    identity, tokens = (each["id"] for each in identities(made))
    for site in made.of(SITES):
        plan = next(each for each in made.of("Microsoft.Web/serverfarms") if each["id"] == site["properties"]["serverFarmId"])
        host = next(each for each in made.of(ACCOUNTS) if _group(each) == _group(site) and kind_of(each) == "host")
        wanted: dict[str, Any] = {
            "kind": "functionapp,linux",
            "identity": {"type": "UserAssigned", "userAssignedIdentities": {identity: {}, tokens: {}}},
            "properties.keyVaultReferenceIdentity": identity,
            "properties.functionAppConfig.runtime": {"name": "python", "version": "3.13"},
            "properties.functionAppConfig.deployment.storage": {
                "type": "blobContainer",
                "value": f"https://{host['name']}.blob.core.windows.net/packages",
                "authentication": {"type": "UserAssignedIdentity", "userAssignedIdentityResourceId": identity},
            },
        }
        yield from differ(site, wanted)
        yield from differ(plan, {"sku": {"name": "FC1", "tier": "FlexConsumption"}, "properties.reserved": True})
        scale = at(site, "properties.functionAppConfig.scaleAndConcurrency")
        at_once, limit = scale["triggers"]["http"]["perInstanceConcurrency"], _settings_of(made, site)["FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"]
        if at_once * int(limit) > scale["instanceMemoryMB"] * 1024 * 1024 / 8:
            yield f"{site['name']}: {at_once} bodies of {limit} bytes do not fit an eighth of {scale['instanceMemoryMB']} MB"


def identities(made: Deployment) -> list[Resource]:
    """Return the app's identity, and the one without roles."""
    return sorted(made.of("Microsoft.ManagedIdentity/userAssignedIdentities"), key=lambda each: each["name"].startswith(TOKEN_IDENTITY))


def differ(resource: Resource, wanted: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each path whose value is not the one that is wanted."""
    for path, value in wanted.items():
        if at(resource, path) != value:
            yield f"{resource['name']}: {path} is {at(resource, path)}, not {value}"


def _settings_of(made: Deployment, site: Resource) -> dict[str, str]:
    return dict(made.one(f"{SITES}/config", f"{site['name']}/")["properties"])


@check
def settings(made: Deployment) -> Iterator[str]:
    """Every setting is read by something, and every one that the code reads is set, or left out for a reason."""
    read = code_facts.settings_read()
    if not any(kind_of(each) == "mirror" for each in made.of(ACCOUNTS)):
        read -= {name for name in read if name.startswith(f"{MIRROR}__")}
    for site in made.of(SITES):
        given, app = set(_settings_of(made, site)), site["name"]
        yield from (f"{app}: {name} must not be set" for name in sorted(given & code_facts.FORBIDDEN))
        yield from (f"{app}: {name} is set, and nothing reads it" for name in sorted(given - read - set(code_facts.READ_ELSEWHERE)))
        yield from (f"{app}: {name} is read and not set" for name in sorted(read - given - set(code_facts.LEFT_OUT)))
        yield from (f"{app}: {name} is left out for a reason, and set" for name in sorted((given & set(code_facts.LEFT_OUT)) - FURTHER))


@check
def connections(made: Deployment) -> Iterator[str]:
    """Each connection leads to its own account, by the service that its setting is named after, as the app's identity."""
    vault = made.one(VAULTS)["name"]
    for site in made.of(SITES):
        wanted = {
            f"TOCSIN_{key}_KEY": f"@Microsoft.KeyVault(SecretUri=https://{vault}.vault.azure.net/secrets/tocsin-{key.lower()}-key)"
            for key in ("ADMIN", "SIGNING")
        }
        for account in made.of(ACCOUNTS):
            kind, name = kind_of(account), account["name"]
            if kind == "scale" or (kind == "host" and _group(account) != _group(site)):
                continue
            connection = {"home": CONNECTION, "mirror": MIRROR, "host": "AzureWebJobsStorage"}[kind]
            for service in ["blob"] if kind == "host" else ["table", "queue"]:
                wanted[f"{connection}__{service}ServiceUri"] = f"https://{name}.{service}.core.windows.net/"
            wanted |= {f"{connection}__credential": "managedidentity", f"{connection}__clientId": CLIENT_ID}
        wanted["TOCSIN_TOKEN_CLIENT_ID"] = TOKEN_CLIENT_ID
        given = _settings_of(made, site)
        yield from (
            f"{site['name']}: {name} is {given.get(name)}, not {value}" for name, value in wanted.items() if given.get(name) != value
        )
        named = json.loads(given["TOCSIN_ACCOUNTS"])
        if named != sorted(each["name"] for each in made.of(ACCOUNTS) if kind_of(each) == "scale"):
            yield f"{site['name']}: TOCSIN_ACCOUNTS names {named}"


# --- Storage, roles, secrets ----------------------------------------------------------------------------------------


@check
def storage(made: Deployment) -> Iterator[str]:
    """Each account has the tables, queues and containers that the code keeps there, and no others."""
    kept: dict[str, tuple[Iterable[str], Iterable[str], Iterable[str]]] = {
        "host": ((), (), ("packages",)),
        "home": (code_facts.tables(), code_facts.queues(), ()),
        "mirror": (code_facts.tables(), code_facts.queues(), ()),
        "scale": (code_facts.shard_tables(), (), ()),
    }
    for account in made.of(ACCOUNTS):
        for service, wanted in zip(("table", "queue", "blob"), kept[kind_of(account)], strict=True):
            kind = f"{ACCOUNTS}/{service}Services/{'containers' if service == 'blob' else service + 's'}"
            if (found := made.below(account, kind)) != set(wanted):
                yield f"{account['name']}: the {service}s differ in {sorted(found ^ set(wanted))}"


ROLES = {
    "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": "Storage Blob Data Owner",
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": "Storage Blob Data Reader",
    "974c5e8b-45b9-4653-ba55-5f855dd0fb88": "Storage Queue Data Contributor",
    "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": "Storage Table Data Contributor",
    "3913510d-42f4-4e42-8a64-420c390055eb": "Monitoring Metrics Publisher",
    "d5a91429-5739-47e2-a06b-3470a27159e7": "EventGrid Data Sender",
    "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39": "Azure Service Bus Data Sender",
    "4633458b-17de-408a-b874-0445c86b69e6": "Key Vault Secrets User",
    "b67fe603-310e-4889-b9ee-8257d09d353d": "Scheduled Events Contributor",
}
OF_ACCOUNTS = {
    "host": ("Storage Blob Data Owner",),
    "home": ("Storage Table Data Contributor", "Storage Queue Data Contributor"),
    "mirror": ("Storage Table Data Contributor", "Storage Queue Data Contributor"),
    "scale": ("Storage Table Data Contributor",),
}
SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000001"


def assigned(made: Deployment) -> set[tuple[str, str, str]]:
    """Return the roles that are assigned: (name of the role, scope, principal)."""
    return {
        (
            ROLES[each["properties"]["roleDefinitionId"].rpartition("/")[2]],
            each["id"].partition(f"/providers/{ASSIGNMENTS}/")[0],
            each["properties"]["principalId"],
        )
        for each in made.of(ASSIGNMENTS)
    }


@check
def roles(made: Deployment) -> Iterator[str]:
    """The app has each role that it needs, on the one thing that it needs it for; names follow from scope, principal and role.

    The second identity has none.
    """
    principal = f"principal of {identities(made)[0]['name']}"
    wanted = {(role, each["id"]) for each in made.of(ACCOUNTS) for role in OF_ACCOUNTS[kind_of(each)]}
    wanted |= {("Monitoring Metrics Publisher", made.one(INSIGHTS)["id"])}
    wanted |= {("EventGrid Data Sender", each["id"]) for each in made.of(TOPICS)}
    wanted |= {("Key Vault Secrets User", f"{made.one(VAULTS)['id']}/secrets/tocsin-{key}-key") for key in ("admin", "signing")}
    # Only the snapshot `everything` has a topic, a Service Bus namespace, client certificates, and resource groups with VMs.
    if made.of(TOPICS):
        namespace = f"{SUBSCRIPTION}/resourceGroups/buses/providers/Microsoft.ServiceBus/namespaces/orders"
        wanted |= {("Azure Service Bus Data Sender", namespace)}
        wanted |= {("Key Vault Secrets User", f"{made.one(VAULTS)['id']}/secrets/{name}-bank") for name in ("shop", "pay")}
        wanted |= {("Scheduled Events Contributor", f"{SUBSCRIPTION}/resourceGroups/{name}") for name in ("nodes-1", "nodes-2")}
    found = assigned(made)
    yield from (
        f"the role {role} on {scope} is wrong or missing" for role, scope, _ in sorted({(*each, principal) for each in wanted} ^ found)
    )
    for each in made.of(ASSIGNMENTS):
        role = each["properties"]["roleDefinitionId"].rpartition("/")[2]
        if not re.fullmatch(rf"guid of /subscriptions/.+, {re.escape(principal)}, {role}", each["name"]):
            yield f"a second deployment would assign {ROLES[role]} again: {each['name']}"
        if each["properties"]["principalType"] != "ServicePrincipal":
            yield f"the assignment of {ROLES[role]} does not say that its principal is no person"


DEMANDED: dict[str, dict[str, Any]] = {
    ACCOUNTS: {
        "allowBlobPublicAccess": False,
        "allowCrossTenantReplication": False,
        "allowSharedKeyAccess": False,
        "defaultToOAuthAuthentication": True,
        "minimumTlsVersion": "TLS1_2",
        "supportsHttpsTrafficOnly": True,
    },
    f"{ACCOUNTS}/blobServices/containers": {"publicAccess": "None"},
    VAULTS: {"enableRbacAuthorization": True, "enableSoftDelete": True, "enablePurgeProtection": True},
    SITES: {"httpsOnly": True, "siteConfig.minTlsVersion": "1.2", "siteConfig.scmMinTlsVersion": "1.2"},
    POLICIES: {"allow": False},
    INSIGHTS: {"DisableLocalAuth": True},
    "Microsoft.OperationalInsights/workspaces": {"features.disableLocalAuth": True},
    TOPICS: {"disableLocalAuth": True, "inputSchema": "CloudEventSchemaV1_0"},
}
"""Type -> what its `properties` must have."""


@check
def demands(made: Deployment) -> Iterator[str]:
    """No shared keys, no public blobs, no old TLS; in a private network no public address either."""
    private = bool(made.of(ENDPOINTS))
    closed = {
        "publicNetworkAccess": "Disabled" if private else "Enabled",
        "networkAcls.defaultAction": "Deny" if private else "Allow",
        "networkAcls.bypass": "None",
    }
    for kind, wanted in DEMANDED.items():
        for each in made.of(kind):
            yield from differ(each, {f"properties.{path}": value for path, value in wanted.items()})
            if kind in (ACCOUNTS, VAULTS):
                yield from differ(each, {f"properties.{path}": value for path, value in closed.items()})


@check
def secrets(made: Deployment) -> Iterator[str]:
    """Keys are in the vault and nowhere else; no output tells one."""
    for each in made.resources:
        if each["type"] != f"{VAULTS}/secrets" and re.search("a{48}|s{48}", json.dumps(each)):
            yield f"{each['name']} holds a key"
    for name, value in made.outputs.items():
        if re.search("a{48}|s{48}|InstrumentationKey", json.dumps(value)):
            yield f"the output {name} tells a secret"


# --- Network --------------------------------------------------------------------------------------------------------


@check
def network(made: Deployment) -> Iterator[str]:
    """With a network, the app of each region reaches all that it uses by private endpoints with names of their own."""
    needed = {
        (each["id"], service)
        for each in made.of(ACCOUNTS)
        for service in {"scale": ("table",), "host": ()}.get(kind_of(each), ("table", "queue"))
    }
    needed |= {(made.one(VAULTS)["id"], "vault")}
    links = [(each["id"].partition("/virtualNetworkLinks/")[0], each["properties"]["virtualNetwork"]["id"]) for each in _links(made)]
    for site in made.of(SITES) if made.of(ENDPOINTS) else ():
        net = next(each for each in made.of(NETWORKS) if _group(each) == _group(site))
        host = next(each for each in made.of(ACCOUNTS) if _group(each) == _group(site) and kind_of(each) == "host")
        led = set()
        for endpoint in (each for each in made.of("Microsoft.Network/privateEndpoints") if _group(each) == _group(site)):
            [connection] = endpoint["properties"]["privateLinkServiceConnections"]
            [service] = connection["properties"]["groupIds"]
            led.add((connection["properties"]["privateLinkServiceId"], service))
            if endpoint["properties"]["subnet"]["id"] != f"{net['id']}/subnets/endpoints":
                yield f"{endpoint['name']} is in another network"
            [named] = (
                each
                for each in made.of("Microsoft.Network/privateEndpoints/privateDnsZoneGroups")
                if each["id"].startswith(endpoint["id"] + "/")
            )
            zone = named["properties"]["privateDnsZoneConfigs"][0]["properties"]["privateDnsZoneId"]
            wanted = "privatelink.vaultcore.azure.net" if service == "vault" else f"privatelink.{service}.core.windows.net"
            if not zone.endswith(f"/{wanted}") or (zone, net["id"]) not in links:
                yield f"{endpoint['name']}: the app cannot find its name in {zone}"
        yield from (
            f"{site['name']}: endpoints differ in {service} of {target}"
            for target, service in sorted(led ^ (needed | {(host["id"], "blob")}))
        )
        subnets = {each["name"]: each["properties"] for each in net["properties"]["subnets"]}
        if site["properties"]["virtualNetworkSubnetId"] != f"{net['id']}/subnets/app":
            yield f"{site['name']} is not in the subnet of its network"
        if [each["properties"]["serviceName"] for each in subnets["app"].get("delegations", [])] != ["Microsoft.App/environments"]:
            yield f"{net['name']}: Flex Consumption may not use the app's subnet"


@check
def outbound(made: Deployment) -> Iterator[str]:
    """With a gateway, the app of each region calls out through the one of its region, from an address that stays."""
    addresses = {each["id"]: each for each in made.of(ADDRESSES)}
    for site in made.of(SITES) if made.of(GATEWAYS) else ():
        gateway = next(each for each in made.of(GATEWAYS) if _group(each) == _group(site))
        net = next(each for each in made.of(NETWORKS) if _group(each) == _group(site))
        [app] = (each["properties"] for each in net["properties"]["subnets"] if each["name"] == "app")
        if app.get("natGateway") != {"id": gateway["id"]} or site["properties"]["virtualNetworkSubnetId"] != f"{net['id']}/subnets/app":
            yield f"{site['name']} does not call out through {gateway['name']}"
        for used in gateway["properties"]["publicIpAddresses"]:
            yield from differ(addresses[used["id"]], {"sku": {"name": "Standard"}, "properties.publicIPAllocationMethod": "Static"})
        name = "TOCSIN_OUTBOUND_ADDRESS" if site["tags"]["azd-service-name"] == "app" else "TOCSIN_STANDBY_OUTBOUND_ADDRESS"
        if not made.outputs[name]:
            yield f"{name} does not say the address"


def _links(made: Deployment) -> list[Resource]:
    return made.of("Microsoft.Network/privateDnsZones/virtualNetworkLinks")
