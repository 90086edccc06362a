"""BigBen's crons as recurring schedules in UTC: one schedule for each tenant, id and type, which identify a cron at BigBen."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from cron_descriptor import FormatException, get_description

from ...core.errors import Problem
from ...scheduler.recurring.cron import check, parse
from ...scheduler.recurring.cron_dialects import Dialect, rewritten
from ...scheduler.recurring.definition import MadeBy
from ...scheduler.recurring.model import MAX_ID
from ...scheduler.recurring.service import Recurring, StoredSchedule
from ...scheduler.recurring.words import in_words
from ...web.problem import invalid, invalid_all
from .model import Cron, CronDescription, CronIn, CronType
from .rules import base_id, hashed

TYPES: tuple[CronType, ...] = ("UNIX", "CRON4J", "QUARTZ", "SPRING")
API_NAME = "BigBen"
"""Name of this API in schedules that it made."""
_DIALECTS: Mapping[CronType, Dialect] = {"UNIX": "unix", "CRON4J": "cron4j", "QUARTZ": "quartz", "SPRING": "spring"}


class Crons:
    """Creates, shows and deletes crons. One per process."""

    def __init__(self, recurring: Recurring) -> None:
        self._recurring = recurring

    async def put(self, wanted: CronIn) -> None:
        """Create or replace a cron.

        Raises 422 for an expression that a schedule cannot express, 409 if another API created the schedule of that name, 429.
        """
        expression = own_expression(wanted.expression, wanted.type)
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
            await self._recurring.put(wanted.tenant, schedule_id(wanted.id, wanted.type), raw, api=_made_by(wanted.type))
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
            except Problem as refused:
                if refused.status != 404:
                    raise

    async def _own(self, tenant: str, cron_id: str, kind: str) -> StoredSchedule | None:
        """Return the schedule of this cron, or None if it does not exist or another API created it."""
        try:
            schedule = await self._recurring.get(tenant, schedule_id(cron_id, kind))
        except Problem as refused:
            if refused.status != 404:
                raise
            return None
        return schedule if schedule.definition.api == API_NAME else None


def _made_by(kind: CronType) -> MadeBy:
    """Return the maker of a cron's schedule. BigBen names the event of a cron by its type and its time."""
    return MadeBy(API_NAME, (("eventTime", "{at}"), ("eventId", f"{kind}/{{at}}"), ("triggeredAt", "{at}")))


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
        fields = check(own_expression(wanted.expression, wanted.type))
    except ValueError as wrong:
        raise invalid("/expression", str(wrong)) from None
    cron = Cron(id=wanted.id, expression=wanted.expression, type=wanted.type, tenant=wanted.tenant)
    return CronDescription(cron=cron, description=_in_words(fields))


def _in_words(fields: str) -> str:
    special = any(item.special for items in parse(fields).fields for item in items)
    try:
        # The library reads the day fields of six as alternatives, and lists of special days wrongly.
        return in_words(fields, "UTC") if special or len(fields.split()) == 6 else get_description(fields)
    except FormatException:
        # It knows fewer expressions than schedules do.
        return in_words(fields, "UTC")


def schedule_id(cron_id: str, kind: str) -> str:
    """Return the id of the schedule of a cron."""
    base = base_id(cron_id)
    return f"{base if len(base) <= MAX_ID - 8 else hashed(cron_id)}~{kind.lower()}"


def own_expression(expression: str, kind: CronType) -> str:
    """Return the expression as schedules read it, in UTC. Raises 422 if a schedule cannot express it."""
    try:
        return rewritten(expression, _DIALECTS[kind])
    except ValueError as wrong:
        raise invalid("/expression", str(wrong)) from None
