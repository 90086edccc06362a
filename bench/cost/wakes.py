"""The costs that planned wakes add to a bill. `bench cost` measures without them; `bench flex` runs each load with and without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..flex.loads import LOADS
from . import rules
from .prices import Prices

LIKE: Final = {
    **dict.fromkeys(("idle", "fleet-table", "fleet-http", "turns"), "idle"),
    **dict.fromkeys(("posted-1", "scheduled-1"), "minute"),
    **dict.fromkeys(("posted-4", "scheduled-4"), "four"),
    **dict.fromkeys(("posted-60", "posted-1000", "scheduled-60", "scheduled-1020", "evenly-10M"), "sixty"),
}
"""By load: the one of `bench flex` that has as many pauses to fill. A bulk's messages leave none."""


def added(measured: Mapping[str, Any], figures: Mapping[str, Any], prices: Prices) -> float:
    """Return the USD a month that wakes add to a measured load. figures: those of `bench flex`."""
    if measured["load"] not in LIKE:
        return 0.0
    title = LOADS[LIKE[measured["load"]]].title
    on, off = (figures[f"{title}, {mode}: a month"] for mode in ("auto", "off"))
    more = {name: on["operations"][name] - off["operations"][name] for name in off["operations"]}
    kilo_gb_seconds = sum(on["kilo_gb_seconds"].values()) - sum(off["kilo_gb_seconds"].values())
    # An instance of any size is billed for the same time, and bench flex counts those of 512 MB.
    gb_seconds = measured["gb_seconds"] + 1000 * kilo_gb_seconds * measured["memory_mb"] / 512
    before = rules.on_demand(measured["gb_seconds"], measured["executions"], prices, free=True)
    after = rules.on_demand(gb_seconds, measured["executions"] + more["executions"], prices, free=True)
    # Where shards are served, the measured listener already polls all month.
    polls = 0.0 if "fire_shard" in measured["executions_by_function"] else more["polls"]
    requests = more["table"] * prices.table_10k + (more["queue"] + polls) * prices.queue_10k
    return sum(after.values()) - sum(before.values()) + requests / 1e4
