"""Shared access signatures: the credential of a channel that has an access key.

Source: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas. A signature is made for one queue or topic and ends after
an hour, so a signature that leaks opens no other queue.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import quote_plus

SECONDS = 3600
"""Life of a signature."""


def sign_access(resource: str, key_name: str, key: str, expires: int) -> str:
    """Return the value of `Authorization` for a resource, `https://HOST/ENTITY`. expires: Unix time in seconds."""
    scope = quote_plus(resource)
    digest = hmac.new(key.encode(), f"{scope}\n{expires}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={scope}&sig={signature}&se={expires}&skn={quote_plus(key_name)}"
