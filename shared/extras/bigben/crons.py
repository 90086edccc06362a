"""BigBen's crons as recurring schedules in UTC: one schedule for each tenant, id and type, which identify a cron at BigBen."""

from __future__ import annotations

import re

import orjson
from cron_descriptor import FormatException, get_description

from ...core.errors import Problem
from ...scheduler.recurring import cron as expressions
from ...scheduler.recurring.model import MAX_ID
from ...scheduler.recurring.service import Recurring, StoredSchedule
from ...web.problem import invalid, invalid_all
from .model import Cron, CronDescription, CronIn, CronType
from .rules import base_id, hashed

TYPES: tuple[CronType, ...] = ("UNIX", "CRON4J", "QUARTZ", "SPRING")
API_NAME = "BigBen"
"""Name of this API in schedules that it made."""
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_STEP = re.compile(r"(\d+)/(\d+)")
_NUMBER = re.compile(r"\d+")
_DAY = 4


class Crons:
    """Creates, shows and deletes crons. One per process."""

    def __init__(self, recurring: Recurring) -> None:
        self._recurring = recurring

    async def put(self, wanted: CronIn) -> None:
        """Create or replace a cron.

        Raises 422 for an expression that five fields cannot express, 409 if another API created the schedule of that name, 429.
        """
        expression = five_fields(wanted.expression, wanted.type)
        event = {
            "id": wanted.id,
            "tenant": wanted.tenant,
            "mode": "UPSERT",
            "deliveryOption": "FULL_EVENT",
            "eventStatus": "TRIGGERED",
            "payload": wanted.expression,
            "cronType": wanted.type,
        }
        raw = orjson.dumps({"cron": expression, "timezone": "UTC", "payload": event})
        try:
            await self._recurring.put(wanted.tenant, schedule_id(wanted.id, wanted.type), raw, api=API_NAME)
        except Problem as wrong:
            raise _in_their_words(wrong) from None

    async def get(self, tenant: str, cron_id: str, *, describe: bool) -> list[CronDescription]:
        """Return the crons of this id, one per type."""
        found = [(kind, await self._own(tenant, cron_id, kind)) for kind in TYPES]
        return [_shown(tenant, cron_id, kind, schedule, describe) for kind, schedule in found if schedule is not None]

    async def delete(self, tenant: str, cron_id: str, kind: str) -> None:
        """Delete the cron of one type, or of all types for `*`. A missing cron is no error, as at BigBen. Raises 422."""
        if kind != "*" and kind not in TYPES:
            raise invalid("{type}", f"one of {', '.join(TYPES)} and *")
        for each in TYPES if kind == "*" else (kind,):
            if await self._own(tenant, cron_id, each) is None:
                continue
            try:
                await self._recurring.delete(tenant, schedule_id(cron_id, each), {})
            except Problem as missing:
                if missing.status != 404:
                    raise

    async def _own(self, tenant: str, cron_id: str, kind: str) -> StoredSchedule | None:
        """Return the schedule of this cron, or None if it does not exist or another API created it."""
        try:
            schedule = await self._recurring.get(tenant, schedule_id(cron_id, kind))
        except Problem as missing:
            if missing.status != 404:
                raise
            return None
        return schedule if schedule.definition.api == API_NAME else None


def _in_their_words(wrong: Problem) -> Problem:
    """Return the problem with faults of the schedule's `cron` reported as faults of the cron's `expression`."""
    if wrong.status != 422 or not wrong.errors:
        return wrong
    return invalid_all(("/expression" if error["pointer"] == "/cron" else error["pointer"], error["detail"]) for error in wrong.errors)


def _shown(tenant: str, cron_id: str, kind: CronType, schedule: StoredSchedule, describe: bool) -> CronDescription:
    shown = schedule.shown
    expression = str(orjson.loads(schedule.definition.body)["payload"])
    cron = Cron(id=cron_id, expression=expression, type=kind, tenant=tenant, lastExecutionTime=shown["last"], lastUpdated=shown["created"])
    return CronDescription(cron=cron, description=_in_words(shown["cron"]) if describe else None)


def describe(wanted: CronIn) -> CronDescription:
    """Return a cron that is not stored, with its expression in words. Raises 422 for an expression that `put` would refuse too."""
    try:
        fields = expressions.check(five_fields(wanted.expression, wanted.type))
    except ValueError as wrong:
        raise invalid("/expression", str(wrong)) from None
    cron = Cron(id=wanted.id, expression=wanted.expression, type=wanted.type, tenant=wanted.tenant)
    return CronDescription(cron=cron, description=_in_words(fields))


def _in_words(fields: str) -> str:
    try:
        return get_description(fields)
    except FormatException:
        # The library that describes expressions knows fewer of them than schedules do.
        return fields


def schedule_id(cron_id: str, kind: str) -> str:
    """Return the id of the schedule of a cron."""
    base = base_id(cron_id)
    return f"{base if len(base) <= MAX_ID - 8 else hashed(cron_id)}~{kind.lower()}"


def five_fields(expression: str, kind: CronType) -> str:
    """Return the expression with five fields, in UTC. Raises 422 if five fields cannot express it."""
    fields = expression.split()
    if kind in ("QUARTZ", "SPRING"):
        if kind == "QUARTZ" and len(fields) == 7 and fields[6] == "*":
            fields = fields[:6]
        if len(fields) != 6:
            raise invalid(
                "/expression", f"{kind} expressions have six fields, seconds first" + (", and a year of *" if kind == "QUARTZ" else "")
            )
        if fields[0] != "0":
            raise invalid("/expression", "schedules fire on whole minutes: the seconds must be 0 (use `every` for shorter intervals)")
        fields = fields[1:]
    if len(fields) != 5:
        raise invalid("/expression", f"{kind} expressions have five fields")
    fields = ["*" if field == "?" else field for field in fields]
    if _special(fields):
        raise invalid("/expression", "schedules do not support L, W and #")
    if kind != "UNIX" and fields[2] != "*" and fields[4] != "*":
        raise invalid("/expression", f"{kind} needs both day fields to match, a schedule either one: restrict only one of them")
    if kind == "QUARTZ":
        # Sunday is 1 in Quartz and 0 in schedules. A step is a count, not a day.
        fields[_DAY] = ",".join(_shifted(part) for part in fields[_DAY].split(","))
    return " ".join(_stepped(field, high) for field, (_, high) in zip(fields, _RANGES, strict=True))


def _special(fields: list[str]) -> bool:
    days = re.sub(r"SUN|MON|TUE|WED|THU|FRI|SAT", "", fields[_DAY].upper())
    return any(mark in fields[2].upper() + days for mark in "LW#")


def _shifted(part: str) -> str:
    days, slash, step = part.partition("/")
    return _NUMBER.sub(lambda found: str(int(found[0]) - 1), days) + slash + step


def _stepped(field: str, high: int) -> str:
    """Return steps such as `5/10` (from 5 on, every 10) as ranges, which every cron reads the same way."""
    parts = (_STEP.fullmatch(part) for part in field.split(","))
    return ",".join(
        f"{step[1]}-{min(high, 6) if high == 7 else high}/{step[2]}" if step else part
        for step, part in zip(parts, field.split(","), strict=True)
    )
