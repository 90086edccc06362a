"""Runs hooks: commands, or Python callables in a process of their own. Each has a process group, which is ended as a whole.

A hook gets its event twice: as JSON on stdin, and in its environment (`TOCSIN_...`, `environment_of`). After its deadline, or when it is
stopped, its group gets SIGTERM and, after a grace, SIGKILL. The last 16 KiB of its output (stdout and stderr) are kept.

A hook that outlives its agent (kill -9) would race with the hooks of the next agent. So each run has a note in the state folder, and
`end_leftovers` ends the hooks of an earlier agent before anything else starts. Linux only: it waits by pidfd.
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

from ..timings import DEFAULT_DEADLINE, HOOK_GRACE

type HookOutcome = Literal["done", "failed", "late", "stopped"]
"""late: ended at its deadline. stopped: ended because its event is gone, or because the agent ends."""

KEPT: Final = 16 * 1024
"""Bytes of output that are kept, from its end."""
LONGEST_VARIABLE: Final = 32 * 1024
"""Largest environment variable in bytes. Linux accepts at most 128 KiB, and the whole event is on stdin."""
SECRETS: Final = frozenset({"TOCSIN_KEY", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_LOGS_HEADERS"})
"""Variables of the agent's environment that hooks do not get."""
GATE: Final = 'read -r go && exec "$@" </proc/self/fd/{}'
"""Shell code that delays a hook until its note is written. If the agent ends before that, the hook never starts."""
CALLER: Final = Path(__file__).with_name("call_python.py")


@dataclass(frozen=True, slots=True)
class Hook:
    """A configured hook: `command`, or `call` ("module:function", found on `path` too). `deadline` in seconds.

    program: the program that a recipe's `call` runs in turn, as its name or path.
    """

    command: tuple[str, ...] = ()
    call: str = ""
    path: str = ""
    deadline: float = DEFAULT_DEADLINE
    environment: Mapping[str, str] = field(default_factory=dict)
    program: str = ""

    def argv(self) -> Sequence[str]:
        """Return the command line of the hook's process."""
        return self.command or (sys.executable, "-P", str(CALLER), self.call, *([self.path] if self.path else []))


@dataclass(frozen=True, slots=True)
class HookResult:
    """The result of a run. code: exit code, negative for a signal, None if nothing could be started."""

    outcome: HookOutcome
    code: int | None
    output: str
    seconds: float


class RunningHook(Protocol):
    """A running hook."""

    def stop(self) -> None:
        """End the hook without waiting; `done` is called with "stopped" once it is gone."""


class HookRunner(Protocol):
    """Runs hooks in the background."""

    def start(self, name: str, hook: Hook, event: Mapping[str, Any], done: Callable[[HookResult], None]) -> RunningHook:
        """Start `hook` and call `done` once, from another thread, when it has ended."""


def environment_of(name: str, hook: Hook, event: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a hook's process.

    It has `base` without secrets, the hook's own variables, TOCSIN_HOOK, TOCSIN_DEADLINE_SECONDS, and each key of `event` as TOCSIN_<KEY>:
    texts unchanged, None as empty, other values as JSON. Values longer than `LONGEST_VARIABLE` are left out.
    """
    environment = {key: value for key, value in base.items() if key not in SECRETS}
    environment |= hook.environment
    environment |= {"TOCSIN_HOOK": name, "TOCSIN_DEADLINE_SECONDS": f"{hook.deadline:g}"}
    for key, value in event.items():
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        if len(text.encode()) <= LONGEST_VARIABLE and "\0" not in text:
            environment[f"TOCSIN_{key.upper()}"] = text
    return environment


class ProcessRunner:
    """Runs hooks as processes. `folder` holds a note for each running hook."""

    def __init__(self, folder: Path, *, grace: float = HOOK_GRACE) -> None:
        self._folder, self._grace = folder, grace
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def start(self, name: str, hook: Hook, event: Mapping[str, Any], done: Callable[[HookResult], None]) -> RunningHook:
        run = _Process(self._folder, self._grace, name, hook, event, done)
        threading.Thread(target=run.drive, name=f"hook-{name}", daemon=True).start()
        return run

    def end_leftovers(self) -> list[str]:
        """End the hooks that an earlier agent left running. Returns their names. Blocks for little more than the grace."""
        ended: list[str] = []
        for note in sorted(self._folder.glob("*.run")):
            try:
                fields = json.loads(note.read_text())
                name, pid, born = str(fields["hook"]), int(fields["pid"]), str(fields["born"])
            except (OSError, ValueError, KeyError, TypeError):
                note.unlink(missing_ok=True)
                continue
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                try:
                    # Compared after the process was opened: a reused pid has another birth.
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
        # Locked, because the descriptor may be closed and reused by another thread.
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
        # A file instead of a pipe, because a hook that never reads its stdin must not block the agent.
        with tempfile.TemporaryFile() as event_file:
            event_file.write(json.dumps(dict(self._event)).encode())
            event_file.flush()
            process = subprocess.Popen(
                ("/bin/sh", "-c", GATE.format(event_file.fileno()), "hook", *self._hook.argv()),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                pass_fds=(event_file.fileno(),),
            )
        assert process.stdin is not None and process.stdout is not None
        handle = os.pidfd_open(process.pid)
        note = self._folder / f"{process.pid}.run"
        try:
            note.touch(mode=0o600)
            note.write_text(json.dumps({"hook": self._name, "pid": process.pid, "born": _birth(process.pid)}))
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(b"go\n")
            outcome = self._wait(process.stdout.fileno(), handle, began, output)
            if outcome != "done":
                _end(process.pid, handle, self._grace)
                _drain(process.stdout.fileno(), output)
            # Without waiting: a process that survives SIGKILL hangs in the kernel, possibly for hours.
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
        """Wait until the process is gone, its deadline has passed, or it must stop."""
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
                # The hook closed its output, but may still be running.
                poll.unregister(out)
            if handle in ready:
                # Read only what is available: a background process of the hook may keep the pipe open for ever.
                _drain(out, output)
                return "done"


def _drain(out: int, output: bytearray) -> bool:
    """Read the available output. Returns true if more may come."""
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
    """End the process group that `pid` leads: SIGTERM, then SIGKILL to the rest. Waits for the leader, at most twice the grace."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll(grace * 1000)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    poll.poll(grace * 1000)


def _birth(pid: int) -> str:
    """Return what identifies a process beside its pid: the boot id and its start, in ticks since the boot. Empty if it is gone."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {ticks}"
    except (OSError, IndexError):
        return ""
