"""The lines of ordering keys and schedules, as one process uses them: tickets of new and moved events, and the owners that wait here.

The steps of a line are imported with the first event that stands in one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...core.clock import Clock, Millis, to_text
from ...core.errors import StorageError
from ...core.event_loop import EVENTS, LoopTurns
from ...delivery.channels.model import KeyLimits
from ...delivery.notices import Notify, notify_nobody
from ...engine.async_runner import AsyncRunner
from ...storage.ports import Props, Row
from ...tenants.store import TenantDirectory
from ..keys import Address, shard_tenant
from ..properties.overlap import ONE_BY_ONE, OVERLAP, has_line, overlap_of
from ..protocol.dispatch import ShardMessage, send
from ..rules import due_at, may_change
from ..shard.gate import parse_gate, read_gate
from .rules import NOT_BUSY, Asker, KeyLine, TurnQuestion, busy_span, grant, line_of_event, line_of_schedule, ticket_of

if TYPE_CHECKING:
    from .protocol import TurnAnswer

log = logging.getLogger(__name__)
IN_FLIGHT = 32


class WaitingOwner(Protocol):
    """An owner of this process with events that wait for their keys."""

    def wake(self, line: KeyLine) -> None:
        """Ask for turns of the line at once."""


class SkipFigures(NamedTuple):
    """The occurrences of a schedule that were skipped: their number, and the due time of the last; 0 for none."""

    number: int
    last: Millis


class KeyLines:
    """One per process; belongs to one event loop."""

    def __init__(self, runner: AsyncRunner, directory: TenantDirectory, clock: Clock, notify: Notify = notify_nobody) -> None:
        self._runner, self._directory, self._clock = runner, directory, clock
        self.notify = notify
        self._owners: dict[str, WaitingOwner] = {}
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def limits(self, tenant: str, props: Mapping[str, Any]) -> KeyLimits | None:
        """Return the limits of an event's line; those of a channel are at most one second old. Raises `StorageError`."""
        if OVERLAP in props:
            return ONE_BY_ONE
        target = await self._directory.target(tenant, str(props["channel"]))
        return target.spec.per_key if target is not None else None

    async def line_up(self, tenant: str, events: Iterable[tuple[Mapping[str, Any], Address]]) -> None:
        """Insert the tickets of events that are about to be stored on ordered channels. Raises `StorageError`."""
        lines: dict[KeyLine, dict[str, Address]] = {}
        turns = LoopTurns(EVENTS)
        for props, place in events:
            await turns.spend()
            if has_line(props) and props["channel"] and (limits := await self.limits(tenant, props)) and limits.ordered:
                lines.setdefault(line_of_event(tenant, props), {})[ticket_of(props, limits)] = place
        if lines:
            from .protocol import line_up

            await asyncio.gather(*(self._limited(line_up(line, tickets)) for line, tickets in lines.items()))

    async def _limited[T](self, steps: Any) -> T:
        async with self._in_flight:
            result: T = await self._runner.run(steps)
            return result

    async def moving(self, row: Row, due: Millis | None, change: Props) -> bool:
        """Line up an event that is about to get another due time (None: the same) or channel; return True if it leaves its former place.

        Raises `StorageError`. Call `left` with the former row once it has moved.
        """
        if not has_line(row.props) or (due is None and (OVERLAP in row.props or "channel" not in change)):
            return False
        if may_change(row.props) != "yes" or ("channel" not in change and "next" not in row.props and due == int(row.props["due"])):
            # The change will be refused, or the event keeps its place.
            return False
        after = {name: value for name, value in {**row.props, **change}.items() if due is None or name != "next"}
        place = Address(row.pk, row.rk)
        await self.line_up(shard_tenant(row.pk), [(after if due is None else {**after, "due": due}, place)])
        return True

    async def left(self, row: Row) -> None:
        """Remove the ticket of an event that was cancelled, or has moved, and wake the next. row: as it was before."""
        if not has_line(row.props):
            return
        from .protocol import end_ticket

        tenant, now = shard_tenant(row.pk), self._clock.now()
        try:
            limits = await self.limits(tenant, row.props)
            if limits is not None:
                line, overlap = line_of_event(tenant, row.props), overlap_of(row.props)
                busy = busy_span(row.props) if overlap is not None and overlap.notes_ends else NOT_BUSY
                await self._tell(line, await self._runner.run(end_ticket(line, ticket_of(row.props, limits), limits, now, busy)))
        except StorageError as error:
            log.debug("A ticket stays until an event behind it looks: %s", error, extra={"action": "ticket_kept"})

    async def ask(self, question: TurnQuestion) -> TurnAnswer:
        """End and ask for turns; wake the owners of events that get theirs. Raises `StorageError`."""
        from .protocol import exchange

        answer: TurnAnswer = await self._limited(exchange(question, self._clock.now()))
        if None in question.ended.values():
            # An event whose turn is given back keeps its place, and no other one begins. Otherwise this very shard would wake at once.
            await self._tell(question.line, answer)
        return answer

    async def _tell(self, line: KeyLine, answer: TurnAnswer) -> None:
        for shard in answer.following:
            owner = self._owners.get(shard)
            if owner is not None:
                owner.wake(line)
                continue
            row = await self._runner.run(read_gate(shard))
            # An owner elsewhere looks again by itself; a shard that no owner has taken yet has its message.
            if row is not None and (gate := parse_gate(row.props)).state == "resting":
                await self._runner.run(send(ShardMessage(shard, gate.index), self._clock.now()))

    def enter(self, shard: str, owner: WaitingOwner) -> None:
        """Let the owner of a shard be woken."""
        self._owners[shard] = owner

    def leave(self, shard: str, owner: WaitingOwner) -> None:
        """Forget the owner."""
        if self._owners.get(shard) is owner:
            del self._owners[shard]

    async def waits(self, row: Row) -> Props | None:
        """Return how a due event that is not claimed waits in its line; None if it does not. Raises `StorageError`."""
        from .protocol import read_line

        tenant = shard_tenant(row.pk)
        limits = await self.limits(tenant, row.props)
        if limits is None:
            return None
        line = line_of_event(tenant, row.props)
        seen = await self._runner.run(read_line(line))
        now, mine = self._clock.now(), ticket_of(row.props, limits)
        found = grant(seen.state, list(seen.tickets), TurnQuestion(line, Asker(), limits, {mine: Address(row.pk, row.rk)}), now)
        turns = [turn.ticket for turn in seen.state.turns]
        one = limits.ordered or limits.concurrency == 1
        if mine in found.granted or (mine in turns and not (one and mine != turns[0])):
            return None
        shown: Props = {"reason": "overlap" if OVERLAP in row.props else "ordering-key", "since": to_text(due_at(row.props))}
        if found.again is not None:
            return shown | {"until": to_text(found.again)}
        ahead = turns[0] if mine in turns else found.behind[0] if found.behind else ""
        return shown | ({"behind": ahead.partition(":")[2]} if ahead else {})

    async def skipped(self, tenant: str, schedule: str) -> SkipFigures:
        """Return the figures of a schedule that skips. Raises `StorageError`."""
        from .protocol import read_line

        state = (await self._runner.run(read_line(line_of_schedule(tenant, schedule)))).state
        return SkipFigures(state.skips, state.last_skip)

    async def forget_skips(self, tenant: str, schedule: str) -> None:
        """Reset the figures of a deleted schedule, so that a new one of its name does not show them."""
        from .protocol import forget_skips

        try:
            await self._runner.run(forget_skips(line_of_schedule(tenant, schedule)))
        except StorageError as error:
            log.debug("The figures of a deleted schedule stay: %s", error, extra={"action": "skips_kept"})


def first_look(tries: int) -> Millis:
    """Return the milliseconds after which an owner asks again for a turn that it did not get `tries` times in a row."""
    return (250, 500, 1_000, 2_000, 3_000)[tries] if tries < 5 else min(300_000, 30_000 << min(tries - 5, 5))
