"""Checkpoints: one secondary replica at a time takes its checkpoint, in fair turns, never the primary. See docs/explain/checkpoints.md.

    rules        decide about turns; pure, with `turns`, `selection`, `timeouts` and `clock_rate`
    timings      constants that may be tuned
    rows         the stored rows
    protocol     applies decisions to the store
    service/     runs in the app
    node/        runs beside a replica: `CheckpointParticipant`, and the command that runs a program within a turn

Rules of *Ringmaster Checkpoint Coordination*, and the functions that keep them:

    one secondary at a time takes a checkpoint:
        protocol.py: report, turns.py: step, turns.py: is_free
    the primary never does:
        turns.py: skip_reason, turns.py: may_begin, node/rules.py: stop_reason
    every secondary eventually does, evenly in turn:
        selection.py: choose, selection.py: overdue
    a checkpoint completes or is aborted:
        turns.py: settle, node/rules.py: stop_reason
    replicas crash and recover:
        rules.py: receive (lives), turns.py: is_idle, node/state_file.py: ReplicaFile
    links fail and recover:
        turns.py: hand_out (again), turns.py: is_silent, rules.py: receive (repeats)
    time passes at different rates: 70 % of the timeout for the holder:
        timeouts.py: turn_limit
    a replica that drifts by more is out of the replica set:
        clock_rate.py: judge_rate, turns.py: down_reason
    chosen at random, the healthier more often:
        selection.py: health_weight, selection.py: choose
    the lease is issued by consensus:
        the ETag of one row: protocol.py: report
    a secondary schedules its checkpoint when it sees the lease:
        turns.py: hand_out, node/rules.py: apply_answer
    no lease can be revoked while it is executed:
        here it can: rules.py: revoke
    the timeout grows on a timeout, shrinks on an early end, has an absolute maximum:
        timeouts.py: lengthen, timeouts.py: adjust, timeouts.py: clamp
    the last checkpoint's sequence, kept, in every health report:
        turns.py: settle, node/state_file.py: ReplicaFile
    a new primary knows the lease, because it has executed the whole log:
        every instance reads the row before each decision: protocol.py: look
    its frame of reference may be another:
        ages are the store's time, for all instances alike: turns.py: settle
    no lease on record: grant at once:
        turns.py: is_free; a fleet that is created again: protocol.py: end
    a lease of a holder that becomes primary is waited out, not pre-empted:
        turns.py: is_idle, turns.py: settle
    readers avoid the replica that takes a checkpoint:
        service/views.py: taking

The node's part is imported when it is first used, because the app does not need the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .node.participant import CheckpointParticipant, Health, NameInUse, Turn, TurnLost

__all__ = ["CheckpointParticipant", "Health", "NameInUse", "Turn", "TurnLost"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(".node.participant", __name__), name)
    globals()[name] = found
    return found
