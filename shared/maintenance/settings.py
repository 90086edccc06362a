"""shared.maintenance.settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..checkpoints.settings import Span
from ..web.fields.types import Maybe, Strict

EventType = Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]


def _is_false(value: object) -> bool:
    return not value


class Quorum(Strict):
    """What must stay up while nodes are prepared for maintenance."""

    per: Literal["location", "scope", "fleet"] = Field("location", description="What fault domains are counted within.")
    domains_down: int = Field(1, ge=1, le=100, description="Fault domains that may be down at once.")


class MaintenanceRule(Strict):
    """What is done about events that fit. Fields left out fit any."""

    type: Maybe[EventType] = None
    source: Maybe[Literal["Platform", "User"]] = None
    max_seconds: Maybe[Annotated[int, Field(ge=0, le=86_400)]] = Field(default=None, description="Only for impacts at most this long.")
    action: Literal["approve", "prepare", "hold", "ignore"]


class FleetMaintenance(Strict):
    """How Azure's Scheduled Events are met."""

    lead: Span = Field(30_000, description="How long before NotBefore a node prepares.")
    leads: dict[EventType, Span] = Field(default_factory=dict, description="The same by type of event.")
    require_central: bool = Field(False, description="A node that cannot reach Tocsin does not approve by itself what it prepared for.")
    transport: Literal["relay", "arm"] = Field(
        "relay", description="How approvals reach Azure: by way of a node's agent, or of Azure Resource Manager."
    )
    catch_up: Span = Field(
        600_000, description="How long a node that was put back counts as down, unless it says before that it is in step."
    )
    quorum: Quorum = Field(default_factory=Quorum)
    early: bool = Field(False, exclude_if=_is_false, description="Events are approved before their time, one fault domain after the other.")
    rules: list[MaintenanceRule] = Field(default_factory=list, max_length=50)
