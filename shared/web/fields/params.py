"""Query parameters as pydantic models: text in, typed values out.

A route's query model is a subclass of `Query`; its fields are the parameters. Values are text, so only exact spellings are numbers or truth
values: `10`, but not ` 10`, `1_0`, `+10` or `10.0`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from .error_texts import Shaped
from .types import Time

_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,17})", re.ASCII)
_PLUS_LOST = re.compile(r"(.*\d) (\d\d:\d\d)")


class Query(BaseModel):
    """Base of query models; refuses unknown parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class NoQuery(Query):
    """The query model of a route without parameters."""


def _whole(value: Any) -> Any:
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError("must be a whole number, such as 10")
    return value


def _flag(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("must be true or false")
    return value


def _plus(value: Any) -> Any:
    # The unescaped + of an offset arrives as a space; no valid time has a space there.
    found = _PLUS_LOST.fullmatch(value) if isinstance(value, str) else None
    return f"{found[1]}+{found[2]}" if found else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number."""

Flag = Annotated[bool, BeforeValidator(_flag)]
"""`true` or `false`."""

Moment = Annotated[Time, BeforeValidator(_plus)]
"""An RFC 3339 time, in milliseconds; accepts a + that was not escaped."""


def _not_before_from(value: int, info: ValidationInfo) -> int:
    first = info.data.get("from_")
    if first is not None and value < first:
        raise ValueError("must not be before from")
    return value


NotBeforeFrom = AfterValidator(_not_before_from)
"""Refuses a `to` that is before the model's `from`: the range would be empty."""


class Paging(Query):
    """`?limit=` and `?cursor=` of every list."""

    limit: Annotated[Whole, Field(ge=1, le=1000, description="Most items in the answer.")] = 100
    cursor: (
        Annotated[
            str,
            Field(min_length=1, max_length=2048, pattern="^[A-Za-z0-9_-]+$", description="`next` of the previous page."),
            Shaped("the `next` of a page of this list"),
        ]
        | None
    ) = None


class DryRun(Query):
    """`?dry_run=` of calls that create or replace something."""

    dry_run: Flag = Field(
        False,
        description="Check everything and answer what would be stored, but store nothing. The answer has an `ETag` only if nothing would"
        " change.",
    )
