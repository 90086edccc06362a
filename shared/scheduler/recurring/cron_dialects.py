"""Cron expressions of other schedulers, rewritten as expressions of schedules. Pure.

Quartz counts weekdays from Sunday = 1, has a year at the end, and takes ranges that run backwards. Quartz, Spring and cron4j need both day
fields to match, as six fields do in `cron`. `5/10` counts up to the end of the field.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from .cron import DAY_OF_MONTH, DAY_OF_WEEK, FIELDS, Field, value_of

type Dialect = Literal["unix", "cron4j", "quartz", "spring"]

_NUMBER = re.compile(r"\d+", re.ASCII)
_STEP = re.compile(r"(\d{1,2}|[A-Z]{3})/(\d{1,2})", re.ASCII)
_RANGE = re.compile(r"(\d{1,2}|[A-Z]{3})-(\d{1,2}|[A-Z]{3})", re.ASCII)
_BEFORE_LAST = re.compile(r"L-\d+W?", re.ASCII)
_SIX_FIELDS: Final = {"quartz": "six fields, seconds first, and a year of * at most", "spring": "six fields, seconds first"}


def rewritten(expression: str, dialect: Dialect) -> str:
    """Return the expression as a schedule reads it, with six fields only if five do not say the same.

    ValueError gives the reason why a schedule cannot express it. A fault in the expression itself is left for the schedule to refuse.
    """
    parts = expression.upper().split()
    if dialect == "quartz" and len(parts) == 7 and parts[6] in ("*", "?"):
        parts.pop()
    if dialect in _SIX_FIELDS:
        if len(parts) != 6:
            raise ValueError(f"{dialect} expressions have {_SIX_FIELDS[dialect]}")
    elif len(parts) != 5:
        raise ValueError(f"{dialect} expressions have five fields")
    else:
        parts.insert(0, "0")
    fields = [",".join(_translated(field, item, dialect) for item in part.split(",")) for field, part in zip(FIELDS, parts, strict=True)]
    same = dialect == "unix" or any(fields[number].startswith("*") for number in (DAY_OF_MONTH, DAY_OF_WEEK))
    return " ".join(fields[1:] if fields[0] == "0" and same else fields)


def _translated(field: Field, item: str, dialect: Dialect) -> str:
    if item == "?":
        return "*"
    if _BEFORE_LAST.fullmatch(item):
        raise ValueError(f"{field.name}: {item} counts back from the last day; a schedule has only L and LW")
    if dialect == "quartz" and field is FIELDS[DAY_OF_WEEK]:
        # What follows / or # is a count and no day; L alone is the last day of the week.
        days = re.split("[/#]", item, maxsplit=1)[0]
        item = "SAT" if item == "L" else _NUMBER.sub(_from_sunday, days) + item[len(days) :]
    last = field.low + field.span
    if step := _STEP.fullmatch(item):
        return f"{step[1]}-{last}/{step[2]}"
    if dialect == "quartz" and (both := _RANGE.fullmatch(item)):
        first, end = value_of(field, both[1]), value_of(field, both[2])
        if end < first:
            return f"{first}-{last},{field.low}-{end}"
    return item


def _from_sunday(found: re.Match[str]) -> str:
    number = int(found[0])
    if not 1 <= number <= 7:
        raise ValueError(f"day of week: {number} is no day of quartz; values are 1 (Sunday) to 7, or three-letter names")
    return str(number - 1)
