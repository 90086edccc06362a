"""The `checkpoints` part of a fleet's definition, as the API takes it.

Reads the turn settings of a fleet's definition for the rules.
"""

from __future__ import annotations

import json
from typing import Annotated, Self

from pydantic import Field, model_validator

from ..leases.rows import Fleet
from ..web.fields.types import Duration, Maybe, Strict
from .turns import TurnSettings

DAY = 86_400_000


Span = Annotated[Duration, Field(ge=0, le=7 * DAY)]


class TurnTimeout(Strict):
    """Timeout of a turn: of the first one, and the bounds within which the service adapts it."""

    initial: Span = 600_000
    min: Annotated[Duration, Field(ge=60_000, le=7 * DAY)] = 60_000
    max: Annotated[Duration, Field(ge=60_000, le=7 * DAY)] = 3_600_000

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.min <= self.initial <= self.max:
            raise ValueError("min <= initial <= max does not hold")
        return self


class FleetCheckpoints(Strict):
    """Settings of a fleet's checkpoint turns."""

    timeout: TurnTimeout = Field(default_factory=TurnTimeout)
    drift: float = Field(0.3, ge=0, le=0.9, description="Largest relative deviation of a replica's clock from true time.")
    silence: Annotated[Duration, Field(ge=1000, le=DAY, description="A replica that has not reported for this long counts as down.")] = (
        60_000
    )
    max_lag: int | None = Field(None, ge=0, description="A secondary that lags further behind gets no turn. null: no bound.")
    interval: Maybe[Annotated[Duration, Field(ge=0, le=7 * DAY)]] = Field(
        default=None, description="Least time from one turn's grant to the next. Without it, turns follow one another."
    )


def read_turn_settings(fleet: Fleet) -> TurnSettings:
    """Return the turn settings of a stored fleet."""
    return to_turn_settings(FleetCheckpoints.model_validate(json.loads(fleet.rest).get("checkpoints", {})))


def to_turn_settings(settings: FleetCheckpoints) -> TurnSettings:
    """Return the settings as the rules use them."""
    span = settings.timeout
    return TurnSettings(span.initial, span.min, span.max, settings.drift, settings.silence, settings.max_lag, settings.interval or 0)
