"""The start of processes: a devhost, once it is ready, and the error of a process that ended instead."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, NoReturn

from devhost.starting import DidNotStart

from .logs import watch
from .waiting import wait_until

READY = "devhost ready "
# Programs say so of a port that another process has, and the devhost of an emulator that did not start.
_MACHINE = re.compile(r"address already in use|^devhost: .*(already in use|did not start)", re.MULTILINE)


def ready(process: subprocess.Popen[Any], output: Path, runs: int = 0) -> str:
    """The URL of a devhost, once it is ready. runs: of the same output, before this one.

    DidNotStart where a port was taken or the emulator did not start; AssertionError where the process ended for another reason.
    """
    watch(output)

    def url() -> str | None:
        code = process.poll()
        text = output.read_text(errors="replace")
        lines = [line.removeprefix(READY) for line in text.splitlines(keepends=True) if line.startswith(READY)]
        if len(lines) > runs and lines[-1].endswith("\n"):
            return lines[-1].strip()
        if code is not None:
            fail(f"the devhost ended with {code}", text)
        return None

    return str(wait_until(url, "the devhost's line that it is ready", seen=lambda: output.read_text(errors="replace")))


def fail(what: str, text: str) -> NoReturn:
    """Raise the error of a process that ended instead of starting, by its output: DidNotStart or AssertionError."""
    if _MACHINE.search(text) and "Traceback (most recent call last)" not in text:
        raise DidNotStart(f"{what}: {text}")
    raise AssertionError(f"{what}: {text}")
