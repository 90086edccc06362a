"""Checkpoints: one replica at a time takes its own, in fair turns, never the primary. See docs/explain/checkpoints.md.

    rules       what becomes of turns: pure decisions
    choice      who gets the next one
    timeouts    how long it may take
    clocks      whether a replica's clock can be trusted
    rows        what is stored
    node        what a replica does about its turns: pure decisions
    participant `CheckpointParticipant`, what a replica runs: it tells its `health`; `turn` is what its code sees; `publishing` what becomes
                of that, `state` what is remembered of it over restarts
    command     a program within a turn, behind a `guard`: a process of its own that ends it whatever happens

What nodes use is loaded when first asked for: the app has no use for the client.
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
