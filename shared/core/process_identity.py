"""Identity of this process, and the proof that another process of this machine has ended.

An identity is `MACHINE PID START`. MACHINE is a hash of everything that must be equal before two pids can be compared: the boot, the pid
namespace, the time namespace (it shifts start times), the host's name, the platform's name of the instance, and a marker file. The marker
tells apart machines that were started from one memory image: they share a boot id, and one does not see the other's processes.

A wrong "it has ended" would take work from a living process, so every doubt is an answer of its own: not known to have ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import secrets
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

BOOT: Final = "sys/kernel/random/boot_id"
INSTANCE_NAMES: Final = ("WEBSITE_INSTANCE_ID", "WEBSITE_POD_NAME", "CONTAINER_NAME")
"""Environment variables with which Azure Functions names an instance."""

type SendSignal = Callable[[int, int], None]


class ProcessFacts(NamedTuple):
    """The facts of a process that /proc shows."""

    started: int
    """Clock ticks between the boot and its start."""
    ended: bool
    """It is a zombie without a running thread: it runs no more code, and its parent has not collected it yet."""


class ProcessIdentity:
    """Names this process for the rows that it owns, and judges the names that it finds there."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        markers: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        kill: SendSignal = os.kill,
    ) -> None:
        """proc, markers: folders of the process table and of the marker file. Reads both now, once: a process does not change either."""
        self._proc, self._kill = proc, kill
        self._machine = self._start = ""
        self.first = True
        """True if no earlier process of this machine is known: then none can be proven to have ended."""
        # Not Linux, no /proc, a /proc of another pid namespace, or a marker that another user may have written: not known.
        with contextlib.suppress(OSError, ValueError):
            self._machine, self._start = self._identify(markers or Path(tempfile.gettempdir()), environ)
        self._pid = os.getpid()

    @property
    def name(self) -> str:
        """This process; '' if it cannot be identified, or is a fork of the process that was."""
        known = self._machine and self._pid == os.getpid()
        return f"{self._machine} {self._pid} {self._start}" if known else ""

    def has_ended(self, name: str) -> bool:
        """Return True if the process of that name is proven to have ended. False: it lives, or nothing is known about it."""
        machine, _, rest = name.partition(" ")
        number, _, started = rest.partition(" ")
        if not self.name or machine != self._machine or not _is_number(number) or not _is_number(started):
            return False
        pid = int(number)
        if not 0 < pid < 2**31:
            return False
        try:
            # Not /proc: it may hide the processes of other users (`hidepid`). Signal 0 only asks whether the process exists.
            self._kill(pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        try:
            found = read_process(self._proc, pid)
        except (OSError, ValueError):
            return False
        # A process with this number that started at another time is a later one.
        return found.ended or found.started != int(started)

    def _identify(self, markers: Path, environ: Mapping[str, str]) -> tuple[str, str]:
        proc, pid = self._proc, os.getpid()
        # A /proc that was mounted in another pid namespace shows other numbers.
        if os.readlink(proc / "self") != str(pid):
            raise ValueError("this /proc belongs to another pid namespace")
        boot = (proc / BOOT).read_text("ascii").strip()
        if len(boot) < 32:
            raise ValueError("no boot id")
        spaces = [os.readlink(proc / "self/ns" / kind) for kind in ("pid", "time")]
        path = markers / f"tocsin-machine-{os.getuid()}"
        first = not os.path.lexists(path)
        marker = read_marker(path)
        parts = [boot, *spaces, platform.node(), marker, *(environ.get(name, "") for name in INSTANCE_NAMES)]
        start = str(read_process(proc, pid).started)
        self.first = first
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32], start


def read_process(proc: Path, pid: int) -> ProcessFacts:
    """Return the facts of a process. Raises OSError, ValueError if they cannot be read."""
    # The name in parentheses may contain anything, parentheses and spaces too.
    fields = (proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    if len(fields) < 20:
        raise ValueError("an unknown form of /proc/PID/stat")
    # Where only the first thread has ended, the process is listed as a zombie and its other threads go on.
    ended = fields[0] in "ZX" and os.listdir(proc / str(pid) / "task") in ([str(pid)], [])
    return ProcessFacts(int(fields[19]), ended)


def read_marker(path: Path) -> str:
    """Return the content of this machine's marker file; the first process makes it.

    Raises ValueError for a file that another user may have written, and OSError.
    """
    try:
        return _read_own(path)
    except FileNotFoundError:
        pass
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(16))
        # A link and not a rename: the first of two processes wins, and the file is never seen half written.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    return _read_own(path)


def _read_own(path: Path) -> str:
    # Another user may have planted a named pipe, whose opening would wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor) as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077 or not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} may have been written by another user")
        content = file.read(100)
    if len(content) != 32:
        raise ValueError(f"{path} is not a marker")
    return content


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
