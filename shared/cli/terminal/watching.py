"""Looking again and again: screens that are written over, and streams of what is new. An app that is away for a while ends neither."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import typer

from ...core.clock import to_text
from ...core.errors import TocsinError
from ..exits import Exit
from ..failures import CommandFailed, explained
from .output import Screen

if TYPE_CHECKING:
    from ..session import Session

LONGEST: Final = 86_400.0
"""Seconds between two looks, at most."""


def again(session: Session, look: Callable[[], object], *, every: float, times: int | None, screen: bool = False) -> None:
    """Look until it is over, which a look says with True. every: seconds. times: so many looks at most. screen: each look shows all anew,
    where that is a terminal in the place of the one before.

    Raises what the app refuses; what keeps it from answering only after the last look.
    """
    session.looking = True
    shown = _Terminal() if screen and not session.json and _terminal() else None
    looks, over = 0, False
    while not over:
        away = None
        try:
            over = look() is True
        except TocsinError as failed:
            away = _away(failed)
            session.drop()
        if shown is not None:
            shown.paint(session.taken() if away is None else None, away)
        else:
            session.flush()
        looks += 1
        over = over or looks == times
        if away is not None:
            if over:
                raise away
            if shown is None or not sys.stderr.isatty():
                typer.echo(away.text(), err=True)
        if not over:
            session.sleep(every)


def _away(failed: TocsinError) -> CommandFailed:
    """What is told of an app that may come back. Raises what will not pass."""
    from ...client.errors import ServerFailed, TooMany

    told = explained(failed)
    if told.status != Exit.UNREACHABLE and not isinstance(failed, ServerFailed | TooMany):
        raise failed
    return told


def _terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class _Terminal:
    """A terminal that is written over from its first line: cleared only once, it does not flicker."""

    def __init__(self) -> None:
        self._begin, self._last = "\x1b[2J\x1b[H", ""

    def paint(self, text: str | None, away: CommandFailed | None) -> None:
        """The text, or the one before under what keeps the app away."""
        if text is not None:
            # Whatever holds the next one up, people see how old this one is.
            self._last = f"seen {to_text(round(time.time() * 1000))[:19]}Z\n\n{text}"
        told = self._last if away is None else f"{_folded(away)}\n{self._last}"
        # More than fits would scroll, and the next one begin in the middle of this one.
        lines, most = told.splitlines(), max(shutil.get_terminal_size().lines - 1, 2)
        if len(lines) > most:
            lines[most - 1 :] = [f"... and {len(lines) - most + 1} more lines"]
        # Cleared before it is written: after a full line the cursor still stands on its last sign.
        typer.echo(self._begin + "".join(f"\x1b[K{line}\n" for line in lines) + "\x1b[J", nl=False, color=True)
        self._begin = "\x1b[H"


def _folded(away: CommandFailed) -> str:
    """What is told, in lines that fit."""
    screen = Screen()
    for line in away.text().splitlines():
        screen.line(line)
    return screen.text()
