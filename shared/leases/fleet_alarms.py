"""Definitions of fleets' alarms: `fleets.watch.alarms` has those of leases, `maintenance.service.alarms` those of maintenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

NotificationKind = Literal["stale", "dead", "maintenance"]
"""The kinds that a fleet's `notify.kinds` selects."""
Urgency = Literal["urgent", "soon", "later"]
"""urgent: the fleet's service is worse already, or machines do not come back. later: it may wait until the others are seen to."""


class Reason(NamedTuple):
    """A reason why a fleet needs a person. one, many: the words after the count. Without `many`, it concerns the whole fleet: no count."""

    urgency: Urgency
    one: str
    many: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmDefinition:
    """One kind of alarm. sentence: for one subject. reason: how the overview of fleets names it, and how urgent it is there."""

    sentence: str
    reason: Reason
