"""Logs the warnings of the exporting libraries under an action of the service: each message at most every ten minutes, without secrets.

By default these libraries repeat a line for every batch while the back end does not answer, and quote settings that contain keys.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from time import monotonic
from typing import Final
from urllib.parse import unquote, urlsplit

log = logging.getLogger(__name__)

SOURCES: Final = ("opentelemetry", "azure.monitor.opentelemetry", "azure.identity._internal")
"""Loggers whose lines are handled here. Of the identities, the exporter uses the blocking ones; storage uses the others."""
AGAIN: Final = 600.0
"""Seconds before the same message is logged again."""
LONGEST: Final = 500
"""Most characters of a message."""
_HIDDEN: Final = "***"
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=\?)[^\s'\")]+(?=['\")\s]|$)")
"""The user and the query of a URL."""


def secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the secret parts of the exporters' settings, the longest first: headers, and the user and query of endpoints."""
    found: set[str] = set()
    for name, text in environ.items():
        if name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("HEADERS"):
            found |= {text, *text.split(","), *(pair.partition("=")[2] for pair in text.split(","))}
        elif name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("ENDPOINT"):
            found |= _of_url(text)
    found = {each.strip() for each in found}
    found |= {unquote(each) for each in found}
    # Exceptions quote some of them as Python literals.
    found |= {repr(each)[1:-1] for each in found}
    # Shorter parts are no secrets, and hiding them would make the text unreadable.
    return sorted((each for each in found if len(each) >= 4), key=len, reverse=True)


def _of_url(text: str) -> set[str]:
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
    except ValueError:
        return {text}
    user, _, _ = parts.netloc.rpartition("@")
    return {user, user.partition(":")[2], parts.query}


def hidden(text: str, known: Iterable[str]) -> str:
    """Return the text without secrets, cut to `LONGEST` characters. known: the result of `secrets`."""
    for each in known:
        text = text.replace(each, _HIDDEN)
    return without_users_and_queries(text)[:LONGEST]


def without_users_and_queries(text: str) -> str:
    """Return the text with the user and the query of each URL hidden."""
    return _IN_URL.sub(_HIDDEN, text)


class ExporterLogFilter(logging.Handler):
    """Handles the lines of `SOURCES` from level WARNING, until it is closed."""

    def __init__(self, environ: Mapping[str, str], clock: Callable[[], float] = monotonic) -> None:
        """clock: monotonic seconds."""
        super().__init__(logging.WARNING)
        self._secrets, self._clock = secrets(environ), clock
        self._told: dict[tuple[str, str], float] = {}
        self._guard = Lock()
        self._sources = [(logger, logger.propagate) for logger in map(logging.getLogger, SOURCES)]
        for logger, _ in self._sources:
            logger.propagate = False
            logger.addHandler(self)

    def handle(self, record: logging.LogRecord) -> bool:
        """Emit without the handler's lock: the line goes through other handlers, which may log to this one and would wait for the lock."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record, unless the same message was logged recently."""
        try:
            if not self._due(record):
                return
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text = f"{text} ({type(record.exc_info[1]).__name__})"
            extra = {"action": "telemetry_complaint", "source": record.name}
            log.warning("Telemetry: %s", hidden(text, self._secrets), extra=extra)
        except Exception:
            self.handleError(record)

    def _due(self, record: logging.LogRecord) -> bool:
        now, sentence = self._clock(), (record.name, str(record.msg))
        with self._guard:
            if now - self._told.get(sentence, -AGAIN) < AGAIN:
                return False
            # Messages that were formatted before they were logged differ each time.
            if len(self._told) >= 100:
                self._told.clear()
            self._told[sentence] = now
            return True

    def close(self) -> None:
        """Restore the loggers."""
        for logger, propagate in self._sources:
            logger.removeHandler(self)
            logger.propagate = propagate
        self._sources = []
        super().close()
