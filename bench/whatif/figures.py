"""The rows of `python -m bench what-if`: each prediction beside the measured value."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from shared.whatif.comparison import figure_text

from ..report import Figure
from ..tools.stage import Run
from . import events, fleets, maintenance

EVENTS_WITHIN: Final = 20.0
"""Per cent by which a predicted lateness, backlog or drain may be off."""


async def measure(run: Run) -> list[Figure]:
    """Measure events, a fleet, and its maintenance. Each prediction is of an export from before the change, and computed after the run."""
    run.report_progress("events: a receiver becomes slow", 0, 6)
    found = await events.real(run.pick(600, 300))
    run.report_progress("the twin of the same events", 1, 6)
    rows = _rows("a slow receiver", found.measured, await asyncio.to_thread(events.predict, found), limit=EVENTS_WITHIN)
    run.report_progress("a fleet loses servers, then a fault domain", 2, 6)
    fleet = await fleets.real(run.pick(12, 9))
    run.report_progress("the twin of the same fleet", 3, 6)
    rows += _rows("a smaller fleet", fleet.measured, await asyncio.to_thread(fleets.predict, fleet))
    run.report_progress("announced maintenance", 4, 6)
    wave = await maintenance.real(run.pick(12, 9))
    run.report_progress("the twin of the same maintenance", 5, 6)
    rows += _rows("announced maintenance", wave.measured, await asyncio.to_thread(maintenance.predict, wave))
    return rows


def _rows(what: str, measured: Mapping[str, tuple[float, str]], predicted: Mapping[str, float], limit: float | None = None) -> list[Figure]:
    """Return a row for each figure: the measured value, and beside it the prediction. limit: per cent, for those of more than a second."""
    rows = []
    for name, (value, unit) in measured.items():
        guess = predicted[name]
        note = f"predicted {figure_text(guess, unit)}; difference {figure_text(guess - value, unit, signed=True)}"
        details = {"measured": value, "predicted": guess}
        rows.append(Figure(f"what-if: {what}, {name}", value, unit, note=note, details=details))
        if limit is not None and value >= 1.0:
            rows.append(Figure("  prediction off by", abs(guess / value - 1) * 100, "%", "<=", limit))
    return rows
