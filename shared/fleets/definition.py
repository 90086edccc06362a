"""Converts a fleet between the API's definition and the stored row. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, cast

from ..core.clock import Millis
from ..leases.profiles import PROFILES
from ..leases.rows import Fleet, MoveLimits
from ..maintenance.rule_settings import GuardMode
from ..maintenance.settings import PART, stored_settings
from .model import FleetIn, FleetLimits, FleetOut, FleetServers, ProfileIn, ProfileName

_PARTS: Final = ("checkpoints", "maintenance", "notify")
"""Parts of a definition that leases do not read, in the order in which they are stored."""


def with_guard(spec: FleetIn, usual: GuardMode) -> FleetIn:
    """Return the definition, with this guard of its maintenance if it names none."""
    return spec.model_copy(update={"maintenance": spec.maintenance.with_guard(usual)})


def guard_of(fleet: Fleet) -> GuardMode:
    """Return the guard of a stored fleet's maintenance."""
    return stored_settings(json.loads(fleet.rest)).guard


def fleet_of(spec: FleetIn, created: Millis) -> Fleet:
    """Return the stored fleet of a definition."""
    limits = MoveLimits(spec.limits.max_per_server, spec.limits.claims_per_cycle, spec.limits.moves_per_minute, spec.drain() / 1000)
    parts = spec.model_dump(mode="json", include=set(_PARTS))
    rest: dict[str, Any] = {"created": created, **{part: parts[part] for part in _PARTS if part in parts}}
    return Fleet(
        spec.partitions,
        spec.seconds(),
        limits,
        spec.servers.minimum,
        spare=spec.servers.spare,
        rest=json.dumps(rest, separators=(",", ":")),
    )


def fleet_out(name: str, fleet: Fleet) -> FleetOut:
    """Return the fleet as the API shows it.

    A fleet stores the numbers of its profile, not the name, and the name is found by equality. If a release changes the numbers of a named
    profile, fleets with the former numbers keep them and show them as a profile of their own.
    """
    known = cast(ProfileName | None, next((name for name, profile in PROFILES.items() if profile == fleet.profile), None))
    h, v, t = (round(seconds * 1000) for seconds in (fleet.profile.beat, fleet.profile.validity, fleet.profile.takeover))
    limits = FleetLimits.model_construct(
        max_per_server=fleet.limits.max_per_server,
        claims_per_cycle=fleet.limits.claims_per_cycle,
        moves_per_minute=fleet.limits.moves_per_minute,
        drain=round(fleet.limits.drain * 1000),
    )
    rest = json.loads(fleet.rest)
    others = {part: rest[part] for part in _PARTS if part in rest and part != PART}
    parts = FleetIn.model_validate(dict[str, Any](partitions=1, **others), extra="ignore")
    return FleetOut.model_construct(
        name=name,
        partitions=fleet.partitions,
        profile=known or ProfileIn.model_construct(beat=h, validity=v, takeover=t),
        limits=limits,
        servers=FleetServers.model_construct(minimum=fleet.minimum, spare=fleet.spare),
        checkpoints=parts.checkpoints,
        maintenance=stored_settings(rest),
        notify=parts.notify,
        generation=fleet.generation,
        created=created_of(fleet),
    )


def created_of(fleet: Fleet) -> Millis:
    """Return when the fleet was created; 0 if it does not say."""
    return int(json.loads(fleet.rest).get("created", 0))
