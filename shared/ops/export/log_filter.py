"""What the libraries that send say of their troubles: told under an action of our own, each sentence once in a while, without secrets.

Left to themselves they repeat a line for every batch, for as long as the other side is away, and quote settings that hold keys.
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
"""Loggers whose lines are taken over. Of identities, those that block are the exporter's: storage has the others."""
AGAIN: Final = 600.0
"""Seconds that a sentence which was told is not told again."""
LONGEST: Final = 500
_HIDDEN: Final = "***"
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=\?)[^\s'\")]+(?=['\")\s]|$)")
"""Of a URL, whom it is called as, and its query."""


def secrets(environ: Mapping[str, str]) -> list[str]:
    """What nobody is to read of the exporters' settings, the longest first: headers, and of an endpoint its user and its query."""
    found: set[str] = set()
    for name, text in environ.items():
        if name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("HEADERS"):
            found |= {text, *text.split(","), *(pair.partition("=")[2] for pair in text.split(","))}
        elif name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("ENDPOINT"):
            found |= _of_url(text)
    found = {each.strip() for each in found}
    found |= {unquote(each) for each in found}
    # Exceptions quote some as Python writes them.
    found |= {repr(each)[1:-1] for each in found}
    # What is shorter would make the text unreadable, and is no secret.
    return sorted((each for each in found if len(each) >= 4), key=len, reverse=True)


def _of_url(text: str) -> set[str]:
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
    except ValueError:
        return {text}
    user, _, _ = parts.netloc.rpartition("@")
    return {user, user.partition(":")[2], parts.query}


def hidden(text: str, known: Iterable[str]) -> str:
    """A text without secrets, at most `LONGEST` characters of it. known: as `secrets` gives them."""
    for each in known:
        text = text.replace(each, _HIDDEN)
    return _IN_URL.sub(_HIDDEN, text)[:LONGEST]


class ExporterLogFilter(logging.Handler):
    """Takes the lines of `SOURCES` from WARNING on, until it is closed."""

    def __init__(self, environ: Mapping[str, str], clock: Callable[[], float] = monotonic) -> None:
        """clock: seconds that only grow."""
        super().__init__(logging.WARNING)
        self._secrets, self._clock = secrets(environ), clock
        self._told: dict[tuple[str, str], float] = {}
        self._guard = Lock()
        self._sources = [(logger, logger.propagate) for logger in map(logging.getLogger, SOURCES)]
        for logger, _ in self._sources:
            logger.propagate = False
            logger.addHandler(self)

    def handle(self, record: logging.LogRecord) -> bool:
        """Without the handler's lock: what is told here goes through other handlers, which may be complaining and would wait for it."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it, unless it was told a while ago."""
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
            # Sentences that are put together before they are logged differ each time.
            if len(self._told) >= 100:
                self._told.clear()
            self._told[sentence] = now
            return True

    def close(self) -> None:
        """Leave the loggers as they were."""
        for logger, propagate in self._sources:
            logger.removeHandler(self)
            logger.propagate = propagate
        self._sources = []
        super().close()
