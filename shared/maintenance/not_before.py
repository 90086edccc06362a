"""Reading the NotBefore of a Scheduled Event, as IMDS and Event Grid write it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ..core.clock import Millis

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_RFC_1123 = re.compile(r"(?:[A-Za-z]+,?\s+)?(\d{1,2})[ -]([A-Za-z]{3})[a-z]*[ -](\d{4})\s+(\d\d):(\d\d):(\d\d)\s*(?:GMT|UTC|Z|[+-]0000)?")


def read_time(text: object) -> Millis | None:
    """Wall milliseconds of a NotBefore: RFC 1123 whatever its weekday says, or ISO 8601, UTC where it names no offset; None: unreadable."""
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
        # In UTC, where a year after 9999 cannot be, and without a float, which would round into one.
        found = (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
        # The year 1 is what some write for no time at all.
        return found if found >= 0 else None
    except (ValueError, OverflowError):
        return None
