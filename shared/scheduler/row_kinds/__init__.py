"""The kinds of rows of the scheduler (`engine.row_kinds`): `events` has those of events and schedules, `sweeps` those of `TocsinSweeps`."""

from __future__ import annotations

from typing import Final

from . import events, sweeps

KINDS: Final = (*events.KINDS, *sweeps.KINDS)
