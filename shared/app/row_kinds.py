"""The kinds of rows of the timers (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ..engine.row_kinds import StoredKind
from ..scheduler.label_index import TWICE_LABELLED
from ..scheduler.state_backfill import TWICE
from ..storage.names import PK_TICKS, SWEEPS
from .timers import KAFKA_PERIODS, PERIODS, Timers

KINDS: Final = (
    StoredKind(
        "tick",
        SWEEPS,
        PK_TICKS,
        " or ".join((*PERIODS, *KAFKA_PERIODS)),
        "The end of the last run of one of the sweep's jobs; `readyz` and metrics show its age.",
        Timers,
        {
            "at": "time of the end, in milliseconds",
            "failed": "number of its parts that failed",
            TWICE: "of `scheduler_scan`: `at` once more; a version without state rows does not write it",
            TWICE_LABELLED: "of `scheduler_scan`: `at` once more; a version without label rows does not write it",
        },
        "Nobody; the next run replaces it.",
    ),
)
