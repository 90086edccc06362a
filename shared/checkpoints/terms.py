"""What a fleet's definition says of turns, for the rules."""

from __future__ import annotations

import json

from ..leases.rows import Fleet
from .settings import FleetCheckpoints
from .turns import TurnTerms


def terms_of(fleet: Fleet) -> TurnTerms:
    """The terms of a fleet as it is stored."""
    return terms(FleetCheckpoints.model_validate(json.loads(fleet.rest).get("checkpoints", {})))


def terms(told: FleetCheckpoints) -> TurnTerms:
    """The same for the rules."""
    span = told.timeout
    return TurnTerms(span.initial, span.min, span.max, told.drift, told.silence, told.max_lag, told.interval or 0)
