"""shared.checkpoints.settings."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ..core.durations import Duration
from ..web.fields.types import Maybe, Strict

DAY = 86_400_000


Span = Annotated[Duration, Field(ge=0, le=7 * DAY)]


class TurnTimeout(Strict):
    """How long a checkpoint may take."""

    initial: Span = 600_000
    min: Annotated[Duration, Field(ge=60_000, le=7 * DAY)] = 60_000
    max: Annotated[Duration, Field(ge=60_000, le=7 * DAY)] = 3_600_000

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.min <= self.initial <= self.max:
            raise ValueError("min <= initial <= max does not hold")
        return self


class FleetCheckpoints(Strict):
    """How turns to take a checkpoint are given."""

    timeout: TurnTimeout = Field(default_factory=TurnTimeout)
    drift: float = Field(0.3, ge=0, le=0.9, description="How much faster or slower than true time a replica's clock may run.")
    silence: Annotated[Duration, Field(ge=1000, le=DAY, description="A replica silent for so long is down.")] = 60_000
    max_lag: int | None = Field(None, ge=0, description="A secondary further behind gets no turn; null: any may.")
    interval: Maybe[Annotated[Duration, Field(ge=0, le=7 * DAY)]] = Field(
        default=None, description="Least time from one turn's grant to the next; without it they follow one another."
    )
