"""P10: while a shard rests, its held row has all events that wait for their channel, and no others."""

from __future__ import annotations

import orjson

from shared.scheduler import rules
from shared.scheduler.facets.finding import HELD, STATE_ROWS, key_of, partition_of, shard_of
from shared.scheduler.keys import FIRST_EVENT
from shared.storage.names import EVENTS, SWEEPS

from ..checking.checker import Violation
from ..checking.state import ABSENT, Cell, Found


def judge_held(cells: dict[Cell, Found], shard: str, until: int) -> None:
    """Judge the held row when the shard's gate rests. until: time until which the events' channel takes none. Raises `Violation`."""
    rows = {cell[2]: props for cell, (_, props) in cells.items() if cell[:2] == (EVENTS, shard)}
    events = [dict(props) for rk, props in rows.items() if rk.startswith(FIRST_EVENT) and props]
    waiting = sum(props["state"] in rules.WAITING and rules.due_at(props) < until for props in events)
    # Users cancel and move events without the owner, which still counts them.
    gone = sum(props["state"] in ("cancelled", "moved", *rules.GOING) for props in events)
    row = dict(cells.get((SWEEPS, partition_of(STATE_ROWS, shard), key_of(HELD, shard)), ABSENT)[1] or ())
    noted = noted_events(str(row.get(HELD, "")))
    if not waiting <= noted <= waiting + gone:
        raise Violation(f"P10: the shard rests, {waiting} of its events are held, and its row has {noted}: {row}")


def held_shard(key: str) -> str:
    """Return the shard of a held row's key; '' for the key of another row."""
    return shard_of(key) if key == key_of(HELD, shard_of(key)) else ""


def noted_events(text: str) -> int:
    """Return the events that a held row has, whenever they are due."""
    return sum(count for times in orjson.loads(text).values() for _, count in times) if text else 0
