"""Storage that loses acknowledged writes, in the world of the lease protocol: at any instant all rows are as they were at an earlier one.

The rows keep the ETags that they had then, and writes after the rollback get new ones. A server whose incarnation has ended registers the
next one, as the keeper does; after a rollback it claims nothing until `rules.quarantine_end`.

Checked in every state before the rollback, and from V after it: at most one server acts, under the stored epoch. In between, servers that
could not have noticed may act on lost writes. In a strict play every server has sent a heartbeat between the two instants: then at most one
server acts in between, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared.engine.effects import RECEIVING
from shared.leases import rules
from shared.leases.profiles import Profile
from shared.leases.protocol import membership, takeover
from shared.leases.protocol.membership import AwaitingTakeover, IncarnationFenced, LiveNamesake, Registered, ServerReport
from shared.leases.rows import server_key
from shared.leases.rules import ServerSession
from shared.storage.ports import Applied, WriteRefused
from tests.model.checking.checker import Violation

from .world import KEY, PARTITION, Actor, Doing, Life, Play, State, Turn, World

ERA = 1000
"""Versions of rows that are written after the rollback are above this."""


@dataclass(frozen=True)
class Rollback(Play):
    """strict: only rollbacks that take a heartbeat from every server. quiet: only rollbacks between two requests. A claim that rests on a
    fencing which storage loses meanwhile is a case that docs/explain/leases.md names. again: a server registers again also when it takes
    its end for an ordinary one."""

    strict: bool = False
    quiet: bool = False
    again: bool = False


class Scene(NamedTuple):
    """`world.State`, with the copy of the rows that storage goes back to, and when it did (-1: not yet)."""

    now: int
    store: frozenset[tuple[str, int, Hashable]]
    actors: frozenset[Actor]
    late: frozenset[int]
    crashed: frozenset[str]
    lost: int
    crashes: int
    copy: frozenset[tuple[str, int, Hashable]] | None
    rolled: int


def live(name: str, life: Life, profile: Profile, again: bool) -> Any:
    """Run the keeper's steps, one at a time and in any order, over all incarnations of one process."""
    sights: dict[str, rules.ServerObservation] = {}
    proven: tuple[str, ...] = ()
    claims_from = -1.0
    while True:
        session = ServerSession(KEY, life.server, f"{name}{'+' * len(proven)}")
        before = None
        while True:
            got = yield from membership.register(session, ServerReport(), before, proven, profile.takeover)
            if isinstance(got, Registered):
                break
            if isinstance(got, LiveNamesake | IncarnationFenced):
                return
            before = got.sight if isinstance(got, AwaitingTakeover) else before
            yield Turn()
        while not session.fenced:
            what = yield Turn()
            if what == "beat":
                yield from membership.beat(session, ServerReport(), "live")
            elif what == "fence":
                yield from takeover.fence(KEY, life.other, sights, profile.takeover)
            elif what == "claim":
                claims = yield from takeover.scout(session, [PARTITION])
                at = yield RECEIVING
                if claims and at.seconds >= claims_from:
                    yield from membership.beat(session, ServerReport(), "live", claims)
            elif what == "release":
                session.leaving[PARTITION] = session.held.pop(PARTITION)
                yield from membership.beat(session, ServerReport(), "live", (), [PARTITION])
        if session.rolled_back:
            at = yield RECEIVING
            claims_from = rules.quarantine_end(at.seconds, profile)
        elif not again:
            return
        proven = (*proven, session.incarnation)


class RollbackWorld(World):
    """The model that the checker explores."""

    play: Rollback

    def _spawn(self, name: str, life: Life, proven: tuple[str, ...]) -> int:
        return self.machines.spawn((name, proven), lambda: live(name, life, self.play.profile, self.play.again))

    def initial(self) -> State:
        scene: Any = Scene(*super().initial(), None, -1)
        return scene

    def check(self, state: State) -> None:
        scene: Any = state
        if scene.rolled < 0 or scene.now >= scene.rolled + self.play.profile.validity:
            super().check(state)
        elif self.play.strict:
            acting = [actor.name for actor in scene.actors if self._serves(scene, actor)]
            if len(acting) > 1:
                raise Violation(f"two owners: {sorted(acting)} at {scene.now}")

    def _serves(self, scene: Any, actor: Actor) -> bool:
        view = self.machines[actor.machine].view
        return view is not None and view[0] is not None and scene.now < view[1]

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        yield from super().successors(state)
        scene: Any = state
        if scene.rolled < 0 and scene.copy is None:
            yield "storage keeps a copy", lambda: scene._replace(copy=scene.store)
        elif scene.rolled < 0 and scene.copy != scene.store and self._may_go_back(scene):
            yield "storage goes back to its copy", lambda: scene._replace(store=scene.copy, copy=None, rolled=scene.now)

    def _may_go_back(self, scene: Any) -> bool:
        if self.play.quiet and any(actor.answer is not None or not self._idle(actor) for actor in scene.actors):
            return False
        return not self.play.strict or self._noticed_by_all(scene)

    def _idle(self, actor: Actor) -> bool:
        snapshot = self.machines[actor.machine]
        return snapshot.ended or isinstance(snapshot.effect, Turn)

    def _noticed_by_all(self, scene: Any) -> bool:
        before, after = ({rk: dict(props)["beat"] for rk, _, props in rows if rk.startswith("s:")} for rows in (scene.copy, scene.store))
        return all(after.get(rk, 0) > before.get(rk, 0) for rk in {server_key(life.server) for life in self.play.lives.values()})

    def _apply(self, state: State, write: Any) -> tuple[State, Applied | WriteRefused]:
        before: Any = state
        after, answer = super()._apply(state, write)
        scene: Any = after
        if getattr(before, "rolled", -1) >= 0 and isinstance(answer, Applied):
            written = {op.rk for op in write.ops}
            moved = frozenset((rk, at + ERA if rk in written and at < ERA else at, props) for rk, at, props in scene.store)
            versions = {rk: str(at) for rk, at, _ in moved}
            return scene._replace(store=moved), Applied([versions[op.rk] for op in write.ops])
        return after, answer


PROFILE = Profile(0, 1, 2)


def any_rollback(level: int) -> Rollback:
    """The owner releases and another claims; a rollback undoes some of it."""
    lives = {
        "a1": Life("a", "b", Doing(beat=level, release=1), ("register", "claim")),
        "b1": Life("b", "a", Doing(beat=2, claim=1), ("register",)),
    }
    return Rollback("rollback", PROFILE, lives, until=2 + level, lost=level)


def noticed_rollback(level: int) -> Rollback:
    """Every server sends a heartbeat that the rollback undoes, and both want the partition."""
    lives = {
        "a1": Life("a", "b", Doing(beat=1, release=1, claim=1 + level), ("register", "claim")),
        "b1": Life("b", "a", Doing(beat=1, claim=1 + level), ("register",)),
    }
    return Rollback("noticed rollback", PROFILE, lives, until=2 + level, lost=level, strict=True)


def rollback_and_takeover(level: int) -> Rollback:
    """The owner is fenced and its partition claimed; a rollback undoes some of it."""
    lives = {
        "a1": Life("a", "b", Doing(beat=1, claim=level), ("register", "claim")),
        "b1": Life("b", "a", Doing(fence=2, claim=1 + level, beat=1), ("register", "fence")),
    }
    return Rollback("rollback of a take over", PROFILE, lives, until=4 + level, quiet=True)


def lost_registration(level: int) -> Rollback:
    """A server registers after the copy, and the other claims; the rollback undoes both."""
    lives = {
        "a1": Life("a", "b", Doing(beat=1, claim=1), ("register",)),
        "b1": Life("b", "a", Doing(beat=1, claim=1 + level)),
    }
    return Rollback("lost registration", PROFILE, lives, until=1 + level, strict=True, again=True)


PLAYS: dict[str, Callable[[int], Rollback]] = {
    "rollback": any_rollback,
    "noticed rollback": noticed_rollback,
    "rollback of a take over": rollback_and_takeover,
    "lost registration": lost_registration,
}
