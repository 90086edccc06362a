"""Wire models of bulk jobs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from ...tenants.model import LabelName
from ...web.fields.error_texts import Shaped
from ...web.fields.params import NotBeforeFrom
from ...web.fields.types import Duration, Maybe, Name, Stamp, Strict, Time
from ..changes.table import VERBS
from ..model import MOST_LABEL_FILTERS, ErrorPart, EventState, IdPrefix, LabelText

type BulkAction = Literal["cancel", "move", "redrive", "fire"]
type BulkState = Literal["counting", "counted", "running", "done", "cancelled", "expired"]
MOST_EVENTS = 1_000_000
"""Events of one job."""
MOST_UNFINISHED = 10
"""Jobs of a tenant that are counted, wait for their confirmation, or run."""
JobId = Annotated[str, StringConstraints(pattern=r"^[0-9a-v]{16}$"), Shaped("the id of a job")]


class BulkFilter(Strict):
    """The events that a job acts on: those that match all of this."""

    from_: Time | None = Field(None, alias="from", description="Due at this time or later.")
    to: Annotated[Time, NotBeforeFrom] | None = Field(None, description="Due before this time.")
    state: EventState | None = Field(None, description="Default: dead to redrive; scheduled or retrying for the other actions.")
    channel: Name | None = None
    labels: dict[LabelName, LabelText] = Field(default_factory=dict, max_length=MOST_LABEL_FILTERS)
    id_prefix: IdPrefix | None = None
    error: ErrorPart | None = None


class BulkIn(Strict):
    """A job to prepare: it counts the events that match, and acts on them once the count is confirmed."""

    action: BulkAction
    filter: BulkFilter = Field(description="`{}` matches all events that the action can change.")
    due: Time | None = Field(None, description="To move: the new due time.")
    later: Duration | None = Field(None, description="To move: how much later.")
    earlier: Duration | None = Field(None, description="To move: how much earlier. An event that is then overdue is delivered at once.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = [name for name in ("due", "later", "earlier") if getattr(self, name) is not None]
        if self.action == "move" and len(given) != 1:
            raise ValueError("give exactly one of due, later and earlier to move events")
        if self.action != "move" and given:
            raise ValueError(f"{given[0]} goes with the action move")
        state = self.filter.state
        if state is not None and state not in VERBS[self.action].acts_on:
            raise ValueError(f"no event that is {state} can be changed by the action {self.action}")
        return self


class BulkConfirmIn(Strict):
    """The confirmation of a job's count."""

    confirmation: Annotated[str, StringConstraints(min_length=1, max_length=60)] = Field(description="As the counted job shows it.")


class SampleOut(Strict):
    """One of the events that a job has counted."""

    id: str
    state: str
    due: Stamp
    channel: str


class BulkFailure(Strict):
    """An event that a job could not change."""

    id: str
    reason: str


class BulkOut(Strict):
    """A bulk job."""

    id: str
    action: BulkAction
    filter: BulkFilter
    due: Maybe[Stamp] = None
    later: Maybe[Duration] = None
    earlier: Maybe[Duration] = None
    state: BulkState
    count: int = Field(description="Events that matched; while counting, so far.")
    sample: list[SampleOut] = Field(description="Up to 10 of them.")
    confirmation: Maybe[str] = Field(None, description="While counted: to be sent to `confirm`, within an hour.")
    created: Stamp
    started: Maybe[Stamp] = None
    ended: Maybe[Stamp] = None
    done: int = Field(description="Events that were changed.")
    skipped: int = Field(description="Events that no longer matched when the job came to them, or had changed.")
    failed: int
    reasons: dict[str, int] = Field(description="Skipped and failed events by reason.")
    failures: list[BulkFailure] = Field(description="The first 20 failed events.")
    more: Maybe[bool] = Field(None, description=f"True if more than {MOST_EVENTS:,} events match: the job takes the first ones.")


class BulkList(Strict):
    """A page of jobs."""

    items: list[BulkOut]
    next: str | None
