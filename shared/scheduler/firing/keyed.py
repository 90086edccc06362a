"""The events of one owner that stand in lines: which of them have their turn, and may be claimed.

They have ordering keys, or are of schedules whose occurrences do not overlap. An owner of other events, or of channels without limits per
key, asks nothing here and stores nothing.

The events of fleet channels that wait because no server owns the partition of their ordering key are here too. They are not claimed, so
waiting costs no delivery slot and no write. An owner whose tenant has no fleet channel asks nothing here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...delivery.channels.model import FleetChannel, KeyLimits
from ...storage.ports import Props, Row
from .. import rules
from ..key_lines.rules import NOT_BUSY, TURN_USED, Asker, BusySpan, KeyLine, TurnQuestion, busy_span, line_of_event, ticket_of, ticket_time
from ..key_lines.service import KeyLines, first_look
from ..keys import Address
from ..properties.overlap import KEY, OVERLAP, SKIPPED, has_line, may_skip, overlap_of, skipped_props
from ..protocol.owning import OwnerSession
from ..rules import punctual_at
from ..timings import CHANNEL_UNREAD_WAIT, CLAIM_AHEAD
from .attempt import DeliveryAttempts, Waits

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Line:
    """One line's events of this owner, by row key."""

    line: KeyLine
    limits: KeyLimits
    rows: dict[str, None] = field(default_factory=dict)
    """All of them that have been claimable."""
    turns: dict[str, str] = field(default_factory=dict)
    """Tickets of the events that have their turn, in order."""
    starts: dict[str, Millis] = field(default_factory=dict)
    """Times from which the events with a turn may start, by ticket."""
    asked: float = float("-inf")
    """Monotonic time at which the turns were asked for last."""
    ended: dict[str, Address | None] = field(default_factory=dict)
    """Tickets whose turns are to be ended; see `exchange`."""
    skips: dict[str, str] = field(default_factory=dict)
    """Occurrences that are to be skipped, with the id of the event ahead of each; '' if that one has ended."""
    skipped: set[str] = field(default_factory=set)
    """Those of `ended` that were skipped."""
    busy: BusySpan = NOT_BUSY
    """The span in which events of this owner were due and had not ended. Used for a schedule that skips."""
    look: Millis = 0
    """Time at which to ask again."""
    tries: int = 0
    woken: bool = False
    """A turn may have come free since the line was last read."""


class KeyedEvents:
    """The keyed events of one owner."""

    def __init__(
        self, session: OwnerSession, tenant: str, lines: KeyLines, clock: Clock, waits: Waits, wake_owner: Callable[[], None]
    ) -> None:
        """wake_owner: wakes the owner of the shard."""
        self._session, self._tenant, self._lines, self._clock, self._waits = session, tenant, lines, clock, waits
        self._wake_owner = wake_owner
        self._mine: dict[KeyLine, _Line] = {}
        self._lined: dict[str, _Line] = {}
        """The line of each row that has been asked for."""
        self._considered: frozenset[str] = frozenset()
        self._notified = set[str]()
        """Skipped occurrences about which the tenant was notified."""
        self.woken = False
        """A turn has come free, or may have."""
        self.urgent = False
        """Events wait for those that end: outcomes are stored at once."""

    def wake(self, line: KeyLine) -> None:
        """See `WaitingOwner`."""
        if (mine := self._mine.get(line)) is not None:
            mine.look, mine.tries, mine.woken, self.woken = 0, 0, True, True
            self._wake_owner()

    def begin(self) -> None:
        """Begin a round of the owner's loop."""
        self.woken = False
        self._considered = frozenset()

    def considered(self, rk: str) -> bool:
        """Return True for an event without a key, and for one that `blocked` was asked about in this round."""
        return rk in self._considered or not has_line(self._session.rows[rk].props)

    async def blocked(self, claim: Sequence[str], outcomes: Mapping[str, rules.RowOutcome]) -> dict[str, Millis]:
        """Return those of the claimable events in lines that must wait for their keys, and when to look at each again.

        outcomes: those that the next transaction stores.
        """
        self.urgent = False
        self._considered = frozenset(claim)
        if not claim:
            return {}
        found: dict[str, Millis] = {}
        asking: dict[KeyLine, _Line] = {}
        wanted: dict[KeyLine, list[str]] = {}
        now = self._clock.now()
        limited: dict[str, KeyLimits | None] = {}
        for rk in claim:
            props = self._session.rows[rk].props
            source = OVERLAP if OVERLAP in props else f"channel {props['channel']}"
            if source not in limited:
                try:
                    limited[source] = await self._lines.limits(self._tenant, props)
                except StorageError:
                    # As flow control does with a channel whose settings cannot be read.
                    found[rk] = now + 2_000
                    continue
            if (limits := limited[source]) is None:
                continue
            mine = self._line(line_of_event(self._tenant, props), limits)
            if rk not in mine.rows:
                mine.rows[rk] = None
                self._lined[rk] = mine
                if self._session.epoch > 1:
                    self._note_former_wait(self._session.rows[rk])
            wanted.setdefault(mine.line, []).append(rk)
        for line, rows in wanted.items():
            mine = self._mine[line]
            busy = _one_at_a_time(mine) and self._in_flight(mine, outcomes)
            asks = mine.look <= now and not busy and any(rk not in mine.turns for rk in rows)
            if mine.look <= now and any(self._is_to_skip(mine, rk, now) for rk in rows):
                # An end that is about to be stored decides.
                asks = not any(rk in outcomes for rk in mine.turns)
            if asks or (mine.turns and self._clock.monotonic() - mine.asked > TURN_USED / 2000):
                asking[line] = mine
        await asyncio.gather(*(self._ask(mine, wanted[line]) for line, mine in asking.items()))
        for line, rows in wanted.items():
            self._allow(self._mine[line], rows, outcomes, found)
        self.urgent = bool(found) or any(mine.turns for mine in self._mine.values())
        return found

    def _note_former_wait(self, row: Row) -> None:
        """Note that an event waited at a former owner: if it was due then, it waited for its key, or for its channel."""
        due, lost_at = rules.due_at(row.props), self._session.lost_at
        if lost_at is None:
            self._waits.keyed(str(row.props["id"]), due)
            return
        # It waited until it was claimed, or until the owner disappeared.
        until = row.timestamp if row.props["state"] == "firing" else lost_at
        if due < until:
            self._waits.keyed(str(row.props["id"]), due, until)

    def _is_to_skip(self, mine: _Line, rk: str, now: Millis) -> bool:
        """Return True for an occurrence that is due, has no turn, and would be skipped rather than wait."""
        props = self._session.rows[rk].props
        return rk not in mine.turns and rk not in mine.skips and int(props["due"]) <= now and may_skip(props)

    async def skips(self) -> dict[str, rules.RowOutcome]:
        """Return the outcomes of the occurrences that are skipped. Their tenant is notified before they are stored."""
        found: dict[str, rules.RowOutcome] = {}
        for mine in self._mine.values():
            for rk, behind in mine.skips.items():
                props = self._session.rows[rk].props if rk in self._session.rows else {"state": "moved"}
                if not may_skip(props) or (overlap := overlap_of(props)) is None:
                    continue
                change = skipped_props(props, behind, self._clock.now())
                if rk not in self._notified:
                    try:
                        await self._lines.notify(self._tenant, "schedule.missed", overlap.schedule, f"{props['id']}: {change['error']}")
                    except StorageError as error:
                        log.debug("A skipped occurrence waits for its notice: %s", error, extra={"action": "notice_postponed"})
                        continue
                    self._notified.add(rk)
                found[rk] = rules.RowOutcome("lapsed", change)
        return found

    def _line(self, line: KeyLine, limits: KeyLimits) -> _Line:
        mine = self._mine.get(line)
        if mine is None:
            mine = self._mine[line] = _Line(line, limits)
            self._lines.enter(self._session.shard, self)
        mine.limits = limits
        return mine

    def _allow(self, mine: _Line, rows: list[str], outcomes: Mapping[str, rules.RowOutcome], found: dict[str, Millis]) -> None:
        """Add those of `rows` that must wait to `found`."""
        now = self._clock.now()
        running = self._in_flight(mine, outcomes)
        room = (0 if running else 1) if _one_at_a_time(mine) else len(rows)
        if mine.limits.ordered and any(rk in outcomes and outcomes[rk].state in rules.WAITING for rk in mine.turns):
            # It failed, or was given back: those behind it wait until that is stored, and the line says who is next.
            room = 0
        fresh = self._clock.monotonic() - mine.asked < TURN_USED / 1000
        order = {ticket: number for number, ticket in enumerate(mine.turns)}
        for rk in sorted(rows, key=lambda rk: order.get(rk, len(order))):
            if rk in mine.skips:
                found[rk] = now + 1_000
                continue
            start = mine.starts.get(rk, 0)
            if rk in mine.turns and room > 0 and fresh and start <= now + CLAIM_AHEAD:
                room -= 1
                continue
            # Whoever ends an attempt of this key wakes this owner; the look is for the case that it cannot.
            found[rk] = max(mine.look, now + 250) if rk not in mine.turns else now + 1_000
            self._waits.keyed(str(self._session.rows[rk].props["id"]), now)

    def start_of(self, rk: str) -> Millis:
        """Return the time from which the rate of the event's key lets it start; 0 for any."""
        mine = self._lined.get(rk)
        return mine.starts.get(rk, 0) if mine is not None else 0

    def _in_flight(self, mine: _Line, outcomes: Mapping[str, rules.RowOutcome] = {}) -> list[str]:
        """Return the events of a line that are claimed, without those whose attempt has ended."""
        rows, epoch = self._session.rows, self._session.epoch
        return [
            rk
            for rk in mine.turns
            if rk in rows and rows[rk].props["state"] == "firing" and rows[rk].props.get("epoch") == epoch and rk not in outcomes
        ]

    async def _ask(self, mine: _Line, wanted: Iterable[str]) -> None:
        """End turns and ask for those of `wanted`. Without an answer, no event gets a turn."""
        rows, shard = self._session.rows, self._session.shard
        keep = {rk: ticket for rk, ticket in mine.turns.items() if rk in rows and rows[rk].props["state"] not in rules.FINAL}
        wanted = [rk for rk in wanted if rk not in keep and rk not in mine.skips]
        # An event that a former owner has claimed has its turn, and comes first: that owner may have begun to deliver it.
        claimed = {rk: ticket_of(rows[rk].props, mine.limits) for rk in wanted if rows[rk].props["state"] == "firing"}
        keep = {**claimed, **keep}
        asked = {ticket_of(rows[rk].props, mine.limits): rk for rk in wanted if rk not in claimed}
        question = TurnQuestion(
            mine.line,
            Asker(shard, self._session.epoch),
            mine.limits,
            {ticket: Address(shard, rk) for ticket, rk in asked.items()},
            {ticket: Address(shard, rk) for rk, ticket in keep.items()},
            dict(mine.ended),
            frozenset(ticket for ticket, rk in asked.items() if may_skip(rows[rk].props)),
            frozenset(mine.skipped),
            mine.busy,
        )
        sent, now = self._clock.monotonic(), self._clock.now()
        mine.woken = False
        try:
            answer = await self._lines.ask(question)
        except StorageError as error:
            log.debug("The line of an ordering key could not be read: %s", error, extra={"action": "line_unread"})
            mine.look = now + 1_000
            return
        for ticket in question.ended:
            mine.ended.pop(ticket, None)
        mine.skipped -= question.skipped
        mine.skips |= {asked[ticket]: ahead for ticket, ahead in answer.skipped.items()}
        mine.turns = {} if answer.outdated else keep
        for ticket, start in answer.granted.items():
            mine.turns[asked[ticket]], mine.starts[asked[ticket]] = ticket, start
        mine.starts = {rk: start for rk, start in mine.starts.items() if rk in mine.turns}
        mine.asked = sent
        if answer.granted or not asked:
            mine.tries = 0
        if waiting := asked.keys() - answer.granted.keys() - answer.skipped.keys():
            mine.look = answer.again if answer.again is not None else now + first_look(mine.tries)
            # An occurrence that may be skipped is looked at when it is due.
            mine.look = min([mine.look, *(max(now, ticket_time(ticket)) for ticket in waiting & question.skippable)])
            mine.tries += not answer.granted
            if mine.woken:
                # While the answer was on its way.
                mine.look = mine.tries = 0

    async def settled(self, outcomes: Mapping[str, rules.RowOutcome], before: Mapping[str, Row]) -> None:
        """End the turns of events whose outcomes are stored, and ask for the next ones. before: the rows before the transaction."""
        touched: dict[KeyLine, _Line] = {}
        for rk, outcome in outcomes.items():
            if rk not in before:
                continue
            mine, props = self._lined.get(rk), before[rk].props
            if mine is None:
                if outcome.state in rules.FINAL:
                    await self._lines.left(before[rk])
                continue
            ticket = mine.turns.pop(rk, None) or ticket_of(props, mine.limits)
            now = self._session.rows[rk].props
            over = now["state"] in rules.FINAL or ticket_of(now, mine.limits) != ticket
            mine.skips.pop(rk, None)
            if now.get(SKIPPED):
                mine.skipped.add(ticket)
            elif over and (overlap := overlap_of(now)) is not None and overlap.notes_ends:
                mine.busy = mine.busy.joined(busy_span(now))
            mine.ended[ticket] = None if over else Address(self._session.shard, rk)
            if not over:
                # It is ahead of those that were to follow it.
                claimed = self._in_flight(mine)
                mine.turns = {other: ticket for other, ticket in mine.turns.items() if other in claimed}
            touched[mine.line] = mine
        # While an owner has further turns of a key, the ends of those before them are stored together.
        asking = [
            mine for mine in touched.values() if mine.skipped or not (mine.turns and _one_at_a_time(mine) and not any(mine.ended.values()))
        ]
        await asyncio.gather(*(self._ask(mine, self._due(mine)) for mine in asking))

    def _due(self, mine: _Line) -> list[str]:
        """Return the events of a line that can be claimed."""
        rows, epoch, until = self._session.rows, self._session.epoch, self._clock.now() + CLAIM_AHEAD
        return [rk for rk in mine.rows if rk in rows and _is_due(rows[rk].props, epoch, until)]

    async def give_back(self) -> None:
        """End the turns that were not used, because the owner releases the shard."""
        left = [mine for mine in self._mine.values() if mine.turns or mine.ended]
        for mine in left:
            mine.ended |= {ticket: Address(self._session.shard, rk) for rk, ticket in mine.turns.items()}
            mine.turns = {}
        await asyncio.gather(*(self._ask(mine, ()) for mine in left))

    def leave(self) -> None:
        """Let nobody wake this owner any more."""
        self._lines.leave(self._session.shard, self)


def _one_at_a_time(mine: _Line) -> bool:
    return mine.limits.ordered or mine.limits.concurrency == 1


def _is_due(props: Props, epoch: int, until: Millis) -> bool:
    return (
        props["state"] not in rules.FINAL
        and rules.needs_claim(props, epoch)
        and (props["state"] == "firing" or rules.due_at(props) <= until)
    )


class UnownedEvents:
    """The waiting events of one owner of a shard."""

    def __init__(self, attempts: DeliveryAttempts, clock: Clock, *, succeeds: bool) -> None:
        """succeeds: a former owner has released the shard; what it saw waiting is not known here."""
        self._attempts, self._clock, self._succeeds = attempts, clock, succeeds

    async def blocked(self, rows: Mapping[str, Row], claim: Sequence[str]) -> dict[str, Millis]:
        """Return those of the claimable events in lines that must wait, and when to look at each again."""
        by_key: dict[tuple[str, str], list[str]] = {}
        for rk in claim:
            if KEY in (props := rows[rk].props):
                by_key.setdefault((str(props["channel"]), str(props[KEY])), []).append(rk)
        if not by_key:
            return {}
        fleets = {channel for channel in {channel for channel, _ in by_key} if await self._delivers_to_owners(channel)}
        # Side by side: events of other channels in the shard wait for these reads.
        asked = [(channel, key, rows, waiting) for (channel, key), waiting in by_key.items() if channel in fleets]
        found = await asyncio.gather(*(self._blocked(*each) for each in asked))
        return {rk: look for each in found for rk, look in each.items()}

    async def _delivers_to_owners(self, channel: str) -> bool:
        """Return False for a channel of another type."""
        try:
            target = await self._attempts.tenant.target(channel)
        except StorageError:
            # Its events wait until it can be read.
            return True
        return target is not None and isinstance(target.spec, FleetChannel)

    async def _blocked(self, channel: str, key: str, rows: Mapping[str, Row], claim: Sequence[str]) -> dict[str, Millis]:
        """Return those of one key's events that must wait."""
        tenant, owners = self._attempts.tenant, self._attempts.owners()
        found: dict[str, Millis] = {}
        try:
            target = await tenant.target(channel)
            if target is None or not isinstance(target.spec, FleetChannel):
                return {}
            for rk in claim:
                props = rows[rk].props
                routed = await owners.route(tenant.name, target.spec.fleet, key, punctual_at(props))
                if not routed.owner.hold:
                    return {}
                if routed.decision.action == "wait":
                    found[rk] = routed.decision.look
                    # An event whose time has not come yet waits for that first.
                    since = punctual_at(props) if self._succeeds else max(self._clock.now(), punctual_at(props))
                    self._attempts.waits.unowned(str(props["id"]), since)
        except StorageError as error:
            log.debug("The owner of a partition could not be read: %s", error, extra={"action": "owner_unread"})
            return dict.fromkeys(claim, self._clock.now() + CHANNEL_UNREAD_WAIT)
        return found
