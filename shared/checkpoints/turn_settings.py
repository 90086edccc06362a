"""Reads the turn settings of a fleet's definition for the rules."""

from __future__ import annotations

import json

from ..leases.rows import Fleet
from .settings import FleetCheckpoints
from .turns import TurnSettings


def read_turn_settings(fleet: Fleet) -> TurnSettings:
    """Return the turn settings of a stored fleet."""
    return to_turn_settings(FleetCheckpoints.model_validate(json.loads(fleet.rest).get("checkpoints", {})))


def to_turn_settings(settings: FleetCheckpoints) -> TurnSettings:
    """Return the settings as the rules use them."""
    span = settings.timeout
    return TurnSettings(span.initial, span.min, span.max, settings.drift, settings.silence, settings.max_lag, settings.interval or 0)
