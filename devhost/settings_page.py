"""docs/settings.md, made from the class `Settings`: `python -m devhost.settings_page` writes it anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from shared.core.settings import Settings, env_name

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

_HEAD = """# Settings

Made from `shared/core/settings.py` by `make settings`; do not edit. Settings come from the environment: in Azure the app settings, which
`infra/main.bicep` sets ([deploy.md](deploy.md)); locally `local.settings.json`. One that is empty counts as not set. The app refuses to
start with a figure out of range and with an unsafe combination, and says which ([security.md](security.md#what-the-start-refuses)).

| setting | default | range | meaning |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(_row(name, info) for name, info in Settings.model_fields.items())


def _row(name: str, info: FieldInfo) -> str:
    description = (info.description or "").replace("|", "\\|")
    if _secret(info):
        description += " Secret."
    return f"| `{env_name(name)}` | {_default(info.default)} | {_range(info)} | {description} |\n"


def _secret(info: FieldInfo) -> bool:
    return "SecretStr" in str(info.annotation)


def _default(value: Any) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None or value is PydanticUndefined or value == "":
        return ""
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _range(info: FieldInfo) -> str:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    parts = [f"{words[bound]} {getattr(each, bound):,}" for each in info.metadata for bound in words if hasattr(each, bound)]
    if "Literal" in str(info.annotation):
        parts = [", ".join(f"`{choice}`" for choice in getattr(info.annotation, "__args__", ()) if choice)]
    return ", ".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
