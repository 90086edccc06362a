"""Invariants that hold at every instant, checked when they could break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared.scheduler.facets import ORIGIN
from shared.scheduler.facets.finding import LISTED, STATE_ROWS, partition_of
from shared.scheduler.keys import GATE, MIRRORED, index_shard, place_of, shard_tenant
from shared.storage.memory import MemoryTables
from shared.storage.names import EVENTS, LEDGER, SHARDS, SWEEPS
from shared.storage.ports import Delete, Insert, Merge, Op

if TYPE_CHECKING:
    from ..history import World
    from ..world.instance import Instance


def still_filed(world: World, tables: MemoryTables, pk: str, ops: Sequence[Op]) -> None:
    """The index is the truth about what is unfinished: a shard leaves it only when its gate is done and the ledger has it."""
    for op in ops:
        if not isinstance(op, Delete):
            continue
        shard = index_shard(op.rk)
        if any(index_shard(rk) == shard for rk in keys_of(tables, SHARDS, pk)):
            continue
        gate = tables._tables[EVENTS].get(shard)
        if gate is None or gate.rows[GATE].props["state"] != "done":
            world.fail(f"{shard} left the index unfinished")
        # The ledger is in the home account of who serves; each side of a mirrored pair has one.
        ledgers = (tables,) if place_of(shard) == MIRRORED else world.accounts
        if not any(rk.endswith(f":{shard}") for each in ledgers for rk in keys_of(each, LEDGER, shard_tenant(shard))):
            world.fail(f"{shard} left the index before it was in the ledger")


def found_by_lists(world: World, tables: MemoryTables, pk: str, ops: Sequence[Op]) -> None:
    """A dead or retrying event has the state row of its shard before it is in that state. A copy gets it with the end of its shard."""
    for op in ops:
        if not isinstance(op, Insert | Merge) or op.props.get("state") not in LISTED or op.rk == GATE or ORIGIN in op.props:
            continue
        # State rows are in the home account of who serves, as the ledger is.
        homes = (tables,) if place_of(pk) == MIRRORED else world.accounts
        key = f"{op.props['state']}:{pk}"
        if not any(key in keys_of(each, SWEEPS, partition_of(STATE_ROWS, pk)) for each in homes):
            world.fail(f"{pk}/{op.rk} is {op.props['state']}, and no list finds it")


def keys_of(tables: MemoryTables, table: str, pk: str) -> list[str]:
    """The row keys of a partition, as it is."""
    partition = tables._tables[table].get(pk)
    return list(partition.rows) if partition is not None else []


def takes_over(world: World, tables: MemoryTables, instance: Instance, pk: str, ops: Sequence[Op]) -> bool:
    """Return whether the write, if it is applied, takes the shard from another owner. Remembers which process uses the owner's name."""
    first = ops[0]
    if not isinstance(first, Insert | Merge) or first.rk != GATE or ORIGIN in first.props or first.props["state"] != "owned":
        return False
    holder = str(first.props["holder"])
    world.owners[holder] = instance.name
    partition = tables._tables[EVENTS].get(pk)
    gate = partition.rows[GATE].props if partition is not None and GATE in partition.rows else {}
    return gate.get("state") == "owned" and gate["holder"] != holder


def only_owners_start(world: World, instance: Instance, event_id: str, tenant: str) -> None:
    """Check that a delivery starts only for an event that is claimed in the store, in a shard of this instance: V < T, and nothing lies
    between the look at the last beat and the start."""
    for shard, partition in [found for tables in world.accounts for found in tables._tables[EVENTS].items()]:
        if shard_tenant(shard) != tenant or GATE not in partition.rows:
            continue
        gate = partition.rows[GATE].props
        if gate["state"] == "owned" and world.owners.get(str(gate["holder"])) == instance.name:
            for row in partition.rows.values():
                if row.props.get("id") == event_id and row.props["state"] == "firing" and row.props["epoch"] == gate["epoch"]:
                    return
    world.fail(f"{instance.name} starts a delivery of {event_id}, whose shard or claim it does not have")
