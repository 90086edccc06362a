"""P11: at every instant, totals have the ends that the gate or a note knows, each once, and no others."""

from __future__ import annotations

from collections import Counter
from typing import Any

from shared.scheduler import rules
from shared.scheduler.keys import FIRST_EVENT, GATE
from shared.scheduler.protocol.user_ends import NO_ENDS, UserEnds, noted_shard, parse_ends, partition_of, with_ends
from shared.scheduler.shard.gate import parse_gate
from shared.storage.names import EVENTS, SWEEPS

from ..checking.checker import Violation
from ..checking.state import Cell, Found


def judge_ends(cells: dict[Cell, Found], shard: str) -> None:
    """Compare what totals say of a shard with its rows. Raises `Violation`."""
    gate = cells.get((EVENTS, shard, GATE))
    if gate is None or gate[1] is None:
        return
    tally = parse_gate(dict(gate[1])).tally
    known = tally.user_ends | noted(cells, shard)
    events = {cell[2]: props for cell, (_, props) in cells.items() if cell[:2] == (EVENTS, shard) and cell[2].startswith(FIRST_EVENT)}
    rows = {rk: dict(props) for rk, props in events.items() if props}
    expected: Counter[str] = Counter()
    for rk, props in rows.items():
        unknown = rules.is_user_end(props["state"], props) and not known >> rules.event_number(rk) & 1
        # To totals, it waits on.
        state = ("retrying" if "next" in props else "scheduled") if unknown else props["state"]
        expected[state] += 1
    shown = with_ends(tally, ends_of(cells, shard))
    found = {name: getattr(shown, name) for name in ("cancelled", "moved", "delivered", "dead", "retrying")}
    if found != (wanted := {name: expected[name] for name in found}):
        raise Violation(f"P11: totals say {found} of {shard}, its rows {wanted}: {tally}")


def ends_of(cells: dict[Cell, Found], shard: str) -> UserEnds:
    """Return the noted ends of a shard."""
    ends = NO_ENDS
    for cell, (_, props) in cells.items():
        if cell[:2] == (SWEEPS, partition_of(shard)) and props is not None and noted_shard(cell[2]) == shard:
            ends = ends.joined(parse_ends(dict(props)))
    return ends


def noted(cells: dict[Cell, Found], shard: str) -> int:
    """Return the events of a shard that notes have, as bits."""
    delivered, dead, lapsed, cancelled, moved, _ = ends_of(cells, shard)
    return delivered | dead | lapsed | cancelled | moved


def judge_counted(cells: dict[Cell, Found], acked: frozenset[tuple[str, Any]]) -> None:
    """Judge that totals have each end of which the note was stored. Raises `Violation`."""
    for fact, place in acked:
        if fact == "counted":
            shard, rk = place
            gate = cells[EVENTS, shard, GATE][1]
            if not (parse_gate(dict(gate or ())).user_ends | noted(cells, shard)) >> rules.event_number(rk) & 1:
                raise Violation(f"P11: the end of {rk} was noted, and totals do not have it any more")
