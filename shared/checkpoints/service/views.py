"""Shows a fleet's nodes as replicas, for the API's views, and computes its gauges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import timeouts
from ..protocol import StoredTurns
from ..rows import ReplicaRow
from ..turns import PendingImpact, TurnSettings, down_reason, may_be_taken, skip_reason


def taking(seen: StoredTurns | None) -> str | None:
    """Return the node that may be taking a checkpoint, so that readers avoid it; None when there is none."""
    if seen is None:
        return None
    turn = seen.view.group.turn
    return turn.holder if may_be_taken(turn, seen.view.replicas.get(turn.holder), seen.now) else None


def replicas_out(seen: StoredTurns | None, settings: TurnSettings, pending: Mapping[str, PendingImpact]) -> dict[str, dict[str, Any]]:
    """Return the fleet's replicas by node, as the API answers. pending: their next maintenance."""
    if seen is None:
        return {}
    return {node: _replica_out(replica, seen, settings, pending.get(node)) for node, replica in seen.view.replicas.items()}


def _replica_out(replica: ReplicaRow, seen: StoredTurns, settings: TurnSettings, pending: PendingImpact | None) -> dict[str, Any]:
    group = seen.view.group
    timeout = timeouts.clamp(group.next_timeout or settings.initial, settings.least, settings.most)
    return {
        "role": replica.role,
        "term": replica.term,
        "applied": replica.applied,
        "lag": replica.lag,
        "load": replica.load,
        "failures": replica.failures,
        "ready": replica.ready,
        "report_age_ms": max(0, seen.now - replica.at),
        "down": down_reason(replica, seen.now, settings) or None,
        "skipped": skip_reason(replica, seen.now, settings, timeout, pending, group) or None,
        "taking": replica.taking or None,
        "holds": group.turn.epoch if taking(seen) == replica.node else None,
        "last_checkpoint": replica.last_checkpoint,
    }


class TurnFigures(NamedTuple):
    """The gauges of one fleet.

    replicas, down: number of replicas, and of those that are down. taking: 1 while a replica may be taking a checkpoint. age: seconds since
    the last turn was granted. timeout: of the next turn, in seconds. misses: consecutive turns that timed out. epoch: of the last turn.
    sequence: of the latest checkpoint. checkpoint_age: seconds since it was published, -1 when there is none.
    """

    tenant: str
    fleet: str
    replicas: int
    down: int
    taking: int
    age: float
    timeout: float
    misses: int
    epoch: int
    sequence: int
    checkpoint_age: float


def figures_of(key: str, seen: StoredTurns, settings: TurnSettings) -> TurnFigures:
    """Return the gauges of a fleet."""
    tenant, _, fleet = key.partition(":")
    group, latest = seen.view.group, seen.view.latest
    return TurnFigures(
        tenant,
        fleet,
        len(seen.view.replicas),
        sum(bool(down_reason(each, seen.now, settings)) for each in seen.view.replicas.values()),
        int(taking(seen) is not None),
        max(0, seen.now - (group.turn.granted or group.since)) / 1000,
        timeouts.clamp(group.next_timeout or settings.initial, settings.least, settings.most) / 1000,
        group.misses,
        group.turn.epoch,
        latest.sequence if latest is not None else 0,
        max(0, seen.now - latest.at) / 1000 if latest is not None else -1,
    )
