"""Runs of small suites by tests/run.py, as `make test` and `make slow` start it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from devhost.azurite import ROOT
from tests import waiting

CALL = """
import os, sys
from pathlib import Path
from tests import run
run.DRIVEN, run.COMPUTING = ["driven"], ["computing"]
run.Run.__init__.__defaults__ = (run.DRIVEN, run.COMPUTING)
os.cpu_count = lambda: 1
run.NICE = 0  # beside the competitors of a slow run, the lowest priority gets next to nothing
run.COMPETITORS = int(os.environ.get("COMPETITORS", run.COMPETITORS))
sys.exit(run.main(sys.argv[1:]))
"""
# Most of a small run is the loading of plugins that it does not need.
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
FINE = "def test_fine() -> None:\n    pass\n"
# Passes the second time.
SLOW_ONCE = """
from pathlib import Path
from tests.waiting import wait_until

def test_slow_once() -> None:
    before = Path("ran").exists()
    Path("ran").touch()
    wait_until(lambda: before, "the second time", deadline=0)
"""


class Suite:
    """A repository with tests in `driven` and in `computing`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        addopts = "--import-mode=importlib -p no:cacheprovider -p xdist.plugin"
        (folder / "pytest.ini").write_text(f"[pytest]\naddopts = {addopts}\nmarkers = long\n")
        self.write("driven/test_fine.py", FINE)
        self.write("computing/test_fine.py", FINE)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(dedent(text))

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", CALL, *arguments],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **QUICK, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """The exit code, and what was printed."""
        with self.start(*arguments, **environment) as process:
            output, _ = waiting.all_output(process, "the run")
            return process.returncode, output


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_a_wait_that_ran_out_is_repeated_alone_and_told_at_the_end_in_full(suite: Suite) -> None:
    suite.write("driven/test_slow.py", SLOW_ONCE)
    code, text = suite.run("1")
    assert code == 0, text
    told = text[text.rindex("= UNSTABLE driven/test_slow.py::test_slow_once") :]
    assert "still waiting after 0 s for: the second time" in told and 'before = Path("ran").exists()' in told
    assert told.splitlines()[-1] == "tests/run.py: 2 passed, 0 failed, 0 skipped, 1 unstable: exit code 0"


def test_a_test_that_fails_or_is_skipped_when_it_is_repeated_fails_the_run(suite: Suite) -> None:
    suite.write("driven/test_slow.py", SLOW_ONCE + "    assert 1 == 2\n")
    suite.write("driven/test_skipped.py", SLOW_ONCE.replace('"ran"', '"skipped_ran"') + "    import pytest\n    pytest.skip('later')\n")
    code, text = suite.run("1")
    assert code == 1 and "assert 1 == 2" in text, text
    failed = re.findall(r"^FAILED (driven/\S+) failed alone too$", text, re.MULTILINE)
    assert sorted(failed) == ["driven/test_skipped.py::test_slow_once", "driven/test_slow.py::test_slow_once"], text
    assert "UNSTABLE" not in text


OTHER = {
    "ends_wrong": "import pytest\n@pytest.fixture\ndef it():\n    yield\n    assert 1 == 2\ndef test_it(it):\n    ran_out('x', 0, 0)\n",
    "logs": "import sys\ndef test_it():\n    print('Traceback (most recent call last)', file=sys.stderr)\n    ran_out('x', 0, 0)\n",
    "output": "from tests.logs import watch\ndef test_it(tmp_path):\n    output = watch(tmp_path / 'output')\n"
    "    output.write_text('Traceback (most recent call last)')\n    ran_out('x', 0, 0)\n",
    "z_process_ends": "import os\ndef test_it():\n    os._exit(1)\n",
}
"""Faults beside a wait that ran out."""


def test_another_fault_beside_the_wait_and_any_fault_of_a_test_that_computes_fail_the_run_at_once(suite: Suite) -> None:
    for name, source in OTHER.items():
        suite.write(f"driven/test_{name}.py", f"from tests.waiting import ran_out\n{source}")
    suite.write("computing/test_slow.py", SLOW_ONCE)
    suite.write("driven/test_slow.py", SLOW_ONCE.replace('"ran"', '"driven_ran"'))
    code, text = suite.run("1")
    faults = dict(re.findall(r"^FAILED (\w+/\w+)\.py::\w+: (.*)$", text, re.MULTILINE))
    assert code == 1 and faults.keys() == {*(f"driven/test_{name}" for name in OTHER), "computing/test_slow", "driven/test_slow"}, text
    assert faults["driven/test_slow"].startswith("not repeated") and faults["computing/test_slow"].startswith("a wait ran out")
    assert "UNSTABLE" not in text and "alone too" not in text


def test_a_file_that_cannot_be_collected_fails_the_run(suite: Suite) -> None:
    suite.write("driven/test_it.py", "from tests.waiting import ran_out\nran_out('x', 0, 0)\n")
    code, text = suite.run("1")
    assert code == 1 and "FAILED driven/test_it.py: it could not be collected" in text, text


def test_a_fixture_that_does_not_start_fails_a_file_of_three_tests(suite: Suite) -> None:
    source = (
        "import pytest\nfrom devhost.starting import DidNotStart\n@pytest.fixture(scope='module')\ndef it():\n    raise DidNotStart('x')\n"
    )
    suite.write("driven/test_started.py", source + "".join(f"def test_{name}(it):\n    pass\n" for name in "abc"))
    code, text = suite.run("1")
    assert code == 1 and "FAILED 3 tests are unstable, and at most 2 may be" in text, text


def competing(group: int) -> int:
    """Return the number of processes of this group that compute."""
    found = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_text().rpartition(")")[2].split()
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        found += int(state[2]) == group and state[0] != "Z" and b"os.getppid() == parent" in command
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_slow_run_competes_for_each_core_until_it_is_ended(suite: Suite, number: signal.Signals) -> None:
    with suite.start("--slow", "1") as process:
        try:
            waiting.wait_until(lambda: competing(process.pid) == 3, "three competing processes")
            if number == signal.SIGINT:
                os.killpg(process.pid, number)  # as a terminal does
            else:
                process.send_signal(number)
            waiting.wait_until(lambda: competing(process.pid) == 0, "the end of the competing processes")
            if number != signal.SIGKILL:
                assert waiting.ended(process, "the run") == 128 + number
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_slow_run_repeats_nothing(suite: Suite) -> None:
    suite.write("driven/test_slow.py", SLOW_ONCE)
    code, text = suite.run("--slow", "1", COMPETITORS="0")
    assert code == 1 and "FAILED driven/test_slow.py::test_slow_once: a wait ran out" in text, text
    assert "computing" not in text
    code, text = suite.run("--slow", "1", "-k", "fine", COMPETITORS="0")
    assert code == 0 and text.endswith("tests/run.py: 1 passed, 0 failed, 0 skipped, 0 unstable: exit code 0\n")
