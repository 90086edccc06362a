"""Schedules and rules of Amazon EventBridge, as `aws scheduler get-schedule` and `aws events list-rules` print them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .carried import Carried, Source, cron_of, documents_of, object_of, payload_of, text_of

_EXPRESSION: Final = re.compile(r"(rate|cron|at)\((.*)\)")
_RATE: Final = re.compile(r"([1-9]\d{0,8})\s+(minute|hour|day)s?")
_UNITS: Final = {"minute": "PT{}M", "hour": "PT{}H", "day": "P{}D"}
_HAND: Final = "Write a schedule for it by hand."


def carry(sources: Sequence[Source], carried: Carried) -> None:
    """Carry schedules and rules over. Raises ValueError for what is not JSON."""
    for source in sources:
        for document in documents_of(source):
            for entry in _entries(document):
                carried.enter()
                if isinstance(entry, dict) and text_of(entry, "Name"):
                    _schedule(entry, f"{source.name}: {entry['Name']}", carried)
                else:
                    carried.lost(source.name, "this is no schedule: it has no Name", "Give what aws scheduler get-schedule prints.")


def _entries(document: Any) -> Iterator[Any]:
    """Yield the entries of a document: one schedule, a list, or an object with Schedules or Rules."""
    if isinstance(document, dict):
        lists = [document[name] for name in ("Schedules", "Rules") if isinstance(document.get(name), list)]
        if lists:
            for each in lists:
                yield from each
            return
    yield from document if isinstance(document, list) else [document]


def _schedule(entry: Mapping[str, Any], where: str, carried: Carried) -> None:
    if text_of(entry, "State").startswith("DISABLED"):
        carried.lost(where, "it is disabled", "Create the schedule once it is wanted.")
        return
    expression = _EXPRESSION.fullmatch(text_of(entry, "ScheduleExpression").strip())
    if expression is None:
        has_pattern = "EventPattern" in entry
        what = "it has an event pattern and no schedule" if has_pattern else "it has no ScheduleExpression"
        do = "Nothing: an event starts it." if has_pattern else "list-schedules leaves it out: give what get-schedule prints for each name."
        carried.lost(where, what, do)
        return
    kind, inner = expression.groups()
    name, payload = str(entry["Name"]), _payload(entry, where, carried)
    zone = text_of(entry, "ScheduleExpressionTimezone") or "UTC"
    try:
        if kind == "at":
            due = _instant(datetime.fromisoformat(inner.strip()).replace(tzinfo=_zone(zone)))
            if due.timestamp() <= carried.target.now:
                carried.lost(where, f"{kind}({inner}): its time is past", "Nothing if it has run: Amazon keeps such schedules.")
                return
            window = {"flex": f"PT{minutes}M"} if (minutes := _window(entry)) else {}
            carried.add_event(name, {"due": _text(due), "channel": carried.target.channel, **window, "payload": payload})
            _target(entry, where, carried)
            return
        rule = {"every": _every(inner)} if kind == "rate" else {"cron": _cron(inner), **({"timezone": zone} if zone != "UTC" else {})}
        times = {
            ours: _time(entry[theirs]) for theirs, ours in (("StartDate", "start"), ("EndDate", "end")) if entry.get(theirs) is not None
        }
    except ValueError as wrong:
        carried.lost(where, f"{kind}({inner}): {wrong}", _HAND)
        return
    if "end" in times and times["end"].timestamp() <= carried.target.now:
        carried.lost(where, f"it ended at {_text(times['end'])}", "Nothing: Amazon keeps such schedules.")
        return
    rule |= {ours: _text(moment) for ours, moment in times.items()}
    if minutes := _window(entry):
        rule["jitter"] = f"PT{minutes}M"
        if kind == "rate" and minutes > _minutes(inner):
            rule["jitter"] = rule["every"]
            carried.part(where, f"its window of {minutes} minutes, longer than its interval", "Nothing: the jitter is the interval.")
    carried.add_schedule(name, rule, payload)
    _target(entry, where, carried)


def _payload(entry: Mapping[str, Any], where: str, carried: Carried) -> Any:
    given = text_of(object_of(entry, "Target"), "Input")
    if "<aws.scheduler." in given:
        carried.part(
            where, "Input names attributes such as <aws.scheduler.scheduled-time>", "Use the header tocsin-due and the event's id."
        )
    return payload_of(given) if given else {"job": entry["Name"]}


def _target(entry: Mapping[str, Any], where: str, carried: Carried) -> None:
    target = object_of(entry, "Target")
    if arn := text_of(target, "Arn"):
        carried.part(where, f"the target {arn}", "Let an http endpoint start it, or choose another channel.")
    if retry := object_of(target, "RetryPolicy"):
        shown = ", ".join(f"{name} {value}" for name, value in retry.items())
        carried.part(where, f"the retry policy: {shown}", "Set the tenant's retry.")
    if object_of(target, "DeadLetterConfig"):
        carried.part(where, "the dead-letter queue", "Dead letters are kept and can be redriven; on_dead calls a channel.")


def _window(entry: Mapping[str, Any]) -> int:
    """Return the minutes of the flexible time window; 0 without one."""
    window = object_of(entry, "FlexibleTimeWindow")
    minutes = window.get("MaximumWindowInMinutes")
    return minutes if text_of(window, "Mode") == "FLEXIBLE" and isinstance(minutes, int) and 0 < minutes <= 1440 else 0


def _every(inner: str) -> str:
    number, unit = _rate(inner)
    return _UNITS[unit].format(number)


def _minutes(inner: str) -> int:
    number, unit = _rate(inner)
    return number * {"minute": 1, "hour": 60, "day": 1440}[unit]


def _rate(inner: str) -> tuple[int, str]:
    found = _RATE.fullmatch(inner.strip())
    if found is None:
        raise ValueError("a rate is a number of minutes, hours or days")
    return int(found[1]), found[2]


def _cron(inner: str) -> str:
    parts = inner.split()
    if len(parts) != 6:
        raise ValueError("cron has six fields: minutes, hours, day of month, month, day of week, year")
    if parts[5] not in ("*", "?"):
        raise ValueError(f"a schedule has no year, and this one names {parts[5]}")
    # Weekdays count from Sunday = 1, as those of Quartz.
    return cron_of(f"0 {' '.join(parts[:5])}", "quartz")


def _zone(name: str) -> ZoneInfo:
    """Return the time zone. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(f"there is no time zone {name}") from None


def _time(value: Any) -> datetime:
    """Return a time of the output: seconds since 1970, or ISO 8601. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(float(value), UTC)
        except (OverflowError, OSError):
            raise ValueError(f"{value} is not a time") from None
    found = datetime.fromisoformat(str(value))
    return _instant(found if found.tzinfo else found.replace(tzinfo=UTC))


def _instant(moment: datetime) -> datetime:
    """Return the time in UTC. Raises ValueError."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{moment} is not a time") from None


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
