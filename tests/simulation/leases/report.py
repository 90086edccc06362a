"""The result of a history, and the log lines that its loops must not write."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.checks.truth import Violation

from .world import World


@dataclass(slots=True)
class Report:
    """The result of a seed. healed: true seconds from the end of all trouble until everything was served and shared out. gaps: seconds for
    which a partition was not served, by what had happened (style `single`)."""

    seed: object
    style: str
    world: World
    violation: str | None = None
    healed: float = 0.0
    gaps: dict[str, list[float]] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        return self.world.counts


class _Refuse(logging.Handler):
    """Treat each error in the log of the loops as a broken promise."""

    def emit(self, record: logging.LogRecord) -> None:
        raise Violation(f"logged: {record.getMessage()} {record.exc_info[1] if record.exc_info else ''}")


@contextmanager
def listening() -> Iterator[None]:
    """Discard the texts and count the errors."""
    log, handler = logging.getLogger("shared.leases"), _Refuse()
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before  # type: ignore[assignment]
        log.setLevel(before[0])
