"""Wire models of manual controls (api.md, "Leases")."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from ....core.clock import Millis, to_text
from ....core.durations import DURATION_PATTERN, parse_duration, parse_time
from ....web.fields.error_texts import TEXT, Shaped
from ....web.fields.types import Maybe, NodeName, Strict
from ...model import AnyVerb, IntentOut
from ...planner import DiversionReason
from ...rows import NO_PARTITION, Intent

Why = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Shaped(TEXT.format(200) + ", not empty"),
]
"""An operator's reason, shown with the control."""


class Until:
    """The end of a manual control: a time, or a duration from the request on."""

    __slots__ = ("after", "at")

    def __init__(self, at: Millis | None, after: Millis | None) -> None:
        self.at, self.after = at, after

    def from_now(self, now: Millis) -> Millis:
        """Return the time, for a request at `now`."""
        return self.at if self.at is not None else now + (self.after or 0)


def _until(value: Any) -> Until | None:
    if value is None or isinstance(value, Until):
        return value
    if not isinstance(value, str) or not re.match(r"P|\d", value):
        raise ValueError("must be a time like 2026-11-21T10:21:55Z or a duration like PT1H")
    return Until(None, parse_duration(value)) if value.startswith("P") else Until(parse_time(value), None)


Expiry = Annotated[
    Any,
    BeforeValidator(_until),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "format": "date-time"},
                {"type": "string", "pattern": DURATION_PATTERN},
                {"type": "null"},
            ],
            "examples": ["PT1H"],
        }
    ),
]


class Said(Strict):
    """A request of an operator."""

    note: Why = Field(description="The reason, for others who find the control.", examples=["crashes its server, see today's incident"])


class Lasting(Said):
    """A manual control that stays in force until it is revoked or expires."""

    expires: Expiry = Field(None, description="A time, or a duration from now. Without it, the control stays in force until it is revoked.")


class LastingForServer(Lasting):
    """A manual control on a partition and a server."""

    server: NodeName


class BumpIn(Lasting):
    """Release a partition and claim it again under the next epoch."""

    server: NodeName | None = Field(None, description="A server that is also prohibited for the partition from now on.")


class PermitIn(Said):
    """Allow a server to own the partition again."""

    server: NodeName


class DrainIn(Lasting):
    """Release all partitions of a server."""

    exit: bool = Field(False, description="The server's process must also end: it releases all partitions and leaves.")
    to: NodeName | None = Field(None, description="The server that gets the partitions. Its own drain ends. null: the plan spreads them.")


class DivertedOut(Strict):
    """A partition of a drained server that goes to another server than the drain's destination, because that one is gone or drained, is
    prohibited for the partition, or is full."""

    partition: int
    reason: DiversionReason


class IntentAnswer(Strict):
    """The answer to a verb."""

    intent: IntentOut
    ended: Maybe[list[IntentOut]] = Field(None, description="Other manual controls that this one has ended.")
    diverted: Maybe[list[DivertedOut]] = Field(None, description="Partitions that do not go to the destination of the drain.")


class IntentList(Strict):
    """The manual controls in force, by verb and target."""

    items: list[IntentOut]
    next: str | None


class PlanIn(Strict):
    """Options of a plan."""

    dry_run: bool = Field(True, description="false: give the orders.")


class MoveOut(Strict):
    """A planned move of a partition. `from` is null if it has no owner, `to` if it must have none."""

    partition: int
    source: str | None = Field(serialization_alias="from", validation_alias="from")
    to: str | None
    reason: str


class UnplacedOut(Strict):
    """A partition that no server can own."""

    partition: int
    reason: str


class PlanOut(Strict):
    """A plan, and whether its orders were given."""

    moves: list[MoveOut]
    unplaced: list[UnplacedOut]
    diverted: Maybe[list[DivertedOut]] = Field(None, description="Partitions that do not go to the destinations of their servers' drains.")
    applied: bool


def intent_out(intent: Intent, verb: AnyVerb | None = None) -> dict[str, Any]:
    """Return an intent as the API shows it. verb: the verb that revoked it, if any."""
    of_partition = intent.partition != NO_PARTITION
    shown: dict[str, Any] = {"verb": verb or intent.verb, "target": intent.partition if of_partition else intent.server}
    if of_partition and intent.server:
        shown["server"] = intent.server
    if intent.exit:
        shown["exit"] = True
    if intent.to:
        shown["to"] = intent.to
    shown |= {"note": intent.note, "author": intent.author, "created": to_text(intent.created)}
    return shown | {"expires": to_text(intent.expires) if intent.expires else None}
