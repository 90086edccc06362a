"""The README, the tutorial and the how-to pages: commands, requests, calls of the client and programs run against the devhost, as a reader
would type them.

What needs Azure, another machine or minutes is named in `ELSEWHERE`, with the reason. tests/unit/cli/test_documented_commands.py parses
every command of all pages, these included.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import shared as tocsin
from devhost.azurite import ROOT, Azurite
from shared.extras.parts import build_routes
from shared.leases import HttpTables, LeaseKeeper
from tests import waiting
from tests.integration.scheduler.conftest import ADMIN_KEY, Host
from tests.integration.scheduler.receiver import Receiver

from .preloaded import preloaded

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs" / "start").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|^((?: {4}[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
SHELL = ("export ", "tocsin ", "curl ", "api=", "A=", "say ", "see ", "printf ", "python ", "TABLES=")
ELSEWHERE = {
    "az ": "needs a subscription",
    "azd auth ": "needs a subscription",
    "infra/hooks ": "needs a subscription; tests/unit/infra/test_hooks.py runs them",
    "unzip ": "needs a built wheel; tests/integration/wheel installs it",
    "npm install": "tests/integration/client runs the TypeScript client",
    "cookbook": "tests/integration/wheel runs the programs of the cookbook",
    "leases/server.py": "runs until it is ended; tests/integration/wheel runs it",
    "ingest/send.py": "tests/integration/client runs it",
    "-m bench": "takes minutes",
    "check-receiver": "needs a receiver; tests/integration/cli runs it",
    "maintenance rehearse": "needs machines of a fleet; tests/integration/maintenance runs rehearsals",
}
"""Part of a block -> the reason why the test does not run it."""
LEFT_OUT = {
    "make ": "sets the checkout up; tests/integration/setup runs it",
    "pip ": "tests/integration/wheel installs the wheel",
    "python3 -m venv ~/tocsin-dev": "tests/integration/wheel makes environments",
    "tocsin dev": "runs until it is ended; tests/integration/cli runs it",
    "systemctl ": "needs root",
    "tocsin agent --config /etc/tocsin/agent.toml --dry-run": "runs until it is ended; tests/integration/maintenance runs agents",
}
"""Beginning of a line -> the reason why the test leaves it out of its block."""

DEMO_KEY = "local-demo-key"
SETTINGS = {"TOKENS": "1", "TOCSIN_SERVICE_BUS": "orders.servicebus.windows.net", "TOCSIN_CLIENT_CERTIFICATES": "shop/bank=env:BANK_PEM"}
"""The settings that the pages tell the operator to make."""
SERVERS = ("s1", "s2", "s7", "s8", "spare")
"""Servers of the fleet `search` on pages about leases."""


def commands(page: Path) -> Iterator[str]:
    """The shell blocks of a page."""
    for kind, fenced, indented in BLOCK.findall(page.read_text()):
        if kind in ("sh", "bash", "console"):
            yield fenced
        elif indented and not kind and indented.strip().startswith((*SHELL, *ELSEWHERE, *LEFT_OUT)):
            yield re.sub(r"^ {4,8}(?=\S)", "", indented, flags=re.MULTILINE)


def script(page: Path) -> str:
    """The lines of a page that run here."""
    blocks = [block for block in commands(page) if not any(part in block for part in ELSEWHERE)]
    return "".join(line for block in blocks for line in block.splitlines(keepends=True) if not line.startswith(tuple(LEFT_OUT)))


def calls(page: Path) -> str:
    """The calls of the client that a page shows in single lines, as one program."""
    shown = [indented for _, _, indented in BLOCK.findall(page.read_text()) if indented.strip().startswith("client.")]
    return "\n".join(re.sub(r"^ {4}", "", each, flags=re.MULTILINE) for each in shown)


def requests(page: Path) -> set[tuple[str, str]]:
    """Method and path of the requests that a page shows."""
    return set(re.findall(r"^ *(?:\S+ )?(GET|PUT|POST|PATCH|DELETE) /api/(v1/\S+)", page.read_text(), re.MULTILINE))


def bodies(page: Path) -> list[tuple[str, str, Any]]:
    """Method, path and body of the requests that a page shows with their bodies."""
    shown = [fenced or re.sub(r"^ {4}", "", indented, flags=re.MULTILINE) for _, fenced, indented in BLOCK.findall(page.read_text())]
    found = [re.fullmatch(r"(PUT|POST|PATCH) /api/(v1/\S+)\n(\{.*\})\n", each, re.DOTALL) for each in shown]
    return [(each[1], each[2], json.loads(each[3])) for each in found if each]


@dataclass
class World:
    """The devhost, its storage, and what pages take for granted."""

    host: Host
    storage: str
    receiver: Receiver

    def here(self, text: str, folder: Path) -> str:
        """The text with the addresses and folders of this run."""
        for theirs, ours in {
            "http://localhost:7071/receiver": self.receiver.url(""),
            "http://localhost:7071": self.host.url,
            "https://app.example": self.host.url,
            "http://localhost:7072": self.receiver.url(""),
            "UseDevelopmentStorage=true": f"'{self.storage}'",
            "docs/examples/": f"{ROOT}/docs/examples/",
            **{place: f"{folder}{place}" for place in ("/etc/", "/var/lib/", "/usr/local/bin/")},
        }.items():
            text = text.replace(theirs, ours)
        return text


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The devhost with two more tenants, and two fleets, one of which has servers."""
    with ExitStack() as stack:
        receiver = Receiver().start()
        stack.callback(receiver.stop)
        azurite = stack.enter_context(Azurite(memory=True))
        host = Host(tmp_path_factory.mktemp("host"), azurite.connection_string, receiver, ROOT, **SETTINGS).start()
        stack.callback(host.end)
        with tocsin.Client(host.url, ADMIN_KEY) as admin:
            for tenant in ("shop", "acme"):
                admin.call("PUT", f"tenants/{tenant}", {})
        with tocsin.Client(host.url, DEMO_KEY) as client:
            for fleet in ("db", "search"):
                client.call("PUT", f"fleets/{fleet}", {"partitions": 4})
        tables = HttpTables.from_connection_string(azurite.connection_string)
        stack.callback(tables.close)
        keepers = [stack.enter_context(LeaseKeeper("search", name, tables, tenant="demo")) for name in SERVERS]
        for keeper in keepers:
            stack.callback(keeper.stop, keep=True)
            keeper.wait()
        yield World(host, azurite.connection_string, receiver)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `tocsin` and `python` as an installed wheel gives them, `azd` after a deployment, and a database's own command."""
    folder = tmp_path_factory.mktemp("bin")
    library = folder / "lib"
    library.mkdir()
    (library / "tocsin").symlink_to(ROOT / "shared")
    for name, text in {
        "python": f'PYTHONPATH="{library}:{ROOT}" exec "{sys.executable}" "$@"',
        "azd": """case $* in
  "env get-value TOCSIN_URL") echo "$AZD_URL" ;;
  "env config get infra.parameters.firstAdminKey") echo '"'$TOCSIN_ADMIN_KEY'"' ;;
esac""",
        "search-ctl": """echo '{"role": "secondary", "applied": 7}'""",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    with preloaded(folder / "tocsin", library):
        yield folder


def send(page: Path, world: World) -> None:
    """Send the requests of a page that it shows with their bodies; they must be accepted."""
    with httpx.Client(base_url=f"{world.host.url}/api/", headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=180) as client:
        for method, path, body in bodies(page):
            answer = client.request(method, path, json=body)
            assert answer.status_code in (200, 201), f"{method} {path}: {answer.text}"


@pytest.mark.parametrize("page", [page for page in PAGES if script(page)], ids=lambda page: page.stem)
def test_commands_of_a_page_run_as_they_stand(page: Path, world: World, programs: Path, tmp_path: Path) -> None:
    send(page, world)
    text = world.here(script(page), tmp_path)
    # As in a fresh shell: a page says itself what its commands need.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "100", "HOME": str(tmp_path)}
    environment |= {"AZD_URL": world.host.url, "TOCSIN_ADMIN_KEY": ADMIN_KEY}
    for declared in (fenced for kind, fenced, _ in BLOCK.findall(page.read_text()) if kind == "yaml"):
        (tmp_path / "tocsin.yaml").write_text(declared)
    for folder in ("etc/tocsin", "etc/systemd/system", "usr/local/bin", "var/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/tocsin/agent.toml").touch(0o600)
    (tmp_path / "usr/local/bin/backup.sh").symlink_to("/bin/true")
    done = waiting.run(["bash", "-euo", "pipefail", "-c", text], cwd=tmp_path, env=environment)
    assert done.returncode == 0, f"{page.name}:\n{text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "/problems/" not in done.stdout, f"{page.name}:\n{text}\n{done.stdout}"


@pytest.mark.parametrize("page", [page for page in PAGES if calls(page)], ids=lambda page: page.stem)
def test_calls_of_the_client_run_as_they_stand(page: Path, world: World) -> None:
    with tocsin.Client(world.host.url, DEMO_KEY) as client:
        exec(compile(calls(page), page.name, "exec"), {"client": client, "timedelta": timedelta})


@pytest.mark.parametrize(
    ("page", "arguments"),
    [
        ("README.md", ()),
        ("docs/how-to/exactly-once.md", ()),
        ("docs/how-to/lock.md", ()),
        ("docs/how-to/fence-your-writes.md", ("1", "order-20")),
    ],
)
def test_programs_of_a_page_run_as_they_stand(page: str, arguments: tuple[str, ...], world: World, programs: Path, tmp_path: Path) -> None:
    [program] = [fenced for kind, fenced, _ in BLOCK.findall((ROOT / page).read_text()) if kind == "python"]
    environment = {**os.environ, "TABLES": world.storage}
    command, text = [programs / "python", "-", *arguments], world.here(program, tmp_path)
    done = waiting.run(command, input=text, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if bodies(page) and not script(page)], ids=lambda page: page.stem)
def test_requests_with_bodies_are_accepted(page: Path, world: World) -> None:
    send(page, world)


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
                # SQLite reads the whole statement before it looks for the tables.
                with closing(sqlite3.connect(":memory:")) as empty, pytest.raises(sqlite3.OperationalError, match="no such table"):
                    empty.execute(fenced)
            case _:
                assert kind in ("", "sh", "bash", "console", "csharp", "toml", "ts", "mermaid", "text"), kind


@pytest.mark.parametrize("part", [*ELSEWHERE, *LEFT_OUT])
def test_every_exception_is_needed(part: str) -> None:
    assert any(part in block for page in PAGES for block in commands(page))
