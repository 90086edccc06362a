"""Types of fields that several jobs use.

Field types for durations and times: text outside, milliseconds inside.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints, WithJsonSchema

from ...core.clock import Millis, to_text
from ...core.durations import DURATION_PATTERN, format_duration, parse_duration, parse_time
from .error_texts import TEXT, Shaped


def _duration(value: Any) -> Millis:
    if not isinstance(value, str):
        raise ValueError("a duration is a string like PT30S")
    return parse_duration(value)


def _time(value: Any) -> Millis:
    if not isinstance(value, str):
        raise ValueError("a time is a string like 2026-11-21T10:21:55.250Z")
    return parse_time(value)


Duration = Annotated[
    int,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, return_type=str),
    # No format: that of JSON Schema refuses weeks beside days, which are taken.
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["PT30S"]}),
]
"""Milliseconds inside, ISO 8601 outside."""

Time = Annotated[
    int,
    BeforeValidator(_time),
    PlainSerializer(to_text, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-21T10:21:55.250Z"]}),
]
"""Milliseconds since 1970 inside, RFC 3339 outside (UTC, milliseconds, `Z`)."""


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"), Shaped("1 to 40 of a-z, 0-9 and inner hyphens")]
"""Tenant and channel names: 1 to 40 of a-z, 0-9 and inner hyphens, so that they fit keys, paths and header values."""


NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""The pattern of `Name`, for `fullmatch`."""


NodeName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$"),
    Shaped("1 to 64 of A-Z a-z 0-9 and inner . _ -"),
]
"""Names of nodes: 1 to 64 of A-Z a-z 0-9 and inner . _ -."""


Note = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(200))]
"""A line of text that a person wrote."""


def _is_none(value: object) -> bool:
    return value is None


_T = TypeVar("_T")


Maybe = Annotated[_T | None, Field(exclude_if=_is_none)]
"""A field that is left out of the JSON when it has no value: `status: Maybe[int] = None`."""


Stamp = Annotated[
    int,
    PlainSerializer(to_text, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-21T10:21:55.250Z"]}),
]
"""A time in answers: milliseconds in the code, RFC 3339 in JSON."""


def removable(schema: dict[str, Any]) -> None:
    """Say of a member that null removes its value, where a missing member keeps it: `Field(None, json_schema_extra=removable)`."""
    value = {name: schema.pop(name) for name in list(schema) if name != "description"}
    schema["anyOf"] = [*value["anyOf"], {"type": "null"}] if value.keys() == {"anyOf"} else [value, {"type": "null"}]


class Strict(BaseModel):
    """Base of the models of bodies and answers; refuses unknown fields."""

    # The validator of a model is built when it is first used: a process uses few of the models that it imports.
    model_config = ConfigDict(extra="forbid", validate_default=False, ser_json_inf_nan="null", defer_build=True)
