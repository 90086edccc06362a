"""Checkpoints: one secondary replica at a time takes its checkpoint, in fair turns, never the primary. See docs/explain/checkpoints.md.

    rules        decide about turns; pure, with `turns`, `selection`, `timeouts` and `clock_rate`
    timings      constants that may be tuned
    rows         the stored rows
    protocol     applies decisions to the store
    service/     runs in the app
    node/        runs beside a replica: `CheckpointParticipant`, and the command that runs a program within a turn

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
