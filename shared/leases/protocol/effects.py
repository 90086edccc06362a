"""What lease generators yield: the scheduler's effects, and the two moments that lease time is counted from."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from ...scheduler.protocol.effects import LOST, Get, Load, Lost, Write, Written

__all__ = ["LOST", "RECEIVING", "SENDING", "Get", "Load", "Lost", "Receiving", "Sending", "Steps", "Write", "Written"]


class Sending(NamedTuple):
    """Resumed with `SentAt`: yielded right before a write."""


class Receiving(NamedTuple):
    """Resumed with `ReceivedAt`: yielded right after a read."""


SENDING: Final = Sending()
RECEIVING: Final = Receiving()

type Effect = Get | Load | Write | Sending | Receiving
type Steps[T] = Generator[Effect, Any, T]
