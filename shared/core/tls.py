"""Settings of TLS for clients. Agents and nodes use them too, with the standard library alone."""

from __future__ import annotations

import ssl


def client_tls() -> ssl.SSLContext:
    """Return new settings of a client: certificates are checked, and name their servers in subjectAltName alone (RFC 9525, 2)."""
    context = ssl.create_default_context()
    context.hostname_checks_common_name = False
    return context
