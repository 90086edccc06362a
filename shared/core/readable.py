"""Figures as people read them. No imports, so that the command starts fast."""

from __future__ import annotations


def readable_duration(millis: float) -> str:
    """Return a duration for people: 850 ms, 12.3 s, 4 min 5 s, 3 h 10 min, 5 d, 5 d 3 h."""
    if abs(millis) < 1000:
        return f"{millis:g} ms"
    if abs(millis) < 60_000:
        return f"{millis / 1000:.1f} s"
    seconds = round(millis / 1000)
    if seconds < 3600:
        parts = (seconds // 60, "min"), (seconds % 60, "s")
    elif seconds < 172_800:
        parts = (seconds // 3600, "h"), (seconds % 3600 // 60, "min")
    else:
        parts = (seconds // 86_400, "d"), (seconds % 86_400 // 3600, "h")
    return " ".join([f"{number} {unit}" for number, unit in parts if number])


def count_of(number: int, thing: str, things: str | None = None) -> str:
    """Return a number with its noun: 1 event, 2,000 events. things: the plural, if it is not the noun with an s."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
