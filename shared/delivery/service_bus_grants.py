"""The operator's list of the namespaces that get tokens of the app's identity (`TOCSIN_SERVICE_BUS`)."""

from __future__ import annotations

import re

from ..core.errors import UnsafeSettings

AZURE_DOMAINS = (".servicebus.windows.net", ".servicebus.usgovcloudapi.net", ".servicebus.chinacloudapi.cn")

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAMESPACE = re.compile(rf"{_LABEL}(?:{'|'.join(map(re.escape, AZURE_DOMAINS))})")
_ENTRY = re.compile(rf"(?:({_LABEL})=)?({_NAMESPACE.pattern})")


def is_namespace(host: str) -> bool:
    """Return True for the host of one namespace in one of Azure's own domains, in lower case."""
    return _NAMESPACE.fullmatch(host) is not None


def parse_grant(text: str) -> tuple[str, str]:
    """Return the tenant ("" for every one) and the host of an entry. UnsafeSettings for anything else."""
    found = _ENTRY.fullmatch(text.strip().lower())
    if found is None:
        example = "orders.servicebus.windows.net or shop=orders.servicebus.windows.net"
        raise UnsafeSettings(f"TOCSIN_SERVICE_BUS: {text[:60]!r} is not a namespace such as {example}")
    return found[1] or "", found[2]
