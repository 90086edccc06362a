"""The version and the oldest Python that the package names: they agree with the API, the changelog and the code."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

from shared.core.version import BASE
from tests.paths import ROOT


def test_package_api_client_and_changelog_have_one_base_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"] and project["tool"]["hatch"]["version"]["path"] == "shared/core/version.py"
    typescript = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text())["version"]
    described = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())["info"]["version"]
    assert typescript == described == BASE
    assert re.findall(r"^## (.+)$", (ROOT / "UPGRADING.md").read_text(), re.MULTILINE)[-1] == BASE


def test_changelog_keeps_its_form() -> None:
    """Keep a Changelog 1.1: what is not released comes first, then the releases, newest first, with their dates."""
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)", heading) for heading in headings[1:]]
    assert None not in released
    found = [([int(part) for part in each[1].split(".")], date.fromisoformat(each[2])) for each in released if each]
    assert found == sorted(found, reverse=True) and found[0][0] <= [int(part) for part in BASE.split(".")]
    groups = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        named = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert named == [group for group in groups if group in named]
    assert [line for line in text.splitlines() if len(line) > 200] == []


@pytest.mark.parametrize("module", sorted((ROOT / "shared").rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_module_of_the_wheel_is_written_for_the_oldest_python_that_installs_it(module: Path) -> None:
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    _, minor = re.fullmatch(r">=(3)\.(\d+)", oldest).groups()  # type: ignore[union-attr]
    ast.parse(module.read_text(), feature_version=(3, int(minor)))
