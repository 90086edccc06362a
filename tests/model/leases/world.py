"""The world of the lease protocol: one table partition, one clock, and servers that run the production generators.

Every request has three moments that the model keeps apart: it is sent, the store handles it, its answer arrives; time may pass between
any two of them. A write's answer may be lost, while the request is handled later or never. Servers crash between any two steps, and may
stand still for as long as they like: nothing makes them take their turn.

In every state: at most one server acts on the partition, and none acts under an epoch that another was given. A server acts while it
holds the partition and its clock has not reached the end of its validity, which is what `LeaseKeeper.owns` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared.engine.effects import LOST, Get, Receiving, Sending, Write
from shared.engine.validity import ReceivedAt, SentAt
from shared.leases import rules, transition_rules
from shared.leases.profiles import Profile
from shared.leases.protocol import membership, takeover
from shared.leases.protocol.membership import AwaitingTakeover, IncarnationFenced, LiveNamesake, Registered, ServerReport
from shared.leases.rows import PARTITIONS, SERVERS, Partition, parse_partition, parse_server, partition_key
from shared.leases.rules import ServerSession
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Row, Upsert, WriteRefused
from tests.model.checking.checker import Violation
from tests.model.checking.machine import Machines, Snapshot, freeze

KEY = "t:f"
PARTITION = 0
ROW = partition_key(PARTITION)


class Turn(NamedTuple):
    """Resumed with what the server does next."""


class Doing(NamedTuple):
    """The steps that a server may still be asked for, each with its count."""

    beat: int = 0
    look: int = 0
    fence: int = 0
    claim: int = 0
    release: int = 0
    keep: int = 0


class Life(NamedTuple):
    """One process. `other`: the server it watches. `succeeds`: the process of the same name whose end it can prove once that has crashed.

    `before`: what it has done when the exploration begins, at time 0 and undisturbed; a process that has done nothing may start at any
    time.
    """

    server: str
    other: str
    doing: Doing
    before: tuple[str, ...] = ()
    succeeds: str = ""


@dataclass(frozen=True)
class Play:
    """A play: its servers, the end of its clock, and its faults."""

    name: str
    profile: Profile
    lives: dict[str, Life]
    until: int = 4
    lost: int = 0
    crashes: int = 0


class Actor(NamedTuple):
    name: str
    machine: int
    answer: Hashable
    """None while the request is under way; else the number of the answer that is."""
    doing: Doing


class State(NamedTuple):
    now: int
    store: frozenset[tuple[str, int, Hashable]]
    actors: frozenset[Actor]
    late: frozenset[int]
    """Writes whose answer no server awaits any more, by number."""
    crashed: frozenset[str]
    lost: int
    crashes: int


def live(name: str, life: Life, proven: tuple[str, ...], profile: Profile) -> Any:
    """Run the keeper's steps, one at a time and in any order."""
    session = ServerSession(KEY, life.server, name)
    sights: dict[str, rules.ServerObservation] = {}
    before = None
    while True:
        got = yield from membership.register(session, ServerReport(), before, proven, profile.takeover)
        if isinstance(got, Registered):
            break
        if isinstance(got, LiveNamesake | IncarnationFenced):
            return
        before = got.sight if isinstance(got, AwaitingTakeover) else before
        yield Turn()
    while True:
        what = yield Turn()
        done: Any = None
        if what == "beat":
            done = yield from membership.beat(session, ServerReport(), "live")
        elif what == "look":
            yield from takeover.observe_servers(KEY, sights)
        elif what == "fence":
            yield from takeover.fence(KEY, life.other, sights, profile.takeover)
        elif what == "claim":
            claims = yield from takeover.scout(session, [PARTITION])
            if claims:
                done = yield from membership.beat(session, ServerReport(), "live", claims)
        elif what == "release":
            session.leaving[PARTITION] = session.held.pop(PARTITION)
            done = yield from membership.beat(session, ServerReport(), "live", (), [PARTITION])
        elif what == "keep":
            while (yield from membership.leave(session, keep=True)) == "again":
                pass
            return
        if isinstance(done, IncarnationFenced):
            return


def seen(generator: Any) -> tuple[ServerSession, int | None]:
    session: ServerSession = generator.gi_frame.f_locals["session"]
    held = session.held.get(PARTITION)
    return session, held.epoch if held is not None else None


class World:
    """The model that the checker explores."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.machines = Machines(lambda generator: self._acts(generator))
        self._values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[Hashable, int] = {}
        self._stores: dict[Hashable, Any] = {}
        self._described: dict[int, str] = {}
        self._judged: dict[Hashable, str] = {}

    def _acts(self, generator: Any) -> tuple[int | None, float, bool]:
        session, epoch = seen(generator)
        return epoch, rules.valid_until(session, self.play.profile), PARTITION in session.held

    def _number(self, value: Any, known: Hashable = None) -> int:
        """Return the value's number. known: what tells this value from all others, if that is at hand: it costs less than an image."""
        if known is not None and known in self._known:
            return self._known[known]
        number = self._numbers.setdefault(freeze(value), len(self._values))
        if number == len(self._values):
            self._values.append(value)
        if known is not None:
            self._known[known] = number
        return number

    def _describe(self, machine: int) -> str:
        if machine not in self._described:
            self._described[machine] = describe(self.machines[machine].effect)
        return self._described[machine]

    # -- states

    def initial(self) -> State:
        store = frozenset({(ROW, 1, freeze_props(Partition(PARTITION).props()))})
        return self._prepared(State(0, store, frozenset(), frozenset(), frozenset(), self.play.lost, self.play.crashes))

    def _prepared(self, state: State) -> State:
        """Each process has done what it has before the exploration begins."""
        for name, life in self.play.lives.items():
            if life.before:
                state = self._start(state, name, life)
                for what in (None, *life.before[1:]):
                    state = self._undisturbed(state, name, what)
        return state

    def _undisturbed(self, state: State, name: str, what: str | None) -> State:
        """The process does `what` (None: what it begins with) to the end, alone."""
        while True:
            actor = next(actor for actor in state.actors if actor.name == name)
            if actor.answer is not None:
                state = self._resume_with_answer(state, actor)
            elif not isinstance(self.machines[actor.machine].effect, Turn):
                handle = self._write if isinstance(self.machines[actor.machine].effect, Write) else self._read
                state = handle(state, actor)
            elif what is not None:
                state, what = self._resume(state, actor, what), None
            else:
                return state

    def key(self, state: State) -> Hashable:
        return state

    def check(self, state: State) -> None:
        acting = []
        for actor in state.actors:
            view = self.machines[actor.machine].view
            if view is not None and view[0] is not None and state.now < view[1]:
                acting.append((actor.name, view[0]))
        if not acting:
            return
        if len(acting) > 1:
            raise Violation(f"two owners: {sorted(acting)} at {state.now}")
        stored = next(dict(props)["epoch"] for rk, _, props in state.store if rk == ROW)  # type: ignore[call-overload]
        for name, epoch in acting:
            if epoch != stored:
                raise Violation(f"stale epoch: {name} acts under {epoch}, the store says {stored}")

    # -- steps

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        if state.now < self.play.until:
            yield f"the clock shows {state.now + 1}", lambda: state._replace(now=state.now + 1)
        names = {actor.name for actor in state.actors}
        for name, life in self.play.lives.items():
            if name not in names and name not in state.crashed:
                yield f"{name} starts", lambda n=name, li=life: self._start(state, n, li)
        for actor in sorted(state.actors):
            yield from self._turns(state, actor)
            if state.crashes and actor.name in {life.succeeds for life in self.play.lives.values()}:
                yield f"{actor.name} crashes", lambda a=actor: self._crash(state, a)
        for number in sorted(state.late):
            label = f"a late request arrives: {describe(self._values[number])}"
            yield label, lambda n=number: self._apply(state._replace(late=state.late - {n}), self._values[n])[0]

    def _turns(self, state: State, actor: Actor) -> Iterator[tuple[str, Callable[[], State]]]:
        snapshot = self.machines[actor.machine]
        effect = snapshot.effect
        if snapshot.ended:
            return
        if actor.answer is not None:
            yield f"{actor.name}: the answer arrives", lambda: self._resume_with_answer(state, actor)
        elif isinstance(effect, Turn):
            for field, what in self._choices(actor, snapshot):
                spent = actor._replace(doing=actor.doing._replace(**{field: getattr(actor.doing, field) - 1}))
                label = f"{actor.name}: {what}"
                yield label, lambda w=what, s=spent: self._resume(state._replace(actors=state.actors - {actor} | {s}), s, w)
        elif isinstance(effect, Write):
            yield f"{actor.name}: {self._describe(actor.machine)} is handled", lambda: self._write(state, actor)
            if state.lost:
                yield f"{actor.name}: {self._describe(actor.machine)} -> answer lost", lambda: self._lose(state, actor)
        else:
            yield f"{actor.name}: {self._describe(actor.machine)} is handled", lambda: self._read(state, actor)

    def _choices(self, actor: Actor, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        """Return the steps that the process may be asked for: the field of its `doing` that is spent, and what it is resumed with."""
        for what in Doing._fields:
            if getattr(actor.doing, what) and (what != "release" or snapshot.view[2]):
                yield what, what

    def _spawn(self, name: str, life: Life, proven: tuple[str, ...]) -> int:
        return self.machines.spawn((name, proven), lambda: live(name, life, proven, self.play.profile))

    def _start(self, state: State, name: str, life: Life) -> State:
        proven = (life.succeeds,) if life.succeeds in state.crashed else ()
        return self._settled(state, Actor(name, self._spawn(name, life, proven), None, life.doing))

    def _crash(self, state: State, actor: Actor) -> State:
        effect = self.machines[actor.machine].effect
        late = {self._number(effect)} if isinstance(effect, Write) and actor.answer is None else set()
        return state._replace(
            actors=state.actors - {actor}, crashed=state.crashed | {actor.name}, crashes=state.crashes - 1, late=state.late | late
        )

    def _resume_with_answer(self, state: State, actor: Actor) -> State:
        assert isinstance(actor.answer, int)
        return self._resume(state, actor, self._values[actor.answer], ("number", actor.answer))

    def _resume(self, state: State, actor: Actor, answer: Any, known: Hashable = None) -> State:
        number = self.machines.resume(actor.machine, answer, known)
        return self._settled(state._replace(actors=state.actors - {actor}), actor._replace(machine=number, answer=None))

    def _settled(self, state: State, actor: Actor) -> State:
        """Moments are read at once. A process that has ended stays ended: it does not start again."""
        while True:
            effect = self.machines[actor.machine].effect
            if isinstance(effect, Sending):
                actor = actor._replace(machine=self.machines.resume(actor.machine, SentAt(state.now), ("sent", state.now)))
            elif isinstance(effect, Receiving):
                actor = actor._replace(machine=self.machines.resume(actor.machine, ReceivedAt(state.now), ("received", state.now)))
            else:
                return state._replace(actors=state.actors | {actor})

    def _read(self, state: State, actor: Actor) -> State:
        effect = self.machines[actor.machine].effect
        if isinstance(effect, Get):
            row = next((row for row in state.store if row[0] == effect.rk), None)
            return self._answered(state, actor, row_of(*row) if row is not None else None, ("row", row))
        rows = sorted(row for row in state.store if effect.first <= row[0] < effect.end)
        return self._answered(state, actor, [row_of(*row) for row in rows], ("rows", *rows))

    def _answered(self, state: State, actor: Actor, answer: Any, known: Hashable = None) -> State:
        return state._replace(actors=state.actors - {actor} | {actor._replace(answer=self._number(answer, known))})

    def _write(self, state: State, actor: Actor) -> State:
        state, answer = self._apply(state, self.machines[actor.machine].effect)
        return self._answered(state, actor, answer, ("applied", *answer.etags) if isinstance(answer, Applied) else None)

    def _lose(self, state: State, actor: Actor) -> State:
        number = self._number(self.machines[actor.machine].effect)
        return self._resume(state._replace(late=state.late | {number}, lost=state.lost - 1), actor, LOST)

    def _apply(self, state: State, write: Write) -> tuple[State, Applied | WriteRefused]:
        """Carry out a transaction as a table does."""
        rows = {row[0]: row for row in state.store}
        cells = dict(rows)
        etags = []
        for at, op in enumerate(write.ops):
            _, version, props = cells.get(op.rk, (op.rk, 0, None))
            if isinstance(op, Insert):
                if props is not None:
                    return state, WriteRefused(at, "exists")
            elif not isinstance(op, Upsert):
                if props is None:
                    return state, WriteRefused(at, "missing")
                if op.etag not in (ANY, str(version)):
                    return state, WriteRefused(at, "changed")
            assert not isinstance(op, Delete)
            merged = {**dict(props or ()), **op.props} if isinstance(op, Merge) else dict(op.props)  # type: ignore[call-overload]
            cells[op.rk] = (op.rk, version + 1, freeze_props(merged))
            etags.append(str(version + 1))
        written = {op.rk for op in write.ops}
        for rk in written:
            self._judge(rows, cells, written, rk)
        # Set by set, not row by row, because a set knows the hashes of what it holds; and one object for equal rows: it is compared often.
        store = state.store.difference([rows[rk] for rk in written if rk in rows]).union([cells[rk] for rk in written])
        return state._replace(store=self._stores.setdefault(store, store)), Applied(etags)

    def _judge(self, before: dict[str, Any], after: dict[str, Any], written: set[str], rk: str) -> None:
        """Judge a row by the functions that judge traces of production. Raises `Violation`."""
        former, new = before[rk][2] if rk in before else None, after[rk][2]
        if rk.startswith(PARTITIONS[0]):
            named = next((each for each in written if each.startswith(SERVERS[0])), "")
            # An incarnation that had ended when the claimer read its row has still ended now.
            owner = before.get(f"{SERVERS[0]}{dict(former)['owner']}") if former is not None else None
            key: Hashable = rk, former, new, owner and (owner[0], owner[2]), (named, after[named][2]) if named else None
        else:
            key = rk, former, new
        broken = self._judged.get(key)
        if broken is None:
            broken = self._judged[key] = judge(*key)  # type: ignore[misc]
        if broken:
            raise Violation(broken)


def judge(rk: str, former: Any, new: Any, owner: Any = None, writer: Any = None) -> str:
    """Return the rule that a row breaks, '' for none. owner: the row of the former owner's server. writer: of the same transaction."""

    def server(row: Any) -> Any:
        return parse_server(row_of(row[0], 1, row[1])) if row is not None else None

    if rk.startswith(PARTITIONS[0]):
        was = parse_partition(row_of(rk, 1, former)) if former is not None else None
        return transition_rules.judge_partition(was, parse_partition(row_of(rk, 1, new)), server(owner), server(writer))
    if rk.startswith(SERVERS[0]):
        return transition_rules.judge_server(server((rk, former)) if former is not None else None, server((rk, new)))
    return ""


def freeze_props(props: dict[str, Any]) -> Hashable:
    return tuple(sorted(props.items()))


def row_of(rk: str, version: int, props: Any) -> Row:
    return Row(KEY, rk, dict(props), str(version), 0, 0)


def describe(effect: Any) -> str:
    if isinstance(effect, Get):
        return f"get {effect.rk}"
    if isinstance(effect, Write):
        shown = ("state", "beat", "incarnation", "owner", "epoch")
        named = [(type(op).__name__.lower(), op.rk, {} if isinstance(op, Delete) else op.props) for op in effect.ops]
        return "; ".join(f"{verb} {rk} { {name: props[name] for name in shown if name in props} }" for verb, rk, props in named)
    return "look"
