"""The kinds of rows of the timers (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ..engine.row_kinds import StoredKind
from ..engine.stored_forms import FORMS_ROW, TICK_FORMS, FormsRow
from ..storage.names import PK_TICKS, SWEEPS
from .timers import PERIODS, Timers


def tick_kind(name: str, row: str, meaning: str) -> StoredKind:
    """Return the kind of the rows of some jobs' ticks."""
    return StoredKind(
        name,
        SWEEPS,
        PK_TICKS,
        row,
        meaning,
        Timers,
        {
            "at": "time of the end, in milliseconds",
            "failed": "number of its parts that failed",
            TICK_FORMS: "number of the stored forms that the process of the run knows",
        },
        "Nobody; the next run replaces it.",
    )


KINDS: Final = (
    tick_kind("tick", " or ".join(PERIODS), "The end of the last run of one of the sweep's jobs; `readyz` and metrics show its age."),
    StoredKind(
        "stored forms",
        SWEEPS,
        PK_TICKS,
        FORMS_ROW,
        "The number of the stored forms. A process of a version that knows only lower ones serves reads: raise it by the command only.",
        FormsRow,
        {"number": "number of the stored forms that processes may rely on"},
        "Nobody.",
    ),
)
