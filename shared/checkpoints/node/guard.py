"""Runs the command of `tocsin checkpoint run` and `tocsin locks run` from a process of its own, which ends the command even if `tocsin`
is killed.

    python guard.py UNTIL GRACE FD COMMAND [ARGUMENT ...]

UNTIL: time at which no process of the command may run any more, in seconds of the steady clock (`clock.steady`, the same for all processes
of a machine). GRACE: seconds between SIGTERM and SIGKILL. FD: file descriptor to which events are written, as lines of JSON: `{"pid": n}`
or `{"errno": n}`, then `{"status": n}` or `{"signal": n}` with `"by"`, the reason of the end. On standard input, `t` requests SIGTERM and
SIGKILL after the grace, `k` requests SIGKILL at once, and `u` with a number and a line break is a new UNTIL. The end of standard input
means that `tocsin` is gone, and counts as `t`.

It is run by path and imports the standard library alone, so that it starts within some hundredths of a second and stays small.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import sys
import time
from typing import Any

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)
_TICK = 0.25
"""Seconds between two readings of the clock. Longer waits would not count the time for which the machine was suspended."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _steady() -> float:
    return time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else time.monotonic()


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _start(command: list[str]) -> int:
    """Start the command as the leader of a process group of its own, and return its pid. Raises OSError when it cannot be run."""
    reading, writing = os.pipe()
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guard:
                os._exit(1)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)
        except OSError as error:
            os.write(writing, str(error.errno or errno.EIO).encode())
        except ValueError:
            # The command has no valid name.
            os.write(writing, str(errno.ENOENT).encode())
        finally:
            os._exit(1)
    os.close(writing)
    with contextlib.suppress(OSError):
        # The child does it too. Either may be first.
        os.setpgid(child, child)
    with os.fdopen(reading) as errors:
        failure = errors.read()
    if failure:
        os.waitpid(child, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return child


def _kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def adopt(orphans: bool) -> None:
    """Make this process the parent of descendants whose parent has ended, even if they left its group, or stop that. On Linux alone."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(orphans))


def children() -> list[int]:
    """Return the children of this thread, adopted ones too."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def end_children(own: frozenset[int]) -> None:
    """Kill the children of this thread but its own, and what they leave behind, until there is none."""
    while orphans := [pid for pid in children() if pid not in own]:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _sweep(child: int) -> int:
    """Kill what the ended command left behind. Returns its wait status."""
    # Before it is reaped: until then no other process can get its pid.
    _kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    end_children(frozenset())
    return status


def _split(given: bytes) -> tuple[float | None, bytes]:
    """Return the last new UNTIL of what was read, and the other requests."""
    lines = given.split(b"\n")
    ends = [float(line[1:]) for line in lines if line.startswith(b"u")]
    return ends[-1] if ends else None, b"".join(line for line in lines if not line.startswith(b"u"))


def guard(until: float, grace: float, events: int, command: list[str]) -> None:
    """Run the command to its end."""

    def emit(**event: Any) -> None:
        # The reader may be gone.
        with contextlib.suppress(OSError):
            os.write(events, json.dumps(event).encode() + b"\n")

    # Otherwise the command and its children would hold the descriptor open.
    os.set_inheritable(events, False)
    asked: list[int] = []
    waking, wake = os.pipe()
    for end in (waking, wake):
        os.set_blocking(end, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: asked.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    adopt(True)
    try:
        child = _start(command)
    except OSError as error:
        emit(errno=error.errno)
        return
    emit(pid=child)
    control, by, kill_at = [0], "", until
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        now = _steady()
        if not by and (asked or now >= until - grace):
            by = "signal" if asked else "limit"
            kill_at = min(until, now + grace)
            _kill(child, signal.SIGTERM)
            # A stopped process would not handle the signal.
            _kill(child, signal.SIGCONT)
        if now >= kill_at:
            by = by or "limit"
            _kill(child, signal.SIGKILL)
        ready = select.select([*control, waking], [], [], min(_TICK, max(0.0, kill_at - now) if now < kill_at else _TICK))[0]
        if waking in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(waking, 4096)
        if 0 in ready:
            later, request = _split(os.read(0, 65_536))
            if later is not None:
                if not by:
                    until = kill_at = later
                if not request:
                    continue
            if b"k" in request:
                by, kill_at = by or "told", _steady()
            elif not by:
                by = "told" if request else "orphaned"
                kill_at = min(until, _steady() + grace)
                _kill(child, signal.SIGTERM)
                _kill(child, signal.SIGCONT)
            if not request:
                control = []
    status = _sweep(child)
    ended = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"status": os.WEXITSTATUS(status)}
    emit(**ended, by=by)


if __name__ == "__main__":
    guard(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
