"""The demands of azd's gallery on a template: its name and version, its files, and the sections of the README."""

from __future__ import annotations

import re

import pytest
import yaml

from shared.core.version import BASE
from tests.paths import ROOT

FILES = (
    "LICENSE",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "infra/main.bicep",
    ".devcontainer/devcontainer.json",
    ".github/ISSUE_TEMPLATE",
    ".github/workflows",
)
SECTIONS = ("Important Security Notice", "Features", "Getting Started", "Resources", "Guidance")


def test_template_has_its_name_and_the_apps_version() -> None:
    document = yaml.safe_load((ROOT / "azure.yaml").read_text())
    assert document["metadata"]["template"] == f"{document['name']}@{BASE}"


@pytest.mark.parametrize("name", FILES)
def test_template_has_the_files_of_the_gallery(name: str) -> None:
    assert (ROOT / name).exists()


def test_readme_has_the_sections_of_the_gallery_and_a_picture() -> None:
    text = (ROOT / "README.md").read_text()
    assert set(SECTIONS) <= set(re.findall(r"^## (.+)$", text, re.MULTILINE))
    assert "docs/img/architecture.svg" in text


def test_development_container_has_azd() -> None:
    assert "azure-dev/azd" in (ROOT / ".devcontainer" / "devcontainer.json").read_text()
