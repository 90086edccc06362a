"""The agent's log: JSON lines, each with a stable `action` and, if it is about an event, its `event_id`; or short text lines."""

from __future__ import annotations

import json
import logging
import sys
from typing import IO, Any

from ....core.clock import to_text


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object: at, level, action, event_id, node, fleet, text, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"at": to_text(int(record.created * 1000)), "level": record.levelname.lower()}
        line["action"] = getattr(record, "action", "")
        if event_id := getattr(record, "event_id", ""):
            line["event_id"] = event_id
        line |= {key: value for key in ("node", "fleet", "event_ids") if (value := getattr(record, key, ""))}
        line["text"] = record.getMessage()
        line |= {key: value for key, value in getattr(record, "fields", {}).items() if key not in line}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    """Formats a record as text for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        event_id, fields = getattr(record, "event_id", ""), getattr(record, "fields", {})
        more = " ".join(f"{key}={value}" for key, value in fields.items())
        text = f"{to_text(int(record.created * 1000))[11:23]} {record.levelname[0]} {record.getMessage()}"
        text += (f" [{event_id}]" if event_id else "") + (f" ({more})" if more else "")
        return text + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


def set_up(style: str = "", stream: IO[str] | None = None) -> logging.Handler:
    """Log to `stream` (default: standard error) as "json" or "text"; by default as text on a terminal, else as JSON.

    Returns the handler.
    """
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextLines() if style == "text" or (not style and stream.isatty()) else JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    return handler
