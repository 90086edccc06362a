"""What a fleet's definition says of turns, for the rules."""

from __future__ import annotations

import json

from ..leases.rows import Fleet
from .settings import FleetCheckpoints
from .turns import Terms


def terms_of(fleet: Fleet) -> Terms:
    """The terms of a fleet as it is stored."""
    return terms(FleetCheckpoints.model_validate(json.loads(fleet.rest).get("checkpoints", {})))


def terms(told: FleetCheckpoints) -> Terms:
    """The same for the rules."""
    span = told.timeout
    return Terms(span.initial, span.min, span.max, told.drift, told.silence, told.max_lag, told.interval or 0)
