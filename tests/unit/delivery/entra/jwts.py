"""Tokens of tests: the form of Entra's, with a signature that nobody checks."""

from __future__ import annotations

import base64
import json
from typing import Any

CLIENT = "5ee59d6a-51ef-4a3a-9d5b-0c5a4d9d8c11"
"""Client id of the identity without roles."""


def jwt(audience: str, signature: str = "c2lnbmF0dXJlLW9mLWVudHJh", **claims: Any) -> str:
    """Return a token. claims: replace or add to `aud` and `appid`."""
    return f"{_part({'alg': 'RS256', 'typ': 'JWT'})}.{_part({'aud': audience, 'appid': CLIENT} | claims)}.{signature}"


def _part(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
