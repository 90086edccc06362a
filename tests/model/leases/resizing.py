"""The partition count changes while servers run: the world of the lease protocol with several partitions, and keys that map to them.

A key is its number modulo both counts. A server acts on a key while it holds the key's partition under the generation that it works by, and
its validity lasts. In every state at most one server acts on a key; and over a whole history a key's epochs grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import lcm
from typing import Any, NamedTuple

from shared.engine.effects import Get
from shared.leases import rules
from shared.leases.profiles import Profile
from shared.leases.protocol import membership, resizing, takeover
from shared.leases.protocol.membership import IncarnationFenced, Registered, ServerReport
from shared.leases.rows import FLEET, Fleet, Partition, parse_fleet, partition_key
from shared.leases.rules import ServerSession
from shared.storage.names import FLEETS
from tests.model.checking.checker import Violation
from tests.model.checking.machine import Snapshot

from .world import KEY, Actor, Life, Play, State, Turn, World, freeze_props

NOTES = "x:"
"""Rows of the model's own: the highest epoch under which each key was acted on, and by whom."""


class Doing(NamedTuple):
    """The steps that may still be asked of a server or of the actor that changes the count, with counts. hear: the server reads the
    fleet's row and adopts the generation there. drop: it gives up what it has, for another reason."""

    beat: int = 0
    hear: int = 0
    release: int = 0
    drop: int = 0
    claim: int = 0
    fence: int = 0
    begin: int = 0
    sweep: int = 0


@dataclass(frozen=True)
class Resize(Play):
    """counts: of partitions, before and after. At the start the servers of `lives` have done what their lives say; `claim 0` claims 0."""

    counts: tuple[int, int] = (1, 2)

    @property
    def keys(self) -> range:
        """Everything that distinguishes states."""
        return range(lcm(*self.counts))


def serve(name: str, life: Life, profile: Profile) -> Any:
    """A server: what the keeper does, one step at a time and in any order."""
    session = ServerSession(KEY, life.server, name)
    sights: dict[str, rules.ServerObservation] = {}
    got = yield from membership.register(session, ServerReport(), None, (), profile.takeover)
    if not isinstance(got, Registered):
        return
    while True:
        what = yield Turn()
        done: Any = None
        if what == "beat":
            done = yield from membership.beat(session, ServerReport(), "live")
        elif what == "hear":
            row = yield Get(FLEETS, KEY, FLEET)
            session.generation = parse_fleet(row.props).generation
            give_up(session, rules.outdated_holdings(session))
        elif what == "drop":
            give_up(session, list(session.held))
        elif what == "release":
            done = yield from membership.beat(session, ServerReport(), "live", (), sorted(session.leaving))
        elif what == "fence":
            yield from takeover.fence(KEY, life.other, sights, profile.takeover)
        else:
            claims = yield from takeover.scout(session, [int(what.removeprefix("claim "))])
            if claims:
                done = yield from membership.beat(session, ServerReport(), "live", claims)
                give_up(session, rules.outdated_holdings(session))
        if isinstance(done, IncarnationFenced):
            return


def give_up(session: ServerSession, partitions: list[int]) -> None:
    for partition in partitions:
        session.leaving[partition] = session.held.pop(partition)


def decide(partitions: int) -> Any:
    """The actor that changes the count, and those that carry the change on."""
    while True:
        what = yield Turn()
        if what == "begin":
            yield from resizing.begin(KEY, partitions, 0)
        else:
            yield from resizing.sweep(KEY)


class ResizeWorld(World):
    """The model that the checker explores."""

    play: Resize

    def __init__(self, play: Resize) -> None:
        super().__init__(play)

    def initial(self) -> State:
        before = self.play.counts[0]
        rows = [(partition_key(number), 1, freeze_props(Partition(number).props())) for number in range(before)]
        rows.append((FLEET, 1, freeze_props(Fleet(before, self.play.profile).props())))
        return self._noted(self._prepared(State(0, frozenset(rows), frozenset(), frozenset(), frozenset(), self.play.lost, 0)))

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        for label, make in super().successors(state):
            yield label, lambda make=make: self._noted(make())

    def _spawn(self, name: str, life: Life, proven: tuple[str, ...]) -> int:
        if not life.server:
            return self.machines.spawn(name, lambda: decide(self.play.counts[1]))
        return self.machines.spawn(name, lambda: serve(name, life, self.play.profile))

    def _choices(self, actor: Actor, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        held, leaving = (snapshot.view.held, snapshot.view.leaving) if snapshot.view is not None else (False, False)
        for what in Doing._fields:
            if not getattr(actor.doing, what) or (what == "release" and not leaving) or (what == "drop" and not held):
                continue
            if what == "claim":
                yield from ((what, f"claim {number}") for number in range(max(self.play.counts)))
            else:
                yield what, what

    def _acts(self, generator: Any) -> Any:
        session = generator.gi_frame.f_locals.get("session")
        if session is None:
            return None
        acts = tuple(
            (number, holding.generation, holding.epoch)
            for number, holding in sorted(session.held.items())
            if holding.generation == session.generation
        )
        return View(acts, rules.valid_until(session, self.play.profile), bool(session.held), bool(session.leaving))

    def _acting(self, state: State) -> Iterator[tuple[int, str, int]]:
        """(key, process, epoch) of all that is acted on now."""
        for actor in sorted(state.actors):
            view = self.machines[actor.machine].view
            if view is not None and state.now < view.until:
                for number, generation, epoch in view.acts:
                    count = self.play.counts[generation - 1]
                    yield from ((key, actor.name, epoch) for key in self.play.keys if key % count == number)

    def check(self, state: State) -> None:
        acting: dict[int, str] = {}
        for key, name, _ in self._acting(state):
            if key in acting:
                raise Violation(f"two owners: {acting[key]} and {name} of key {key} at {state.now}")
            acting[key] = name

    def _noted(self, state: State) -> State:
        """With the epochs of now. Raises Violation where one goes back."""
        former: dict[str, Any] = {row[0]: row for row in state.store if row[0].startswith(NOTES)}
        notes = dict(former)
        for key, name, epoch in self._acting(state):
            rk = f"{NOTES}{key}"
            before = dict(notes[rk][2]) if rk in notes else {}
            if before and (epoch < before["epoch"] or (epoch == before["epoch"] and name != before["by"])):
                raise Violation(f"stale epoch: {name} acts on key {key} under {epoch}, after {before['by']} under {before['epoch']}")
            notes[rk] = (rk, 1, freeze_props({"epoch": epoch, "by": name}))
        if notes == former:
            return state
        return state._replace(store=state.store.difference(former.values()).union(notes.values()))


class View(NamedTuple):
    """The partitions that a server acts on as (partition, generation, epoch), the end of its validity, and whether it holds or releases
    any."""

    acts: tuple[tuple[int, int, int], ...]
    until: float
    held: bool
    leaving: bool


STILL = Profile(0, 1, 2)
JOINED = ("register",)
OWNS = ("register", "claim 0")


def begun(sweeps: int) -> Life:
    """The change is decided already; who is to hear of it has not. sweeps: how often it is carried on."""
    return Life("", "", Doing(sweep=sweeps), ("", "begin"))


def doubling(level: int) -> Resize:
    """1 -> 2. The owner hears of it late, or not at all: it gives up and claims again under the former generation."""
    return Resize(
        "doubling",
        STILL,
        {
            "a1": Life("a", "b", Doing(hear=level, release=1, drop=1, claim=1), OWNS),
            "b1": Life("b", "a", Doing(hear=1, claim=1), JOINED),
            "admin": begun(1 + level),
        },
        until=0,
        lost=level,
        counts=(1, 2),
    )


def lost_release(level: int) -> Resize:
    """1 -> 2. Answers get lost, the owner's or those of who carries the change on, and the requests arrive late."""
    return Resize(
        "lost release",
        STILL,
        {
            "a1": Life("a", "b", Doing(hear=1, beat=level, release=1, claim=level), OWNS),
            "b1": Life("b", "a", Doing(hear=1, claim=1), JOINED),
            "admin": begun(1 + level),
        },
        until=0,
        lost=1,
        counts=(1, 2),
    )


def halving(level: int) -> Resize:
    """2 -> 1. Both own one, and what comes after both waits for both."""
    return Resize(
        "halving",
        STILL,
        {
            "a1": Life("a", "b", Doing(hear=1, release=1, claim=1), OWNS),
            "b1": Life("b", "a", Doing(hear=1, release=1, drop=level, claim=1), ("register", "claim 1")),
            "admin": begun(1 + level),
        },
        until=0,
        lost=level,
        counts=(2, 1),
    )


def coprime(level: int) -> Resize:
    """2 -> 3. Each of the new ones shares keys with both of the former; b never hears of it."""
    return Resize(
        "coprime",
        STILL,
        {
            "a1": Life("a", "b", Doing(hear=1, release=1, claim=1), OWNS),
            "b1": Life("b", "a", Doing(hear=level, release=1, drop=1, claim=level), ("register", "claim 1")),
            "admin": begun(2),
        },
        until=0,
        lost=0,
        counts=(2, 3),
    )


def silent(level: int) -> Resize:
    """1 -> 2. The owner stands still; it is fenced, its partition closed without it, and it may wake up at any time."""
    return Resize(
        "silent",
        STILL,
        {
            "a1": Life("a", "b", Doing(beat=level, hear=1), OWNS),
            "b1": Life("b", "a", Doing(hear=1, fence=2, claim=1), JOINED),
            "admin": begun(1 + level),
        },
        until=2,
        lost=0,
        counts=(1, 2),
    )


def begun_again(level: int) -> Resize:
    """1 -> 2, decided by two at once while the owner gives up and claims again."""
    return Resize(
        "begun again",
        STILL,
        {
            "a1": Life("a", "b", Doing(hear=level, release=1, drop=1, claim=level), OWNS),
            "admin": Life("", "", Doing(begin=1, sweep=1)),
            "other": Life("", "", Doing(begin=1, sweep=level)),
        },
        until=0,
        lost=level,
        counts=(1, 2),
    )


RESIZES: dict[str, Callable[[int], Resize]] = {
    "doubling": doubling,
    "lost release": lost_release,
    "halving": halving,
    "coprime": coprime,
    "silent": silent,
    "begun again": begun_again,
}
