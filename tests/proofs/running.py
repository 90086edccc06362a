"""One proof, in a process of its own: `python -m tests.proofs.running NAME FILE` writes what the certificate says to FILE.

The process loads what the proof needs and nothing else, so that its modules are those that the proof depends on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

from . import facts
from .catalogue import Proof, find_proofs, named
from .certificate import FORMAT, PYTHON, Content, normalised, pins, to_text
from .trees import TreeHashes, hash_of

OURS = "tests.proofs"
"""This package is left out of certificates: what it writes has a number (`FORMAT`), and tests of its own."""
STARTED = time.time()
EXIT_FAILED = 1


class Reads:
    """The files of the repository that this process opens, apart from those of Python's imports."""

    def __init__(self, root: Path) -> None:
        self._root, self._seen = f"{root}{os.sep}", set[str]()
        self.listening = False

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a file that is opened to be read: an audit hook."""
        if event != "open" or not self.listening:
            return
        path, _, flags = arguments
        if isinstance(path, str | os.PathLike) and not flags & (os.O_WRONLY | os.O_RDWR):
            full = os.path.abspath(os.fspath(path))
            if isinstance(full, str) and full.startswith(self._root):
                self._seen.add(full.removeprefix(self._root))

    def forget(self, path: str) -> None:
        self._seen.discard(path)

    def files(self, modules: Iterable[str]) -> list[str]:
        """Return the paths that are neither of these modules nor what tools keep for themselves."""
        return sorted({each for each in self._seen if not _of_tools(each)} - {*modules})


def _of_tools(path: str) -> bool:
    parts = path.split(os.sep)
    return any(part.startswith(".") or part in ("__pycache__", "node_modules", "build") for part in parts)


class Recorder:
    """A plugin of pytest that chooses the cases of one part, and takes down the outcome and the facts of each."""

    def __init__(self, proof: Proof, reads: Reads) -> None:
        self._proof, self._reads = proof, reads
        self.cases: dict[str, dict[str, Any]] = {}
        self.failed: list[str] = []

    def pytest_configure(self) -> None:
        # What pytest has read of it, the options of the command line would change as well.
        self._reads.forget("pyproject.toml")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        mine = items[self._proof.part - 1 :: self._proof.parts]
        config.hook.pytest_deselected(items=[each for each in items if each not in mine])
        items[:] = mine

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        facts.take()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        name = item.nodeid.partition("::")[2]
        if report.when == "call" and report.passed:
            self.cases[name] = {"verdict": "holds"} | facts.take()
        elif not report.passed:
            # A case that is left out proves as little as one that fails.
            self.failed.append(f"{name}: {report.outcome}")
        return report


def prove(proof: Proof, root: Path = ROOT) -> tuple[Content | None, str]:
    """Run the proof in this process. Return what its certificate says, or None and the reason why there is none."""
    reads = Reads(root)
    sys.addaudithook(reads.hear)
    recorder = Recorder(proof, reads)
    # Further plugins would load packages that the proof does not need.
    arguments = ["-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", "-q", "--no-header", str(proof.path)]
    reads.listening = True
    status = pytest.main(arguments, plugins=[recorder])
    reads.listening = False
    if recorder.failed or status != pytest.ExitCode.OK:
        return None, "\n".join(recorder.failed) or f"pytest ended with {status!r}"
    modules = modules_within(root)
    files = reads.files(modules)
    changed = [path for path in [*modules, *files] if (root / path).stat().st_mtime > STARTED]
    if changed:
        return None, f"{changed[0]} was changed while it was proved"
    trees = TreeHashes()
    content = {
        "cases": recorder.cases,
        "files": {each: hash_of((root / each).read_bytes()) for each in files},
        "format": FORMAT,
        "modules": {path: trees.of(root / path) for path in modules},
        "parts": proof.parts,
        "pins": dict(loaded_pins()),
        "proof": proof.name,
        "python": PYTHON,
    }
    return content, ""


def modules_within(root: Path) -> list[str]:
    """Return the path of each loaded module of the repository."""
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name == OURS or name.startswith(f"{OURS}.") or name == "__main__":
            continue
        path = Path(file)
        if path.is_relative_to(root) and path.suffix == ".py" and not _of_tools(path.relative_to(root).as_posix()):
            found.add(path.relative_to(root).as_posix())
    return sorted(found)


def loaded_pins() -> Iterator[tuple[str, str]]:
    """Yield name and version of each pinned package of which a module is loaded."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    by_module, pinned = packages_distributions(), pins()
    for package in {each for name in loaded for each in by_module.get(name, ())}:
        if normalised(package) in pinned:
            yield normalised(package), version(package)


def main() -> int:
    """0 with the content of a certificate in the file; 1 and the reason, last on stdout, without."""
    name, file = sys.argv[1:]
    [proof] = named(find_proofs(), name)
    content, reason = prove(proof)
    if content is None:
        print(reason)
        return EXIT_FAILED
    Path(file).write_text(to_text(content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
