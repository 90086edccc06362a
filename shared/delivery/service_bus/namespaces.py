"""The namespaces that a channel may send to, and with which credentials. Pure, nothing is resolved.

A token of the app's identity opens every namespace in which the identity has a role. `*.servicebus.windows.net` is not Service Bus alone:
a hybrid connection of Azure Relay, which anyone can make there, passes requests with their header `Authorization` on to its listener. So a
tenant that could name any host would read the token. The identity is therefore used for the namespaces that the operator has listed, and
for no other; a tenant's own access key goes wherever its tenant says.
"""

from __future__ import annotations

from yarl import URL

from ..egress_guard import Egress
from ..listed_tenants import TenantIdentity
from ..service_bus_grants import AZURE_DOMAINS, is_namespace


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
