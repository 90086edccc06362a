"""`make wheel` without a set-up: which Python builds the wheel, and where the build backend comes from.

devhost/wheel.sh runs for real, in a folder of its own, on a PATH with the basic tools and stand-ins for Python. Nothing is fetched.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

TOOLS = ("sh", "cat", "cksum", "cp", "dirname", "ls", "mkdir", "mktemp", "mv", "rm", "touch", "tr")
PYTHON = r"""#!/bin/sh
case "$1 $2" in
  "-c "*) exit {code} ;;
  "-m pip") echo "{name} pip $*" >>{log}; [ ! -f {log}.fails ] || exit 1
    while [ "$1" != --target ]; do shift; done; mkdir -p "$2" ;;
  "-m hatchling") echo "{name} builds with $PYTHONPATH" >>{log}; mkdir -p dist; touch dist/tocsin-2.whl ;;
esac
"""


class Clone:
    """A clone that was never set up, with an older wheel, on a machine with the given interpreters."""

    def __init__(self, tmp: Path, **pythons: int) -> None:
        self.folder, self.bin, self.log = tmp / "clone", tmp / "bin", tmp / "log"
        (self.folder / "devhost").mkdir(parents=True)
        (self.folder / "dist").mkdir()
        (self.folder / "dist" / "tocsin-1.whl").touch()
        self.bin.mkdir()
        shutil.copy(ROOT / "devhost" / "wheel.sh", self.folder / "devhost")
        (self.folder / "requirements-build.txt").write_text("a==1\n")
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, f"this machine has no {tool}"
            (self.bin / tool).symlink_to(found)
        for name, code in pythons.items():
            path = self.bin / name.replace("_", ".")
            path.write_text(PYTHON.format(name=path.name, code=code, log=self.log))
            path.chmod(0o755)

    def wheel(self, **env: str) -> tuple[int, str]:
        """Build; return the exit code and what was printed."""
        environment = {"PATH": str(self.bin), "HOME": str(self.folder), **env}
        script = str(self.folder / "devhost" / "wheel.sh")
        done = subprocess.run([script], cwd="/", env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def done(self) -> list[str]:
        """Return the calls of the stand-ins since the last look, each as far as its first option."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line.partition(" -m ")[0] for line in lines]

    @property
    def wheels(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "dist").iterdir())


def test_an_empty_clone_gets_the_backend_with_its_hashes_and_one_wheel(tmp_path: Path) -> None:
    clone = Clone(tmp_path, python3=0)
    assert clone.wheel() == (0, "dist/tocsin-2.whl\n")
    [pip, build] = clone.log.read_text().splitlines()
    assert "--require-hashes" in pip and "--only-binary :all:" in pip and "-r requirements-build.txt" in pip
    assert build.startswith("python3 builds with .tools/build-")
    assert clone.wheels == ["tocsin-2.whl"]
    assert [path.name.partition("-")[0] for path in (clone.folder / ".tools").iterdir()] == ["build"]


def test_a_repeat_fetches_nothing_until_the_pins_change(tmp_path: Path) -> None:
    clone = Clone(tmp_path, python3=0)
    clone.wheel()
    clone.done()
    assert clone.wheel()[0] == 0
    assert [line.split()[1] for line in clone.done()] == ["builds"]
    (clone.folder / "requirements-build.txt").write_text("a==2\n")
    assert clone.wheel()[0] == 0
    assert [line.split()[1] for line in clone.done()] == ["pip", "builds"]
    assert len(list((clone.folder / ".tools").iterdir())) == 1


def test_a_failed_fetch_leaves_the_older_wheel_and_the_next_run_fetches_again(tmp_path: Path) -> None:
    clone = Clone(tmp_path, python3=0)
    fails = Path(f"{clone.log}.fails")
    fails.touch()
    code, said = clone.wheel()
    assert code == 1 and "requirements-build.txt" in said
    assert clone.wheels == ["tocsin-1.whl"] and list((clone.folder / ".tools").iterdir()) == []
    fails.unlink()
    assert clone.wheel()[0] == 0 and clone.wheels == ["tocsin-2.whl"]


@pytest.mark.parametrize(
    ("pythons", "taken"),
    [
        ({"python3": 1, "python3_13": 0}, "python3.13"),
        ({"python3": 1, "python3_12": 0, "python3_14": 0}, "python3.12"),
        ({"python": 0, "python3_12": 0}, "python"),
    ],
)
def test_it_takes_the_first_python_that_is_new_enough_and_has_pip(pythons: dict[str, int], taken: str, tmp_path: Path) -> None:
    clone = Clone(tmp_path, **pythons)
    assert clone.wheel()[0] == 0
    assert {line.split()[0] for line in clone.done()} == {taken}


def test_without_such_a_python_it_says_what_is_missing_and_keeps_the_older_wheel(tmp_path: Path) -> None:
    clone = Clone(tmp_path, python3=1, python3_12=0)
    code, said = clone.wheel(PYTHON=str(clone.bin / "python3"))
    assert code == 1 and f"Python 3.12 or newer with pip is missing. Looked for: {clone.bin}/python3\n" in said
    assert clone.done() == [] and clone.wheels == ["tocsin-1.whl"]
