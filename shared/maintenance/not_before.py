"""Reads the NotBefore of a Scheduled Event, as the Instance Metadata Service (IMDS) and Event Grid write it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ..core.clock import Millis

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_RFC_1123 = re.compile(r"(?:[A-Za-z]+,?\s+)?(\d{1,2})[ -]([A-Za-z]{3})[a-z]*[ -](\d{4})\s+(\d\d):(\d\d):(\d\d)\s*(?:GMT|UTC|Z|[+-]0000)?")


def read_time(text: object) -> Millis | None:
    """Return a NotBefore in milliseconds since 1970; None if it cannot be read.

    Accepts RFC 1123 (the weekday is ignored) and ISO 8601 (UTC if it has no offset).
    """
    if not isinstance(text, str) or not (text := text.strip()):
        return None
    try:
        if parts := _RFC_1123.fullmatch(text):
            day, month, year, hour, minute, second = parts.groups()
            date = (int(year), _MONTHS.index(month.lower()) + 1, int(day))
            moment = datetime(*date, int(hour), int(minute), int(second), tzinfo=UTC)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        # In UTC, which has no year after 9999, and without a float, which could round up into one.
        found = (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
        # Some sources write the year 1 for no time at all.
        return found if found >= 0 else None
    except (ValueError, OverflowError):
        return None
