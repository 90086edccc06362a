"""The wheel, built and installed into an empty environment: what applications and nodes get."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from devhost.azurite import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "testing"


KEPT = re.compile(r"(HOME|PATH)$|PIP_|SSL_|\w+_proxy$", re.IGNORECASE)
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*command: str | Path, cwd: Path) -> str:
    """What the command says; it must succeed, and sees of this environment only what pip may need."""
    kept = {name: value for name, value in os.environ.items() if KEPT.match(name)}
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, env=kept)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(*PIP, "wheel", "--no-deps", "--wheel-dir", folder, ".", cwd=ROOT)
    [built] = folder.glob("tocsin-*.whl")
    return built


def test_wheel_holds_the_package_under_its_name_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"tocsin"}
    here = {path.relative_to(ROOT / "shared").as_posix() for path in (ROOT / "shared").rglob("*.py")}
    assert {name.removeprefix("tocsin/") for name in names if name.endswith(".py")} == here
    assert "tocsin/py.typed" in names


LOADED = """
import json, sys
import tocsin
bare = sorted({name.partition(".")[0] for name in sys.modules} & {"httpx", "pydantic", "aiohttp", "azure", "orjson"})
from tocsin import verify
receiving = sorted({name.partition(".")[0] for name in sys.modules} & {"httpx", "aiohttp", "azure"})
from tocsin import Client, AsyncClient
calling = sorted({name.partition(".")[0] for name in sys.modules} & {"aiohttp", "azure"})
missing = [name for name in tocsin.__all__ if not hasattr(tocsin, name)]
import tocsin.testing
from importlib.metadata import distributions
print(json.dumps([bare, receiving, calling, missing, tocsin.__file__, [each.name for each in distributions()]]))
"""


def test_wheel_in_an_empty_environment_serves_clients_receivers_and_tests(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    pins = re.findall(r"^pytest==.*$", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    # Compiling thousands of modules of which dozens are imported would take half the time.
    run(*PIP, "--python", python, "install", "--no-compile", wheel, *pins, cwd=tmp_path)

    bare, receiving, calling, missing, home, installed = json.loads(run(python, "-c", LOADED, cwd=tmp_path))
    assert (bare, receiving, calling, missing) == ([], [], [], [])
    assert str(tmp_path) in home
    assert "tocsin" in installed and "azure-functions-runtime" not in installed

    shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__"))
    said = run(python, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", ".", cwd=tmp_path / "example")
    assert "4 passed" in said
