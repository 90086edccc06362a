"""Planned wakes, with their filers, looks and queue: every state is explored.

W1: an acknowledged shard that nobody has served has an index row.
W2: for each row whose message nobody has sent there is a wake that becomes visible early enough; or a look that will still read the row,
    or that has read it and has not ended; or a filer that has not asked yet. After a fault, the wake comes a look's period later at most.
W3: the message of a row that says `sent` was sent, or its sender is about to send it. After a fault, a look asks for the shard again.
W4: from any instant on, and without faults, no pause between two messages before a shard's message is longer than the gap, counted from
    the time at which the owner of the first has its event, and the last of them is shorter by `GAP_MARGIN`; nothing is promised of pauses
    while messages come earlier.
N1: a wake that the plan names for a time to come is in the queue.
W5: the number of wakes in the queue is bounded, by what `most_wakes` says.
P1: from every state, without further faults, each shard's message comes: without a fault before it in time, with one a bounded time later.

Time goes on from one instant to the next at which something becomes visible; a play bounds how often it does while somebody works, or while
a visible message is not taken. A look works beside others; the wake that it has taken comes back ten minutes later if it is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NamedTuple

from shared.engine.effects import LOST, Get, Send, Write
from shared.scheduler.keys import index_key, index_shard, minute_text, shard_key
from shared.scheduler.protocol.dispatch import (
    ShardMessage,
    announce,
    decide,
    dispatch,
    events_to_load,
    mark_sent,
    parse_messages,
    send_together,
)
from shared.scheduler.protocol.ingest import file_shard
from shared.scheduler.rules import visible_at
from shared.scheduler.shard.gate import Counts, Gate
from shared.scheduler.timings import ANNOUNCE_TOGETHER, DAY, MINUTE, OWNER_SILENT, SEND_AHEAD, SEND_ALONE
from shared.scheduler.wakes import protocol, rules
from shared.scheduler.wakes.protocol import LookTimes
from shared.scheduler.wakes.rules import (
    APART,
    EARLIER,
    GAP_MARGIN,
    LOOK_BEFORE,
    LOOK_EVERY,
    LOOK_EVERY_ALONE,
    OWNER_STAYS,
    PLAN,
    TAKEN_LATE,
    Plan,
)
from shared.scheduler.wakes.service import PLAN_READ_EVERY, Horizons
from shared.storage.names import EVENTS, SWEEPS
from shared.storage.ports import ANY, Applied, Insert, Merge, Replace, Row, Upsert, WriteRefused
from tests.model.checking.checker import FROM_HERE, Violation
from tests.model.checking.machine import Machines

BEGIN: Final = 1_000_000 * MINUTE
"""The time at which plays begin."""
SECOND: Final = 1_000
GAP: Final = 60 * SECOND
"""The pause between two messages: the longest one that the setting `wakes` takes, so that there are few wakes."""
HIDDEN: Final = 600 * SECOND
"""Time for which the host hides a message that a process has taken."""
WAKE: Final = ""
"""The text of a wake in the model's queue; a message has the names of its shards."""
TENANT: Final = "t"
LOOKS_FIRST = True
"""Whoever takes a wake looks in any case."""
FILES_FIRST = True
"""A filer asks for a wake after its index row is stored."""
CACHE_ASKED_ANEW = True
"""A filer judges a plan that it has read before by the time that it is now."""


class Now(NamedTuple):
    """Read the clock."""


class ReadIndex(NamedTuple):
    """Read the index rows of minutes before `end`; resumed with a list of rows."""

    end: str


class Answered(NamedTuple):
    """Acknowledge a shard to the client."""

    shard: str


@dataclass(frozen=True)
class WakePlay:
    """filers: the wake-ups of the shards that each filer files one after the other, in seconds from the beginning. wakes: when the wakes
    that are there at the start become visible; the plan names them. looks: at once. timers: looks by the timer. stalls: instants at which
    somebody stands still who has work to do. until: time after which the clock stands still. alone: the timer is silent. early: messages
    come earlier, because no pause is short enough. skew: milliseconds by which filers' clocks are slow, and those of looks fast. The others
    are the faults: processes that are killed, messages
    that are taken and hidden for ten minutes, messages that come twice, answers of writes that are lost, messages that the queue does not
    take."""

    name: str
    filers: tuple[tuple[int, ...], ...]
    wakes: tuple[int, ...] = (0, 20)
    looks: int = 2
    timers: int = 0
    stalls: int = 1
    until: int = 300
    alone: bool = False
    early: bool = False
    skew: int = 0
    kills: int = 0
    stuck: int = 0
    doubled: int = 0
    lost: int = 0
    refused: int = 0

    @property
    def gap(self) -> int | None:
        """The pause that the setting names; None where the plan names it."""
        return None if self.early else GAP

    @property
    def earlier(self) -> int:
        """Time by which messages come earlier."""
        return EARLIER if self.early else 0

    @property
    def most_wakes(self) -> int:
        """Most wakes in the queue. A look that does not know of another one's sends `LOOK_BEFORE / GAP` + 1 before a message, and two more;
        a filer sends two. What is hidden and comes again counts too."""
        each = LOOK_BEFORE // GAP + 1 + 2
        return each * self.looks + 2 * len(self.filers) + self.kills + self.stuck + self.doubled


class Faults(NamedTuple):
    """The faults that are left, the looks of the timer, and the instants at which somebody stands still."""

    kills: int
    stuck: int
    doubled: int
    lost: int
    refused: int
    timers: int
    stalls: int


class Actor(NamedTuple):
    """A filer, named by its shards, or a look: its name is '' then. seen: the shards whose pending rows a look has read; None before."""

    name: str
    machine: int
    seen: frozenset[str] | None = None


type Stored = tuple[int, tuple[tuple[str, Any], ...]]


class WakeState(NamedTuple):
    """plan: version and properties of its row. index: those of each shard's row. queue: when each message becomes visible, and its text.
    waiting: filers that have not begun. late: writes whose answer was lost, and which may still be applied."""

    now: int
    plan: Stored | None
    index: tuple[tuple[str, Stored], ...]
    queue: tuple[tuple[int, str], ...]
    actors: tuple[Actor, ...]
    waiting: tuple[str, ...]
    answered: frozenset[str]
    served: frozenset[str]
    left: Faults
    late: tuple[Any, ...] = ()


class Course(NamedTuple):
    """The course from a state on without faults. served: time at which each shard's message is taken. taken: times of messages."""

    served: tuple[tuple[str, int], ...] = ()
    taken: tuple[int, ...] = ()


def look(wake: bool, alone: bool, gap: int | None) -> Generator[Any, Any]:
    """Look at the index as `Looks._look` and `Sweeps.look` do it."""
    began = yield Now()
    # A wake reads the plan before the index, too, and needs of it only if messages come earlier.
    plan = Plan() if wake and gap else (yield from protocol.read_plan())
    horizons = Horizons(SEND_ALONE, SEND_AHEAD).at(plan, gap or plan.gap(began), began, alive=wake)
    rows = yield ReadIndex(minute_text(began + rules.LOOK_FAR + MINUTE))
    due = [row for row in rows if decide(row, began, ahead=horizons.together).do != "nothing"]
    together: dict[int, list[Row]] = {}
    for row in due:
        if decide(row, began).do == "send":
            events = yield from events_to_load(row)
            together.setdefault(visible_at(row.props["wake"], events) // ANNOUNCE_TOGETHER, []).append(row)
        else:
            yield from dispatch(row, began)
    for some in together.values():
        if (yield from send_together(some, min(visible_at(row.props["wake"], 1) for row in some), horizons.earlier)):
            for row in some:
                yield from mark_sent(row)
    messages = [visible_at(row.props["wake"]) - horizons.earlier for row in rows]
    unsent = [visible_at(row.props["wake"]) - horizons.earlier for row in rows if row.props["state"] != "sent" and row not in due]
    plan = yield from protocol.read_plan()
    now = yield Now()
    times = LookTimes(began, now, now if wake else None, 0)
    yield from protocol.end_look(plan, messages, unsent, times, gap, alone=alone)


def filer(name: str, wakes: tuple[int, ...], gap: int | None) -> Generator[Any, Any]:
    """File shards as `ShardFiller` and `Wakes.ask` do it."""
    plan, read = Plan(), -1
    for number, wake in enumerate(wakes):
        shard = shard_of(name, number)
        now = yield Now()
        sent = wake <= now + SEND_ALONE
        for step in ("file", "ask") if FILES_FIRST else ("ask", "file"):
            if step == "file":
                yield from file_shard(shard, wake, sent=sent)
                continue
            now = yield Now()
            known = read >= 0 and now - read < PLAN_READ_EVERY * SECOND
            judged = now if CACHE_ASKED_ANEW else read
            if not (known and rules.is_covered(plan, visible_at(wake), judged, gap or plan.gap(judged), sent=sent)):
                plan = yield from protocol.ask_wake(visible_at(wake), now, gap, sent=sent)
                read = yield Now()
        yield Answered(shard)
        if sent:
            now = yield Now()
            yield from announce(ShardMessage(shard, index_key(shard, wake)), max(visible_at(wake, 1), now))


def _doing(machine: Generator[Any, Any, Any]) -> str | None:
    """Return the shard that a filer is at work on."""
    shard: str | None = machine.gi_frame.f_locals.get("shard")
    return shard


def shard_of(filer: str, number: int) -> str:
    return shard_key(TENANT, f"{filer}{number}")


@dataclass
class WakeWorld:
    """A play as the checker walks it."""

    play: WakePlay
    machines: Machines = field(default_factory=lambda: Machines(_doing))
    most: int = 0
    """Most wakes that were in the queue."""
    _courses: dict[Hashable, Course] = field(default_factory=dict)

    def initial(self) -> WakeState:
        play = self.play
        names = tuple("abc"[number] for number in range(len(play.filers)))
        times = tuple(BEGIN + at * SECOND for at in play.wakes)
        early_until = BEGIN + DAY if play.early else 0
        plan = tuple(sorted(_kept(PLAN.encode(Plan(wakes=times, early_until=early_until))).items()))
        queue = tuple((at, WAKE) for at in times)
        left = Faults(play.kills, play.stuck, play.doubled, play.lost, play.refused, play.timers, play.stalls)
        return WakeState(BEGIN, (1, plan) if times else None, (), queue, (), names, frozenset(), frozenset(), left)

    def key(self, state: WakeState) -> Hashable:
        return state

    # -- steps

    def successors(self, state: WakeState) -> Iterator[tuple[str, Callable[[], WakeState]]]:
        for name in state.waiting:
            yield f"{name} begins", lambda name=name: self._begin(state, name)
        if state.left.timers and self._may_look(state):
            yield "the timer looks", lambda: self._look(_spent(state, "timers"), False)
        for item in sorted({each for each in state.queue if each[0] <= state.now}):
            yield from self._take(state, item)
        for number, actor in enumerate(state.actors):
            who = f"{actor.name or 'the look'}{'' if actor.name else number}"
            for label, make in self._effect(state, number):
                yield f"{who}: {label}", make
            if state.left.kills:
                yield f"{who} is killed", lambda number=number: self._killed(state, number)
        for write in state.late:
            yield "a late write arrives", lambda write=write: self._arrive(state, write)
        if (then := self._next_instant(state)) is not None:
            idle = not state.actors and all(at > state.now for at, _ in state.queue)
            if idle or state.left.stalls:
                passed = state if idle else _spent(state, "stalls")
                yield f"it is {(then - BEGIN) / SECOND:g} s", lambda: _seen_by(passed._replace(now=then))

    def _next_instant(self, state: WakeState) -> int | None:
        times = [at for at, _ in state.queue if state.now < at <= BEGIN + self.play.until * SECOND]
        return min(times, default=None)

    def _may_look(self, state: WakeState) -> bool:
        return sum(not actor.name for actor in state.actors) < self.play.looks

    def _begin(self, state: WakeState, name: str) -> WakeState:
        wakes = tuple(BEGIN + each * SECOND for each in self.play.filers["abc".index(name)])
        machine = self.machines.spawn(("filer", name), lambda: filer(name, wakes, self.play.gap))
        waiting = tuple(each for each in state.waiting if each != name)
        return _with_actors(state._replace(waiting=waiting), *state.actors, Actor(name, machine))

    def _look(self, state: WakeState, wake: bool) -> WakeState:
        machine = self.machines.spawn(("look", wake), lambda: look(wake, self.play.alone, self.play.gap))
        return _with_actors(state, *state.actors, Actor("", machine))

    def _take(self, state: WakeState, item: tuple[int, str]) -> Iterator[tuple[str, Callable[[], WakeState]]]:
        rest = state._replace(queue=_without(state.queue, item))
        what = "a wake" if item[1] == WAKE else f"the message of {item[1]}"
        if item[1] != WAKE or self._may_look(state):
            yield f"{what} is taken", lambda: self._taken(rest, item)
            if state.left.doubled:
                yield f"{what} is taken, and will come again", lambda: self._taken(_spent(state, "doubled"), item)
        if state.left.stuck:
            hidden = (state.now + HIDDEN, item[1])
            yield f"{what} is stuck", lambda: _spent(rest._replace(queue=_sorted(*rest.queue, hidden)), "stuck")

    def _taken(self, state: WakeState, item: tuple[int, str]) -> WakeState:
        if item[1] == WAKE:
            return self._look(state, True) if LOOKS_FIRST or not any(not each.name for each in state.actors) else state
        shards = frozenset(item[1].split())
        index = tuple(each for each in state.index if each[0] not in shards)
        return state._replace(index=index, served=state.served | shards)

    def _killed(self, state: WakeState, number: int) -> WakeState:
        state, actor = _spent(state, "kills"), state.actors[number]
        actors = state.actors[:number] + state.actors[number + 1 :]
        if not actor.name:
            state = state._replace(queue=_sorted(*state.queue, (state.now + HIDDEN, WAKE)))
        return _with_actors(state, *actors)

    # -- effects

    def _effect(self, state: WakeState, number: int) -> Iterator[tuple[str, Callable[[], WakeState]]]:
        """Return what may become of an actor's effect, without a fault first."""
        actor = state.actors[number]
        effect = self.machines[actor.machine].effect
        match effect:
            case Now():
                yield "reads the clock", lambda: self._resume(state, number, state.now + self._skew(actor))
            case Answered():
                told = state._replace(answered=state.answered | {effect.shard})
                yield f"answers for {effect.shard}", lambda: self._resume(told, number, None)
            case Get() | ReadIndex():
                yield f"reads {type(effect).__name__} {effect[-1]}", lambda: self._read(state, number, effect)
            case Send():
                yield f"sends {_text(effect) or 'a wake'} for {(effect.at - BEGIN) / SECOND:g} s", lambda: self._sent(state, number, effect)
                if state.left.refused:
                    less = _spent(state, "refused")
                    yield "is refused by the queue", lambda: self._resume(less, number, False)
                    yield "sends, and does not hear of it", lambda: self._resume(self._queued(less, actor, effect), number, False)
            case Write():
                yield f"writes {effect.table} {effect.ops[0].rk}", lambda: self._resume(*self._written(state, number, effect))
                if state.left.lost:
                    less = _spent(state, "lost")
                    yield "writes, and the answer is lost", lambda: self._resume(self._written(less, number, effect)[0], number, LOST)
                    yield "loses its write", lambda: self._resume(less, number, LOST)
                    late = tuple(sorted((*less.late, _packed(effect))))
                    yield "its write is late", lambda: self._resume(less._replace(late=late), number, LOST)

    def _resume(self, state: WakeState, number: int, answer: Any) -> WakeState:
        actor = state.actors[number]
        machine = self.machines.resume(actor.machine, answer)
        actors = list(state.actors)
        if self.machines[machine].ended:
            del actors[number]
        else:
            actors[number] = actor._replace(machine=machine)
        return _with_actors(state, *actors)

    def _read(self, state: WakeState, number: int, effect: Get | ReadIndex) -> WakeState:
        if isinstance(effect, Get):
            return self._resume(state, number, _row(state, effect))
        rows = [Row("i", index_key(shard, dict(props)["wake"]), dict(props), str(version), 0, 0) for shard, (version, props) in state.index]
        rows = sorted((row for row in rows if row.rk < effect.end), key=lambda row: row.props["wake"])
        seen = frozenset(index_shard(row.rk) for row in rows if row.props["state"] == "pending")
        actors = list(state.actors)
        actors[number] = actors[number]._replace(seen=seen)
        return self._resume(state._replace(actors=tuple(actors)), number, rows)

    def _sent(self, state: WakeState, number: int, effect: Send) -> WakeState:
        return self._resume(self._queued(state, state.actors[number], effect), number, True)

    def _queued(self, state: WakeState, actor: Actor, effect: Send) -> WakeState:
        # The queue counts from now on: a message of a fast clock comes too early.
        at = max(effect.at - self._skew(actor), state.now)
        return state._replace(queue=_sorted(*state.queue, (at, _text(effect))))

    def _skew(self, actor: Actor) -> int:
        return -self.play.skew if actor.name else self.play.skew

    def _written(self, state: WakeState, number: int, effect: Write) -> tuple[WakeState, int, Any]:
        [op] = effect.ops
        if effect.table == SWEEPS:
            plan, answer = _apply(state.plan, op)
            state = state._replace(plan=plan and (plan[0], tuple(sorted(_kept(dict(plan[1])).items()))))
        else:
            shard, index = index_shard(op.rk), dict(state.index)
            if isinstance(op, Insert) and shard in state.served:
                # Its owner has removed the row.
                return state, number, Applied(["0"])
            row, answer = _apply(index.get(shard), op)
            if row is not None:
                index[shard] = row
            state = state._replace(index=tuple(sorted(index.items())))
        return state, number, answer

    def _arrive(self, state: WakeState, write: Any) -> WakeState:
        table, kind, rk, props, etag = write
        op = kind(rk, dict(props), etag) if etag else kind(rk, dict(props))
        state = state._replace(late=_without(state.late, write))
        return self._written(state, 0, Write(table, "", (op,)))[0]

    # -- judges

    def check(self, state: WakeState) -> None:
        index = {shard: dict(props) for shard, (_, props) in state.index}
        wakes = [at for at, text in state.queue if text == WAKE]
        self.most = max(self.most, len(wakes))
        if len(wakes) > self.play.most_wakes:
            raise Violation(f"W5: {len(wakes)} wakes are in the queue")
        named = PLAN.decode(dict(state.plan[1])).wakes if state.plan is not None and not self.play.skew else ()
        for at in named:
            if at > state.now and at not in wakes:
                raise Violation(f"N1: the plan names a wake at {(at - BEGIN) / SECOND:g} s, and it is not in the queue")
        faulty = self._faulty(state)
        for shard in state.answered - state.served:
            if shard not in index:
                raise Violation(f"W1: {shard} has no index row")
        for shard, props in index.items():
            if props["state"] == "sent":
                self._check_sent(state, shard, faulty)
            elif not self._is_found(state, shard, wakes, props["wake"], faulty):
                found = [(at - BEGIN) / SECOND for at in wakes]
                raise Violation(f"W2: no wake comes in time for {shard}, at {(state.now - BEGIN) / SECOND:g} s; wakes: {found}")
        self._check_course(state, faulty)

    def _faulty(self, state: WakeState) -> bool:
        play = self.play
        return state.left[:5] != (play.kills, play.stuck, play.doubled, play.lost, play.refused)

    def _doing(self, state: WakeState) -> set[str]:
        """Return the shards that filers are at work on."""
        return {self.machines[actor.machine].view for actor in state.actors if actor.name}

    def _check_sent(self, state: WakeState, shard: str, faulty: bool) -> None:
        queued = any(shard in text.split() for _, text in state.queue)
        if not queued and not faulty and shard not in self._doing(state):
            raise Violation(f"W3: the row of {shard} says sent, and nobody has sent its message")

    def _is_found(self, state: WakeState, shard: str, wakes: list[int], wake: int, faulty: bool) -> bool:
        if shard in self._doing(state) or any(
            not each.name and (faulty or each.seen is None or shard in each.seen) for each in state.actors
        ):
            return True
        if shard not in state.answered and not self.play.wakes:
            # Nobody has been told that the shard is stored, and no wake has ever been asked for.
            return True
        early = visible_at(wake) - self.play.earlier - LOOK_BEFORE
        limit = max(state.now + max(GAP, APART) + TAKEN_LATE, early)
        if faulty:
            limit = max(state.now + (LOOK_EVERY_ALONE if self.play.alone else LOOK_EVERY), early + APART)
        return any(at <= limit + 2 * self.play.skew for at in wakes)

    def _check_course(self, state: WakeState, faulty: bool) -> None:
        course = self._course(state)
        served = dict(course.served)
        for shard, (_, props) in state.index:
            if shard not in state.answered and not self.play.wakes:
                continue
            wake = dict(props)["wake"]
            message = visible_at(wake, 1) - self.play.earlier
            limit = max(message, state.now + GAP + TAKEN_LATE)
            if faulty:
                limit = max(message, wake + OWNER_SILENT, state.now) + (LOOK_EVERY_ALONE if self.play.alone else LOOK_EVERY) + APART
            if shard not in served:
                raise Violation(f"P1: the message of {shard} never comes", [f"{FROM_HERE}, in turn)"])
            if served[shard] > limit + 2 * self.play.skew:
                late = (served[shard] - limit) / SECOND
                raise Violation(f"P1: the message of {shard} comes {late:g} s too late", [f"{FROM_HERE}, in turn)"])
            if not faulty and not self.play.early:
                self._check_pauses(state, shard, message, course)

    def _check_pauses(self, state: WakeState, shard: str, message: int, course: Course) -> None:
        since = max(state.now, message - LOOK_BEFORE)
        times = [state.now, *(at for at in course.taken if at <= message)]
        served = {at for _, at in course.served}
        # An owner works for a while, whatever comes meanwhile.
        free = accumulate((at + OWNER_STAYS * (at in served) for at in times), max)
        for before, after in zip(free, times[1:], strict=False):
            longest = (GAP - GAP_MARGIN + SECOND if after in served else GAP + TAKEN_LATE) + 2 * self.play.skew
            if after > since and after - max(before, since) > longest:
                raise Violation(f"W4: nothing comes for {(after - before) / SECOND:g} s before the message of {shard}")

    def _course(self, state: WakeState) -> Course:
        """Follow the state without faults: whoever works goes on, then what is visible is taken, then time passes."""
        state = state._replace(left=Faults(0, 0, 0, 0, 0, 0, 0), late=(), waiting=())
        path: list[tuple[WakeState, WakeState]] = []
        course: Course | None = None
        while course is None:
            known = self._courses.get(state)
            if known is not None:
                course = known
            elif (not state.index and not state.actors) or (then := self._go_on(state)) is None:
                course = self._courses[state] = Course()
            else:
                path.append((state, then))
                state = then
        for before, after in reversed(path):
            fresh = after.served - before.served
            taken = before.now == after.now and len(after.queue) < len(before.queue)
            course = Course(
                (*course.served, *((shard, before.now) for shard in sorted(fresh))), (before.now, *course.taken) if taken else course.taken
            )
            self._courses[before] = course
        return course

    def _go_on(self, state: WakeState) -> WakeState | None:
        if state.actors:
            _, make = next(iter(self._effect(state, 0)))
            return make()
        for item in state.queue:
            if item[0] <= state.now:
                return self._taken(state._replace(queue=_without(state.queue, item)), item)
        if not state.queue or state.now > BEGIN + self.play.until * SECOND + HIDDEN + LOOK_EVERY:
            return None
        return _seen_by(state._replace(now=min(at for at, _ in state.queue)))


def _kept(props: dict[str, Any]) -> dict[str, Any]:
    """Return a plan without what decides nothing while no wake meets a cold process."""
    return {**props, "looked": 0, "seen": "", "close_until": 0}


def _seen_by(state: WakeState) -> WakeState:
    """Return the state with all visible messages alike."""
    return state._replace(queue=_sorted(*((max(at, state.now), text) for at, text in state.queue)))


def _with_actors(state: WakeState, *actors: Actor) -> WakeState:
    """Return the state with these actors, in an order of their own. The plan's version counts only while a filer may know it."""
    plan = state.plan
    if plan is not None and not any(actor.name for actor in actors) and not state.late:
        plan = (1, plan[1])
    return state._replace(actors=tuple(sorted(actors, key=lambda each: (each.name, each.machine, sorted(each.seen or ())))), plan=plan)


def _spent(state: WakeState, what: str) -> WakeState:
    return state._replace(left=state.left._replace(**{what: getattr(state.left, what) - 1}))


def _text(effect: Send) -> str:
    if protocol.parse_wake(effect.text) is not None:
        return WAKE
    return " ".join(each.shard for each in parse_messages(effect.text))


def _row(state: WakeState, effect: Get) -> Row | None:
    if effect.table == EVENTS:
        # The gate of a shard that nobody owns.
        gate = Gate("open", "", counts=Counts(1))
        return Row(effect.pk, effect.rk, gate.props(), "1", 0, 0) if effect.pk not in state.served else None
    if effect.table == SWEEPS:
        # Somebody has just looked: after a longer pause a look sends its wakes whatever the plan says.
        plan = state.plan
        return Row(effect.pk, effect.rk, {**dict(plan[1]), "looked": state.now}, str(plan[0]), 0, 0) if plan is not None else None
    found = dict(state.index).get(index_shard(effect.rk))
    return Row(effect.pk, effect.rk, dict(found[1]), str(found[0]), 0, 0) if found is not None else None


def _apply(row: Stored | None, op: Any) -> tuple[Stored | None, Applied | WriteRefused]:
    if isinstance(op, Insert) and row is not None:
        return row, WriteRefused(0, "exists")
    if isinstance(op, Merge | Replace) and (row is None or op.etag not in (ANY, str(row[0]))):
        return row, WriteRefused(0, "missing" if row is None else "changed")
    assert isinstance(op, Insert | Merge | Replace | Upsert)
    props = {**dict(row[1]), **op.props} if isinstance(op, Merge) and row is not None else op.props
    version = row[0] + 1 if row is not None else 1
    return (version, tuple(sorted(props.items()))), Applied([str(version)])


def _packed(effect: Write) -> tuple[Any, ...]:
    [op] = effect.ops
    return effect.table, type(op), op.rk, tuple(sorted(op.props.items())), getattr(op, "etag", "")


def _sorted(*queue: tuple[int, str]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted(queue))


def _without(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    at = items.index(item)
    return (*items[:at], *items[at + 1 :])
