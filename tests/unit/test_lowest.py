"""`make lowest`: what it installs, and what it says if that cannot be installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devhost.dependencies import lowest
from tests.paths import ROOT


def test_each_lower_bound_of_client_command_and_nodes_is_tried_at_that_version() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert {each.partition("==")[0] for each in lowest.floors()} == {"httpx", "orjson", "pydantic", "pyyaml", "rich", "typer"}
    for each in lowest.floors():
        name, version = each.split("==")
        assert re.search(rf'"{name}>={re.escape(version)},<', project), each


def test_the_tests_have_their_tools_and_no_other_version_of_what_is_tried() -> None:
    names = {re.split(r"[=\[]", each)[0] for each in lowest.tools()}
    assert set(lowest.TOOLS) <= names and {"aiohttp", "pydantic-settings"} <= names
    assert not names & {each.partition("==")[0] for each in lowest.floors()}
    assert [each for each in lowest.TESTS if not (ROOT / each).exists()] == []


@pytest.mark.parametrize(
    ("index", "code", "words"),
    [(False, 0, "LEFT OUT: the package index is out of reach"), (True, 1, "these versions cannot be installed together")],
)
def test_only_versions_that_do_not_fit_are_a_failure(
    index: bool, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def install(python: Path, packages: list[str]) -> str:
        return "" if index and packages == ["idna"] else "a fault"

    monkeypatch.setattr(lowest, "_install", install)
    assert lowest.main() == code
    assert words in capsys.readouterr().out
