"""Every test that is not marked long, in two runs of pytest at once: `python -m tests.run JOBS [further arguments of pytest]`.

The tests that drive processes, browsers and sockets wait most of their time: they run in JOBS processes. The others only compute: they run
in half as many, at the lowest priority, in the time that the first leave.

A driven test whose wait ran out, or whose port, browser or emulator did not start (tests/verdicts.py), runs once more at the end, alone
and in a fresh process. If it passes then, the run reports it as UNSTABLE and may still pass, with at most two of them. Every other failure
fails the run, in the repetition too.

`--slow` runs the driven tests alone, beside three processes for each core that compute, and repeats nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn

from .verdicts import Failure, Verdicts

DRIVEN = ("tests/browser", "tests/conformance", "tests/integration")
COMPUTING = ("tests/model", "tests/simulation", "tests/unit")
UNSTABLE_MAX = 2
COMPETITORS = 3
"""Competing processes for each core, in a slow run."""
NICE = 19
"""Priority of the tests that compute: the lowest."""
INTERRUPTED = 30.0
"""Seconds that pytest has for its end after Ctrl-C."""
NO_TESTS = 5
"""Exit code of pytest when no test was selected, which is an error only where that holds for both runs."""

_PYTEST = (sys.executable, "-m", "pytest", "-p", "tests.verdicts")
# It ends by itself when its parent has, however that ended.
_COMPETE = "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent:\n    sum(i * i for i in range(100_000))\n"


@dataclass
class Result:
    """The result of one run of pytest. verdicts: None if it ended without any."""

    code: int
    verdicts: Verdicts | None

    @property
    def failures(self) -> list[Failure]:
        return [] if self.verdicts is None else self.verdicts.failures

    @property
    def broken(self) -> str:
        """The fault of a run that ended otherwise than by its tests, or nothing."""
        if self.code not in (0, 1, NO_TESTS) or self.verdicts is None:
            return f"pytest ended with {self.code}"
        return f"pytest ended with {self.code} and named no failure" if self.code == 1 and not self.failures else ""


@dataclass
class Decision:
    """The decision on a run, before any test is repeated."""

    faults: list[str] = field(default_factory=list)
    """Reasons for which the run has failed."""
    repeat: list[Failure] = field(default_factory=list)
    """The tests to repeat. None if the run has failed."""


def decide(driven: Result, computing: Result | None, repeats: bool = True) -> Decision:
    """Return the tests to repeat, or why the run has failed. computing: None in a slow run."""
    runs = [(driven, repeats), *([(computing, False)] if computing is not None else [])]
    faults = [result.broken for result, _ in runs if result.broken]
    repeat: list[Failure] = []
    for result, repeatable in runs:
        for failure in result.failures:
            if not failure.repeatable:
                faults.append(f"{failure.name}: {'; '.join(dict.fromkeys(failure.reasons))}")
            elif not repeatable:
                faults.append(f"{failure.name}: a wait ran out or something did not start, and tests of this run are never repeated")
            else:
                repeat.append(failure)
    if all(result.code == NO_TESTS for result, _ in runs):
        faults.append("no test was selected")
    if len(repeat) > UNSTABLE_MAX:
        names = ", ".join(failure.name for failure in repeat)
        faults.append(f"{len(repeat)} tests are unstable, and at most {UNSTABLE_MAX} may be; a failed fixture counts for each: {names}")
    elif faults:
        faults += [f"{failure.name}: not repeated, for the run has failed anyhow" for failure in repeat]
    return Decision(faults, [] if faults else repeat)


class Run:
    """The runs of pytest in one repository."""

    def __init__(
        self, root: Path, jobs: int, arguments: Sequence[str], driven: Sequence[str] = DRIVEN, computing: Sequence[str] = COMPUTING
    ) -> None:
        self._root, self._jobs, self._arguments = root, jobs, arguments
        self._driven, self._computing = driven, computing
        self._started: list[subprocess.Popen[bytes]] = []
        self._competing: list[subprocess.Popen[bytes]] = []

    def ordinary(self) -> int:
        """Both runs and the repetitions; the exit code."""
        with tempfile.TemporaryDirectory() as name, self._ending():
            folder = Path(name)
            with (folder / "computing.txt").open("w+b") as output:
                computing = self._start(folder / "computing.json", (self._jobs + 1) // 2, self._computing, output, nice=NICE)
                driven = self._result(self._start(folder / "driven.json", self._jobs, self._driven), folder / "driven.json")
                print(f"tests/run.py: the tests that only compute ({', '.join(self._computing)}):", flush=True)
                computed = self._result(computing, folder / "computing.json")
                output.seek(0)
                _show(output)
            decision = decide(driven, computed)
            unstable = []
            for number, failure in enumerate(decision.repeat):
                if fault := self._repeat(failure, folder / f"repeated{number}"):
                    decision.faults.append(fault)
                else:
                    unstable.append(failure)
            return _conclude([driven, computed], unstable, decision.faults)

    def slow(self) -> int:
        """The driven tests beside processes that compute; the exit code."""
        with tempfile.TemporaryDirectory() as name, self._ending():
            for _ in range(COMPETITORS * (os.cpu_count() or 1)):
                self._competing.append(subprocess.Popen([sys.executable, "-c", _COMPETE, str(os.getpid())], stdin=subprocess.DEVNULL))
            path = Path(name) / "driven.json"
            driven = self._result(self._start(path, self._jobs, self._driven), path)
            return _conclude([driven], [], decide(driven, None, repeats=False).faults)

    def _start(
        self, verdicts: Path, jobs: int, folders: Sequence[str], output: IO[bytes] | None = None, nice: int = 0
    ) -> subprocess.Popen[bytes]:
        command = [*_PYTEST, f"--verdicts={verdicts}", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not long", "-n", str(jobs)]
        # A process that a test has ended is a fault, and xdist may wait for ever for the one that would replace it.
        command.append("--max-worker-restart=0")
        prefix = ["nice", "-n", str(nice)] if nice else []
        return self._spawn([*prefix, *command, *folders, *self._arguments], output)

    def _spawn(self, command: Sequence[str], output: IO[bytes] | None) -> subprocess.Popen[bytes]:
        errors = subprocess.STDOUT if output is not None else None
        process = subprocess.Popen(command, cwd=self._root, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        self._started.append(process)
        return process

    def _result(self, process: subprocess.Popen[bytes], verdicts: Path) -> Result:
        code = process.wait()
        return Result(code, Verdicts.read(verdicts) if verdicts.exists() else None)

    def _repeat(self, failure: Failure, path: Path) -> str:
        """Run one test alone. Return why the run has failed, or nothing."""
        with path.with_suffix(".txt").open("w+b") as output:
            process = self._spawn([*_PYTEST, f"--verdicts={path}", failure.name], output)
            again = self._result(process, path)
            if again.code == 0 and again.verdicts is not None and again.verdicts.passed and not again.failures:
                return ""
            print(f"tests/run.py: {failure.name} failed first with:\n{_texts(failure)}\nand, alone, with:", flush=True)
            output.seek(0)
            _show(output)
        return f"{failure.name} failed alone too"

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """End what was started, however this ends."""
        grace = 0.0
        try:
            yield
        except KeyboardInterrupt:
            grace = INTERRUPTED  # the terminal has interrupted pytest too, which ends the processes of its tests
            raise
        finally:
            for process in self._competing:
                process.kill()
            ends_at = time.monotonic() + grace
            for process in self._started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, ends_at - time.monotonic()))
                if process.poll() is None:
                    process.terminate()
            for process in (*self._competing, *self._started):
                process.wait()


def _texts(failure: Failure) -> str:
    return "\n".join(failure.texts)


def _show(output: IO[bytes]) -> None:
    sys.stdout.buffer.write(output.read())
    sys.stdout.flush()


def _conclude(results: Sequence[Result], unstable: Sequence[Failure], faults: Sequence[str]) -> int:
    """Print the end of a run; the exit code."""
    for failure in unstable:
        print(f"{'=' * 30} UNSTABLE {failure.name}\nIt passed alone. It had failed with:\n{_texts(failure)}")
    for failure in unstable:
        print(f"UNSTABLE {failure.name}")
    for fault in faults:
        print(f"FAILED {fault}")
    found = [result.verdicts for result in results if result.verdicts is not None]
    code = 1 if faults else 0
    print(
        f"tests/run.py: {sum(each.passed for each in found)} passed, {sum(len(each.failures) for each in found) - len(unstable)} failed, "
        f"{sum(each.skipped for each in found)} skipped, {len(unstable)} unstable: exit code {code}",
        flush=True,
    )
    return code


def _terminated(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    slow = bool(arguments) and arguments[0] == "--slow"
    jobs, *more = arguments[slow:]
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts this in the background has it ignored
    run = Run(Path.cwd(), int(jobs), more)
    try:
        return run.slow() if slow else run.ordinary()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
