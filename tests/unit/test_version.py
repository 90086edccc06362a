"""The package, the API's description and the changelog name the same version."""

from __future__ import annotations

import re
import tomllib

from shared.web.openapi import VERSION
from tests.paths import ROOT


def test_package_api_and_changelog_agree_on_the_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == package == VERSION
