"""The watch of one process: its parts, made once and wired together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter

from ...clock import Clock, Millis
from ...fleets.store import INDEX
from ...scheduler.ingest import Ingest
from ...scheduler.model import EventIn
from ...scheduler.protocol.effects import load
from ...storage.names import FLEETS, SWEEPS
from ...storage.ports import Tables
from ...web.intake import parse_json
from ...web.problem import not_found
from ..carrier import Carrier
from ..orders import Planning
from ..rows import fleet_key
from . import figures, rules
from .figures import Figures
from .inspect import Inspect
from .notices import Publisher
from .rules import Findings, Watched
from .state import PLANNED, WATCHED, Memory, watched_of
from .takeover import Takeover
from .turns import Turns

_EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)


class Events:
    """Takes alarms in as events of the tenant's."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest

    async def __call__(self, tenant: str, content: Mapping[str, Any]) -> None:
        """Store the event, by the rules for anybody's. Raises `Problem`, `StorageError`."""
        raw = orjson.dumps(content)
        await self._ingest.one(tenant, parse_json(_EVENT, raw), raw)


class Wrong(NamedTuple):
    """What one look found, and what is remembered of earlier ones."""

    findings: Findings
    watched: Watched


class Watch:
    """Both timers' parts. One per process."""

    def __init__(self, tables: Tables, carrier: Carrier, planning: Planning, clock: Clock, publisher: Publisher) -> None:
        self._tables, self._carrier, self._planning, self._clock = tables, carrier, planning, clock
        self._memory = Memory(tables)
        turns = Turns(tables, clock)
        self.takeover = Takeover(self._memory, turns, carrier, planning, clock)
        """Every 15 s, and when beats over HTTP ask for it."""
        self.inspect = Inspect(self._memory, turns, carrier, planning, self.takeover, publisher)
        """Every minute."""

    async def retain(self, now: Millis) -> Counter[str]:
        """Forget fleets that are gone. Counts `forgotten`."""
        index = {row.rk for row in await load(self._tables, FLEETS, INDEX, "", "~", ("created",))}
        counts: Counter[str] = Counter()
        for duty in (WATCHED, PLANNED):
            for row in await load(self._tables, SWEEPS, duty, "", "~", ("seen",)):
                if row.rk not in index:
                    await self._memory.forget(duty, row.rk)
                    counts["forgotten"] += 1
        return counts

    async def stale(self, tenant: str, fleet: str) -> Wrong:
        """What is wrong now. Raises 404, `StorageError`."""
        key = fleet_key(tenant, fleet)
        survey = await self._planning.look(key)
        if survey is None:
            raise not_found("fleet")
        now = self._clock.now()
        planned = await self._planning.plan(survey, now)
        known = await self._memory.load(WATCHED, [key])
        return Wrong(rules.findings(survey, planned.plan, now), watched_of(known.get(key)).value)

    async def figures(self) -> list[Figures]:
        """Gauges. Raises `StorageError`."""
        return await figures.look(self._tables, self._carrier, self._memory, self._clock.now())

    async def close(self) -> None:
        """End what runs in the background."""
        await self.takeover.close()
