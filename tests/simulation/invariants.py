"""What must hold at every instant, looked at when it could break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared.scheduler.keys import GATE, index_shard, shard_tenant
from shared.storage.names import EVENTS, LEDGER, SHARDS
from shared.storage.ports import Delete, Merge, Op

if TYPE_CHECKING:
    from .history import World


def still_filed(world: World, pk: str, ops: Sequence[Op]) -> None:
    """The index is the truth about what is unfinished: a shard leaves it only when its gate is done and the ledger has it."""
    for op in ops:
        if not isinstance(op, Delete):
            continue
        shard = index_shard(op.rk)
        if any(index_shard(rk) == shard for rk in world.keys(SHARDS, pk)):
            continue
        gate = world.tables._tables[EVENTS].get(shard)
        if gate is None or gate.rows[GATE].props["state"] != "done":
            world.fail(f"{shard} left the index unfinished")
        if not any(rk.endswith(f":{shard}") for rk in world.keys(LEDGER, shard_tenant(shard))):
            world.fail(f"{shard} left the index before it was in the ledger")


def taken_over(world: World, pk: str, ops: Sequence[Op]) -> bool:
    """Whether the write would take the shard from an owner."""
    first = ops[0]
    if not isinstance(first, Merge) or first.rk != GATE or first.props["state"] != "owned":
        return False
    gate = world.tables._tables[EVENTS][pk].rows[GATE].props
    return gate["state"] == "owned" and gate["holder"] != first.props["holder"]
