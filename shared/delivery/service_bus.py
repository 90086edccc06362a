"""Azure Service Bus: the namespaces that a channel may reach, and the credentials of its requests.

A channel with an access key sends a shared access signature
(https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas). A signature is made for one queue or topic and ends after an
hour, so a signature that leaks opens no other queue. A tenant's own access key goes wherever its tenant says.

A channel without a key sends a token of the app's identity, which opens every namespace in which the identity has a role.
`*.servicebus.windows.net` is not Service Bus alone: a hybrid connection of Azure Relay, which anyone can make there, passes requests with
their header `Authorization` on to its listener. So a tenant that could name any host would read the token. The identity is therefore used
for the namespaces that the operator has listed (`TOCSIN_SERVICE_BUS`), and for no other.

Names are compared as they are written; none is resolved.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from urllib.parse import quote_plus

from yarl import URL

from ..core.errors import UnsafeSettings
from ..core.settings import Settings
from .egress_guard import Egress
from .listed_tenants import TenantIdentity, check_listed

SECONDS = 3600
"""Life of a signature."""
AZURE_DOMAINS = (".servicebus.windows.net", ".servicebus.usgovcloudapi.net", ".servicebus.chinacloudapi.cn")

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAMESPACE = re.compile(rf"{_LABEL}(?:{'|'.join(map(re.escape, AZURE_DOMAINS))})")
_ENTRY = re.compile(rf"(?:([^=]+)=)?({_NAMESPACE.pattern})")


def sign_access(resource: str, key_name: str, key: str, expires: int) -> str:
    """Return the value of `Authorization` for a resource, `https://HOST/ENTITY`. expires: Unix time in seconds."""
    scope = quote_plus(resource)
    digest = hmac.new(key.encode(), f"{scope}\n{expires}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={scope}&sig={signature}&se={expires}&skn={quote_plus(key_name)}"


def is_namespace(host: str) -> bool:
    """Return True for the host of one namespace in one of Azure's own domains, in lower case."""
    return _NAMESPACE.fullmatch(host) is not None


def parse_grants(settings: Settings) -> frozenset[tuple[str, str]]:
    """Return the tenant ("" for every one) and the host of each entry. UnsafeSettings for an entry that is none."""
    return frozenset(_parse_grant(settings, text) for text in settings.service_bus_names)


def _parse_grant(settings: Settings, text: str) -> tuple[str, str]:
    found = _ENTRY.fullmatch(text.lower())
    if found is None:
        example = "orders.servicebus.windows.net or shop@0123456789abcdef=orders.servicebus.windows.net"
        raise UnsafeSettings(f"TOCSIN_SERVICE_BUS: {text[:60]!r} is not a namespace such as {example}")
    return check_listed(settings, "TOCSIN_SERVICE_BUS", found[1]) if found[1] else "", found[2]


def split_host(namespace: str) -> tuple[str, int]:
    """Return host and port of a channel's namespace; ValueError for a port that is none."""
    host, colon, port = namespace.lower().partition(":")
    number = int(port) if colon else 443
    if not 0 < number < 65536:
        raise ValueError(f"{port} is not a port")
    return host, number


def problem_of(tenant: TenantIdentity, namespace: str, egress: Egress, *, keyed: bool) -> str | None:
    """Return the reason why a channel of this tenant may not send there, or None. keyed: the channel has an access key."""
    try:
        host, port = split_host(namespace)
    except ValueError as error:
        return str(error)
    if is_namespace(host) and port == 443:
        if keyed or egress.grants(tenant, host):
            return None
        return "is not listed in TOCSIN_SERVICE_BUS for this tenant: ask the operator to list it, or give key_name and key"
    if reason := egress.problem(URL.build(scheme="https", host=host, port=port)):
        return f"egress refused: {reason}"
    if not egress.reaches(host):
        return f"egress refused: it is neither a namespace (name{AZURE_DOMAINS[0]}) nor a host on the allow-list"
    return None if keyed else "needs key_name and key: the app's identity is for namespaces in Azure's own domains"
