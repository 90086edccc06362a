"""Waits in real time for something that must become true. A wait that runs out raises StillWaiting, and nothing else does.

A run repeats a test that failed with StillWaiting alone (tests/verdicts.py): it may be the machine that was slow. So a condition that can
tell that it will never become true, because the event is dead or the process has ended, raises AssertionError: that fails at once, and is
never repeated.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

DEADLINE = 180.0
"""Longest wait in seconds. Only a test that fails waits until then."""
PROGRAM = 900.0
"""Longest run of a program in seconds."""
SHOWN = 20_000
"""Most characters of what was last seen."""


class StillWaiting(Exception):
    """A wait ran out. The message says what was waited for, and what was last seen."""


def ran_out(what: str, deadline: float, seen: object, cause: BaseException | None = None) -> NoReturn:
    """Raise StillWaiting. cause: the error by which a library said that its own wait ran out."""
    text = seen if isinstance(seen, str) else repr(seen)
    raise StillWaiting(f"still waiting after {deadline:g} s for: {what}; last seen: {text[-SHOWN:]}") from cause


async def eventually(
    condition: Callable[[], Any], what: str, deadline: float = DEADLINE, pause: float = 0.05, seen: Callable[[], object] | None = None
) -> Any:
    """Return the first true value of the condition, which may be a coroutine function. StillWaiting after `deadline` seconds.

    seen: what to show then, instead of the condition's last value.
    """
    ends_at = time.monotonic() + deadline
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() >= ends_at:
            ran_out(what, deadline, value if seen is None else seen())
        await asyncio.sleep(pause)


def wait_until(
    condition: Callable[[], Any], what: str, deadline: float = DEADLINE, pause: float = 0.02, seen: Callable[[], object] | None = None
) -> Any:
    """`eventually` outside a loop."""
    ends_at = time.monotonic() + deadline
    while not (value := condition()):
        if time.monotonic() >= ends_at:
            ran_out(what, deadline, value if seen is None else seen())
        time.sleep(pause)
    return value


async def within[T](work: Awaitable[T], what: str, deadline: float = DEADLINE) -> T:
    """The result of the work. StillWaiting, and the work is cancelled, after `deadline` seconds."""
    scope = asyncio.timeout(deadline)
    try:
        async with scope:
            return await work
    except TimeoutError:
        if not scope.expired():  # the work's own
            raise
    ran_out(what, deadline, work)


def ended(process: subprocess.Popen[Any], what: str, deadline: float = DEADLINE, seen: Callable[[], object] | None = None) -> int:
    """The exit code of a process, once it has ended."""
    try:
        return process.wait(deadline)
    except subprocess.TimeoutExpired as error:
        expired = error
    ran_out(f"the end of {what}", deadline, expired.cmd if seen is None else seen())


def all_output(process: subprocess.Popen[str], what: str, deadline: float = DEADLINE) -> tuple[str, str]:
    """Both outputs of a process, once it has ended."""
    try:
        return process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired as error:
        expired = error
    ran_out(f"the end of {what}", deadline, f"{_text(expired.stdout)}{_text(expired.stderr)}")


def run(command: Sequence[str], deadline: float = PROGRAM, **options: Any) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` of a program that must end; by default both outputs are captured as text."""
    if not {"capture_output", "stdout", "stderr"} & options.keys():
        options["capture_output"] = True
    try:
        return subprocess.run(command, timeout=deadline, text=True, check=options.pop("check", False), **options)
    except subprocess.TimeoutExpired as error:
        expired = error
    ran_out(f"the end of {' '.join(map(str, command))[:200]}", deadline, f"{_text(expired.stdout)}{_text(expired.stderr)}")


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
