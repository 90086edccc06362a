"""The set-up's progress, and the sizes that it and the README name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devhost.dependencies.sizes import measured
from devhost.setup_progress import packages_of, pip_line, sizes
from tests.paths import ROOT

COLLECTED = "Collecting a==1\n  Downloading a-1.whl (1.2 MB)\nRequirement already satisfied: b==2 in x\nCollecting c==3\n"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "0 of 9 packages fetched"),
        (COLLECTED, "3 of 9 packages fetched"),
        (f"{COLLECTED}Installing collected packages: a, b, c\n", "4 of 9 packages installed, 50 of 80 MB"),
    ],
)
def test_a_line_says_how_many_packages_of_all_are_there(log: str, line: str) -> None:
    assert pip_line(log, 4, 9, 50, 80) == line


def test_a_line_never_shows_more_than_all() -> None:
    assert pip_line("Installing collected packages: a", 12, 9, 90, 80) == "9 of 9 packages installed, 80 of 80 MB"


def test_packages_for_other_systems_do_not_count(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("--require-hashes\na==1 \\\n    --hash=sha256:00\nb[c]==2\nd==3 ; sys_platform == 'win32'\n    # via e==4\n")
    assert packages_of([lock]) == 2


def test_the_sizes_are_those_of_what_is_installed() -> None:
    for part, size in measured().items():
        assert abs(sizes()[part] - size) <= 0.1 * size, f"{part}: {size} MB: run `python -m devhost.dependencies.sizes`"


def test_the_readme_names_the_size_of_the_first_set_up() -> None:
    named = re.findall(r"`make run`[^\n]*? about (\d+) MB", (ROOT / "README.md").read_text())
    expected = sizes()["run"] + sizes()["node_modules"]
    assert [abs(int(size) - expected) <= 0.1 * expected for size in named] == [True], f"about {expected} MB"
