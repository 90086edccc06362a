"""Runs the tests of the client and of the command with the oldest libraries that the wheel allows: `make lowest`.

It makes a virtual environment of its own and needs the package index. Without the index it says what was left out, and succeeds.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from .locks import chosen, chosen_on_nodes

ROOT = Path(__file__).resolve().parents[2]
UV = ROOT / ".venv" / "bin" / "uv"
TESTS = ("tests/unit/client", *(f"tests/unit/cli/{name}.py" for name in ("test_main", "importing/test_bar", "groups/test_verify_trace")))
# The tests look for these, and for the service in memory, in the versions that all tests use.
TOOLS = ("azure-functions", "hypothesis", "pytest", "pytest-asyncio", "pytest-xdist", "standardwebhooks", "uvloop")


def floors() -> list[str]:
    """Return the oldest versions that the package, its command and nodes allow."""
    return [_oldest(each) for each in chosen_on_nodes(ROOT / "pyproject.toml")]


def tools() -> list[str]:
    """Return the other packages that the tests import, in the pinned versions."""
    service = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["testing"]
    wanted = {*TOOLS, *(Requirement(line).name for line in service)} - {each.name for each in chosen_on_nodes(ROOT / "pyproject.toml")}
    return [str(each) for each in chosen(ROOT / "requirements-dev.in") if each.name in wanted]


def main() -> int:
    """Return the exit code of the tests; 0 if the index is out of reach, 1 if it has no such versions."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        subprocess.run([str(UV), "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
        python = environment / "bin" / "python"
        print(f"lowest: {', '.join(floors())}", flush=True)
        if fault := _install(python, [*floors(), *tools()]):
            if _install(python, ["idna"]):
                print(f"lowest: LEFT OUT: the package index is out of reach, so the oldest libraries were not tried: {fault}")
                return 0
            print(f"lowest: these versions cannot be installed together: {fault}")
            return 1
        # Old libraries may warn on a newer Python.
        command = [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            "-o",
            "filterwarnings=default",
            "--disable-warnings",
        ]
        return subprocess.run([*command, *TESTS], cwd=ROOT, check=False).returncode


def _oldest(requirement: Requirement) -> str:
    found = re.search(r">=([0-9.]+)", str(requirement.specifier))
    if found is None:
        raise ValueError(f"pyproject.toml: {requirement} names no oldest version")
    return f"{requirement.name}=={found[1]}"


def _install(python: Path, packages: list[str]) -> str:
    """Install the packages; return '', or the reason why that failed."""
    command = [str(UV), "pip", "install", "--quiet", "--system-certs", "--refresh", "--python", str(python), *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()


if __name__ == "__main__":
    sys.exit(main())
