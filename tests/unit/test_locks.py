"""requirements*.txt pin the wanted packages and all that these require, nothing else, with hashes. `make lock` writes them.

The closure follows from the metadata of the installed distributions, for every platform; nothing is fetched.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devhost.dependencies.locks import Environment, LockError, chosen, chosen_on_nodes, pins_of, requires
from tests.paths import ROOT

PLATFORMS = [
    {"sys_platform": system, "platform_system": name, "os_name": os_name, "platform_machine": machine}
    for system, name, os_name, machines in [
        ("linux", "Linux", "posix", ["x86_64", "aarch64"]),
        ("darwin", "Darwin", "posix", ["x86_64", "arm64"]),
        ("win32", "Windows", "nt", ["AMD64"]),
    ]
    for machine in machines
]


def environments(*pythons: str) -> list[Environment]:
    return [Environment(python, platform) for python in pythons for platform in PLATFORMS]


def chosen_in(name: str) -> list[Requirement]:
    """Return the requirements that the file names."""
    if name != "pyproject.toml":
        return chosen(ROOT / name)
    return chosen_on_nodes(ROOT / name)


def problems(text: str, wanted: Iterable[Requirement], where: Iterable[Environment], left_out: frozenset[str] = frozenset()) -> set[str]:
    """Return how a lock differs from the wanted packages and all that these require."""
    pins, wanted = pins_of(text), list(wanted)
    found, reached = set(), set()
    for environment in where:
        waiting = [(each, "what is chosen") for each in wanted if environment.takes(each.marker)]
        done = set()
        while waiting:
            requirement, by = waiting.pop()
            name = canonicalize_name(requirement.name)
            if name in left_out:
                continue
            pin = pins.get(name)
            if pin is None or not environment.takes(pin.requirement.marker):
                found.add(f"{name} is missing, required by {by}")
                continue
            if not requirement.specifier.contains(pin.version, prereleases=True):
                found.add(f"{name} {pin.version} does not satisfy {requirement}, required by {by}")
            reached.add(name)
            for extra in {"", *requirement.extras} - {each for known, each in done if known == name}:
                done.add((name, extra))
                needed = requires(name, pin.version, pin.requirement.marker)
                waiting += [(each, name) for each in needed if environment.takes(each.marker, extra)]
    return found | {f"{name} is pinned, and nothing requires it" for name in pins.keys() - reached}


_BESIDE = pins_of((ROOT / "requirements-dev.txt").read_text())
# By lock: the file with the wanted packages, the versions of Python, and packages that are left out. pip comes with every virtual
# environment, so requirements-dev.txt leaves it out; requirements-generators.txt is installed beside requirements-dev.txt.
LOCKS = {
    "requirements.txt": ("requirements.in", environments("3.13"), frozenset[str]()),
    **{
        f"requirements-{group}.txt": (f"requirements-{group}.in", environments("3.13"), frozenset({"pip"}))
        for group in ("dev", "run", "docs", "audit")
    },
    "requirements-agent.txt": ("pyproject.toml", environments("3.12", "3.13", "3.14"), frozenset[str]()),
    "requirements-build.txt": ("requirements-build.in", environments("3.12", "3.13", "3.14"), frozenset[str]()),
    "requirements-generators.txt": ("requirements-generators.in", environments("3.13"), frozenset(_BESIDE)),
    "requirements-nodejs.txt": ("requirements-nodejs.in", environments("3.13"), frozenset[str]()),
}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_the_closure_of_what_is_chosen_and_nothing_else(lock: str) -> None:
    source, where, left_out = LOCKS[lock]
    assert problems((ROOT / lock).read_text(), chosen_in(source), where, left_out) == set(), "run `make lock`"


def test_every_lock_is_looked_at() -> None:
    assert {path.name for path in ROOT.glob("requirements*.txt")} == set(LOCKS)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (r"^aiohttp==.*?^(?=\w)", "", "aiohttp is missing, required by what is chosen"),
        (r"^aiohttp==\S+", "aiohttp==3.14.4", "3.14.5 is installed, 3.14.4 is pinned"),
        (r"^multidict==.*?^(?=\w)", "", "multidict is missing, required by"),
        (r"^multidict==(\S+)", r"multidict==\1 ; sys_platform == 'darwin'", "multidict is missing, required by"),
        (r"^(?=yarl==)", f"orphan==1.0 --hash=sha256:{'0' * 64}\n", "orphan is pinned, and nothing requires it"),
        (r"^(?=yarl==)", "orphan==1.0\n", "no hash: orphan"),
        (r"^(?=yarl==)", f"orphan>=1.0 --hash=sha256:{'0' * 64}\n", "not pinned: orphan"),
        (r"^--require-hashes\n", "", "uv would take a line without a hash"),
    ],
)
def test_a_lock_that_was_not_written_anew_is_noticed(old: str, new: str, problem: str) -> None:
    text = (ROOT / "requirements.txt").read_text()
    changed = re.sub(old, new, text, count=1, flags=re.MULTILINE | re.DOTALL)
    assert changed != text
    source, where, left_out = LOCKS["requirements.txt"]
    try:
        found = problems(changed, chosen_in(source), where, left_out)
    except LockError as error:
        found = {str(error)}
    assert any(problem in each for each in found), found


def test_a_choice_that_the_pin_does_not_satisfy_is_noticed() -> None:
    text = (ROOT / "requirements.txt").read_text()
    wanted = [*chosen_in("requirements.in"), Requirement("idna<1"), Requirement("pydantic[email]")]
    found = problems(text, wanted, environments("3.13"))
    assert {each.partition(", ")[2] for each in found} == {"required by what is chosen", "required by pydantic"}
    assert any(each.startswith("email-validator is missing") for each in found)


def test_what_is_tested_is_what_is_deployed_and_what_nodes_and_targets_get() -> None:
    tested = pins_of((ROOT / "requirements-dev.txt").read_text())
    for lock in LOCKS.keys() - {"requirements-dev.txt", "requirements-generators.txt", "requirements-nodejs.txt"}:
        for name, pin in pins_of((ROOT / lock).read_text()).items():
            assert pin.version == tested[name].version and set(tested[name].hashes) <= set(pin.hashes), f"{lock}: {name}"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_library_with_a_build_for_each_platform_has_the_hashes_of_several(lock: str) -> None:
    for name, pin in pins_of((ROOT / lock).read_text()).items():
        try:
            wheel = distribution(name).read_text("WHEEL") or ""
        except PackageNotFoundError:
            continue
        if "-none-any" not in wheel:
            assert len(pin.hashes) >= 4, f"{name}: only {len(pin.hashes)} files, so the lock is of one platform"


def test_the_wheel_is_built_with_the_pinned_tool() -> None:
    [builder] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert builder in (ROOT / "requirements-build.in").read_text().splitlines()
