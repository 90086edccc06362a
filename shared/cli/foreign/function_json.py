"""Timer triggers of Azure Functions: `function.json` of a function's folder, or the build's `functions.metadata`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from .carried import Carried, Source, cron_of, documents_of, text_of

_SPAN: Final = re.compile(r"(?:(\d{1,6})[.:])?(\d{1,2}):(\d{2}):(\d{2})")
"""A TimeSpan of .NET: hours, minutes and seconds, perhaps with days before them."""
_NAME: Final = re.compile(
    r"\b(?:January|February|March|April|June|July|August|(?:Septem|Octo|Novem|Decem)ber|(?:Sun|Mon|Tues|Wednes|Thurs|Fri|Satur)day)\b", re.I
)
"""A name of a month or a day that is longer than three letters, which Azure takes too."""
_SETTING: Final = re.compile(r"%([^%]+)%")


def carry(sources: Sequence[Source], carried: Carried) -> None:
    """Carry the timer triggers over. Raises ValueError for what is not JSON."""
    for source in sources:
        for document in documents_of(source):
            for entry in document if isinstance(document, list) else [document]:
                carried.enter()
                _function(entry, source, carried)


def _function(entry: Any, source: Source, carried: Carried) -> None:
    bindings = entry.get("bindings") if isinstance(entry, dict) else None
    if not isinstance(bindings, list):
        carried.lost(source.name, "this is no function: it has no list `bindings`", "Give function.json, or functions.metadata of a build.")
        return
    name = text_of(entry, "name") or PurePath(source.name).parent.name or "function"
    where = f"{source.name}: {name}"
    timers = [each for each in bindings if isinstance(each, dict) and text_of(each, "type").lower() == "timertrigger"]
    if not timers:
        carried.lost(where, "it has no timer trigger", "Nothing, if another trigger starts it.")
    elif entry.get("disabled") not in (None, False):
        what = "the function is disabled" if entry["disabled"] is True else "an app setting decides whether the function is disabled"
        carried.lost(where, what, "Create the schedule once it is wanted.")
    else:
        for timer in timers:
            _timer(timer, name, where, carried)


def _timer(timer: Mapping[str, Any], name: str, where: str, carried: Carried) -> None:
    expression = text_of(timer, "schedule").strip()
    if setting := _SETTING.search(expression):
        carried.lost(where, f"the schedule is in the app setting {setting[1]}", "Write its value into the file, and run this again.")
        return
    try:
        rule = _rule(expression)
    except ValueError as wrong:
        carried.lost(where, f"{expression or 'no schedule'}: {wrong}", "Write a schedule for it by hand.")
        return
    if timer.get("useMonitor") is False:
        rule["catch_up"] = {"policy": "none"}
    id = carried.add_schedule(name, rule, {"job": name})
    if timer.get("runOnStartup") is True:
        carried.part(
            where,
            "runOnStartup: a schedule does not fire when an app starts",
            f"To run it after a deployment: tocsin schedules trigger {id}",
        )


def _rule(expression: str) -> dict[str, Any]:
    """Return the rule of a schedule. Raises ValueError."""
    if span := _SPAN.fullmatch(expression):
        days, hours, minutes, seconds = (int(part or 0) for part in span.groups())
        if hours > 23 and span[1] is None:
            # .NET then reads days, hours and minutes, although people mean hours.
            raise ValueError(f"{hours} hours may also mean {hours} days; write days as 1.00:00:00")
        if hours > 23 or minutes > 59 or seconds > 59:
            raise ValueError("this is not a TimeSpan of .NET such as 01:30:00")
        total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if not total:
            raise ValueError("the interval is zero")
        return {"every": f"PT{total}S"}
    expression = _NAME.sub(lambda name: name[0][:3], expression)
    # Azure lets a day match both day fields, also with five fields.
    five = len(expression.split()) == 5
    return {"cron": cron_of(f"0 {expression}" if five else expression, "spring")}
