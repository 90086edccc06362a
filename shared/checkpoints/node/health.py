"""How a replica stands, as it says itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Health:
    """How a replica stands.

    role, term: as the replicas' own election has it; a primary's term is above those before it. applied: up to which sequence it has
    applied what was replicated. lag: how far that is behind, in any measure that is alike on all replicas. load: 0 for idle, in any measure
    that is alike.
    """

    role: Literal["primary", "secondary"] = "secondary"
    term: int = 0
    applied: int = 0
    lag: int = 0
    load: float = 0.0

    def __post_init__(self) -> None:
        if self.role not in ("primary", "secondary"):
            raise ValueError(f"a role is primary or secondary, not {self.role!r}")
        for name in ("term", "applied", "lag"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value < 2**53:
                raise ValueError(f"{name} is a whole number from 0, not {value!r}")
        if not isinstance(self.load, int | float) or not 0 <= self.load <= 1e9:
            raise ValueError(f"load is a number from 0 to 1e9, not {self.load!r}")
