"""Turns without end: what must always come, though trouble of each kind comes before.

Reports keep coming here: in each second every secondary that is up sends one, in any order, and it is handled and answered at once, unless
it or the answer is lost. So seconds follow one another for ever, and states are distinguished by what comes back: how long ago, how many
reports ago, which turn counted from the one of now. A fair run is one in which no process leaves undone what it can always do; chance may
be as bad as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from shared.checkpoints.node import rules as node_rules
from shared.checkpoints.rows import Group, ReplicaRow
from tests.model.checking.checker import Report
from tests.model.checking.fair import Promise, leads_to

from . import coordinator
from .state import Faults, Forget, Node, Play, Revoke, State
from .world import World, highest, local

UNFAIR = ("crashes", "starts again", "becomes", "is lost", "finishes", "is revoked", "is forgotten")
"""Labels of steps that need not happen."""


def action(label: str) -> str | None:
    """The fair action that a step belongs to."""
    return None if any(word in label for word in UNFAIR) else label


class Endless(World):
    """The model that the checker explores. A secondary is to report while its `reports` is 1; bodies may always finish, or never."""

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        if not any(self._due(node) for _, node in state.nodes):
            yield "the clock moves on", lambda: self._tick(state)
        for name, node in state.nodes:
            if self._due(node):
                for draw in self.play.draws:
                    yield f"{name} reports", lambda n=name, d=draw: self._report(state, n, d)
                if state.faults.lose:
                    yield f"a report of {name} is lost", lambda n=name: self._lost(state, n)
                    yield f"an answer to {name} is lost", lambda n=name: self._unanswered(self._lost(state, n, handled=True), n)
            if node.runs:
                for risen in (True, False):
                    label = f"{name} finishes{'' if risen else ' at the sequence it had'}"
                    yield label, lambda n=name, o=node, r=risen: self._publish(self._finish(state, n, o, r), n)
                if state.faults.lose:
                    label = f"{name} finishes, and its publish is lost"
                    yield label, lambda n=name, o=node: self._over(self._spend(self._finish(state, n, o, True), "lose", under_way=()), n)
            if not node.up:
                yield f"{name} starts again", lambda n=name, o=node: self._with(state, n, up=True, life=o.life + 1, said=o.last)
            elif name in self.play.troubled:
                yield from self._trouble(state, name, node)
        if state.faults.revoke and (epoch := coordinator.open_epoch(self.rows(state))):
            revoked = self._spend(state, "revoke", under_way=(Revoke(epoch),))
            yield "the turn is revoked", lambda: self._handle(revoked, Revoke(epoch), 0, 0.0)

        if state.faults.forget:
            forgotten = self._spend(state, "forget", under_way=(Forget(),))
            yield "the claim is forgotten", lambda: self._handle(forgotten, Forget(), 0, 0.0)

    def _due(self, node: Node) -> bool:
        return node.up and node.role == "secondary" and node.reports > 0

    def _trouble(self, state: State, name: str, node: Node) -> Iterator[tuple[str, Callable[[], State]]]:
        if state.faults.crash:
            yield f"{name} crashes", lambda: self._crash(state, name, node)
        if state.faults.promote and node.role == "secondary":
            yield f"{name} becomes primary", lambda: self._promoted(state, name, node)
        if state.faults.demote and node.role == "primary":
            yield f"{name} becomes secondary", lambda: self._with(self._spend(state, "demote"), name, role="secondary", term=highest(state))

    def _promoted(self, state: State, name: str, node: Node) -> State:
        return self._report(self._promote(state, name, node), name, 0.0)

    def _report(self, state: State, name: str, draw: float) -> State:
        state = self._heard(state, name, draw)
        for answer in state.answers:
            state = self._arrive(state, answer)
        return state

    def _heard(self, state: State, name: str, draw: float) -> State:
        """A report is sent and handled; its answer is under way."""
        state = self._with(self._send(state, name, free=True, ready=True), name, reports=0)
        [request] = state.under_way
        return self._handle(state, request, 0, draw)

    def _lost(self, state: State, name: str, *, handled: bool = False) -> State:
        state = self._spend(state, "lose")
        if handled:
            return self._heard(state, name, 0.0)
        return self._unanswered(self._with(self._send(state, name, free=True, ready=True), name, reports=0), name)

    def _unanswered(self, state: State, name: str) -> State:
        state = state._replace(answers=(), under_way=())
        return self._with(state, name, me=node_rules.report_failed(dict(state.nodes)[name].me))

    def _publish(self, state: State, name: str) -> State:
        [request] = state.under_way
        return self._over(self._handle(state, request, 0, 0.0), name)

    def _spend(self, state: State, what: str, **changes: Any) -> State:
        return state._replace(**changes) if what == "finish" else super()._spend(state, what, **changes)

    def _tick(self, state: State) -> State:
        state = super()._tick(state)
        return state._replace(nodes=tuple((name, node._replace(reports=1)) for name, node in state.nodes))

    def key(self, state: State) -> Hashable:
        rows = self.rows(state)
        group = coordinator.view(rows).group
        turn, nodes = group.turn, dict(state.nodes)
        now, here = coordinator.START + state.now, local(state.now)

        def epoch(of: int) -> int:
            return max(-1, of - turn.epoch) if of else -2

        def seq(name: str, of: int) -> int:
            return max(-3, of - nodes[name].me.seq)

        def last(name: str, of: int) -> int:
            return max(-1, of - nodes[name].last)

        def node(name: str, one: Node) -> Hashable:
            held = (epoch(one.me.held.epoch), round(one.me.held.until - here, 3)) if one.me.held is not None else None
            orphan = (epoch(one.orphan.epoch), round(one.orphan.until - here, 3)) if one.orphan is not None else None
            sent = round(one.me.sent - here, 3) if one.me.sent is not None else None
            rest = one._replace(me=None, orphan=None, last=0, said=0)  # type: ignore[arg-type]
            return (rest, held, orphan, sent, one.me.begun == turn.epoch, one.me.seq == 0, last(name, one.said))

        def row(one: Any) -> Hashable:
            if isinstance(one, ReplicaRow):
                ago = min(now - one.at // 1000, self.play.silence)
                report = (one.life, one.incarnation, one.role, one.term, one.ready, epoch(one.taking), last(one.node, one.last_checkpoint))
                return (one.node, seq(one.node, one.seq), one.seq == 1, ago, *report)
            if isinstance(one, Group):
                held = turn.holder
                handed = (seq(held, turn.handed_seq), turn.handed_life, last(held, turn.handed_last)) if turn.attempt else ()
                age = min(now - turn.granted // 1000, self.play.timeout)
                waited = tuple((share.node, min(share.waited, 9)) for share in group.shares)
                return (held, turn.state, turn.late, age, turn.sequence > 0, handed, group.primary, group.term, group.lives, waited)
            return ()

        return (
            tuple(node(name, one) for name, one in state.nodes),
            tuple(row(one) for rk, one in rows.items() if rk != "latest"),
            state.faults,
        )


def open_turn(world: World) -> Callable[[State], int]:
    """Return the epoch of the turn that goes on or is waited out, 0 for none."""

    def found(state: State) -> int:
        turn = coordinator.view(world.rows(state)).group.turn
        return turn.epoch if turn.open or turn.state == "revoked" else 0

    return found


def promises(world: World) -> list[Promise[State]]:
    """Return the promises that every fair run keeps."""
    epoch = open_turn(world)

    def turn_of(name: str) -> Promise[State]:
        def waiting(state: State) -> bool:
            node = dict(state.nodes)[name]
            return node.up and node.role == "secondary"

        def comes(before: State, after: State) -> bool:
            return dict(after.nodes)[name].runs and not dict(before.nodes)[name].runs

        return Promise(f"{name} gets its turn", waiting, comes)

    ends = Promise[State]("a turn ends", lambda state: epoch(state) > 0, lambda before, after: epoch(before) != epoch(after))
    return [ends, *(turn_of(name) for name, node in world.play.nodes.items() if node.role == "secondary")]


def endless(name: str, faults: Faults, secondaries: str = "ab") -> Play:
    """secondaries: a letter each."""
    nodes = {"p": Node(role="primary"), **{each: Node(reports=1) for each in secondaries}}
    return Play(name, nodes, faults, until=10**9, silence=3, dates=(0,), draws=(0.0, 0.99), split=False, granted=False, endless=True)


PLAYS: dict[str, Callable[[int], Play]] = {
    "endless: quiet": lambda level: endless("endless: quiet", Faults(finish=1)),
    "endless: lost": lambda level: endless("endless: lost", Faults(lose=1, finish=1), "abc" if level else "ab"),
    "endless: crash": lambda level: endless("endless: crash", Faults(crash=1, lose=level, revoke=level, finish=1)),
    "endless: promotion": lambda level: endless("endless: promotion", Faults(promote=1, demote=1, lose=level, revoke=level, finish=1)),
    "endless: forgotten": lambda level: endless("endless: forgotten", Faults(promote=1, demote=level, lose=level, forget=1, finish=1)),
    "endless: revoke": lambda level: endless("endless: revoke", Faults(revoke=1 + level, lose=level, finish=1)),
}


def follow(world: World, *, limit: int = 2_000_000, progress: object = None) -> Report:
    """Look for a fair run in which what must come never does. As `checker.explore`."""
    return leads_to(world, promises(world), action, limit=limit)
