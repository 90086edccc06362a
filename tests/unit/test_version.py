"""The version and the oldest Python that the package names: they agree with the API, the changelog and the code."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

from shared.web.openapi import VERSION
from tests.paths import ROOT


def test_package_api_and_changelog_agree_on_the_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    typescript = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text())["version"]
    assert headings[1] == package == VERSION == typescript


@pytest.mark.parametrize("module", sorted((ROOT / "shared").rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_module_of_the_wheel_is_written_for_the_oldest_python_that_installs_it(module: Path) -> None:
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    _, minor = re.fullmatch(r">=(3)\.(\d+)", oldest).groups()  # type: ignore[union-attr]
    ast.parse(module.read_text(), feature_version=(3, int(minor)))
