"""Keeps the log lines of the time before the exporters are started, and takes the lines of a hosted process away from its host."""

from __future__ import annotations

import logging
from typing import Final

from .host_log import pass_on

MOST: Final = 1_000
"""Lines of one logger that are kept. Further ones are not exported."""
_WORKERS: Final = "azure.functions"
"""The logger of the Functions worker, whose lines are the host's own."""
_EXPORT: Final = __name__.rpartition(".")[0]


class EarlyLines(logging.Handler):
    """Keeps the first lines of a logger until `pass_to` names the handler that gets them, and all that follow."""

    def __init__(self, name: str, level: int, host: logging.Handler | None = None) -> None:
        """name: of the logger. level: the lowest that is kept. host: prints lines for the Functions host that runs this process, which then
        gets only what this handler does not take; None if no such host runs it."""
        super().__init__()
        self._level, self._host = level, host
        self._kept: list[logging.LogRecord] = []
        self._target: logging.Handler | None = None
        self._logger = logging.getLogger(name)
        self._propagates = self._logger.propagate
        self._logger.addHandler(self)
        if host is not None:
            self._logger.propagate = False

    @property
    def kept(self) -> int:
        """The number of lines that wait for a handler."""
        return len(self._kept)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record, or pass it on."""
        if record.levelno < self._level or (self._host is not None and f"{record.name}.".startswith(f"{_WORKERS}.")):
            if self._host is not None:
                pass_on(record)
        elif self._target is not None:
            self._pass(record, self._target)
        elif len(self._kept) < MOST:
            self._kept.append(record)
        elif self._host is not None:
            self._host.handle(record)

    def pass_to(self, target: logging.Handler) -> None:
        """Pass the kept lines to `target`, and from now on every line."""
        self.acquire()
        try:
            kept, self._kept, self._target = self._kept, [], target
            for record in kept:
                self._pass(record, target)
        finally:
            self.release()

    def pass_to_host(self) -> None:
        """Pass the kept lines, and from now on every line, to the host. Where no host runs this process, leave the logger."""
        if self._host is None:
            self.close()
        else:
            self.pass_to(self._host)

    def _pass(self, record: logging.LogRecord, target: logging.Handler) -> None:
        target.handle(record)
        # A line about the export itself goes to the host too, because the export may be what fails.
        if self._host is not None and target is not self._host and record.name.startswith(f"{_EXPORT}."):
            self._host.handle(record)

    def close(self) -> None:
        """Leave the logger."""
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagates
        super().close()
