"""The state of a replica, as its application reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a replica.

    role, term: by the replicas' own election; each primary has a higher term than those before it. applied: sequence up to which it has
    applied the log. lag: distance to the primary. load: 0 for idle. Lag and load may have any unit that is the same on all replicas.
    """

    role: Literal["primary", "secondary"] = "secondary"
    term: int = 0
    applied: int = 0
    lag: int = 0
    load: float = 0.0

    def __post_init__(self) -> None:
        if self.role not in ("primary", "secondary"):
            raise ValueError(f"role: expected primary or secondary, not {self.role!r}")
        for name in ("term", "applied", "lag"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value < 2**53:
                raise ValueError(f"{name}: expected an integer of 0 or more, not {value!r}")
        if not isinstance(self.load, int | float) or not 0 <= self.load <= 1e9:
            raise ValueError(f"load: expected a number from 0 to 1e9, not {self.load!r}")
