"""Audiences of tokens: their form, and those that are refused whatever an operator lists. Pure.

A token proves to its receiver that the caller is the app. So no tenant gets one for Azure's own services, in any cloud and in any spelling:
the form allows only ASCII, no percent-encoding, no port, no user and no empty segment, so that an audience has few spellings, and the
refusals compare it without regard to case. A form that is not known here to belong to a customer's API is refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from typing import Any, Final

import orjson

MAX_AUDIENCE: Final = 255
"""Longest audience, in characters."""
AUDIENCE: Final = r"^(?:api|https)://[A-Za-z0-9][A-Za-z0-9._~/-]*$"
"""The form of a stored audience. It never becomes narrower: stored tenants and channels must stay readable.

No bare application ids, which Entra takes too: nobody can list those of all of Microsoft's services.
"""

_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_WELL_KNOWN_GUID = re.compile(r"[0-9a-f]{8}-0000-0[0-9a-f]{3}-c[0-9a-f]00-000000000000")
"""The ids of Microsoft's older applications: Graph, Exchange, SharePoint, Power BI, Intune and others."""

DOMAINS: Final = frozenset(
    (
        # Azure's own, public and sovereign clouds: storage, vaults, Resource Manager, messaging, databases, monitoring, registries.
        *("azure.com", "azure.net", "azure.us", "azure.cn", "azure.de", "windows.net", "windowsazure.com", "windowsazure.net"),
        *("windowsazure.us", "windowsazure.cn", "windowsazure.de", "usgovcloudapi.net", "chinacloudapi.cn", "cloudapi.de"),
        *("microsoftazure.de", "microsoftazure.us", "microsoftazure.cn", "eaglex.ic.gov", "microsoft.scloud", "sovcloud-api.fr"),
        *("sovcloud-api.de", "sovcloud-api.sg", "azurecr.io", "azurecr.us", "azurecr.cn", "azconfig.io", "azconfig.us", "azconfig.cn"),
        *("azuresynapse.net", "azuresynapse.us", "azuresynapse.cn", "azuredatabricks.net", "azuredatabricks.us", "azuredatabricks.cn"),
        *("loganalytics.io", "loganalytics.us", "loganalytics.cn", "applicationinsights.io", "applicationinsights.us"),
        *("azurehdinsight.net", "azurehdinsight.us", "azurehdinsight.cn", "azure-devices.net", "azureml.ms", "azureml.net"),
        *("azurehealthcareapis.com", "kusto.com", "visualstudio.com", "botframework.com", "botframework.us"),
        # Microsoft's identity, Graph and business services.
        *("microsoft.com", "microsoft.us", "microsoft.cn", "microsoftonline.com", "microsoftonline.us", "microsoftonline.de"),
        *("microsoftonline.cn", "microsoftonline-p.com", "microsoftgraph.com", "office.com", "office.net", "office365.com", "office365.us"),
        *("outlook.com", "outlook.de", "sharepoint.com", "sharepoint.us", "sharepoint.cn", "sharepoint.de", "sharepoint-mil.us"),
        *("dynamics.com", "dynamics.cn", "appsplatform.us", "powerapps.com", "powerapps.us", "powerapps.cn", "powerplatform.com"),
        *("powerplatform.us", "powerbi.com", "powerbigov.us", "powerbi.cn", "skype.com", "teams.com", "yammer.com", "live.com"),
        *("msidentity.com", "microsoft", "onenote.com", "aadrm.com", "o365syncservice.com", "azureiotcentral.com"),
    )
)
"""Domains of Microsoft's services. No customer can register an API under one of them.

Sources: "Azure domains" and "Office 365 URLs and IP address ranges" in Microsoft's documentation.
"""

APPLICATIONS: Final = {
    "e406a681-f3d4-42a8-90b6-c2b029497af1": "Azure Storage",
    "cfa8b339-82a2-471a-a3c9-0fc0be7a4093": "Azure Key Vault",
    "797f4846-ba00-4fd7-ba43-dac1f8f63013": "Azure Resource Manager",
    "80a10ef9-8168-493d-abf9-3297c4ef6e3c": "Service Bus",
    "80369ed6-5f11-4dd9-bef3-692475845e77": "Event Hubs",
    "4962773b-9cdb-44cf-a8bf-237846a00ab7": "Event Grid",
    "823c0a78-5de0-4445-a7f5-c2f42d7dc89b": "Event Grid",
    "022907d3-0f1b-48f7-badc-1ba6abab6d66": "Azure SQL",
    "123cd850-d9df-40bd-94d5-c9f07b7fa203": "Azure databases",
    "a232010e-820c-4083-83bb-3ace5fc29d0b": "Cosmos DB",
    "ca7f3f0b-7d91-482c-8e09-c5d840d0eac5": "Log Analytics",
    "f5c26e74-f226-4ae8-85f0-b4af0080ac9e": "Application Insights",
    "35ffadb3-7fc1-497e-b61b-381d28e744cc": "App Configuration",
    "7d312290-28c8-473c-a0ed-8e53749b6d6d": "Cognitive Services",
    "18a66f5f-dbdf-4c17-9dd7-1634712a9cbe": "Azure Machine Learning",
    "2ff814a6-3304-4ab8-85cb-cd0e6f879c1d": "Azure Databricks",
    "6dae42f8-4368-4678-94ff-3960e28e3630": "Azure Kubernetes Service",
    "2746ea77-4702-4b45-80ca-3c97e680e8b7": "Azure Data Explorer",
    "e9f49c6b-5ce5-44c8-925d-015017e9f7ad": "Azure Data Lake",
    "ddbf3205-c6bd-46ae-8127-60eb93363864": "Azure Batch",
    "499b84ac-1321-427f-aa17-267ca6975798": "Azure DevOps",
    "c44b4083-3bb0-49c1-b47d-974e53cbdf3c": "Azure portal",
    "abfa0a7c-a6b6-4736-8310-5855508787cd": "App Service",
    "509e4652-da8d-478d-a730-e9d4a1996ca4": "Azure Resource Graph",
    "73c2949e-da2d-457a-9607-fcc665198967": "Azure Purview",
    "01fc33a7-78ba-4d2f-a4b7-768e336e890e": "Privileged Identity Management",
    "fb60f99c-7a34-4190-8149-302f77469936": "token exchange",
    "880da380-985e-4198-81b9-e05b1cc53158": "Azure AI Search",
    "fc780465-2017-40d4-a0c5-307022471b92": "Microsoft Defender",
    "c5393580-f805-4401-95e8-94b7a6ef2fc2": "Microsoft 365 management",
    "8578e004-a5c6-46e7-913e-12f58912df43": "Power Platform",
    "475226c6-020e-4fb2-8a90-7a972cbfc1d4": "Power Apps",
    "7df0a125-d3be-4c96-aa54-591f83ff541c": "Power Automate",
    "d3590ed6-52b3-4102-aeff-aad2292ab01c": "Microsoft Office",
}
"""Applications of Microsoft by their ids, which tokens may name as audiences. Older ids have the form of `_WELL_KNOWN_GUID`.

Source: "Verify first-party Microsoft applications in sign-in reports" in Microsoft's documentation, and the pages of the services.
"""
_EXCHANGE = "azureadtokenexchange"
"""`api://AzureADTokenExchange...`: such a token lets its holder act as another application, in each cloud."""

FORM_TEXT: Final = "the identifier URI of your API, such as api://orders or https://example.com/orders, without /.default"


@lru_cache(maxsize=1024)
def refusal(audience: str) -> str | None:
    """Return the reason why nobody gets a token for an audience, or None. The text continues the name of the audience."""
    low = audience.lower()
    if len(low) > MAX_AUDIENCE or not re.fullmatch(AUDIENCE[1:-1], audience):
        return f"must be {FORM_TEXT}"
    if (reason := next(filter(None, map(_guid_refusal, _GUID.findall(low))), None)) is not None:
        return reason
    scheme, _, rest = low.partition("://")
    first, *others = rest.removesuffix("/").split("/")
    if any(not part or part.startswith(".") for part in others):
        return f"must be {FORM_TEXT}"
    if first.startswith(_EXCHANGE) or any(part.startswith(_EXCHANGE) for part in others):
        return "is refused: it would let its holder act as another application"
    if scheme == "https" and not _HOST.fullmatch(first):
        return f"must be {FORM_TEXT}"
    # The parts after the first one too: `api://{directory}/{domain}` names a domain as well.
    for part in (first, *others):
        if domain := _own_domain(part):
            return f"is refused: {domain} belongs to Microsoft's services, not to an API of yours"
    return None


def _guid_refusal(guid: str) -> str | None:
    if guid in APPLICATIONS or _WELL_KNOWN_GUID.fullmatch(guid):
        return f"is refused: it belongs to {APPLICATIONS.get(guid, 'a service of Microsoft')}, not to an API of yours"
    return None


def _own_domain(host: str) -> str | None:
    """Return the domain of Microsoft's services that a host is in, or None."""
    labels = host.strip(".").split(".")
    names = (".".join(labels[at:]) for at in range(len(labels)))
    return next((name for name in names if name in DOMAINS), None)


def token_fault(token: str, audience: str, client_id: str) -> str | None:
    """Return the reason why a token must not be sent, or None.

    Its claims are read, and not proven: this finds an audience that Entra resolved to a refused service, and the token of another identity.
    """
    claims = _claims(token)
    if claims is None:
        return "is no readable JWT"
    identity = claims.get("azp") or claims.get("appid")
    if not isinstance(identity, str) or identity.lower() != client_id.lower():
        return "belongs to another identity than TOCSIN_TOKEN_CLIENT_ID names"
    found = claims.get("aud")
    if not isinstance(found, str) or not found:
        return "names no audience"
    # The audience as it was asked for, or the id of its application.
    if not _GUID.fullmatch(found.lower()):
        return None if found.rstrip("/").lower() == audience.rstrip("/").lower() else "is for another audience"
    if (reason := _guid_refusal(found.lower())) is not None:
        return f"is for an audience that {reason}"
    return None


def _claims(token: str) -> dict[str, Any] | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    return claims if isinstance(claims, dict) else None
