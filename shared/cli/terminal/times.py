"""Times and durations as people type them: 30s, 2h30m, 21:30, tomorrow 9:00. What the API takes itself is passed on as it is."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

import typer

NEVER: Final = "never"
"""The words that people type for an event without an end."""
_SHORT: Final = re.compile(
    r"(?:(?P<W>\d{1,6})w)?(?:(?P<D>\d{1,7})d)?(?:(?P<H>\d{1,8})h)?(?:(?P<M>\d{1,9})m(?:in)?)?(?:(?P<S>\d{1,11}(?:\.\d{1,3})?)s)?", re.ASCII
)
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_EXACT: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:[Zz]|[+-]\d{2}:\d{2})", re.ASCII)


def duration_option(help: str, *names: str) -> Any:
    """Return an option for a duration. names: of the option, if not the parameter's."""
    return typer.Option(*names, parser=duration, metavar="DURATION", help=help)


def time_option(help: str, *names: str) -> Any:
    """Return an option for a time. names: of the option, if not the parameter's."""
    return typer.Option(*names, parser=time, metavar="TIME", help=help)


def expiry_option(help: str) -> Any:
    """Return an option for a duration, or `never`."""
    return typer.Option(parser=expiry, metavar="DURATION|never", help=help)


def expiry(text: str) -> str:
    """Return a duration for the API, or NEVER. Raises `typer.BadParameter`."""
    return NEVER if text.strip().lower() == NEVER else duration(text)


def time_or_duration_option(help: str, *names: str) -> Any:
    """Return an option for a time or a duration. names: of the option, if not the parameter's."""
    return typer.Option(*names, parser=time_or_duration, metavar="TIME|DURATION", help=help)


def time_or_duration(text: str) -> str:
    """Return a duration or a time for the API. Raises `typer.BadParameter`."""
    try:
        return duration(text)
    except typer.BadParameter:
        return time(text)


def duration(text: str) -> str:
    """Return a duration for the API: PT2H30M for 2h30m. Raises `typer.BadParameter`."""
    if text[:1] in ("P", "p"):
        return text
    found = _SHORT.fullmatch(text.strip().lower().replace(" ", ""))
    parts = {unit: value for unit, value in found.groupdict().items() if value is not None} if found is not None else {}
    if not parts:
        raise typer.BadParameter(f"{text!r} is not a duration; write 30s, 5m, 2h30m, 1d, or PT30S")
    days = "".join(parts[unit] + unit for unit in "WD" if unit in parts)
    clock = "".join(parts[unit] + unit for unit in "HMS" if unit in parts)
    return f"P{days}" + (f"T{clock}" if clock else "")


def time(text: str) -> str:
    """Return a time for the API. Times without an offset are in this machine's time zone. Raises `typer.BadParameter`."""
    return time_at(text, datetime.now())


def time_at(text: str, now: datetime, zone: tzinfo | None = None) -> str:
    """Return the time that a text means: a clock time alone is the next one. Raises `typer.BadParameter`.

    now: the present local time, without an offset. zone: whose it is; None for this machine's.
    """
    if _EXACT.fullmatch(text):
        return text
    words = text.strip().lower().replace("t", " ", 1).split() if _DATE.match(text) else text.strip().lower().split()
    clock = _CLOCK.fullmatch(words[-1]) if words else None
    if words == ["now"]:
        return _with_offset(now, zone)
    if clock is None or len(words) > 2:
        raise typer.BadParameter(f"{text!r} is not a time; write 21:30, tomorrow 9:00, 2026-11-21 10:21, or 2026-11-21T10:21:55Z")
    hour, minute, second = (int(part or 0) for part in clock.groups())
    at = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if len(words) == 1:
        at = at if at > now else at + timedelta(days=1)
    elif words[0] == "tomorrow":
        at += timedelta(days=1)
    elif words[0] in _DAYS:
        at += timedelta(days=(_DAYS.index(words[0]) - at.weekday()) % 7)
        at = at if at > now else at + timedelta(days=7)
    elif date := _DATE.fullmatch(words[0]):
        try:
            year, month, day = map(int, date.groups())
            at = at.replace(year, month, day)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a date of the calendar") from None
    elif words[0] == "today":
        if at <= now:
            raise typer.BadParameter(f"{text!r} has passed; write tomorrow, or a date")
    else:
        raise typer.BadParameter(f"{words[0]!r} is not a day; write today, tomorrow, a day of the week in English, or 2026-11-21")
    return _with_offset(at, zone)


def _with_offset(at: datetime, zone: tzinfo | None) -> str:
    """Return a local time with the offset of its own day, which may be another than today's."""
    return (at.astimezone() if zone is None else at.replace(tzinfo=zone)).isoformat(timespec="seconds")
