"""Days on which a schedule does not occur, and periods in which it occurs once: pure functions of local time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from ...web.fields.types import Name, Strict

MAX_DATES = 366
"""Most dates of one schedule's own."""
MAX_CALENDARS = 5
"""Most calendars that one schedule names."""
MAX_CALENDAR_DATES = 1000
"""Most dates of one calendar."""
MOST_DAYS = 2000
"""Most dates of all calendars that a schedule names: their numbers are stored with it."""

type Period = Literal["hour", "day", "week", "month"]
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _day(value: Any) -> int:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise ValueError("must be a date such as 2026-12-24")
    try:
        return date.fromisoformat(value).toordinal()
    except ValueError:
        raise ValueError("is not a date of the calendar") from None


def day_text(number: int) -> str:
    """Return the date of a day's number."""
    return date.fromordinal(number).isoformat()


Day = Annotated[
    int,
    BeforeValidator(_day, json_schema_input_type=str),
    PlainSerializer(day_text, return_type=str),
    WithJsonSchema({"type": "string", "format": "date", "examples": ["2026-12-24"]}),
]
"""A date: its number (`date.toordinal`) in the code, text in JSON."""


class Exclusions(Strict):
    """Days without occurrences, in the schedule's time zone; UTC with `every`."""

    dates: list[Day] = Field(default_factory=list, max_length=MAX_DATES)
    calendars: list[Name] = Field(default_factory=list, max_length=MAX_CALENDARS, description="Names of calendars of the tenant.")


def days_text(days: Iterable[int]) -> str:
    """Return the numbers of days as a short text: the first, and the distance of each from the one before."""
    before, parts = 0, []
    for day in sorted(days):
        parts.append(str(day - before))
        before = day
    return " ".join(parts)


def parse_days(text: str) -> tuple[int, ...]:
    """Return the numbers that `days_text` wrote."""
    total, found = 0, []
    for part in text.split():
        total += int(part)
        found.append(total)
    return tuple(found)


def period_start(local: datetime, period: Period) -> datetime:
    """Return the beginning of the period that a local time is in. Weeks begin on Monday."""
    hour = local.replace(minute=0, second=0, microsecond=0)
    if period == "hour":
        return hour
    day = hour.replace(hour=0)
    if period == "day":
        return day
    return day - timedelta(days=day.weekday()) if period == "week" else day.replace(day=1)


def period_end(local: datetime, period: Period) -> datetime:
    """Return the beginning of the period after the one that a local time is in."""
    start = period_start(local, period)
    if period == "month":
        return (start + timedelta(days=32)).replace(day=1)
    return start + {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}[period]


def next_allowed_day(local: datetime, excluded: frozenset[int]) -> datetime:
    """Return the beginning of the first day after a local time's that is not excluded."""
    day = local.toordinal() + 1
    while day in excluded:
        day += 1
    return datetime.fromordinal(day)
