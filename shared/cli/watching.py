"""Refresh a screen or a stream of changes at intervals. An app that fails to answer for a while ends neither."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import typer

from ..core.clock import to_text
from ..core.errors import TocsinError
from .exits import Exit
from .failures import CommandFailed, to_command_failure
from .terminal.output import Screen

if TYPE_CHECKING:
    from .session import CommandSession

MAX_INTERVAL: Final = 86_400.0
"""Longest time between two refreshes, in seconds."""


def refresh(session: CommandSession, run_once: Callable[[], object], *, every: float, times: int | None, screen: bool = False) -> None:
    """Call `run_once` every `every` seconds until it returns True, or `times` times.

    screen: each run prints the whole screen, and replaces the one before on a terminal. Raises a refusal of the app at once, but an app
    that does not answer only after the last run.
    """
    session.refreshing = True
    session.activity.disable()
    terminal = _RefreshedTerminal() if screen and not session.json and _can_move_cursor() else None
    runs, over = 0, False
    while not over:
        failure = None
        try:
            over = run_once() is True
        except TocsinError as failed:
            failure = _temporary_failure(failed)
            session.discard_output()
        if terminal is not None:
            terminal.paint(session.take_output() if failure is None else None, failure)
        else:
            session.flush()
        runs += 1
        over = over or runs == times
        if failure is not None:
            if over:
                raise failure
            if terminal is None or not sys.stderr.isatty():
                typer.echo(failure.text(), err=True)
        if not over:
            session.sleep(every)


def _temporary_failure(failed: TocsinError) -> CommandFailed:
    """Return the message for a failure that may pass. Raises the failure if it will not."""
    from ..client.errors import ServerFailed, TooMany

    failure = to_command_failure(failed)
    if failure.status != Exit.UNREACHABLE and not isinstance(failed, ServerFailed | TooMany):
        raise failed
    return failure


def _can_move_cursor() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class _RefreshedTerminal:
    """A terminal that is overwritten from its first line. It is cleared only once, so that it does not flicker."""

    def __init__(self) -> None:
        self._begin, self._last = "\x1b[2J\x1b[H", ""

    def paint(self, text: str | None, failure: CommandFailed | None) -> None:
        """Show the text, or the failure above the last text."""
        if text is not None:
            # If the next refresh is delayed, the time shows how old this text is.
            self._last = f"seen {to_text(round(time.time() * 1000))[:19]}Z\n\n{text}"
        screen = self._last if failure is None else f"{_wrapped(failure)}\n{self._last}"
        # More lines than fit would scroll, and the next screen would begin in the middle of this one.
        lines, most = screen.splitlines(), max(shutil.get_terminal_size().lines - 1, 2)
        if len(lines) > most:
            lines[most - 1 :] = [f"... and {len(lines) - most + 1} more lines"]
        # Each line is cleared before it is written: after a full line the cursor still stands on its last character.
        typer.echo(self._begin + "".join(f"\x1b[K{line}\n" for line in lines) + "\x1b[J", nl=False, color=True)
        self._begin = "\x1b[H"


def _wrapped(failure: CommandFailed) -> str:
    """Return the failure's message in lines that fit the terminal."""
    screen = Screen()
    for line in failure.text().splitlines():
        screen.line(line)
    return screen.text()
