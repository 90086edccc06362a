"""What a node's agent is told to do. `config` reads it from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ..model import HookKind
from ..policy import ActionRule, FleetPolicy

LEAD: Final = 30.0
"""Seconds before NotBefore that a node prepares where neither its file nor its fleet says."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What a node's agent is told to do. Seconds throughout.

    vm: this node's name as the metadata service says it (`compute.name`). lead: how long before NotBefore to prepare, None where the file
    does not say; leads: by type. policy: what the fleet asks for, as last heard. freeze_limit: a Freeze known to be shorter is no impact.
    hooks: those configured, with their deadlines. central: an app is configured, fleet: in which fleet. require_central: without the app's
    word nothing prepared is approved. patience: how long an app must be away before the node goes by itself, for one lost call must not get
    round the fleet's guard. approve_failed: approve though prepare failed. after_reboot: what is done when the event still lasts and
    services came up at boot. idempotent: a prepare that runs when the impact begins is left to finish. near: a node is not put back for
    less than this until the next event's preparation. prepare_tries: made even when NotBefore has passed. stale: without a believable
    document for so long the agent is not ready.
    """

    vm: str
    rules: tuple[ActionRule, ...] = ()
    freeze_limit: float = 0.0
    lead: float | None = None
    leads: Mapping[str, float] = field(default_factory=dict)
    hooks: Mapping[HookKind, float] = field(default_factory=dict)
    central: bool = False
    fleet: str = ""
    require_central: bool = False
    patience: float = 10.0
    approve_failed: bool = False
    after_reboot: Literal["keep", "prepare"] = "keep"
    idempotent: bool = True
    near: float = 900.0
    prepare_tries: int = 3
    post_tries: int = 5
    retry_first: float = 1.0
    retry_most: float = 30.0
    restore_most: float = 300.0
    late_warning: float = 300.0
    started_warning: float = 1800.0
    gap: float = 3.0
    stale: float = 60.0
    keep_done: float = 86_400.0
    dry_run: bool = False
    policy: FleetPolicy = field(default_factory=FleetPolicy)

    def lead_of(self, kind: str) -> float:
        """Seconds before NotBefore that the node prepares for events of a type. The file knows how long its hooks take, so what it says
        goes before what the fleet says."""
        for leads, lead in ((self.leads, self.lead), (self.policy.leads, self.policy.lead)):
            if (found := leads.get(kind, lead)) is not None:
                return found
        return LEAD

    def following(self, policy: FleetPolicy | None) -> AgentSettings:
        """The same with what the fleet asks for."""
        return self if policy is None else replace(self, policy=policy)
