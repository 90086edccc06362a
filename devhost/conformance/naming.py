"""Names of a run's tables and queues. They show who made them and when, so that leftovers can be distinguished from all other names."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

_TIME = "%y%m%d%H%M"
_RUN = r"(\d{10})([0-9a-f]{8})"
_TABLE = re.compile(rf"TocsinConformance{_RUN}x[A-Za-z0-9]+")
_QUEUE = re.compile(rf"tocsin-conformance-{_RUN}-[a-z0-9-]+")
TABLES = "TocsinConformance"
"""The prefix of every run's tables."""
QUEUES = "tocsin-conformance-"
"""The prefix of every run's queues."""


@dataclass(frozen=True)
class Run:
    """One run, by its id: the minute in which it began (UTC, yyMMddHHmm) and eight random hexadecimal digits."""

    id: str

    @classmethod
    def new(cls, now: datetime) -> Self:
        """Return a run that begins now."""
        return cls(f"{now.astimezone(UTC):{_TIME}}{secrets.token_hex(4)}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the run with this id. Raises ValueError."""
        if (run := cls(text)).began is None:
            raise ValueError(f"{text!r} is not the id of a run, such as 26112315036f00ba12")
        return run

    @classmethod
    def of(cls, name: str) -> Self | None:
        """Return the run that made a table or queue of this name; None for every other name."""
        found = _TABLE.fullmatch(name) or _QUEUE.fullmatch(name)
        run = cls(found[1] + found[2]) if found else None
        return run if run is not None and run.began is not None else None

    @property
    def began(self) -> datetime | None:
        """The minute in which the run began; None if the id is not one."""
        found = re.fullmatch(_RUN, self.id, re.ASCII)
        if found is None:
            return None
        try:
            return datetime.strptime(found[1], _TIME).replace(tzinfo=UTC)
        except ValueError:
            return None

    @property
    def tables(self) -> str:
        """The prefix of this run's tables."""
        return f"{TABLES}{self.id}x"

    @property
    def queues(self) -> str:
        """The prefix of this run's queues."""
        return f"{QUEUES}{self.id}-"
