"""ISO 8601 durations and RFC 3339 times as the API speaks them.

Durations are exact: weeks, days, hours, minutes, seconds (with a fraction down to a millisecond). Years and months are refused, for
they have no fixed length.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from .clock import Millis, to_millis

_DURATION = re.compile(
    r"P(?:(?P<w>\d{1,6})W)?(?:(?P<d>\d{1,7})D)?(?:T(?:(?P<h>\d{1,8})H)?(?:(?P<m>\d{1,9})M)?(?:(?P<s>\d{1,11})(?:[.,](?P<f>\d{1,3}))?S)?)?"
)
_TIME = re.compile(
    r"(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[Tt ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)"
    r"(?:\.(\d{1,9}))?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
MIN_TIME: Millis = -62_135_596_800_000
MAX_TIME: Millis = 253_402_300_799_999
"""The years 1 to 9999, in UTC."""
DURATION_PATTERN = (
    r"^P(?=[0-9T])(?:[0-9]{1,6}W)?(?:[0-9]{1,7}D)?"
    r"(?:T(?=[0-9])(?:[0-9]{1,8}H)?(?:[0-9]{1,9}M)?(?:[0-9]{1,11}(?:[.,][0-9]{1,3})?S)?)?$"
)
"""The pattern of a duration in the OpenAPI document."""
MAX_DURATION: Millis = 3660 * 86_400_000
"""Longest duration taken: about ten years of 366 days."""


def parse_duration(text: str) -> Millis:
    """Milliseconds of an ISO 8601 duration; ValueError says what is wrong."""
    found = _DURATION.fullmatch(text, re.NOFLAG) if text.isascii() else None
    if found is None or text[-1] in "PT":
        if re.fullmatch(r"P[0-9WYMDTHS.,]+", text) and re.match(r"P(?:\d+W)?(?:\d+Y|\d+M)", text):
            raise ValueError("years and months have no fixed length; write weeks or days, like P30D")
        raise ValueError("not an ISO 8601 duration of weeks, days, hours, minutes and seconds, like PT30S, PT1H30M or P7D")
    part = {key: int(value) for key, value in found.groupdict(default="0").items() if key != "f"}
    millis = int((found["f"] or "0").ljust(3, "0"))
    total = (((part["w"] * 7 + part["d"]) * 24 + part["h"]) * 60 + part["m"]) * 60 + part["s"]
    total = total * 1000 + millis
    if total > MAX_DURATION:
        raise ValueError("longer than 3660 days")
    return total


def format_duration(millis: Millis) -> str:
    """The shortest form in days, hours, minutes and seconds: `PT1M30S`, `P7D`, `PT0S`."""
    seconds, fraction = divmod(millis, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    tail = f"{seconds}.{fraction:03d}".rstrip("0") if fraction else str(seconds)
    clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "") + (f"{tail}S" if seconds or fraction else "")
    if not days and not clock:
        return "PT0S"
    return "P" + (f"{days}D" if days else "") + (f"T{clock}" if clock else "")


def parse_time(text: str) -> Millis:
    """Milliseconds of an RFC 3339 time with an offset, rounded up; ValueError says what is wrong."""
    found = _TIME.fullmatch(text)
    if found is None:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}[Tt ][\d:.]+", text):
            raise ValueError("the time has no offset; add Z or +hh:mm")
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:60.*", text):
            raise ValueError("leap seconds are not supported; write the second after it, such as 2017-01-01T00:00:00Z")
        raise ValueError("not an RFC 3339 time like 2026-11-21T10:21:55.250Z")
    second, fraction, offset = found.groups()
    try:
        millis = _whole_seconds(second + offset)
    except (ValueError, OverflowError):
        raise ValueError("no such date") from None
    if fraction is not None:
        # By hand: the parser cuts a fraction after six digits, and nothing may fire before its time.
        millis -= -int(fraction.ljust(9, "0")) // 1_000_000
    if not MIN_TIME <= millis <= MAX_TIME:
        raise ValueError("not within the years 1 to 9999 in UTC")
    return millis


@lru_cache(4096)
def _whole_seconds(text: str) -> Millis:
    """Return the Unix time in milliseconds of an RFC 3339 time without a fraction."""
    # Faster than `to_millis`, and as exact: without a fraction, a float holds the seconds of every year exactly.
    return 1000 * int(datetime.fromisoformat(text.upper()).timestamp())


def retry_after_of(header: str | None, now: Millis, longest: float) -> float | None:
    """Return the seconds from `now` that a `Retry-After` header asks for (RFC 9110 10.2.3: delta-seconds or HTTP-date), at most `longest`.

    None for no header or an invalid one; 0.0 for a date that has passed. Never raises.
    """
    if header is None or len(header) > 100:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), longest)
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            # The parser reads "-0000" and dates without a zone as UTC of unknown origin; an HTTP-date is always UTC.
            moment = moment.replace(tzinfo=UTC)
        seconds = (to_millis(moment) - now) / 1000
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(0.0, seconds), longest)
