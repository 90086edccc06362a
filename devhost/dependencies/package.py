"""Makes the package that is deployed, and shows that a bare Python 3.13 with nothing but its files indexes every function: `make package`.

The package is unpacked into an empty folder. A Python without a folder of packages of its own imports the app from there, with the settings
that add functions, and everything that the app imports later. Needs the package index, and Linux on x86-64, for which the package is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from devhost.worker.library import index
from shared.core.setting_names import MIRROR
from shared.extras.parts import KAFKA_SOURCES

ROOT = Path(__file__).resolve().parents[2]
MORE = {f"{MIRROR}__queueServiceUri": "https://only-looked-at", KAFKA_SOURCES: "[]"}
"""Settings with which the app has all its functions."""
LATER = ("azure.eventgrid", "azure.identity.aio", "azure.monitor.opentelemetry.exporter", "confluent_kafka", "cryptography.x509", "tzdata")
"""Packages that the app imports when it needs them."""
PROGRAM = f"""
import importlib, json, sys, time
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.python_packages/lib/site-packages"]
began = time.process_time()
import function_app
took = time.process_time() - began
names = sorted(each.get_function_name() for each in function_app.app.get_functions())
for later in {LATER!r}:
    importlib.import_module(later)
files = [each.__file__ for each in sys.modules.values() if getattr(each, "__file__", None)]
print(json.dumps([names, took, sorted(each for each in files if "site-packages" in each and not each.startswith(sys.argv[1]))]))
"""


class Found(NamedTuple):
    """The findings of a bare Python in an unpacked package."""

    names: list[str]
    """Names of the functions."""
    seconds: float
    """CPU time of the import."""
    strangers: list[str]
    """Imported files of packages that are not in the package."""
    compiled: int
    """Files of bytecode that the Python had to write."""


def look(folder: Path, python: str) -> Found:
    """Have a bare Python import the app of a folder. Raises `RuntimeError` with its messages if it cannot."""
    before = set(folder.rglob("*.pyc"))
    done = subprocess.run(
        # Neither this environment's packages, nor the machine's, nor the user's.
        [python, "-I", "-S", "-c", PROGRAM, str(folder)],
        cwd=folder,
        env={name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ} | MORE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    names, seconds, strangers = json.loads(done.stdout.splitlines()[-1])
    return Found(names, seconds, strangers, len(set(folder.rglob("*.pyc")) - before))


def faults(found: Found, expected: list[str], compiled: bool) -> list[str]:
    """Return a sentence for each fault of a package. compiled: it was made to hold the bytecode of everything."""
    wrong = [f"it lacks the function {name}" for name in sorted(set(expected) - set(found.names))]
    wrong += [f"it has a function {name} that the sources do not have" for name in sorted(set(found.names) - set(expected))]
    wrong += [f"{name} is not from the package" for name in found.strangers]
    if compiled and found.compiled:
        wrong.append(f"{found.compiled} files were not compiled")
    return wrong


def main() -> int:
    """Make the package and check it; return the exit code."""
    parser = argparse.ArgumentParser(prog="make package", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if made := subprocess.run([sys.executable, str(ROOT / "infra" / "hooks"), "package"], cwd=ROOT, check=False).returncode:
        return made
    os.environ.update(MORE)
    expected = [function.name for function in index(ROOT)]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(ROOT / "build" / "app.zip") as package:
        package.extractall(folder)
        try:
            found = look(Path(folder), os.path.realpath(sys.executable))
        except RuntimeError as error:
            print(f"package: a bare Python cannot import it:\n{error}", file=sys.stderr)
            return 1
    wrong = faults(found, expected, compiled=True)
    for each in wrong:
        print(f"package: {each}", file=sys.stderr)
    if not wrong:
        print(f"package: a bare Python 3.13 indexes all {len(expected)} functions of it, in {found.seconds:.2f} s of CPU")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
