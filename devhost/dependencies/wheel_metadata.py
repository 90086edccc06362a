"""Completes the wheel's metadata: its URLs, from `[tool.tocsin]` of pyproject.toml, and README.md as the description.

The build backend loads this file alone. In the description, links to files of the repository lead to the repository.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Adds `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both fields in place."""
        root = Path(self.root)
        repository = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["tocsin"]["repository"]
        files = f"{repository}/blob/main"
        metadata["urls"] = {
            "Homepage": repository,
            "Documentation": f"{files}/docs/index.md",
            "Source": repository,
            "Issues": f"{repository}/issues",
            "Changelog": f"{files}/CHANGELOG.md",
        }
        text = absolute_links((root / "README.md").read_text(), repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute_links(text: str, repository: str) -> str:
    """Return the Markdown text with links and pictures that are relative to the repository as absolute ones. Links within the page stay."""

    def absolute(found: re.Match[str]) -> str:
        before, target = found.groups()
        # A picture's link leads to the file itself, any other link to the page that shows the file.
        is_picture = target.partition("#")[0].endswith((".svg", ".png", ".gif", ".jpg", ".webp"))
        return f"{before}{repository}/{'raw' if is_picture else 'blob'}/main/{target.removeprefix('./')}"

    return re.sub(r"""(\]\(|(?:src|srcset|href)=")(?![a-z]+:|#|/)([^)\s"]+)(?=[)\s"])""", absolute, text)
