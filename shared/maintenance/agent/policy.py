"""The part of a fleet's definition that its agents follow, in addition to their own configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..rule_settings import GuardMode

type EventSource = Literal["Platform", "User"]
type Action = Literal["approve", "prepare", "hold", "ignore"]


@dataclass(frozen=True, slots=True)
class ActionRule:
    """The action for matching events. A field that is None matches any event. The first rule that matches decides.

    type: of the event. max_seconds: matches impacts known to last at most this. resources: matches events that name one of these VMs.
    early: prepare at once, long before NotBefore; only in the file of a node without an app, where no domain guard orders the nodes.
    """

    action: Action
    type: str | None = None
    source: EventSource | None = None
    max_seconds: int | None = None
    resources: frozenset[str] | None = None
    early: bool = False


@dataclass(frozen=True, slots=True)
class FleetPolicy:
    """The fleet's settings, as received from the app and kept in the journal.

    of: the fleet's name. lead: seconds before NotBefore at which the node prepares, None where it is not set; leads: by type.
    require_central: an event that was prepared for is approved only with the app's consent. guard: with `prepare`, the node waits for the
    app's permission before it prepares. catch_up: seconds for which a restored node counts as down.
    """

    of: str = ""
    lead: float | None = None
    leads: Mapping[str, float] = field(default_factory=dict)
    require_central: bool = False
    rules: tuple[ActionRule, ...] = ()
    guard: GuardMode = "approve"
    catch_up: float = 0.0
