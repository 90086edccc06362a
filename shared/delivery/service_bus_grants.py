"""The operator's list of the namespaces that get tokens of the app's identity (`TOCSIN_SERVICE_BUS`)."""

from __future__ import annotations

import re

from ..core.errors import UnsafeSettings
from ..core.settings import Settings
from .listed_tenants import check_listed

AZURE_DOMAINS = (".servicebus.windows.net", ".servicebus.usgovcloudapi.net", ".servicebus.chinacloudapi.cn")

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAMESPACE = re.compile(rf"{_LABEL}(?:{'|'.join(map(re.escape, AZURE_DOMAINS))})")
_ENTRY = re.compile(rf"(?:([^=]+)=)?({_NAMESPACE.pattern})")


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
