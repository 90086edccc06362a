"""Every table and screen as people see it: the files in `golden`, without colours. GOLDEN=write overwrites them; read the difference.

GOLDEN=write .venv/bin/python -m pytest tests/unit/cli/test_golden.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from shared.cli import main as frame
from shared.cli import session
from shared.cli.terminal import output
from shared.client.blocking import Client
from tests.paths import ROOT

from . import stage

GOLDEN = Path(__file__).with_name("golden")
TRACES = ROOT / "tests" / "data" / "traces"
SCREENS = {
    "status": "status",
    "events-list": "events list",
    "events-get": "events get order-17",
    "events-stats": "events stats",
    "schedules-list": "schedules list",
    "schedules-preview": "schedules preview nightly",
    "leases-overview": "leases overview",
    "leases-fleets": "leases fleets",
    "leases-show": "leases show web",
    "leases-show-one": "leases show web 1",
    "leases-show-by-server": "leases show web --by-server",
    "leases-nodes": "leases nodes web",
    "leases-stale": "leases stale web",
    "leases-intents": "leases intents web",
    "leases-plan": "leases plan web",
    "leases-doctor": "leases doctor web",
    "turns-list": "turns list web",
    "turns-latest": "turns latest web",
    "locks-list": "locks list",
    "locks-show": "locks show nightly",
    "maintenance-list": "maintenance list web",
    "maintenance-show": f"maintenance show web {stage.EVENT_ID}",
    "maintenance-show-over": "maintenance show web reboot-1",
    "tenants-list": "tenants list",
    "tenants-keys-list": "tenants keys list shop",
    "tenants-channels-list": "tenants channels list shop",
    "connections": "connections",
    "verify-trace": f"verify-trace {TRACES}/legal.log",
    "verify-trace-illegal": f"verify-trace {TRACES}/illegal.log",
}
PICTURES = [*((name, 120) for name in SCREENS), *((name, 40) for name in ("status", "leases-nodes", "leases-doctor", "maintenance-list"))]
PICTURES += [
    (name, 80) for name in SCREENS if name.endswith(("-list", "-fleets", "-nodes", "-intents")) or name in ("status", "leases-show-one")
]
PROFILES = """
default = "local"
[local]
url = "http://localhost:7071"
key_env = "LOCAL_KEY"
[prod]
url = "https://app.example"
tenant = "shop"
key_command = "pass show tocsin"
"""


def picture_path(name: str, width: int) -> str:
    """Return a picture's path below `golden`: a folder for each group of commands."""
    return f"{name.partition('-')[0]}/{name}.{width}.txt"


def print_screen(arguments: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Return what a terminal of that width shows."""
    (folder / "profiles.toml").write_text(PROFILES)
    monkeypatch.setenv("TOCSIN_PROFILES", str(folder / "profiles.toml"))
    monkeypatch.setenv("TOCSIN_URL", "https://app.example")
    monkeypatch.setenv("TOCSIN_KEY", "a-very-secret-key")
    monkeypatch.setattr(session, "open_client", lambda app, **_: Client(app.url, app.key, transport=httpx.MockTransport(stage.answer)))
    # Without colours whatever the terminal of the tests is.
    plain = {"highlight": False, "markup": False, "emoji": False, "color_system": None, "force_terminal": False}
    monkeypatch.setattr(output, "console", lambda error=False: Console(file=sys.stdout, width=width, **plain))
    with pytest.raises(SystemExit) as ended:
        frame.main(arguments.split())
    printed = capsys.readouterr()
    assert printed.err == "" and ended.value.code in (0, None, 1)
    return printed.out


@pytest.mark.parametrize(("name", "width"), PICTURES)
def test_screen_is_as_it_was_drawn(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = print_screen(SCREENS[name], width, capsys, monkeypatch, tmp_path)
    assert max(map(len, found.splitlines())) <= width and "\x1b" not in found
    picture = GOLDEN / picture_path(name, width)
    if os.environ.get("GOLDEN") == "write":
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text(found, "utf-8")
    assert found == picture.read_text("utf-8"), "GOLDEN=write overwrites the file"


def test_every_picture_is_of_a_screen() -> None:
    assert set(GOLDEN.rglob("*.txt")) == {GOLDEN / picture_path(name, width) for name, width in PICTURES}
