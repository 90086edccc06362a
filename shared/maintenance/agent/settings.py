"""What a node's agent is told to do. `config` reads it from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .model import Action, HookKind, Source


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done about events that fit; fields left out fit any. The first rule that fits decides.

    type: of the event. max_seconds: fits impacts known to last at most this long. resources: fits events that name one of these VMs.
    """

    action: Action
    type: str | None = None
    source: Source | None = None
    max_seconds: int | None = None
    resources: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a node's agent is told to do. Seconds throughout.

    vm: this node's name as the metadata service says it (`compute.name`). lead: how long before NotBefore to prepare; leads: by type.
    freeze_limit: a Freeze known to be shorter is no impact. hooks: those configured, with their deadlines. central: an app is
    configured. require_central: without the app's word nothing prepared is approved. patience: how long an app must be away before the node
    goes by itself, for one lost call must not get round the fleet's guard. approve_failed: approve though prepare failed.
    after_reboot: what is done when the event still lasts and services came up at boot. idempotent: a prepare that runs when the impact
    begins is left to finish. near: a node is not put back for less than this until the next event's preparation. prepare_tries: made
    even when NotBefore has passed. stale: without a believable document for so long the agent is not ready.
    """

    vm: str
    rules: tuple[Rule, ...] = ()
    freeze_limit: float = 0.0
    lead: float = 30.0
    leads: Mapping[str, float] = field(default_factory=dict)
    hooks: Mapping[HookKind, float] = field(default_factory=dict)
    central: bool = False
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
