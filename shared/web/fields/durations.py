"""Field types for durations and times: text outside, milliseconds inside."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from ...core.clock import Millis, to_text
from ...core.durations import DURATION_PATTERN, format_duration, parse_duration, parse_time


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
