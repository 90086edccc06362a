"""The plays of ordering keys, and the world that judges them: two events of one key, in a shard each.

K1: no delivery starts while an event ahead of it in the line, stored in time, has not ended.
K2: an owner starts no delivery while another event of the key is claimed.
P1 of the shard protocol: from every state, without further faults, both events end.

Time stands still or jumps from before the due times to them: the age from which a turn without a claim counts no more is not played.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shared.delivery.channels.model import KeyLimits
from shared.engine.effects import LoadFirst
from shared.scheduler import rules
from shared.scheduler.facets import FACETS
from shared.scheduler.key_lines import protocol
from shared.scheduler.key_lines.rules import Asker, TurnQuestion, line_of, ticket_of
from shared.scheduler.keys import Address, event_row, index_key, index_partition, shard_key
from shared.scheduler.protocol import dispatch, ingest, owning
from shared.scheduler.shard import gate
from shared.storage.names import EVENTS, LIMITS, SHARDS
from tests.model.checking.checker import Violation
from tests.model.checking.state import Actor, Budget, Now, Play, Start, State, Until, row_of
from tests.model.shards.actors import CHANNEL, POLICY, TENANT, settle, sweep
from tests.model.shards.plays import always
from tests.model.shards.world import World

DUE = 10_000
LINE = line_of(TENANT, CHANNEL, "k")
ORDERED = KeyLimits(ordered=True)
ONE = KeyLimits(concurrency=1)
DUES = {"x": DUE - 1, "y": DUE}
CLAIMED_KEEPS = True
"""An event that a former owner has claimed keeps its turn."""
SETTLE_FIRST = True
"""An owner ends a turn after it has stored the outcome."""


def place(event: str) -> Address:
    return Address(shard_key(TENANT, f"{event}1"), event_row(0))


def props_of(event: str) -> dict[str, Any]:
    return {"id": event, "state": "scheduled", "due": DUES[event], "channel": CHANNEL, "key": "k"}


def owner(name: str, text: str, limits: KeyLimits) -> Any:
    """An owner of a shard with one event, as `firing.owner` and `firing.keyed` do it."""
    message = dispatch.parse_message(text)
    session = yield from owning.take(message.shard, message.index, name, FACETS)
    if session in ("gone", "done"):
        if session == "done":
            yield from owning.tidy(message.shard, message.index, lambda rows: {}, FACETS)
        return ()
    if isinstance(session, owning.ShardBusy):
        return (("again", text),)
    if not (yield from owning.load(session)):
        return ()
    asker = Asker(message.shard, session.epoch)
    while True:
        now = yield Now()
        rows = session.rows.open
        todo = rules.agenda(rows, session.epoch, now, lambda props: POLICY)
        if todo.finished:
            yield from owning.finish(session, {})
            return ()
        if not todo.claim:
            if todo.rest is not None:
                yield from owning.rest(session, todo.rest, retries_only=True, sent=False)
                return ()
            yield Until(todo.look)
            continue
        [rk] = todo.claim
        ticket = ticket_of(rows[rk], limits)
        mine: Mapping[str, Address] = {ticket: Address(message.shard, rk)}
        # An event that a former owner has claimed has its turn.
        held = mine if CLAIMED_KEEPS and rows[rk]["state"] == "firing" else {}
        answer = yield from protocol.exchange(TurnQuestion(LINE, asker, limits, {} if held else mine, held), now)
        if not held and ticket not in answer.granted:
            todo = rules.agenda(rows, session.epoch, now, lambda props: POLICY, blocked={rk: now + 30_000})
            yield from owning.rest(session, todo.rest or now + 30_000, retries_only=True, sent=False)
            return ()
        if not (yield from owning.step(session, {}, [rk])):
            return ()
        if rk not in owning.claimed(session, ()):
            continue
        props = session.rows[rk].props
        outcome = settle(props, (yield Start(message.shard, rk, props["id"], int(props["due"]))), now)
        for what in ("store", "end") if SETTLE_FIRST else ("end", "store"):
            if what == "store":
                if not (yield from owning.step(session, {rk: outcome}, [])):
                    return ()
            else:
                after = {**props, "state": outcome.state, **outcome.props}
                stays = after["state"] not in rules.FINAL and ticket_of(after, limits) == ticket
                ended = {ticket: Address(message.shard, rk) if stays else None}
                yield from protocol.exchange(TurnQuestion(LINE, asker, limits, {}, ended=ended), now)


def writer(limits: KeyLimits) -> Any:
    """Stores x: its ticket, and then the event."""
    opened = ingest.OpenShard(place("x").shard, "w", 0, FACETS)
    yield from ingest.file_shard(opened.shard, 0, sent=False)
    stored = yield from stored_with_ticket(opened, {ticket_of(props_of("x"), limits): place("x")})
    now = yield Now()
    early = (("early", "x"),) if now < DUE else ()
    return (("stored", "x"), *early) if stored else ()


def stored_with_ticket(opened: ingest.OpenShard, tickets: Mapping[str, Address]) -> Any:
    yield from protocol.line_up(LINE, tickets)
    added = yield from ingest.append(opened, [ingest.Entry(event_row(0), props_of("x"), 1)])
    return event_row(0) in added.stored


def stored(event: str, limits: KeyLimits) -> frozenset[Any]:
    """An open shard that nobody fills any more, with one event and its ticket."""
    here = place(event)
    index = {"state": "pending", "wake": 0, "bucket": "197001010000", "tenant": TENANT}
    held = gate.Gate("open", "", 0, 1, index_key(here.shard, 0), "197001010000", gate.Counts(1))
    ticket = LINE.ticket_row(ticket_of(props_of(event), limits))
    return frozenset(
        {
            ((EVENTS, here.shard, "gate"), 1, tuple(sorted(held.props().items()))),
            ((EVENTS, here.shard, here.row), 1, tuple(sorted(props_of(event).items()))),
            ((SHARDS, index_partition(here.shard), index_key(here.shard, 0)), 1, tuple(sorted(index.items()))),
            *({((LIMITS, LINE.partition, ticket), 1, (("at", here.text),))} if limits.ordered else ()),
        }
    )


def look_first(world: World, state: State, actor: Actor, otherwise: Callable[..., State], *, old: bool) -> State:
    """Answer a read of a line's first rows; leave other reads to `otherwise`."""
    effect = world.machines[actor.machine].effect
    if not isinstance(effect, LoadFirst):
        return otherwise(state, actor, old=old)
    table, pk, first, end, most = effect
    rows = sorted(
        (cell, found)
        for cell, found in world._cells(state).items()
        if cell[:2] == (table, pk) and first <= cell[2] < end and found[1] is not None
    )
    seen = tuple(rows[:most])
    # Once time has passed, a ticket without an event is old.
    aged = state.now > DUE + 20_000
    return world._resume(state, actor, [row_of(cell, found, aged) for cell, found in seen], (seen, aged))


class KeyWorld(World):
    """The world of the shard protocol, with the line of a key."""

    def _look(self, state: State, actor: Actor, *, old: bool = False) -> State:
        return look_first(self, state, actor, super()._look, old=old)

    def _deliver(self, state: State, actor: Actor, success: bool) -> State:
        start: Start = self.machines[actor.machine].effect
        cells = self._cells(state)
        owned = dict(cells[EVENTS, start.shard, "gate"][1])["holder"] == actor.name
        for event in DUES:
            here = place(event)
            found = cells.get((EVENTS, here.shard, here.row))
            if event == start.event or found is None or found[1] is None or not owned:
                continue
            other = dict(found[1])["state"]
            ahead = DUES[event] < DUES[start.event] and ("early", event) in state.acked and self.play.name != "concurrency"
            if ahead and other not in rules.FINAL:
                raise Violation(f"K1: {actor.name} starts {start.event}, but {event} is ahead and {other}")
            if other == "firing":
                raise Violation(f"K2: {actor.name} starts {start.event}, and {event} is claimed")
        return super()._deliver(state, actor, success)


def play(name: str, limits: KeyLimits, budget: Budget, events: str, times: tuple[int, ...] = (DUE,), **starts: Any) -> Play:
    rows = frozenset[Any]().union(*(stored(event, limits) for event in events))
    due = {event: frozenset({at}) for event, at in DUES.items()}
    told = {f"t{event}": ("user", lambda event=event: iter_told(event), always) for event in events}
    made = Play(name, budget, {**told, **starts}, lambda who, text: owner(who, text, limits), sweep, times=times, stored=rows, due=due)
    return made


def iter_told(event: str) -> Any:
    """The acknowledgement of an event that is stored from the start."""
    yield Now()
    return ("stored", event), ("early", event)


PLAYS: dict[str, Callable[[int], Play]] = {
    # Two events of an ordered key: crashes, lost answers, a failed attempt.
    "order": lambda level: play("order", ORDERED, Budget(lost=1, crash=level, fail=1, owners=2 + level), "xy"),
    "order crash": lambda level: play("order crash", ORDERED, Budget(crash=1, lost=level, owners=3), "xy"),
    # The first event is stored, before the due times, while the owner of the second is about to come.
    "late": lambda level: play(
        "late",
        ORDERED,
        Budget(lost=level, crash=1, owners=2),
        "y",
        (0, DUE),
        w=("writer", lambda: writer(ORDERED), always),
    ),
    # A key with one delivery at once and no order: no tickets are stored before.
    "concurrency": lambda level: play("concurrency", ONE, Budget(lost=1, crash=level, owners=2), "xy"),
}
