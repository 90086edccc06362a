"""The tenant, the keys and the settings of a service on a developer's machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..core.settings import LOCAL_ADMIN_KEY, LOCAL_DEMO_KEY, LOCAL_SIGNING_KEY

TENANT: Final = "demo"
KEY: Final = LOCAL_DEMO_KEY
CHANNEL: Final = "default"
SETTINGS: Final[Mapping[str, Any]] = {
    "storage": "UseDevelopmentStorage=true",
    "admin_key": LOCAL_ADMIN_KEY,
    "signing_key": LOCAL_SIGNING_KEY,
}
"""Settings with the public keys. The twins in memory and in a folder count as an emulator too."""
