"""Reads the turn settings of a fleet's definition for the rules."""

from __future__ import annotations

import json

from ..leases.rows import Fleet
from .settings import FleetCheckpoints
from .turns import TurnTerms


def terms_of(fleet: Fleet) -> TurnTerms:
    """Return the turn settings of a stored fleet."""
    return to_terms(FleetCheckpoints.model_validate(json.loads(fleet.rest).get("checkpoints", {})))


def to_terms(settings: FleetCheckpoints) -> TurnTerms:
    """Return the settings as the rules use them."""
    span = settings.timeout
    return TurnTerms(span.initial, span.min, span.max, settings.drift, settings.silence, settings.max_lag, settings.interval or 0)
