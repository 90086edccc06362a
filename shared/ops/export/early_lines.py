"""Keeps the log lines of the time before the exporters are started."""

from __future__ import annotations

import logging
from typing import Final

MOST: Final = 1_000
"""Lines of one logger that are kept. Further ones are not exported."""


class EarlyLines(logging.Handler):
    """Keeps the first lines of a logger until `pass_to` names the handler that gets them, and all that follow."""

    def __init__(self, name: str, level: int) -> None:
        """name: of the logger. level: the lowest that is kept."""
        super().__init__(level)
        self._kept: list[logging.LogRecord] = []
        self._target: logging.Handler | None = None
        self._logger = logging.getLogger(name)
        self._logger.addHandler(self)

    @property
    def kept(self) -> int:
        """The number of lines that wait for a handler."""
        return len(self._kept)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record, or pass it on."""
        if self._target is not None:
            self._target.handle(record)
        elif len(self._kept) < MOST:
            self._kept.append(record)

    def pass_to(self, target: logging.Handler) -> None:
        """Pass the kept lines to `target`, and from now on every line."""
        self.acquire()
        try:
            kept, self._kept, self._target = self._kept, [], target
            for record in kept:
                target.handle(record)
        finally:
            self.release()

    def close(self) -> None:
        """Leave the logger."""
        self._logger.removeHandler(self)
        super().close()
