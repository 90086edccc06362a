"""Hooks are processes with a deadline: they get their event twice, are ended with all they started, and never hold the agent up."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.maintenance.agent.hooks.runner import KEPT, LONGEST_VARIABLE, Hook, HookResult, ProcessRunner, RunningHook, environment_of
from tests.paths import ROOT

BUSY = 60.0
EVENT: dict[str, Any] = {"event_id": "f1", "event_type": "Freeze", "resources": ["vm_1", "vm_2"], "not_before": None, "rehearsal": False}


def sh(script: str, *, deadline: float = BUSY, **more: str) -> Hook:
    return Hook(("sh", "-c", script), deadline=deadline, environment=more)


def python(script: str) -> Hook:
    return Hook((sys.executable, "-c", script), deadline=BUSY)


class Hooks:
    """Runs hooks and waits for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes = ProcessRunner(folder, grace=0.5)
        self.ended: queue.SimpleQueue[HookResult] = queue.SimpleQueue()

    def start(self, hook: Hook, event: dict[str, Any] | None = None) -> RunningHook:
        return self.processes.start("prepare", hook, EVENT if event is None else event, self.ended.put)

    def run(self, hook: Hook, event: dict[str, Any] | None = None) -> HookResult:
        self.start(hook, event)
        return self.end()

    def end(self) -> HookResult:
        return self.ended.get(timeout=BUSY)


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    return Hooks(tmp_path / "hooks")


def until[T](look: Callable[[], T], what: str) -> T:
    end = time.monotonic() + BUSY
    while not (found := look()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return found


def alive(pid: int) -> bool:
    """Return true if the process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_hook_that_ends_with_0_is_done_and_its_output_is_kept(hooks: Hooks) -> None:
    ran = hooks.run(sh("echo out; echo err >&2"))
    assert (ran.outcome, ran.code, ran.output) == ("done", 0, "out\nerr\n") and ran.seconds >= 0
    assert list(hooks.folder.iterdir()) == []


def test_hook_that_ends_with_another_code_failed(hooks: Hooks) -> None:
    assert (ran := hooks.run(sh("echo no; exit 3"))).outcome == "failed" and (ran.code, ran.output) == (3, "no\n")


def test_command_that_is_not_there_failed_and_says_so(hooks: Hooks) -> None:
    ran = hooks.run(Hook(("/no/such/program",)))
    assert (ran.outcome, ran.code) == ("failed", 127) and "/no/such/program" in ran.output


def test_hook_finds_its_event_on_stdin_and_in_its_environment(hooks: Hooks) -> None:
    script = "cat; echo; echo $TOCSIN_HOOK $TOCSIN_EVENT_ID $TOCSIN_DEADLINE_SECONDS [$TOCSIN_NOT_BEFORE] $TOCSIN_RESOURCES $MINE"
    event, _, line = hooks.run(sh(script, MINE="own")).output.partition("\n")
    assert json.loads(event) == EVENT
    assert line == 'prepare f1 60 [] ["vm_1", "vm_2"] own\n'


def test_hook_does_not_see_the_agents_key(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_KEY", "a-secret-key")
    monkeypatch.setenv("OTHER", "seen")
    assert hooks.run(sh("env")).output.count("seen") == 1
    assert "a-secret-key" not in hooks.run(sh("env")).output


def test_event_with_ten_thousand_resources_still_starts_its_hook(hooks: Hooks) -> None:
    event = EVENT | {"resources": [f"a-machine-with-a-long-name_{number}" for number in range(10_000)]}
    assert "TOCSIN_RESOURCES" not in environment_of("prepare", Hook(), event, {})
    assert len(json.dumps(event["resources"])) > LONGEST_VARIABLE
    assert hooks.run(sh("wc -c"), event).output.strip() == str(len(json.dumps(event)))


def test_hook_that_never_reads_its_stdin_is_no_trouble(hooks: Hooks) -> None:
    assert hooks.run(sh("true"), EVENT | {"description": "x" * 1_000_000}).outcome == "done"


def test_only_the_end_of_a_long_output_is_kept(hooks: Hooks) -> None:
    ran = hooks.run(python("print('x' * 1_000_000); print('the end')"))
    assert len(ran.output) == KEPT and ran.output.endswith("x\nthe end\n")


def test_output_that_is_no_text_is_kept_readable(hooks: Hooks) -> None:
    assert hooks.run(sh("printf '\\377ok'")).output == "\ufffdok"


def test_hook_past_its_deadline_is_ended(hooks: Hooks) -> None:
    ran = hooks.run(sh("sleep 1000", deadline=0.1))
    assert (ran.outcome, ran.code) == ("late", -signal.SIGTERM) and ran.seconds >= 0.1


def test_hook_that_is_stopped_is_ended_with_all_it_started(hooks: Hooks, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    run = hooks.start(sh(f"sleep 1000 & echo $!; touch {mark}; wait"))
    until(mark.exists, "it has begun")
    run.stop()
    ran = hooks.end()
    assert (ran.outcome, ran.code) == ("stopped", -signal.SIGTERM)
    until(lambda: not alive(int(ran.output)), "the child is gone")


def test_hook_that_ignores_sigterm_is_killed_after_the_grace(hooks: Hooks, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    run = hooks.start(sh(f"trap '' TERM; touch {mark}; while true; do sleep 1000; done"))
    until(mark.exists, "it has begun")
    run.stop()
    ran = hooks.end()
    assert (ran.outcome, ran.code) == ("stopped", -signal.SIGKILL)


def test_hook_that_is_stopped_may_tidy_up(hooks: Hooks, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    run = hooks.start(sh(f"trap 'echo tidied; exit 7' TERM; touch {mark}; sleep 1000 & wait"))
    until(mark.exists, "it has begun")
    run.stop()
    assert (ran := hooks.end()).outcome == "stopped" and (ran.code, ran.output) == (7, "tidied\n")
    run.stop()


def test_hook_that_is_stopped_before_it_began_ends_as_stopped(hooks: Hooks) -> None:
    hooks.start(sh("sleep 1000")).stop()
    assert hooks.end().outcome == "stopped"


def test_process_left_in_the_background_neither_holds_the_hook_up_nor_is_ended(hooks: Hooks) -> None:
    ran = hooks.run(sh("sleep 1000 & echo $!"))
    pid = int(ran.output)
    assert ran.outcome == "done" and alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_hook_that_closes_its_output_early_is_waited_for(hooks: Hooks, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert hooks.run(sh(f"echo first; exec >/dev/null 2>&1; sleep 0.2; touch {mark}; exit 4")).code == 4
    assert mark.exists()


def test_callable_gets_the_event_in_a_process_of_its_own(hooks: Hooks, tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(
        "import os\n"
        "def leave(event): print(event['event_id'], os.getpid())\n"
        "def refuse(event): return False\n"
        "def break_down(event): raise RuntimeError('broken')\n"
    )
    done, no, broken = (hooks.run(Hook(call=f"ours:{name}", path=str(tmp_path))) for name in ("leave", "refuse", "break_down"))
    assert done.outcome == "done" and done.output.startswith("f1 ") and str(os.getpid()) not in done.output
    assert (no.outcome, broken.outcome) == ("failed", "failed") and "RuntimeError: broken" in broken.output


def test_callable_that_is_not_there_failed_and_says_so(hooks: Hooks) -> None:
    assert (ran := hooks.run(Hook(call="no_such_module:f"))).outcome == "failed" and "no_such_module" in ran.output


def test_hook_that_could_not_be_noted_never_begins(hooks: Hooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def fail(pid: int) -> str:
        begun.append(pid)
        raise OSError("no space left")

    monkeypatch.setattr("shared.maintenance.agent.hooks.runner._birth", fail)
    ran = hooks.run(sh(f"touch {tmp_path}/mark"))
    assert (ran.outcome, ran.code) == ("failed", None) and "no space left" in ran.output
    until(lambda: not alive(begun[0]), "it is gone")
    assert not (tmp_path / "mark").exists() and list(hooks.folder.iterdir()) == []


LEAVING = """
import os, sys, time
from pathlib import Path
from shared.maintenance.agent.hooks.runner import Hook, ProcessRunner
folder = Path(sys.argv[1])
ProcessRunner(folder).start("prepare", Hook(("sh", "-c", f"echo $$ > {folder}/../pid; sleep 1000"), deadline=60), {}, print)
while not ((folder.parent / "pid").exists() and list(folder.glob("*.run")) and (folder.parent / "pid").read_text()):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


def test_hook_that_outlived_a_killed_agent_is_ended_by_the_next(hooks: Hooks, tmp_path: Path) -> None:
    agent = subprocess.run([sys.executable, "-c", LEAVING, str(hooks.folder)], cwd=ROOT, check=False, timeout=BUSY)
    assert agent.returncode == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    assert hooks.processes.end_leftovers() == ["prepare"]
    until(lambda: not alive(pid), "it is gone")
    assert list(hooks.folder.iterdir()) == []


def test_note_of_a_hook_that_is_gone_ends_nobody_else(hooks: Hooks) -> None:
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        # Its number is in use again, by a process of another birth; and notes that say nothing are tidied away.
        (hooks.folder / "1.run").write_text(json.dumps({"hook": "prepare", "pid": other.pid, "born": "another boot 17"}))
        (hooks.folder / "2.run").write_text("{")
        (hooks.folder / "3.run").write_text(json.dumps({"hook": "prepare", "pid": 2**22 - 1, "born": ""}))
        assert hooks.processes.end_leftovers() == []
        assert other.poll() is None and list(hooks.folder.iterdir()) == []
    finally:
        other.kill()
        other.wait()
