"""Writes docs/reference/settings.md from the classes of settings: `python -m devhost.pages.settings`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from shared.core.node_logs.outputs import SETTINGS as NODE_SETTINGS
from shared.core.settings import env_name
from shared.extras.parts import SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"

_HEAD = """# Settings

Look up here each environment variable that the app and nodes read, except those that the platform sets.
On Azure `infra/main.bicep` writes them ([parameters](deployment.md#parameters)); on your machine `local.settings.json` has them.
An empty setting counts as not set.
With a value out of range or an unsafe combination, [the app does not start](../explain/security.md#settings-that-stop-the-start).
`make settings` generates the page from the classes of settings and `shared/core/node_logs/outputs.py`.

| setting | default | range | meaning |
| --- | --- | --- | --- |
"""

_NOT_SET_BY_HAND = {"WEBSITE_HOSTNAME", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "TOCSIN_BUCKET_SECONDS"}
"""Settings that the platform sets, or that take one value only."""

_NODES = """
## Nodes

The agent and servers with a keeper [send their log lines](../how-to/node-logs.md) by these.

| setting | meaning |
| --- | --- |
"""


def page() -> str:
    """The whole page."""
    app = "".join(
        _row(env_name(name, kind), info)
        for kind in SETTINGS
        for name, info in kind.model_fields.items()
        if env_name(name, kind) not in _NOT_SET_BY_HAND
    )
    nodes = "".join(f"| `{each.name}` | {each.meaning}{' Secret.' if each.secret else ''} |\n" for each in NODE_SETTINGS)
    return _HEAD + app + _NODES + nodes


def _row(variable: str, info: FieldInfo) -> str:
    description = (info.description or "").replace("|", "\\|")
    if _secret(info):
        description += " Secret."
    return f"| `{variable}` | {_default(info.default)} | {_range(info)} | {description} |\n"


def _secret(info: FieldInfo) -> bool:
    return "SecretStr" in str(info.annotation)


def _default(value: Any) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None or value is PydanticUndefined or value == "":
        return ""
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _range(info: FieldInfo) -> str:
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    parts = [f"{words[bound]} {getattr(each, bound):,}" for each in info.metadata for bound in words if hasattr(each, bound)]
    if "Literal" in str(info.annotation):
        parts = [", ".join(f"`{choice}`" for choice in getattr(info.annotation, "__args__", ()) if choice)]
    return ", ".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
