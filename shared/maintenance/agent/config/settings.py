"""The agent's settings for its decisions. `config` reads them from the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ..model import HookKind
from ..policy import ActionRule, FleetPolicy
from ..timings import LEAD, USUAL_RESTORE


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings by which an agent decides. All times are in seconds.

    vm: this node's name in the metadata service (`compute.name`). lead: time before NotBefore at which it prepares, None if the file does
    not set it; leads: by type. policy: the fleet's settings, as last received. freeze_limit: a Freeze known to be shorter counts as no
    impact. hooks: the configured ones, with their deadlines. central: an app is configured; fleet: the node's fleet there. require_central:
    events that were prepared for are approved only with the app's consent. patience: time without the app after which the node decides by
    itself; one lost call must not bypass the fleet's domain guard. approve_failed: approve although prepare failed. after_reboot: action
    when the event still lasts and services started at boot. idempotent: a prepare that is running when the impact begins is left to
    finish. near: a node is not restored when the next event's preparation is closer than this; None: see `near_of`. prepare_tries:
    attempts that are made even after NotBefore. retry_first, retry_most, restore_most: shortest and longest pause between attempts, and
    longest between attempts to restore. late_warning, started_warning: an event that is this late, or lasts this long, gives a warning.
    gap: a longer gap between ticks counts as an impact. stale: the agent is not ready without a valid document for this long. keep_done:
    time for which ids of past events are kept.
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
    near: float | None = None
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

    def near_of(self, kind: str, restores: Sequence[float]) -> float:
        """Return the seconds before a preparation within which a node is not restored. restores: durations of the last ones in seconds.

        Without a value in the file: the time in which the node would be of use again only to leave.
        """
        if self.near is not None:
            return self.near
        return self.lead_of(kind) + max(restores, default=USUAL_RESTORE) + self.policy.catch_up

    def longest_lead(self) -> float:
        """Return the longest lead that the node's own file sets, in seconds; 0 if it sets none."""
        return max([self.lead or 0.0, *self.leads.values()])

    def lead_of(self, kind: str) -> float:
        """Return the seconds before NotBefore at which the node prepares for events of a type.

        The file has precedence over the fleet, because its author knows how long the hooks take.
        """
        for leads, lead in ((self.leads, self.lead), (self.policy.leads, self.policy.lead)):
            if (found := leads.get(kind, lead)) is not None:
                return found
        return LEAD

    def following(self, policy: FleetPolicy | None) -> AgentSettings:
        """Return these settings with the fleet's."""
        return self if policy is None else replace(self, policy=policy)
