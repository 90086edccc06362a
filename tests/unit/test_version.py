"""The version and the oldest Python that the package names: they agree with the API, the changelog and the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

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


def test_every_module_of_the_wheel_is_written_for_the_oldest_python_that_installs_it() -> None:
    assert syntax_errors(ROOT / "shared") == []


@pytest.mark.parametrize(
    "newer",
    [
        "class Box[T = int]:\n    pass\n",
        "type Pair[T = str] = tuple[T, T]\n",
        "try:\n    pass\nexcept ValueError, TypeError:\n    pass\n",
        "greeting = t'{1}'\n",
    ],
)
def test_syntax_of_a_later_python_is_found(newer: str, tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text('type Pair[T] = tuple[T, T]\ntext = f"{\'a\' + f"{1}"}"\n')
    assert syntax_errors(tmp_path) == []
    (tmp_path / "newer.py").write_text(newer)
    [found] = syntax_errors(tmp_path)
    assert found["code"] == "invalid-syntax" and found["filename"] == str(tmp_path / "newer.py")


def syntax_errors(folder: Path) -> list[dict[str, Any]]:
    """Return what the oldest Python that installs the wheel cannot parse in `folder`, as ruff reports it."""
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    version = "py" + oldest.removeprefix(">=").replace(".", "")
    # The project's exclusions and its versions of single folders must not hide a file of the wheel.
    scope = ("--isolated", "--config", "exclude = []", "--no-respect-gitignore", "--no-cache")
    command = (sys.executable, "-m", "ruff", "check", *scope, "--target-version", version, "--select", "E9", "--output-format", "json")
    done = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)
