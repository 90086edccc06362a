"""The kinds of rows of maintenance (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ..engine.row_kinds import StoredKind
from ..storage.names import MAINTENANCE
from .rows import ALARMS, GUARD, INDEX, MONITORS, AlarmsRow, EventRow, GuardRow, MonitorsRow, NodeRow
from .service.figures import parse_care
from .story import StoryRow

_FLEET: Final = "{tenant}:{fleet}"
_FRESH: Final = "true: agents' reports read the row; false for an event that ended more than a day ago"
_END: Final = "The hourly retention, when the fleet has ended."


def _json(fields: str) -> dict[str, str]:
    return {"json{number}": f"JSON with {fields}, cut into `json0`, `json1`, ...", "fresh": _FRESH}


KINDS: Final = (
    StoredKind(
        "node",
        MAINTENANCE,
        _FLEET,
        "node:{node}",
        "The last report of a node's agent, with the node's phase for each of its events.",
        NodeRow,
        _json("the node's names, its place, the time and number of the report, and `entries`, one for each event"),
        "The sweep, after seven days of silence without an open event on the node; the hourly retention, when the fleet has ended.",
    ),
    StoredKind(
        "event of maintenance",
        MAINTENANCE,
        _FLEET,
        "event:{text}",
        "A Scheduled Event, merged from the agents' reports: status, approval, hold, result. The key has its id in lower case.",
        EventRow,
        _json("the event, its approval `grant`, its `hold`, the nodes' results and its alarms"),
        "The hourly retention, 90 days after its end, or when the fleet has ended.",
    ),
    StoredKind(
        "monitors",
        MAINTENANCE,
        _FLEET,
        MONITORS,
        "The agents that act for the whole fleet. Decisions on the state of all nodes write this row, so that two of them conflict.",
        MonitorsRow,
        _json("`primary`, `secondary`, the epoch of the primary, and the number of such decisions"),
        _END,
    ),
    StoredKind(
        "alarms of maintenance",
        MAINTENANCE,
        _FLEET,
        ALARMS,
        "The alarms of the fleet itself, and the notices that were published about them.",
        AlarmsRow,
        _json("`alarms` and `told`"),
        _END,
    ),
    StoredKind(
        "reservations",
        MAINTENANCE,
        _FLEET,
        GUARD,
        "The reservations of the domain guard: the events whose nodes may prepare. Do not delete it while an event is open.",
        GuardRow,
        _json("`reserved`: event ids with the time of the reservation"),
        _END,
    ),
    StoredKind(
        "story",
        MAINTENANCE,
        _FLEET,
        "story:{text}!{text}",
        "The first 20 and the last 40 steps of one node about an event; without a node's name, those of the app.",
        StoryRow,
        {"json{number}": "JSON with `steps` and the number of steps that were left out, cut into `json0`, `json1`, ..."},
        "With its event.",
    ),
    StoredKind(
        "index entry of maintenance",
        MAINTENANCE,
        INDEX,
        _FLEET,
        "Lists a fleet that has agents, with what the last inspection found.",
        parse_care,
        {
            "fresh": "always true",
            "alarms": "JSON: number of events by alarm",
            "care": "JSON: numbers of agents, open and waiting events, and of silent agents with the first names",
        },
        "The hourly retention, when the fleet has ended.",
    ),
)
