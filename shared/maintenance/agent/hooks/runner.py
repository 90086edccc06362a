"""Runs hooks: commands, or Python callables in a process of their own, each in a process group that can be ended whole.

A hook gets its event twice: as JSON on stdin, and in its environment (`TOCSIN_...`, `environment_of`). It has a deadline; past it, or when
it is stopped, its group gets SIGTERM and, after a grace, SIGKILL. What it says on stdout and stderr is kept, the last 16 KiB of it.

A hook that outlives its agent (kill -9) would race with the next agent's: each run leaves a note in the state folder, and `end_leftovers`
ends what an earlier agent left running before anything else is begun. Linux only: it waits by pidfd.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

type HookOutcome = Literal["done", "failed", "late", "stopped"]
"""late: past its deadline and ended. stopped: ended because its event went away, or the agent does."""

KEPT: Final = 16 * 1024
"""Bytes of output that are kept, the last ones."""
GRACE: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""
LONGEST_VARIABLE: Final = 32 * 1024
"""Bytes of a variable; Linux takes no more than 128 KiB, and the whole event is on stdin."""
SECRETS: Final = frozenset({"TOCSIN_KEY"})
"""What of the agent's environment no hook sees."""
GATE: Final = 'read -r go && exec "$@" </proc/self/fd/{}'
"""What the process of a hook does first: wait until it has been noted. If the agent ends before that, the hook never begins."""
CALLER: Final = Path(__file__).with_name("call_python.py")


@dataclass(frozen=True, slots=True)
class Hook:
    """What is run: `command`, or `call` ("module:function", looked up on `path` too). `deadline` in seconds."""

    command: tuple[str, ...] = ()
    call: str = ""
    path: str = ""
    deadline: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def argv(self) -> Sequence[str]:
        """The process that runs it."""
        return self.command or (sys.executable, "-P", str(CALLER), self.call, *([self.path] if self.path else []))


@dataclass(frozen=True, slots=True)
class HookResult:
    """How a run ended. code: its exit code, negative a signal's number, None where nothing could be started."""

    outcome: HookOutcome
    code: int | None
    output: str
    seconds: float


class RunningHook(Protocol):
    """A hook under way."""

    def stop(self) -> None:
        """End it; `done` is called with "stopped" once it is gone. Does not wait."""


class HookRunner(Protocol):
    """Runs hooks in the background."""

    def start(self, name: str, hook: Hook, event: Mapping[str, Any], done: Callable[[HookResult], None]) -> RunningHook:
        """Start `hook` and call `done` once, from another thread, when it has ended."""


def environment_of(name: str, hook: Hook, event: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    """What the process of a hook finds in its environment.

    `base` without our secrets, the hook's own variables, TOCSIN_HOOK, TOCSIN_DEADLINE_SECONDS, and each key of `event` as TOCSIN_<KEY>:
    texts as they are, None empty, anything else as JSON. What is longer than `LONGEST_VARIABLE` is left out.
    """
    told = {key: value for key, value in base.items() if key not in SECRETS}
    told |= hook.environment
    told |= {"TOCSIN_HOOK": name, "TOCSIN_DEADLINE_SECONDS": f"{hook.deadline:g}"}
    for key, value in event.items():
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        if len(text.encode()) <= LONGEST_VARIABLE and "\0" not in text:
            told[f"TOCSIN_{key.upper()}"] = text
    return told


class ProcessRunner:
    """Runs hooks as processes. `folder` holds a note for each that is under way."""

    def __init__(self, folder: Path, *, grace: float = GRACE) -> None:
        self._folder, self._grace = folder, grace
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, hook: Hook, event: Mapping[str, Any], done: Callable[[HookResult], None]) -> RunningHook:
        run = _Process(self._folder, self._grace, name, hook, event, done)
        threading.Thread(target=run.drive, name=f"hook-{name}", daemon=True).start()
        return run

    def end_leftovers(self) -> list[str]:
        """End the hooks that an agent before this one left running; their names. Blocks for the grace at most, and a little."""
        ended: list[str] = []
        for note in sorted(self._folder.glob("*.run")):
            try:
                told = json.loads(note.read_text())
                name, pid, born = str(told["hook"]), int(told["pid"]), str(told["born"])
            except (OSError, ValueError, KeyError, TypeError):
                note.unlink(missing_ok=True)
                continue
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                try:
                    # Looked at after it was opened: a number that is in use again by now is of another birth.
                    if _birth(pid) == born:
                        _end(pid, handle, self._grace)
                        ended.append(name)
                finally:
                    os.close(handle)
            note.unlink(missing_ok=True)
        return ended


class _Process:
    def __init__(
        self, folder: Path, grace: float, name: str, hook: Hook, event: Mapping[str, Any], done: Callable[[HookResult], None]
    ) -> None:
        self._folder, self._grace, self._name, self._hook, self._event, self._done = folder, grace, name, hook, event, done
        self._lock, self._over = threading.Lock(), False
        self._bell = os.eventfd(0)

    def stop(self) -> None:
        # Locked: the number of a closed file may be another file's by now.
        with self._lock:
            if not self._over:
                os.eventfd_write(self._bell, 1)

    def drive(self) -> None:
        began = time.monotonic()
        output = bytearray()
        try:
            outcome, code = self._run(began, output)
        except Exception as error:
            outcome, code = "failed", None
            output += f"{type(error).__name__}: {error}".encode()
        finally:
            with self._lock:
                self._over = True
                os.close(self._bell)
        self._done(HookResult(outcome, code, output.decode(errors="replace"), time.monotonic() - began))

    def _run(self, began: float, output: bytearray) -> tuple[HookOutcome, int | None]:
        environment = environment_of(self._name, self._hook, self._event, os.environ)
        # A file, not a pipe: a hook that never reads its stdin must hold nobody up.
        with tempfile.TemporaryFile() as told:
            told.write(json.dumps(dict(self._event)).encode())
            told.flush()
            process = subprocess.Popen(
                ("/bin/sh", "-c", GATE.format(told.fileno()), "hook", *self._hook.argv()),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                pass_fds=(told.fileno(),),
            )
        assert process.stdin is not None and process.stdout is not None
        handle = os.pidfd_open(process.pid)
        note = self._folder / f"{process.pid}.run"
        try:
            note.write_text(json.dumps({"hook": self._name, "pid": process.pid, "born": _birth(process.pid)}))
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(b"go\n")
            outcome = self._wait(process.stdout.fileno(), handle, began, output)
            if outcome != "done":
                _end(process.pid, handle, self._grace)
                _drain(process.stdout.fileno(), output)
            # Not waited for: one that even SIGKILL does not end hangs in the kernel, and may do so for hours.
            code = process.poll()
        except BaseException:
            _end(process.pid, handle, self._grace)
            raise
        finally:
            note.unlink(missing_ok=True)
            process.stdin.close()
            process.stdout.close()
            os.close(handle)
            process.poll()
        return ("failed" if outcome == "done" and code else outcome), code

    def _wait(self, out: int, handle: int, began: float, output: bytearray) -> HookOutcome:
        """Until the process is gone, its time is up, or it is to stop."""
        os.set_blocking(out, False)
        poll = select.poll()
        for number in (out, handle, self._bell):
            poll.register(number, select.POLLIN)
        while True:
            left = began + self._hook.deadline - time.monotonic()
            if left <= 0:
                return "late"
            ready = {number for number, _ in poll.poll(left * 1000 + 1)}
            if self._bell in ready:
                return "stopped"
            if out in ready and not _drain(out, output):
                # Closed by the hook, which may still be at work.
                poll.unregister(out)
            if handle in ready:
                # Only what is there: a process that it left in the background may hold the pipe open for ever.
                _drain(out, output)
                return "done"


def _drain(out: int, output: bytearray) -> bool:
    """Take what can be read now; whether more may come."""
    for _ in range(64):
        try:
            taken = os.read(out, 65536)
        except BlockingIOError:
            return True
        if not taken:
            return False
        output += taken
        del output[:-KEPT]
    return True


def _end(pid: int, handle: int, grace: float) -> None:
    """End the group that `pid` leads: SIGTERM, and SIGKILL to what is left of it. The leader is gone, or as good as, afterwards."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll(grace * 1000)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    poll.poll(grace * 1000)


def _birth(pid: int) -> str:
    """What tells a process from another that had its number: its start, in ticks since the boot, and the boot. Empty: gone."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {ticks}"
    except (OSError, IndexError):
        return ""
