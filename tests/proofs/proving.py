"""Several proofs, side by side: each in a process of its own, which loads what the proof needs and nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from tests.paths import ROOT

from .catalogue import Proof
from .certificate import PROVED, Content, differences, file_of, from_text, to_text

MOST_SECONDS = 180.0
"""Seconds of one processor that a proof may take. A longer one is split, so that proving it anew never takes long."""
PYTEST_ARGUMENTS = "PYTEST_ADDOPTS"
CHOSEN_LOOP = "DEVHOST_LOOP"


class Outcome(NamedTuple):
    """The end of one proof. content: None where it has failed. output: all that its process printed."""

    proof: Proof
    content: Content | None
    output: str
    seconds: float
    """Seconds of one processor."""


class Processes:
    """The processes of proofs that run."""

    def __init__(self) -> None:
        self._lock, self._running, self._ended = Lock(), set[subprocess.Popen[bytes]](), False

    def run(self, proof: Proof) -> Outcome:
        """Run one proof to its end. Raise InterruptedError once `end` was called."""
        with tempfile.TemporaryDirectory(prefix="proof-") as folder:
            written, printed = Path(folder, "certificate"), Path(folder, "output")
            with printed.open("wb") as output:
                with self._lock:
                    if self._ended:
                        raise InterruptedError
                    arguments = [sys.executable, "-m", "tests.proofs.running", proof.name, str(written)]
                    process = subprocess.Popen(
                        arguments, cwd=ROOT, env=_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
                    )
                    self._running.add(process)
                _, status, used = os.wait4(process.pid, 0)
            with self._lock:
                process.returncode = os.waitstatus_to_exitcode(status)
                self._running.remove(process)
                if self._ended:
                    raise InterruptedError
            content = from_text(written.read_text()) if process.returncode == 0 else None
            return Outcome(proof, content, printed.read_text(errors="replace"), used.ru_utime + used.ru_stime)

    def end(self) -> None:
        """End the processes that run, and start no more."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.kill()


def _environment() -> dict[str, str]:
    """Return the environment without what changes a proof's modules. The hash seed differs each time: proofs do not depend on it."""
    left_out = (PYTEST_ARGUMENTS, CHOSEN_LOOP, "PYTHONHASHSEED", "PYTEST_PLUGINS")
    return {name: value for name, value in os.environ.items() if name not in left_out} | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def prove_all(proofs: Sequence[Proof], jobs: int, ended: Callable[[Outcome], None]) -> None:
    """Prove them in `jobs` processes at a time. Call `ended` for each, in the order in which they end."""
    processes = Processes()
    telling = Lock()

    def run(proof: Proof) -> None:
        outcome = processes.run(proof)
        with telling:
            ended(outcome)

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        waiting = [pool.submit(run, proof) for proof in proofs]
        try:
            for each in waiting:
                each.result()
        except BaseException:
            processes.end()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def write(content: Content, proof: Proof, proved: Path = PROVED) -> None:
    """Write the certificate: wholly or, where this process is ended meanwhile, not at all."""
    file = file_of(proof, proved)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    draft.write_text(to_text(content))
    draft.replace(file)


def compare(outcome: Outcome, proved: Path = PROVED) -> list[str]:
    """Return the differences between the certificate and what was proved now."""
    if outcome.content is None:
        return ["it fails now"]
    return differences(from_text(file_of(outcome.proof, proved).read_text()), outcome.content)


def orphans(proofs: Iterable[Proof], proved: Path = PROVED) -> Iterator[Path]:
    """Yield the certificates of proofs that there are no more."""
    known = {file_of(each, proved) for each in proofs}
    for file in sorted(proved.rglob("*")):
        if file.is_file() and file not in known:
            yield file


def choose(proofs: Iterable[Proof], number: int, commit: str) -> list[Proof]:
    """Return `number` of the proofs: others for each commit, and the same ones wherever the commit is checked."""
    return sorted(proofs, key=lambda proof: hashlib.sha256(f"{commit} {proof.name}".encode()).digest())[:number]
