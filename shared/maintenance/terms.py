"""What the fleet's definition says of maintenance, and the times that are the product's own. Milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis

NEAR: Final[Millis] = 5_000
"""How often an agent reports while an event is open on it."""
IDLE: Final[Millis] = 300_000
"""How often otherwise, give or take a tenth."""
NEAR_SILENCE: Final[Millis] = 30_000
"""An agent that should report every `NEAR` is not counted on after this."""
LEARNING: Final[Millis] = NEAR_SILENCE + 2 * NEAR
"""Agents learn of a change one after the other, and one that has fallen silent counts for a while with what it said before: until then
they may tell different things of an event."""
IDLE_SILENCE: Final[Millis] = 3 * IDLE
GRANT_LEASE: Final[Millis] = 5_000
"""How long one agent has an approval to itself."""
GRANT_TRIES: Final = 5
PROLONGED: Final[Millis] = 1_800_000
"""An event that has been started for so long is worth a look."""
FORGOTTEN: Final[Millis] = 86_400_000
"""An event that only silent agents list is given up after this."""
AWAY: Final[Millis] = 7 * 86_400_000
"""A node whose agent has been silent for so long, with nothing open on it, is forgotten."""
REHEARSED: Final[Millis] = 3_600_000
"""A rehearsal that somebody has not finished is given up so long after its impact."""
HAND_OFF: Final[Millis] = 30_000
"""Leases leave a node so long before it prepares, unless a hand-off takes longer."""


class FleetRule(NamedTuple):
    """What agents do about events that fit; what is None fits any. max_seconds: impacts known to last at most so long."""

    action: Literal["approve", "prepare", "hold", "ignore"]
    type: str | None = None
    source: Literal["Platform", "User"] | None = None
    max_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceTerms:
    """lead: how long before NotBefore a node prepares, leads: by type. catch_up: how long a node that was put back counts as down, unless
    it says before that it is in step. per: what fault domains are counted within; domains_down: how many may be down at once. early:
    events are approved before their time, one fault domain after the other. hand_off: what leases need to leave a node. require_central,
    rules: what agents are told to go by, beside lead and leads."""

    lead: Millis = 30_000
    leads: Mapping[str, Millis] = field(default_factory=dict)
    transport: Literal["relay", "arm"] = "relay"
    catch_up: Millis = 600_000
    per: Literal["location", "scope", "fleet"] = "location"
    domains_down: int = 1
    early: bool = False
    hand_off: Millis = HAND_OFF
    require_central: bool = False
    rules: tuple[FleetRule, ...] = ()

    def lead_of(self, kind: str) -> Millis:
        """How long before NotBefore nodes prepare for events of a type."""
        return self.leads.get(kind, self.lead)
