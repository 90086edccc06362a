"""The agent's log: JSON lines, each with a stable `action` and, if it is about an event, its `event_id`; or short text lines.

All log lines of one agent also carry its node, its fleet, and the event that is under way there.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import IO, Any

from ....core.clock import to_text
from ..decisions.hook_runs import last_done
from ..model import EventPhase, NodeState


class LogContext:
    """Knows which events are under way on a node. The loop calls `follow`; any thread may call `about`."""

    def __init__(self, node: str = "", fleet: str = "") -> None:
        self._who = {name: value for name, value in (("node", node), ("fleet", fleet)) if value}
        self._events: tuple[str, ...] = ()

    def follow(self, state: NodeState) -> None:
        """Take over the events of a new state."""
        self._events = under_way(state)

    def events(self, event_id: str = "") -> tuple[str, ...]:
        """Return the ids of the events that a line is about."""
        return (event_id,) if event_id else self._events

    def about(self, event_id: str = "") -> dict[str, str]:
        """Return the fields of a line. A line about no event of its own belongs to the events that are under way, the soonest first."""
        events = self.events(event_id)
        found = {"event_id": events[0], **self._who} if events else dict(self._who)
        return found | ({"event_ids": " ".join(events)} if len(events) > 1 else {})


def under_way(state: NodeState) -> tuple[str, ...]:
    """Return the ids of the events on this node that are not over, the soonest first.

    While only the hook `caught_up` runs, that is the last event that is over: the node catches up with what it missed then.
    """
    mine = [record for record in state.events.values() if record.phase not in (EventPhase.FOREIGN, EventPhase.DONE)]
    if not mine and state.run is not None and state.run.kind == "caught_up" and (last := last_done(state)) is not None:
        mine = [last]
    return tuple(record.event.event_id for record in sorted(mine, key=lambda each: each.event.not_before or 0))


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
