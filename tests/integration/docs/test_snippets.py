"""The README, the tutorial and the how-to pages: every command and call of the client runs against the devhost, as a reader would type it.

Commands that need Azure, another machine or minutes are named in `ELSEWHERE`, with the reason. Other requests are compared with the routes.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

import shared as tocsin
from devhost.azurite import ROOT, Azurite
from shared.app.routes import build_routes
from tests.integration.scheduler.conftest import ADMIN_KEY, Host
from tests.integration.scheduler.receiver import Receiver

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs" / "start").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|^((?: {4}[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
SHELL = ("export ", "tocsin ", "curl ", "api=", "A=", "say ", "see ", "printf ", "python ")
ELSEWHERE = {
    "az ": "needs a subscription",
    "azd ": "needs a subscription",
    "func ": "needs Core Tools",
    "az=": "needs a subscription",
    "make ": "sets the checkout up; tests/integration/setup runs it",
    "git ": "fetches the repository",
    "pip ": "tests/integration/wheel installs the wheel",
    "systemctl ": "needs root",
    "tocsin agent ": "needs a virtual machine; tests/integration/maintenance runs agents",
    "tocsin imds-emulator ": "runs until it is ended; tests/integration/emulator runs it",
    "tocsin checkpoint run": "runs until it is ended; tests/integration/checkpoints runs it",
    "npm ": "tests/integration/client runs the TypeScript client",
    "node ": "tests/integration/client runs the TypeScript client",
    "docs/examples/": "tests run the examples",
    "examples/": "tests run the examples",
    "fenced.py": "tests run the examples",
    "-m bench": "takes minutes",
    "-m devhost.conformance": "needs a storage account; tests/integration/devhost runs it",
    "devhost/": "changes the checkout",
    "https://": "names the reader's own address",
    "$APP/": "names the reader's own address",
    "--wait\n": "waits for machines of a fleet",
    "say nodes/": "needs servers of a fleet; tests/integration/api/fleets/test_leases_control.py makes each call",
    "servicebus": "needs a namespace of Service Bus",
}
"""Part of a command -> the reason why the test does not run it."""


OPERATORS = {"declare", "entra-token"}
"""Pages whose commands take the admin key for granted."""
DEMO_KEY = "local-demo-key"


def commands(page: Path) -> Iterator[str]:
    """The shell blocks of a page."""
    for kind, fenced, indented in BLOCK.findall(page.read_text()):
        if kind in ("sh", "bash", "console"):
            yield fenced
        elif indented and not kind and indented.strip().startswith((*SHELL, *ELSEWHERE)):
            yield re.sub(r"^ {4}", "", indented, flags=re.MULTILINE)


def calls(page: Path) -> str:
    """The calls of the client that a page shows in single lines, as one program."""
    shown = [indented for _, _, indented in BLOCK.findall(page.read_text()) if indented.strip().startswith("client.")]
    return "\n".join(re.sub(r"^ {4}", "", each, flags=re.MULTILINE) for each in shown)


def requests(page: Path) -> set[tuple[str, str]]:
    """Method and path of the requests that a page shows."""
    return set(re.findall(r"^ *(?:\S+ )?(GET|PUT|POST|PATCH|DELETE) /api/(v1/\S+)", page.read_text(), re.MULTILINE))


def is_run(block: str) -> bool:
    return not any(part in block for part in ELSEWHERE)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The devhost with what pages take for granted: some channels, and two fleets."""
    receiver = Receiver().start()
    with Azurite(memory=True) as azurite:
        host = Host(tmp_path_factory.mktemp("host"), azurite.connection_string, receiver).start()
        with tocsin.Client(host.url, ADMIN_KEY) as admin:
            for tenant in ("shop", "acme"):
                admin.call("PUT", f"tenants/{tenant}", {})
            for channel in ("ops", "orders", "billing", "search", "stock", "audit", "alarms"):
                admin.call("PUT", f"tenants/demo/channels/{channel}", {"type": "http", "url": receiver.url(f"/{channel}")})
        with tocsin.Client(host.url, DEMO_KEY) as client:
            for fleet in ("db", "search"):
                client.call("PUT", f"fleets/{fleet}", {"partitions": 4})
        yield host
        host.end()
    receiver.stop()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `tocsin` and `python`, as an installed wheel gives them."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module in (("tocsin", "-m shared.cli "), ("python", "")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {module}"$@"\n')
        program.chmod(0o755)
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(is_run, commands(page)))], ids=lambda page: page.stem)
def test_commands_of_a_page_run_as_they_stand(page: Path, host: Host, programs: Path, tmp_path: Path) -> None:
    script = "\n".join(block for block in commands(page) if is_run(block)).replace("http://localhost:7071", host.url)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TOCSIN_URL": host.url, "COLUMNS": "100"}
    environment |= {"TOCSIN_KEY": ADMIN_KEY if page.stem in OPERATORS else DEMO_KEY, "HOME": str(tmp_path), "HOOK_KEY": "secret"}
    environment |= {"api": f"{host.url}/api/v1", "key": f"Authorization: Bearer {DEMO_KEY}", "json": "Content-Type: application/json"}
    for declared in (fenced for kind, fenced, _ in BLOCK.findall(page.read_text()) if kind == "yaml"):
        (tmp_path / "tocsin.yaml").write_text(declared)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{page.name}:\n{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "/problems/" not in done.stdout, f"{page.name}:\n{script}\n{done.stdout}"


@pytest.mark.parametrize("page", [page for page in PAGES if calls(page)], ids=lambda page: page.stem)
def test_calls_of_the_client_run_as_they_stand(page: Path, host: Host) -> None:
    with tocsin.Client(host.url, DEMO_KEY) as client:
        exec(compile(calls(page), page.name, "exec"), {"client": client, "timedelta": timedelta})


@pytest.mark.parametrize("page", [page for page in PAGES if requests(page)], ids=lambda page: page.stem)
def test_requests_of_a_page_are_routes(page: Path) -> None:
    routes = {(route.method, re.sub(r"\{[^}]*\}", "X", route.template)) for route in build_routes()}
    for method, path in requests(page):
        shape = re.compile(re.sub(r"(?<=/)[^/]+", "([^/]+)", path.partition("?")[0]))
        assert any(each == method and shape.fullmatch(template) for each, template in routes), f"{method} {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_other_blocks_of_a_page_are_well_formed(page: Path) -> None:
    for kind, fenced, _ in BLOCK.findall(page.read_text()):
        match kind:
            case "python":
                ast.parse(fenced)
            case "json":
                json.loads(fenced if fenced.startswith(("{", "[")) else f"{{{fenced}}}")
            case "yaml":
                yaml.safe_load(fenced)
            case "sql":
                assert sqlite3.complete_statement(fenced)
            case _:
                assert kind in ("", "sh", "bash", "console", "toml", "ts", "mermaid", "text"), kind
