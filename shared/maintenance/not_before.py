"""Reads the NotBefore of a Scheduled Event, as the Instance Metadata Service (IMDS) and Event Grid write it.

Sources: RFC 1123 section 5.2.14, RFC 850 section 2.1.4, RFC 822 section 5.1, and for two-digit years POSIX (69 to 99 are 1969 to 1999).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from ..core.clock import Millis

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LAST_YEAR: Final = 68
"""Largest two-digit year of this century."""
_ZONES: Final = {"": 0, "gmt": 0, "utc": 0, "ut": 0, "z": 0} | {
    f"{zone}{kind}t": hours + (kind == "d") for zone, hours in (("e", -5), ("c", -6), ("m", -7), ("p", -8)) for kind in "sd"
}
"""Hours east of UTC, by the names of RFC 822."""
_INTERNET: Final = re.compile(
    r"(?:[A-Za-z]+,?\s+)?(\d{1,2})[ -]([A-Za-z]{3})[a-z]*[ -](\d{4}|\d\d)\s+(\d\d):(\d\d)(?::(\d\d))?\s*([A-Za-z]{0,3}|[+-]\d{4})", re.ASCII
)


def read_time(text: object) -> Millis | None:
    """Return a NotBefore in milliseconds since 1970; None if it cannot be read.

    Accepts RFC 1123, RFC 850 and RFC 822 (the weekday is ignored), and ISO 8601. A time without a zone is UTC.
    """
    if not isinstance(text, str) or not (text := text.strip()):
        return None
    try:
        if parts := _INTERNET.fullmatch(text):
            moment = _internet_time(*parts.groups())
        else:
            moment = datetime.fromisoformat(text)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        # In UTC, which has no year after 9999, and without a float, which could round up into one.
        found = (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
        # Some sources write the year 1 for no time at all.
        return found if found >= 0 else None
    except (ValueError, OverflowError, KeyError):
        return None


def _internet_time(day: str, month: str, year: str, hour: str, minute: str, second: str | None, zone: str) -> datetime:
    """Return the time of an RFC's form. Raises ValueError or KeyError if there is no such time or zone."""
    number = int(year)
    if len(year) == 2:
        number += 2000 if number <= _LAST_YEAR else 1900
    if zone[:1] in ("+", "-"):
        ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:]))
        offset = ahead if zone[0] == "+" else -ahead
    else:
        offset = timedelta(hours=_ZONES[zone.lower()])
    month_number = _MONTHS.index(month.lower()) + 1
    return datetime(number, month_number, int(day), int(hour), int(minute), int(second or 0), tzinfo=timezone(offset))
