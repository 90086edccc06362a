"""The dashboard's files: what is served, and how."""

from __future__ import annotations

import json
import re

import pytest

from devhost.azurite import ROOT
from shared.web.dashboard import routes as functions
from shared.web.dashboard.routes import ASSETS
from shared.web.local_client import LocalClient
from shared.web.routes import Routes

FILES = {path.name: path for path in ASSETS.rglob("*") if path.is_file()}
NAMES = sorted(FILES.keys() - {functions.PAGE})


@pytest.fixture
def client() -> LocalClient:
    """A caller without a key, where there is no application."""
    routes = Routes[None]()
    routes.add(functions.files, lambda app: None)
    return LocalClient(routes, None)  # type: ignore[arg-type]


async def test_page_is_served_without_a_key_and_without_the_application(client: LocalClient) -> None:
    answer = await client.get("/api/dashboard")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.body == (ASSETS / "index.html").read_bytes()
    assert (await client.get("/api/dashboard?tenant=demo&fleet=db")).body == answer.body
    assert (await client.get("/api/dashboard?key=secret")).status == 422


@pytest.mark.parametrize("name", NAMES)
async def test_every_file_is_served_as_what_it_is_and_only_once(client: LocalClient, name: str) -> None:
    answer = await client.get(f"/api/dashboard/{name}")
    assert answer.status == 200 and answer.body == FILES[name].read_bytes()
    assert answer.headers["content-type"] == functions.MEDIA["." + name.rpartition(".")[2]]
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = await client.get(f"/api/dashboard/{name}", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


async def test_policy_lets_nothing_in_from_elsewhere_and_nothing_inline(client: LocalClient) -> None:
    headers = (await client.get("/api/dashboard")).headers
    policy = dict(each.strip().partition(" ")[::2] for each in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in headers["content-security-policy"] and "http" not in headers["content-security-policy"]


ELSEWHERE = ("nothing.js", "..", "functions.py", "__init__.py", "../functions.py", "%2e%2e%2ffunctions.py", "INDEX.html", "index.html")


@pytest.mark.parametrize("name", ELSEWHERE)
async def test_nothing_else_of_the_disk_is_served(client: LocalClient, name: str) -> None:
    assert (await client.get(f"/api/dashboard/{name}")).status == 404


def test_page_has_no_inline_code_and_names_only_files_there_are() -> None:
    page = (ASSETS / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    named = re.findall(r'(?:src|href)="(?!#)([^"]+)"', page)
    assert named and {each.removeprefix("dashboard/") for each in named} <= set(NAMES)
    assert all(each.startswith("dashboard/") for each in named)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js") and not name.startswith("uPlot")])
def test_modules_import_only_files_there_are_and_never_write_markup(name: str) -> None:
    code = (ASSETS / name).read_text()
    assert set(re.findall(r'from "\./([^"]+)"', code)) <= set(NAMES)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment", code)
    assert len(code.splitlines()) <= 400


@pytest.mark.parametrize(("name", "source"), [("uPlot.iife.min.js", "dist"), ("uPlot.min.css", "dist"), ("uPlot.LICENSE.txt", "")])
def test_charts_are_those_of_the_locked_package(name: str, source: str) -> None:
    package = ROOT / "node_modules" / "uplot"
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]["node_modules/uplot"]["version"]
    assert json.loads((package / "package.json").read_text())["version"] == locked
    original = package / source / name.replace("uPlot.LICENSE.txt", "LICENSE")
    assert FILES[name].read_bytes() == original.read_bytes()
