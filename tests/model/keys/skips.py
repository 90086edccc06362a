"""Schedules that skip: two occurrences in the line of one schedule, in a shard each. The mutants are at the end.

K3: an occurrence that became due while the one before it had not ended is not delivered.
K4: an occurrence is skipped only if that is so, and not before it is due.
P1 of the shard protocol: from every state, without further faults, both events end.

The clock shows a time at which both may be claimed and the second is not due; then one at which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shared.scheduler import rules
from shared.scheduler.facets import FACETS
from shared.scheduler.key_lines import protocol
from shared.scheduler.key_lines.rules import NOT_BUSY, Asker, BusySpan, LineState, TurnQuestion, busy_span, line_of_schedule, ticket_of
from shared.scheduler.keys import Address, event_row, index_key, index_partition, shard_key
from shared.scheduler.properties.overlap import ONE_BY_ONE, OVERLAP, may_skip, skipped_props
from shared.scheduler.protocol import dispatch, owning
from shared.scheduler.shard import gate
from shared.scheduler.timings import CLAIM_AHEAD
from shared.storage.names import EVENTS, LIMITS, SHARDS
from tests.model.checking.checker import Report, Violation, explore
from tests.model.checking.mutants import Mutant, Patch
from tests.model.checking.state import Actor, Budget, Now, Play, Start, State, Until
from tests.model.shards.actors import CHANNEL, POLICY, TENANT, settle, sweep
from tests.model.shards.plays import always
from tests.model.shards.world import World

from .plays import iter_told, look_first

LINE = line_of_schedule(TENANT, "s")
DUES = {"x": 8_500, "y": 10_000}
TIMES = (9_000, 10_001)


def place(event: str) -> Address:
    return Address(shard_key(TENANT, f"{event}1"), event_row(0))


def props_of(event: str) -> dict[str, Any]:
    return {"id": event, "state": "scheduled", "due": DUES[event], "channel": CHANNEL, OVERLAP: "skip:s"}


def owner(name: str, text: str) -> Any:
    """An owner of a shard with one occurrence, as `firing.owner` and `firing.keyed` do it."""
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
        here, ticket = Address(message.shard, rk), ticket_of(rows[rk], ONE_BY_ONE)
        held = {ticket: here} if rows[rk]["state"] == "firing" else {}
        wanted = {} if held else {ticket: here}
        skippable = frozenset({ticket}) if may_skip(rows[rk]) else frozenset[str]()
        answer = yield from protocol.exchange(TurnQuestion(LINE, asker, ONE_BY_ONE, wanted, held, skippable=skippable), now)
        if ticket in answer.skipped:
            outcome = rules.RowOutcome("lapsed", skipped_props(rows[rk], answer.skipped[ticket], now))
            if not (yield from owning.step(session, {rk: outcome}, [])):
                return ()
            skip = TurnQuestion(LINE, asker, ONE_BY_ONE, {}, ended={ticket: None}, skipped=frozenset({ticket}))
            yield from protocol.exchange(skip, now)
            continue
        if not held and ticket not in answer.granted:
            if skippable and now < DUES[rows[rk]["id"]]:
                yield Until(DUES[rows[rk]["id"]])
                continue
            todo = rules.agenda(rows, session.epoch, now, lambda props: POLICY, blocked={rk: now + 30_000})
            yield from owning.rest(session, todo.rest or now + 30_000, retries_only=True, sent=False)
            return ()
        if not (yield from owning.step(session, {}, [rk])):
            return ()
        if rk not in owning.claimed(session, ()):
            continue
        props = session.rows[rk].props
        delivered = yield Start(message.shard, rk, props["id"], int(props["due"]))
        now = yield Now()
        outcome = settle(props, delivered, now)
        if outcome.state in rules.FINAL:
            outcome = outcome._replace(props={**outcome.props, "ended": now})
        if not (yield from owning.step(session, {rk: outcome}, [])):
            return ()
        after = session.rows[rk].props
        over = after["state"] in rules.FINAL
        busy = busy_span(after) if over else NOT_BUSY
        yield from protocol.exchange(TurnQuestion(LINE, asker, ONE_BY_ONE, {}, ended={ticket: None if over else here}, busy=busy), now)


def stored(event: str) -> frozenset[Any]:
    """An open shard that nobody fills any more, with one occurrence and its ticket."""
    here = place(event)
    index = {"state": "pending", "wake": 0, "bucket": "197001010000", "tenant": TENANT}
    held = gate.Gate("open", "", 0, 1, index_key(here.shard, 0), "197001010000", gate.Counts(1))
    ticket = LINE.ticket_row(ticket_of(props_of(event), ONE_BY_ONE))
    return frozenset(
        {
            ((EVENTS, here.shard, "gate"), 1, tuple(sorted(held.props().items()))),
            ((EVENTS, here.shard, here.row), 1, tuple(sorted(props_of(event).items()))),
            ((SHARDS, index_partition(here.shard), index_key(here.shard, 0)), 1, tuple(sorted(index.items()))),
            ((LIMITS, LINE.partition, ticket), 1, (("at", here.text),)),
        }
    )


class SkipWorld(World):
    """The world of the shard protocol, with the line of a schedule that skips."""

    def _calm(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        for label, make in super()._calm(state):
            if label.startswith("the clock") and self._now_of(state, "x")["state"] not in rules.FINAL:
                yield label, lambda make=make: (after := make())._replace(acked=after.acked | {("overlaps", "y")})
            else:
                yield label, make

    def _now_of(self, state: State, event: str) -> dict[str, Any]:
        here = place(event)
        return dict(self._cells(state)[EVENTS, here.shard, here.row][1] or {})

    def _look(self, state: State, actor: Actor, *, old: bool = False) -> State:
        return look_first(self, state, actor, super()._look, old=old)

    def _deliver(self, state: State, actor: Actor, success: bool | str) -> State:
        start: Start = self.machines[actor.machine].effect
        former = self._now_of(state, "x")
        owned = dict(self._cells(state)[EVENTS, start.shard, "gate"][1] or {})["holder"] == actor.name
        if start.event == "y" and owned:
            if former["state"] not in rules.FINAL:
                raise Violation(f"K3: {actor.name} starts y, and x is {former['state']}")
            if former["ended"] > DUES["y"]:
                raise Violation(f"K3: {actor.name} starts y, and x ended at {former['ended']}")
        return super()._deliver(state, actor, success)

    def check(self, state: State) -> None:
        if self._now_of(state, "y")["state"] == "lapsed" and ("overlaps", "y") not in state.acked:
            raise Violation("K4: y is skipped, but x had ended when it became due, or it is not due")
        super().check(state)


def play(name: str, budget: Budget) -> Play:
    told = {f"t{event}": ("user", lambda event=event: iter_told(event), always) for event in DUES}
    due = {event: frozenset({at}) for event, at in DUES.items()}
    return Play(name, budget, told, owner, sweep, times=TIMES, stored=stored("x") | stored("y"), due=due)


PLAYS: dict[str, Callable[[int], Play]] = {
    # Lost answers and a failed attempt.
    "skip": lambda level: play("skip", Budget(lost=1, crash=level, fail=1, owners=2 + level)),
    "skip crash": lambda level: play("skip crash", Budget(crash=1, lost=level, owners=3)),
}


def end_forgotten() -> list[Patch]:
    plain = LineState.with_end

    def with_end(state: LineState, busy: BusySpan, skipped: Any = ()) -> LineState:
        return plain(state, NOT_BUSY, skipped)

    return [(LineState, "with_end", with_end)]


def skipped_early() -> list[Patch]:
    plain = protocol.grant

    def grant(line: LineState, waiting: Any, question: Any, now: int) -> Any:
        return plain(line, waiting, question, now + CLAIM_AHEAD)

    return [(protocol, "grant", grant)]


def stale_counts() -> list[Patch]:
    def clear_stale(*_: Any) -> Any:
        yield from ()
        return False

    return [(protocol, "_clear_stale", clear_stale)]


MUTANTS = [
    Mutant("the end of the occurrence before not kept", "skip", end_forgotten),
    Mutant("an occurrence skipped before it is due", "skip", skipped_early),
    Mutant("an occurrence ahead that is not looked at", "skip crash", stale_counts),
]


def hunt(mutant: Mutant, level: int = 0) -> Report:
    """Hunt the mutant."""
    with mutant.applied():
        world = SkipWorld(PLAYS[mutant.play](level))
        world.recover = False
        return explore(world)
