"""A sign on the terminal that the command still works, once it has taken a while."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .output import console

if TYPE_CHECKING:
    from rich.status import Status

QUIET: Final = 1.5
"""Seconds for which a command works before it says so."""


class Activity:
    """A line on standard error, if that is a terminal. It appears while the command works, and goes before anything else is printed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = time.monotonic()
        self._status: Status | None = None
        self._enabled = sys.stderr is not None and sys.stderr.isatty()
        self._lock = threading.Lock()

    @contextmanager
    def during(self) -> Iterator[None]:
        """Show the line while this lasts, from `QUIET` seconds after the command's start on."""
        if not self._enabled or self._status is not None:
            yield
            return
        timer = threading.Timer(max(0.0, self._began + QUIET - time.monotonic()), self._show)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def update(self, text: str) -> None:
        """Change the text."""
        self._text = text
        if self._status is not None:
            self._status.update(text)

    def hide(self) -> None:
        """Remove the line until the next `during`."""
        with self._lock:
            if self._status is not None:
                self._status.stop()
                self._status = None

    def disable(self) -> None:
        """Never show the line: something else is on the terminal."""
        self._enabled = False
        self.hide()

    def _show(self) -> None:
        from rich.status import Status
        from rich.text import Text

        with self._lock:
            if self._enabled and self._status is None:
                self._status = Status(Text(self._text), console=console(error=True))
                self._status.start()
