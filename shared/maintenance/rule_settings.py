"""The maintenance settings of a fleet, as the rules use them. Milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..core.clock import Millis
from .latency import LatencyBound
from .timings import HAND_OFF

type GuardMode = Literal["approve", "prepare"]
"""The domain guard judges approvals only, or also which nodes may prepare."""
type Strangers = Literal["hold", "ignore"]
"""The treatment of VMs that an event names and that no agent of the tenant's fleets knows."""


class FleetRule(NamedTuple):
    """The action of agents for matching events. A field that is None matches any event. max_seconds: matches impacts known to last at most
    this. early: the app approves matching events before their time."""

    action: Literal["approve", "prepare", "hold", "ignore"]
    type: str | None = None
    source: Literal["Platform", "User"] | None = None
    max_seconds: int | None = None
    early: bool = False

    def fits(self, kind: str, source: str, duration: int) -> bool:
        """Return true if the rule matches an event: its type in any case, and its duration in seconds, -1 for unknown."""
        return (
            (self.type is None or self.type.lower() == kind.lower())
            and (self.source is None or self.source == source)
            and (self.max_seconds is None or 0 <= duration <= self.max_seconds)
        )


class ProbeSettings(NamedTuple):
    """The fleet's caller probe: a GET of `url`, or else the command that nodes' files have under the name `command`. every: time from start
    to start. timeout: a probe without an answer for this time has failed."""

    url: str = ""
    command: str = ""
    every: Millis = 1_000
    timeout: Millis = 5_000
    bound: LatencyBound = LatencyBound()


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """A fleet's maintenance settings.

    lead: time before NotBefore at which a node prepares; leads: by event type. catch_up: time for which a restored node counts as down,
    unless it reports earlier that it has caught up. per: the unit within which fault domains are counted. domains_down: number of them that
    may be down at once. early: all events are approved before their time, one fault domain after the other. hand_off: time that leases need
    to leave a node. require_central, rules: passed to the agents, like lead and leads. silence: nodes with an agent that is silent for
    longer do not delay the approval of a user's event. guard: the domain guard judges approvals only, or also who prepares. probe: what
    agents measure for callers; None for nothing. strangers: holds an event until NotBefore
    if it also names a VM that no agent of the tenant's fleets knows, or ignores such VMs.
    """

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
    silence: Millis = 30_000
    guard: GuardMode = "approve"
    probe: ProbeSettings | None = None
    strangers: Strangers = "hold"

    def approves(self, kind: str, source: str, duration: int) -> bool:
        """Return true if the fleet's rules let an event be approved by itself. duration: of its impact in seconds; -1 if unknown."""
        rule = next((rule for rule in self.rules if rule.fits(kind, source, duration)), None)
        return rule is None or rule.action in ("approve", "prepare")

    def lead_of(self, kind: str) -> Millis:
        """Return the time before NotBefore at which nodes prepare for events of a type."""
        return self.leads.get(kind, self.lead)

    def approves_early(self, kind: str, source: str, duration: int) -> bool:
        """Return true if such events are approved before their time: all are, or the first rule that matches says so."""
        return self.early or any(rule.early for rule in [rule for rule in self.rules if rule.fits(kind, source, duration)][:1])
