"""What lease generators yield: the scheduler's effects, and the two moments that lease time is counted from."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from ...scheduler.protocol.effects import LOST, Get, Load, Lost, Write, Written

__all__ = ["LOST", "RECEIVING", "SENDING", "Get", "Load", "Lost", "Receiving", "Sending", "Steps", "Wait", "Work", "Write", "Written"]


class Sending(NamedTuple):
    """Resumed with `SentAt`: yielded right before a write."""


class Receiving(NamedTuple):
    """Resumed with `ReceivedAt`: yielded right after a read."""


class Wait(NamedTuple):
    """Resumed when the steady clock has come to `until` (seconds, finite), or earlier, when something has come in."""

    until: float


SENDING: Final = Sending()
RECEIVING: Final = Receiving()

type Effect = Get | Load | Write | Sending | Receiving
type Steps[T] = Generator[Effect, Any, T]
type Work[T] = Generator[Effect | Wait, Any, T]
"""What the loops of a keeper are: the same, and they wait."""
