"""What a fleet asks of its agents: the part of its definition that they follow beside their own file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Action, EventSource


@dataclass(frozen=True, slots=True)
class ActionRule:
    """What is done about events that fit; fields left out fit any. The first rule that fits decides.

    type: of the event. max_seconds: fits impacts known to last at most this long. resources: fits events that name one of these VMs.
    """

    action: Action
    type: str | None = None
    source: EventSource | None = None
    max_seconds: int | None = None
    resources: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class FleetPolicy:
    """As an answer of the app brought it, and the journal keeps it. of: the fleet. lead: seconds before NotBefore to prepare, None where it
    does not say; leads: by type. require_central: without the app's word nothing prepared is approved."""

    of: str = ""
    lead: float | None = None
    leads: Mapping[str, float] = field(default_factory=dict)
    require_central: bool = False
    rules: tuple[ActionRule, ...] = ()
