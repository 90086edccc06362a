"""The programs of the cookbook run beside the app, as their page says. Their tests, in which days pass, run with the wheel."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

from tests.integration.scheduler.conftest import System
from tests.paths import ROOT

from .conftest import EXAMPLES
from .typescript import MODULES, SOURCES, node

TYPESCRIPT = "docs/examples/cookbook/typescript"
PRINTED = {
    "orders": "Order 17 is cancelled, order 18 is paid.",
    "partner": "Parcel A1 is accepted. The partner answered 503, 503, 200.",
    "reconciliation": "Bookings of yesterday without a payment: {18}.",
    "prices": "Tea costs {('tea', 'Asia/Tokyo'): 349}.",
}


async def test_programs_of_the_cookbook_do_what_they_say(system: System, as_installed: Path) -> None:
    env = os.environ | {"TOCSIN_URL": system.host.url, "PYTHONPATH": str(as_installed)}

    async def run(name: str) -> tuple[str, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, f"{name}.py", cwd=EXAMPLES / "cookbook", env=env, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()
        return name, printed.decode().splitlines()[-1]

    assert dict(await asyncio.gather(*map(run, PRINTED))) == PRINTED


def test_the_typescript_programs_are_built_for_the_node_of_the_setup(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("node_modules", "build", "dist")
    shutil.copytree(SOURCES, tmp_path / "clients" / "typescript", ignore=ignored)
    programs = shutil.copytree(ROOT / TYPESCRIPT, tmp_path / TYPESCRIPT, ignore=ignored)
    (tmp_path / "node_modules").symlink_to(MODULES)
    # As `npm install` makes it.
    (programs / "node_modules").mkdir()
    (programs / "node_modules" / "tocsin").symlink_to(tmp_path / "clients" / "typescript")
    compiler = MODULES / "typescript" / "bin" / "tsc"
    node(compiler, "--project", tmp_path / "clients" / "typescript")
    node(compiler, "--project", programs)
    scripts = json.loads((programs / "package.json").read_text())["scripts"]
    for name in ("orders", "prices"):
        assert scripts[name].endswith(f"node build/{name}.js")
        node("--check", programs / "build" / f"{name}.js")
    text = f"await import({json.dumps((programs / 'build' / 'local.js').as_uri())})"
    node("--input-type=module", "--eval", text)
