"""The values that all parts of an agent's process use."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...core.clock import Millis
from .observability.health import AgentFigures
from .observability.logs import LogContext


class AgentProcess(NamedTuple):
    """One agent's process. context: of log lines. wall, steady: its clocks, in milliseconds and in seconds. chance: returns a random number
    in [0, 1)."""

    figures: AgentFigures
    context: LogContext
    wall: Callable[[], Millis]
    steady: Callable[[], float]
    chance: Callable[[], float]
