"""Each target of the Makefile that the documentation names runs, in its shortest form, and changes no file that git keeps.

The targets work in a copy of the repository, whose .venv and node_modules are links.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

import pytest

from tests.making import make_command, make_environment
from tests.paths import ROOT
from tests.unit.cli.test_documented_commands import shown
from tests.waiting import eventually

MAKEFILE = (ROOT / "Makefile").read_text()
RULES = dict(re.findall(r"^([a-z-]+):([^#\n]*)", MAKEFILE, re.MULTILINE))
"""Each target and what it needs."""


@dataclass(frozen=True)
class Short:
    """The shortest form of a target. code: make's exit code. says: a part of its output."""

    arguments: str = ""
    code: int = 0
    says: str = ""
    variables: tuple[tuple[str, str], ...] = ()


NO_COMPILER = (("PATH", "/usr/bin:/bin"), ("HOME", "/nowhere"))
"""The compiler takes a minute; tests/unit/infra calls a stand-in, and CI the real one."""
SHORT = {
    "help": Short(says="make run"),
    "wheel": Short(says="dist/tocsin-"),
    "typescript": Short(),
    "clients": Short(says="locking/holding/blocking.py is written"),
    "reference": Short(),
    "picture": Short(),
    "docs": Short(),
    "sbom": Short(says="build/sbom/app.cdx.json"),
    "simulate": Short(variables=(("SEEDS", "1"),)),
    "bench": Short("--quick rows", says="event rows"),
    "bicep": Short(says="NOT checked", variables=NO_COMPILER),
    "snapshots": Short(code=2, says="NOT checked", variables=NO_COMPILER),
    # They need a network or an account.
    "audit": Short("--help", says="known vulnerabilities"),
    "lock": Short("--help", says="Needs a network"),
    "package": Short("--help", says="bare Python 3.13"),
    "conformance": Short("--help", says="--account"),
}
INCLUDED = {"settings": "reference", "problems": "reference"}
"""Targets that another one of the table needs, so that it runs them."""
ELSEWHERE = {
    "run": "tests/integration/make/test_targets.py",
    "demo": "tests/integration/make/test_targets.py",
    "host-test": "tests/integration/make/test_host_test.py",
    "setup": "tests/integration/setup/test_setup.py",
    "demo-maintenance": "tests/integration/maintenance/test_demo.py",
    "demo-owners": "tests/integration/demo/test_owners.py",
}
"""Targets and the tests that run them."""
WHOLE = {"test", "quick", "lint", "long", "lowest", "slow", "prove"}
"""Targets that run the tests or all proofs, and so cannot be run by a test. CI runs `test`, with `lint` in it, and `lowest`."""

MADE = {".git", ".venv", "node_modules", ".azurite", ".tools", "build", "dist", "__pycache__"}
"""Folders that are no part of the copy, or that targets may fill; caches are others."""


def is_made(name: str) -> bool:
    return name in MADE or name.endswith(("_cache", ".pyc")) or name in (".hypothesis", ".schemathesis")


def contents(folder: Path) -> dict[str, str]:
    """The digest of each file that is not made."""
    found: dict[str, str] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not is_made(name)]
        for path in (Path(place) / name for name in files if not is_made(name)):
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("make") / "checkout"
    # Compiled modules come along: they save the targets half of their work.
    shutil.copytree(
        ROOT, folder, symlinks=True, ignore=lambda _, names: [name for name in names if is_made(name) and name != "__pycache__"]
    )
    for name in (".venv", "node_modules"):
        (folder / name).symlink_to((ROOT / name).resolve())
    yield folder
    assert (folder / ".venv").is_symlink() and (folder / "node_modules").is_symlink(), "nothing was set up anew"


@asynccontextmanager
async def started(folder: Path, target: str, output: Path, arguments: str = "", **variables: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The target at work in a session of its own, all of which ends with the block."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            make_command(target, arguments),
            cwd=folder,
            env=make_environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("target", SHORT)
async def test_target_runs_and_changes_no_file_of_the_repository(target: str, checkout: Path, tmp_path: Path) -> None:
    short, before = SHORT[target], contents(checkout)
    async with started(checkout, target, tmp_path / "output", short.arguments, **dict(short.variables)) as process:
        await eventually(lambda: process.poll() is not None, f"the end of make {target}", deadline=900)
    printed = (tmp_path / "output").read_text(errors="replace")
    assert process.returncode == short.code, printed
    assert short.says in printed
    assert contents(checkout) == before


def is_alive(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/api/healthz", timeout=60) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


FREE_PORTS = {name: "0" for name in ("PORT", "RECEIVER_PORT", "AZURITE_BLOB_PORT", "AZURITE_QUEUE_PORT", "AZURITE_TABLE_PORT")}


@pytest.mark.parametrize(
    ("command", "ready"), [(make_command("run"), r"devhost ready (\S+)"), (make_command("demo"), r"(http://\S+)/api/dashboard")]
)
async def test_target_that_goes_on_starts_an_app_that_answers_and_ends_with_ctrl_c(
    command: list[str], ready: str, checkout: Path, tmp_path: Path
) -> None:
    target, output, before = command[-2], tmp_path / "output", contents(checkout)
    async with started(checkout, target, output, **FREE_PORTS, AZURITE="memory", TMPDIR=str(tmp_path)) as process:
        await eventually(lambda: process.poll() is not None or re.search(ready, output.read_text()), f"the app of make {target}")
        found = re.search(ready, output.read_text())
        assert found, output.read_text()
        assert await asyncio.to_thread(is_alive, found[1])
        os.killpg(process.pid, signal.SIGINT)
        await eventually(lambda: process.poll() is not None, f"the end of make {target}")
    assert not await asyncio.to_thread(is_alive, found[1])
    assert contents(checkout) == before


def test_every_target_that_the_documentation_names_is_run_by_a_test() -> None:
    named = {words[0] for _, words in shown("make") if words}
    assert len(named) > 20
    assert named - SHORT.keys() - INCLUDED.keys() - ELSEWHERE.keys() - WHOLE == set()
    assert (SHORT.keys() | INCLUDED.keys() | ELSEWHERE.keys()) - RULES.keys() == set(), "targets that are gone"


def test_a_target_that_another_one_includes_is_needed_by_it() -> None:
    for target, whole in INCLUDED.items():
        assert whole in SHORT and target in RULES[whole].split()


def test_a_target_that_runs_elsewhere_does_run_there() -> None:
    for target, test in ELSEWHERE.items():
        assert f'make_command("{target}"' in (ROOT / test).read_text(), target


@pytest.mark.parametrize("target", sorted(RULES))
def test_every_program_of_a_recipe_exists(target: str) -> None:
    command = [*make_command(target), "--dry-run"]
    recipe = subprocess.run(command, cwd=ROOT, env=make_environment(), capture_output=True, text=True, check=True).stdout
    modules = {each for each in re.findall(r"python -m ([a-z_][\w.]*)", recipe) if not each.endswith(".")}
    files = set(re.findall(r"(?:^|\s)((?:tests|devhost|infra|node_modules)/[\w./-]+)", recipe, re.MULTILINE))
    assert [module for module in modules if importlib.util.find_spec(module) is None] == []
    assert [file for file in files if not (ROOT / file).exists()] == []
