"""The address that a server publishes for deliveries: scheme, host and port. Pure."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final

_ENDPOINT: Final = re.compile(r"https?://(?:[A-Za-z0-9._-]{1,253}|\[([0-9A-Fa-f:.]{2,45})\])(?::([0-9]{1,5}))?")
EXAMPLE: Final = "https://10.2.0.7:8443"


def endpoint_fault(text: str) -> str | None:
    """Return why the text is no endpoint; None if it is one. The app also asks its egress rules."""
    found = _ENDPOINT.fullmatch(text)
    if found is None or (found[2] is not None and not 1 <= int(found[2]) <= 65535):
        return f"must be scheme, host and port alone, such as {EXAMPLE}"
    if found[1] is not None:
        try:
            IPv6Address(found[1])
        except AddressValueError:
            return "must have an IPv6 address in its brackets"
    return None
