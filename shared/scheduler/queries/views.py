"""Events as callers see them: the contents of their rows, and the hold of their channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...core.clock import Clock, Millis, to_text
from ...delivery.channels.answer_heads import AnswerHead
from ...delivery.channels.model import FleetChannel
from ...delivery.fleet_owners import OwnerRouting
from ...delivery.flow.rules import Block, block
from ...storage.ports import Props, Row
from ...tenants.store import TenantDirectory
from .. import rules
from ..key_lines.service import KeyLines
from ..keys import shard_tenant
from ..properties.overlap import KEY, has_line
from ..rows import representation, shown_state
from ..rules import punctual_at
from .event_filter import EventFilter


class EventViews:
    """Builds representations of events. One per process."""

    def __init__(self, directory: TenantDirectory, clock: Clock, lines: KeyLines, owners: Callable[[], OwnerRouting]) -> None:
        """lines: the lines of ordering keys. owners: returns the owners of partitions, for fleet channels."""
        self._directory, self._clock, self._lines, self._owners = directory, clock, lines, owners

    async def one(self, row: Row, answers: Mapping[Millis, AnswerHead] = {}) -> dict[str, Any]:
        """Return the event's representation. answers: by the times of their attempts. Raises `StorageError`."""
        if not is_waiting(row.props, self._clock.now()):
            return representation(row, answers)
        [shown] = await self.all([row], answers)
        if has_line(row.props) and "held" not in shown and (waits := await self._lines.waits(row)) is not None:
            shown.pop("next_attempt", None)
            shown["held"] = waits
        if "held" not in shown and (why := await self._unowned(row)) is not None:
            shown.pop("next_attempt", None)
            shown["held"] = {"reason": "partition-owner", "detail": why}
        return shown

    async def _unowned(self, row: Row) -> str | None:
        """Return why an event of a fleet channel waits for the owner of its partition, if it does."""
        tenant = shard_tenant(row.pk)
        target = await self._directory.target(tenant, str(row.props["channel"]))
        if KEY not in row.props or target is None or not isinstance(target.spec, FleetChannel):
            return None
        routed = await self._owners().route(tenant, target.spec.fleet, str(row.props[KEY]), punctual_at(row.props))
        return routed.owner.text if routed.decision.action == "wait" else None

    async def all(self, rows: Iterable[Row], answers: Mapping[Millis, AnswerHead] = {}) -> list[dict[str, Any]]:
        """Return the events' representations. Reads each channel with due events once; its state is at most 1 s old."""
        rows, now = list(rows), self._clock.now()
        asked = sorted({(shard_tenant(row.pk), str(row.props["channel"])) for row in rows if is_waiting(row.props, now)})
        targets = await asyncio.gather(*(self._directory.target(*each) for each in asked))
        found = {each: block(target.paused, target.breaker) for each, target in zip(asked, targets, strict=True) if target is not None}
        return [_view(row, found.get((shard_tenant(row.pk), str(row.props["channel"]))), now, answers) for row in rows]


def is_waiting(props: Props, now: Millis) -> bool:
    """Return True if the event is due and unclaimed."""
    return props["state"] in rules.WAITING and rules.due_at(props) <= now


def held_filter(chosen: EventFilter, state: str | None, blocks: Mapping[str, Block | None], now: Millis) -> EventFilter:
    """Return the filter that shows the held events of those that `chosen` shows.

    state: as users see it. blocks: the reason why each channel is blocked, if it is.
    """

    def wanted(props: dict[str, Any]) -> bool:
        return is_waiting(props, now) and blocks.get(str(props["channel"])) is not None and (state is None or shown_state(props) == state)

    return replace(chosen, state="held", wanted=wanted)


def _view(row: Row, blocked: Block | None, now: Millis, answers: Mapping[Millis, AnswerHead]) -> dict[str, Any]:
    shown = representation(row, answers)
    if blocked is None or not is_waiting(row.props, now):
        return shown
    # The time of the next attempt has passed, and the new one is unknown.
    shown.pop("next_attempt", None)
    held: dict[str, str] = {"reason": blocked.reason}
    if blocked.until is not None and blocked.until > now:
        held["until"] = to_text(blocked.until)
    return shown | {"held": held}
