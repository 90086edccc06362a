"""Time zones, and which instant a local time means.

The one rule, for every zone and every kind of change: a local time means the first instant at which the zone's clock has reached it. So a
time in a gap means the first instant after the gap, and a repeated one the first of both.

The data is that of the pinned package `tzdata`, never the machine's own: all instances must agree.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Literal
from zoneinfo import ZoneInfo

from ...core.clock import Millis, to_datetime, to_millis

type ClockChange = Literal["gap", "fold"]
"""The reason why an occurrence is not at its plain local time: the clock skips that time, or shows it twice."""

_SECOND = timedelta(seconds=1)


@cache
def release() -> str:
    """Return the release of the zone data, such as 2026f. Later releases sort later."""
    return resources.files("tzdata").joinpath("zoneinfo", "tzdata.zi").read_text("utf-8").partition("\n")[0].rpartition(" ")[2]


@cache
def names() -> frozenset[str]:
    """Return the names of all zones, as the tz database spells them."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


@cache
def zone(name: str) -> ZoneInfo:
    """Return the zone with exactly this name. ValueError if there is none."""
    if name not in names():
        raise ValueError("expected a zone of the tz database, such as Europe/Berlin (upper and lower case matter)")
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def local_at(instant: Millis, where: ZoneInfo) -> datetime:
    """Return the local time of the zone at `instant`."""
    return to_datetime(instant).astimezone(where).replace(tzinfo=None)


def reached_at(instant: Millis, where: ZoneInfo) -> datetime:
    """Return the latest local time that the zone's clock has shown by `instant`; to the second while the clock repeats a time.

    Then it is later than the local time.
    """
    local = to_datetime(instant).astimezone(where)
    if not local.fold:
        return local.replace(tzinfo=None)
    low, high = local.replace(fold=0).astimezone(UTC), local.astimezone(UTC)
    offset = low.astimezone(where).utcoffset()
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        if middle.astimezone(where).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return low.astimezone(where).replace(tzinfo=None, microsecond=0)


def local_text(instant: Millis, where: ZoneInfo) -> str:
    """Return the local time of the zone at `instant` with its offset: `2027-03-28T03:00:00.000+02:00`."""
    return to_datetime(instant).astimezone(where).isoformat(timespec="milliseconds")


def instant_of(local: datetime, where: ZoneInfo) -> tuple[Millis, ClockChange | None]:
    """Return the first instant at which the zone's clock has reached `local` (naive, whole seconds), and why it is not plain."""
    before = local.replace(tzinfo=where, fold=0)
    after = local.replace(tzinfo=where, fold=1)
    early, late = before.astimezone(UTC), after.astimezone(UTC)
    if early == late:
        return to_millis(early), None
    if early < late:
        return to_millis(early), "fold"
    # In a gap, the earlier offset leads past the change and the later offset leads before it: the change is between the two.
    low, high = late, early
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if middle.astimezone(where).replace(tzinfo=None) >= local:
            high = middle
        else:
            low = middle
    return to_millis(high), "gap"
