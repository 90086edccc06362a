"""Files for contributors: they parse, and name targets, modules, files and addresses that exist."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.core.version import BASE
from tests.integration.setup.test_repository_files import tracked
from tests.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "ROADMAP.md", ".github/pull_request_template.md")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SETTINGS = [*sorted((ROOT / ".vscode").glob("*.json")), ROOT / ".devcontainer" / "devcontainer.json"]
FORMS = sorted((ROOT / ".github").rglob("*.yml"))


def title(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def targets() -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    return set(phony[1].split())


def made(text: str) -> set[str]:
    """Return the targets of make that a text names as commands."""
    return set(re.findall(r"(?:^ *|[`\"]|run: )make ([a-z][a-z-]*)", text, re.MULTILINE))


@pytest.mark.parametrize("path", [*(ROOT / page for page in PAGES), *SETTINGS, *FORMS], ids=title)
def test_every_target_that_is_named_exists(path: Path) -> None:
    assert made(path.read_text()) <= targets()


@pytest.mark.parametrize("path", FORMS, ids=title)
def test_yaml_files_parse(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


@pytest.mark.parametrize("path", SETTINGS, ids=title)
def test_json_files_parse(path: Path) -> None:
    assert isinstance(json.loads(path.read_text()), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=title)
def test_workflows_read_only_and_run_only_what_is_pinned(path: Path) -> None:
    text = path.read_text()
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"} and "secrets." not in text
    for job in workflow["jobs"].values():
        assert "permissions" not in job and job["timeout-minutes"] > 0
        for step in job["steps"]:
            assert "uses" in step or step["run"] == ".ci/run" or made(step["run"])
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False
    used = re.findall(r"uses: (.*)", text)
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each) for each in used)


def test_ci_keeps_the_wheel_the_bill_of_materials_and_the_site() -> None:
    [ci] = [yaml.safe_load(path.read_text()) for path in WORKFLOWS if path.stem == "ci"]
    steps = [step for job in ci["jobs"].values() for step in job["steps"]]
    assert {step["run"] for step in steps if "run" in step} == {".ci/run", "make wheel", "make sbom", "make docs"}
    assert {step["with"]["path"] for step in steps if "upload" in step.get("uses", "")} == {"dist/*.whl", "build/sbom", "build/site"}
    assert (ROOT / ".ci" / "run").is_file()


def test_dependabot_looks_where_versions_are_pinned() -> None:
    found = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())
    assert {each["package-ecosystem"] for each in found["updates"]} == {"github-actions", "pip", "npm"}
    locks = {f"/{name.rpartition('/')[0]}" for name in tracked() if name.endswith("package-lock.json")}
    for each in found["updates"]:
        assert set(each.get("directories", [each.get("directory")])) == (locks if each["package-ecosystem"] == "npm" else {"/"})


@pytest.mark.parametrize("folder", ["clients/typescript", "docs/examples/cookbook/typescript"])
def test_users_of_typescript_get_the_same_packages_as_this_repository(folder: str) -> None:
    known = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    locked = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]
    asked = json.loads((ROOT / folder / "package.json").read_text())
    assert locked[""]["devDependencies"] == asked["devDependencies"] and locked[""].get("version") == asked.get("version")
    fetched = {path: package for path, package in locked.items() if path.startswith("node_modules/") and "link" not in package}
    assert {f"node_modules/{name}" for name in asked["devDependencies"]} <= fetched.keys()
    assert {path: package["integrity"] for path, package in fetched.items()} == {path: known[path]["integrity"] for path in fetched}


def test_launches_start_modules_that_exist() -> None:
    launches = json.loads((ROOT / ".vscode" / "launch.json").read_text())["configurations"]
    for launch in launches:
        assert importlib.util.find_spec(launch["module"]) is not None
        assert launch["module"] == "pytest" or importlib.util.find_spec(f"{launch['module']}.__main__") is not None


def test_the_container_has_the_extensions_that_are_recommended() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    recommended = json.loads((ROOT / ".vscode" / "extensions.json").read_text())["recommendations"]
    assert container["customizations"]["vscode"]["extensions"] == recommended
    assert container["image"].endswith(":3.13") and container["postCreateCommand"] == "make setup"


def sections(text: str) -> list[tuple[str, dict[str, str]]]:
    """Return the patterns of .editorconfig with their properties, in their order."""
    parts = re.split(r"^\[(.+)\]$", text, flags=re.MULTILINE)
    return [(name, dict(re.findall(r"^(\w+) = (.+)$", body, re.MULTILINE))) for name, body in zip(parts[1::2], parts[2::2], strict=True)]


def properties(name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pattern, given in sections((ROOT / ".editorconfig").read_text()):
        choices = pattern[1:-1].split(",") if pattern.startswith("{") else [pattern]
        if any(fnmatch(name if "/" in each else name.rpartition("/")[2], each) for each in choices):
            found |= given
    return found


def broken(name: str) -> list[str]:
    """Return the properties of .editorconfig that a text file breaks."""
    try:
        text = (ROOT / name).read_bytes().decode()
    except UnicodeDecodeError:
        return [] if name.endswith((".png", ".gif")) else ["charset"]
    asked = properties(name)
    faults = {
        "end_of_line": "\r" in text,
        "insert_final_newline": asked["insert_final_newline"] == "true" and text != "" and not text.endswith("\n"),
        "trim_trailing_whitespace": asked["trim_trailing_whitespace"] == "true" and re.search(r"[ \t]$", text, re.MULTILINE) is not None,
        "indent_style": asked["indent_style"] == "space" and re.search(r"^\t", text, re.MULTILINE) is not None,
    }
    return [name for name, is_broken in faults.items() if is_broken]


def test_files_follow_the_editor_settings() -> None:
    assert {name: found for name in tracked() if (found := broken(name))} == {}
    assert properties("shared/core/version.py") | {"x": ""} == {**properties("a.py"), "x": ""}
    assert (
        int(properties("a.py")["max_line_length"]) == PYPROJECT["tool"]["ruff"]["line-length"] and properties("a.py")["indent_size"] == "4"
    )
    assert properties("Makefile")["indent_style"] == "tab"


@pytest.mark.parametrize("name", [*PAGES, ".github/ISSUE_TEMPLATE/config.yml"])
def test_addresses_are_the_placeholders_of_the_project(name: str) -> None:
    text, project = (ROOT / name).read_text(), PYPROJECT["tool"]["tocsin"]
    assert set(re.findall(r"[\w.]+@[\w.]+\w", text)) <= {project["contact"]}
    assert all(url.startswith(project["repository"]) for url in re.findall(r"https?://\S*git\S+", text))


def test_reports_of_vulnerabilities_and_conduct_have_an_address() -> None:
    contact = PYPROJECT["tool"]["tocsin"]["contact"]
    assert all(f"<{contact}>" in (ROOT / name).read_text() for name in ("SECURITY.md", "CODE_OF_CONDUCT.md"))


def test_the_described_layers_are_those_that_lint_checks() -> None:
    [layers] = [each["layers"] for each in PYPROJECT["tool"]["importlinter"]["contracts"] if each["name"] == "Layers"]
    block = (ROOT / "CONTRIBUTING.md").read_text().split("```")[1]
    named = [name for line in block.strip().splitlines() for name in re.findall(r"[a-z]+", re.split(r" {2,}", line)[0])]
    assert named == layers


COMPATIBILITY = (ROOT / "docs" / "reference" / "compatibility.md").read_text()


def test_promised_versions_are_those_of_the_package() -> None:
    versions = [each.rpartition(" ")[2] for each in PYPROJECT["project"]["classifiers"] if re.search(r"Python :: 3\.\d+$", each)]
    assert f"the wheel runs on {' and '.join(versions)};" in COMPATIBILITY
    for name in ("docs/reference/openapi.json", "clients/typescript/package.json"):
        document = json.loads((ROOT / name).read_text())
        assert document.get("info", document)["version"] == BASE
    engines = json.loads((ROOT / "clients/typescript/package.json").read_text())["engines"]
    assert engines == {"node": ">=20"} and "Node.js 20 or newer" in COMPATIBILITY


def test_modules_with_stable_names_have_a_test_of_their_names() -> None:
    from tests.unit.test_public_names import NAMES

    [row] = [line for line in COMPATIBILITY.splitlines() if line.startswith("| wheel |")]
    promised = {name.replace("tocsin", "shared", 1) for name in re.findall(r"`(tocsin[\w.]*)`", row)}
    assert promised == NAMES.keys()
