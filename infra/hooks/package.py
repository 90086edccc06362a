"""Makes the package that is deployed: the app's own files, the packages of requirements.txt for the platform, and their bytecode.

Nothing is built on Azure. pip takes the wheels for Python 3.13 on Linux, with the hashes of requirements.txt, on any machine. Everything is
compiled where a Python 3.13 is at hand; else each start on Azure compiles what it imports. Bytecode is not compared with its source when it
is loaded, so it is made in build/ alone: in a working copy it would hide later changes.

    build/app       what azd deploys (`dist` of azure.yaml)
    build/app.zip   the same as one file
    build/packages  the installed packages, kept for the next time under a digest of what they were made from

The same sources, packages and Python make the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

WANTED, TAG = "3.13", "cpython-313"
"""The Python of the platform, and what it calls its bytecode."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
TARGET = ".python_packages/lib/site-packages"
"""The folder in which the platform's worker finds packages."""
DEPLOYED = "/home/site/wwwroot"
"""The app's folder on the platform: the place that traces name."""
LEFT_OUT = re.compile(r"__pycache__|\..*|.*\.(pyc|pyo|whl)")
"""Names of files and folders of shared/ that are not deployed."""
IGNORE = "# Everything in this folder is deployed. Without this file azd would leave __pycache__ out.\n"
FORMAT = "1"
"""Changes whenever this module makes other packages of the same requirements."""


class Unfit(Exception):
    """Raised when the package cannot be made; the message says what to do."""


def build(root: Path) -> int:
    """Make build/app and build/app.zip of the files below `root`; return the exit code."""
    made = root / "build"
    try:
        made.mkdir(exist_ok=True)
        for left in made.glob("*.unfinished-*"):
            _remove(left)
        compiler = find_compiler(root)
        packages = _packages(root, made / "packages", compiler)
        version = _stage(root, made, packages, compiler)
        size = pack(made / "app", made / "app.zip")
    except Unfit as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    how = f"compiled by {compiler[1]}" if compiler else "NOT compiled: no Python 3.13 here, so instances start seconds later"
    print(f"package: build/app.zip, {size / 1e6:.0f} MB, version {version}, {how}")
    return 0


# --- Pythons --------------------------------------------------------------------------------------------------------


def _pythons(root: Path) -> Iterator[list[str]]:
    """Yield commands that may be a Python, each once, this one first."""
    yield [sys.executable]
    for place in (root / ".venv" / "bin" / "python", root / ".venv" / "Scripts" / "python.exe"):
        if place.exists():
            yield [str(place)]
    if shutil.which("py"):
        yield ["py", "-3.13"]
    yield from ([name] for name in ("python3.13", "python3", "python") if shutil.which(name))
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from ([str(each)] for each in sorted(pyenv.glob("3.13.*/bin/python3.13"), reverse=True))


def _answer(command: list[str]) -> str:
    """Return what a command prints; '' if it fails or does not exist."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        # The next candidate is asked.
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def find_compiler(root: Path) -> tuple[list[str], str] | None:
    """Return the command and the name of a Python whose bytecode the platform loads; None if there is none."""
    ask = "import platform, sys; print(sys.implementation.cache_tag, platform.python_version())"
    for python in _pythons(root):
        tag, _, version = _answer([*python, "-I", "-c", ask]).partition(" ")
        if tag == TAG:
            return python, f"Python {version}"
    return None


def _find_pip(root: Path) -> list[str]:
    for python in _pythons(root):
        if _answer([*python, "-m", "pip", "--version"]):
            return [*python, "-m", "pip"]
    raise Unfit("no Python here has pip. Install it (python3 -m ensurepip, or your system's package python3-pip), and repeat.")


# --- Packages -------------------------------------------------------------------------------------------------------


def _packages(root: Path, kept: Path, compiler: tuple[list[str], str] | None) -> Path:
    """Return the folder of the installed packages, from an earlier time if nothing has changed."""
    requirements = (root / "requirements.txt").read_bytes()
    parts = [FORMAT.encode(), requirements, repr(PLATFORMS).encode(), (compiler[1] if compiler else "").encode()]
    name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    if (kept / name).is_dir():
        return kept / name
    kept.mkdir(exist_ok=True)
    for former in kept.iterdir():
        _remove(former)
    new = kept / f"{name}.unfinished-{os.getpid()}"
    command = [*_find_pip(root), "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile", "--no-deps"]
    command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", WANTED]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    # pip compares what a package demands with the Python that runs pip. The lock was made for the platform's.
    command += ["--ignore-requires-python", "--require-hashes", "-r", str(root / "requirements.txt"), "--target", str(new)]
    # Settings of the user may refuse a target, or any use outside a virtual environment.
    environment = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_ROOT_USER_ACTION": "ignore"}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0 or not new.is_dir():
        raise Unfit("pip could not install requirements.txt; its messages are above. Nothing is deployed.")
    # Scripts for the machine that made the package.
    _remove(new / "bin")
    for record in new.glob("*.dist-info/RECORD"):
        lines = record.read_bytes().splitlines(keepends=True)
        record.write_bytes(b"".join(line for line in lines if not line.startswith(b"../../bin/")))
    if compiler is not None:
        _compile(compiler[0], new, f"{DEPLOYED}/{TARGET}")
    _take_place(new, kept / name)
    return kept / name


def _compile(python: list[str], folder: Path, deployed: str) -> None:
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", deployed]
    # Another variable may send bytecode to another folder. Bytecode holds sets in the order of their hashes.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONHASHSEED"] = "0"
    done = subprocess.run([*python, "-m", "compileall", *options, str(folder)], env=environment, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Unfit(f"Python could not compile {folder}; its messages are above. Nothing is deployed.")


# --- The app --------------------------------------------------------------------------------------------------------


def _stage(root: Path, made: Path, packages: Path, compiler: tuple[list[str], str] | None) -> str:
    """Make build/app; return the app's version."""
    new = made / f"app.unfinished-{os.getpid()}"
    shutil.copytree(root / "shared", new / "shared", ignore=lambda _, names: {name for name in names if LEFT_OUT.fullmatch(name)})
    # Without requirements.txt: a build on Azure, if somebody asks for one, finds nothing to install.
    for name in ("function_app.py", "host.json"):
        shutil.copyfile(root / name, new / name)
    version = _version(root)
    (new / "shared" / "core" / "version.txt").write_text(f"{version}\n")
    if compiler is not None:
        _compile(compiler[0], new, DEPLOYED)
    shutil.copytree(packages, new / TARGET)
    (new / ".funcignore").write_text(IGNORE)
    _take_place(new, made / "app")
    return version


def _version(root: Path) -> str:
    spec = importlib.util.spec_from_file_location("tocsin_version", root / "shared" / "core" / "version.py")
    if spec is None or spec.loader is None:
        raise Unfit(f"{root} has no shared/core/version.py: is it the repository?")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.version())


def pack(folder: Path, file: Path) -> int:
    """Write the files of `folder` into a zip file, the same bytes for the same files; return its size."""
    new = file.with_name(f"{file.name}.unfinished-{os.getpid()}")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            name = path.relative_to(folder).as_posix()
            if name == ".funcignore":
                continue
            entry = zipfile.ZipInfo(name)
            entry.create_system, entry.external_attr, entry.compress_type = 3, 0o100644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    os.replace(new, file)
    return file.stat().st_size


def _take_place(new: Path, place: Path) -> None:
    """Put a finished folder in the place of a former one. Whoever is killed in between leaves no half of either."""
    if place.exists():
        old = place.with_name(f"{place.name}.unfinished-{os.getpid()}-{time.monotonic_ns()}")
        place.rename(old)
        new.rename(place)
        _remove(old)
    else:
        new.rename(place)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
