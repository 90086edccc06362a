"""Wire models of operators' verbs (api.md, "Leases")."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from ....core.clock import Millis, to_text
from ....core.durations import DURATION_PATTERN, parse_duration, parse_time
from ....web.fields.error_texts import TEXT, Shaped
from ....web.fields.types import Maybe, NodeName, Stamp, Strict
from ...rows import NO_PARTITION, Intent

type PartitionVerb = Literal["offline", "online", "bump", "prohibit", "permit", "pin", "unpin"]
type ServerVerb = Literal["drain", "undrain", "prohibit", "permit"]
type AnyVerb = PartitionVerb | ServerVerb

Why = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Shaped(TEXT.format(200) + ", not empty"),
]
"""Why an operator does it: whoever finds it standing reads this."""


class Until:
    """When an intent ends: at a time, or so long after it is said."""

    __slots__ = ("after", "at")

    def __init__(self, at: Millis | None, after: Millis | None) -> None:
        self.at, self.after = at, after

    def from_now(self, now: Millis) -> Millis:
        """The time, for one who says it at `now`."""
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
    """An operator's word."""

    note: Why = Field(description="Why: whoever finds it standing reads this.", examples=["crashes its server, see the incident of today"])


class Lasting(Said):
    """A word that stands until it is taken back, or expires."""

    expires: Expiry = Field(None, description="A time, or a duration from now; without it the word stands until it is taken back.")


class LastingForServer(Lasting):
    """The same, of a partition and a server."""

    server: NodeName


class BumpIn(Lasting):
    """A partition is to be handed off and claimed anew."""

    server: NodeName | None = Field(None, description="Is prohibited for the partition from now on, too.")


class PermitIn(Said):
    """A server may have the partition again."""

    server: NodeName


class DrainIn(Lasting):
    """A server is to hand everything off."""

    exit: bool = Field(False, description="Its process is to end, too: it hands everything off and leaves.")


class IntentOut(Strict):
    """What an operator said."""

    verb: AnyVerb | Literal["maintain"]
    target: int | str = Field(description="A partition's number, or a server's name.")
    server: Maybe[str] = Field(None, description="Of a verb on a partition: the server that it is about.")
    exit: Maybe[bool] = None
    note: str
    author: str = Field(description="Prefix of the key it was said with.")
    created: Stamp
    expires: Stamp | None


class IntentAnswer(Strict):
    """The answer to a verb."""

    intent: IntentOut


class IntentList(Strict):
    """What operators have said and is in force, by verb and target."""

    items: list[IntentOut]
    next: str | None


class PlanIn(Strict):
    """What to do with a plan."""

    dry_run: bool = Field(True, description="false: the orders are given.")


class MoveOut(Strict):
    """A partition that is to go from one server to another. `from` null: nobody has it; `to` null: nobody is to have it."""

    partition: int
    source: str | None = Field(serialization_alias="from", validation_alias="from")
    to: str | None
    reason: str


class UnplacedOut(Strict):
    """A partition that no server can have."""

    partition: int
    reason: str


class PlanOut(Strict):
    """What the planner would do, or does."""

    moves: list[MoveOut]
    unplaced: list[UnplacedOut]
    applied: bool


def intent_out(intent: Intent, verb: AnyVerb | None = None) -> dict[str, Any]:
    """The wire form of an intent. verb: another one, for the word that takes it back."""
    of_partition = intent.partition != NO_PARTITION
    shown: dict[str, Any] = {"verb": verb or intent.verb, "target": intent.partition if of_partition else intent.server}
    if of_partition and intent.server:
        shown["server"] = intent.server
    if intent.exit:
        shown["exit"] = True
    shown |= {"note": intent.note, "author": intent.author, "created": to_text(intent.created)}
    return shown | {"expires": to_text(intent.expires) if intent.expires else None}
