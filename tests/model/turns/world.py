"""The world of the turns: one table partition, replicas that follow the production rules of a node, instances of the app that follow the
production rules of the coordinator, and a network that takes any time.

Every report has four moments that the model keeps apart: it is sent, an instance of the app reads, it writes, the answer arrives; time may
pass between any two of them, and several instances work at the same time. A request that is never handled, or an answer that never
arrives, is one that takes for ever. An instance whose write is refused reads again. A replica's machine may lose its process at any
moment, with the checkpoint going on as an orphan until its time is over; a new process begins from nothing.

In every state: at most one checkpoint is being taken, on whichever machine; a primary takes none; what is taken was handed out to that
very process. With every write: `latest` never goes backwards, and is only ever written from the turn of the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any

from shared.checkpoints.node import rules as node_rules
from shared.checkpoints.rows import replica_key
from shared.storage.ports import ANY
from tests.model.checking.checker import Violation

from . import coordinator
from .state import DRIFT, PARTS, START, Answer, Change, Forget, Node, Pending, Play, Publish, ReplicaReport, Request, Revoke, Scan, State

type Rows = tuple[tuple[str, Any], ...]


def local(now: int) -> float:
    """Return the reading of the slowest clock at a true second."""
    return now * (1 - DRIFT)


class World:
    """The model that the checker explores."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self._decided: dict[Hashable, tuple[Change | None, Answer | None]] = {}
        self._stores, self._pendings = Numbers[Rows](), Numbers[Pending]()

    def rows(self, state: State) -> dict[str, Any]:
        """Return the stored rows."""
        return dict(self._stores[state.store])

    def _stored(self, rows: dict[str, Any]) -> int:
        return self._stores.number(tuple(sorted(rows.items())))

    # -- states

    def initial(self) -> State:
        state = State(0, tuple(self.play.nodes.items()), self._stored({}), (), (), (), self.play.faults)
        for name in self.play.nodes:
            state = self._undisturbed(state, name)
        return self._granted(state) if self.play.granted else state

    def _granted(self, state: State) -> State:
        """The first secondary wants a turn, and the sweep grants it one."""
        [first] = [name for name, node in state.nodes if node.role == "secondary"][:1]
        rows = {rk: replace(row, ready=True) if rk == replica_key(first) else row for rk, row in self.rows(state).items()}
        state = self._handle(state._replace(store=self._stored(rows)), Scan(), 0, 0.0)
        return self._write(state, state.pending[0]) if state.pending else state

    def _undisturbed(self, state: State, name: str) -> State:
        """A report of `name`, from its send to its answer, with nothing else going on."""
        state = self._send(state, name, free=True)
        while state.under_way or state.pending:
            first = state.under_way[0] if state.under_way else None
            state = self._handle(state, first, 0, 0.0) if first is not None else self._write(state, state.pending[0])
        for answer in state.answers:
            state = self._arrive(state, answer)
        return state

    def key(self, state: State) -> Hashable:
        return state

    def check(self, state: State) -> None:
        bodies = []
        for name, node in state.nodes:
            if node.runs:
                assert node.me.held is not None
                bodies.append((name, node.me.held.epoch))
                if node.role == "primary":
                    raise Violation(f"the primary takes: {name} in turn {node.me.held.epoch}")
            if node.orphan is not None:
                bodies.append((f"{name} (orphan)", node.orphan.epoch))
        if len(bodies) > 1:
            raise Violation(f"two take: {bodies} at {state.now}")

    # -- steps

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        if state.now < self.play.until:
            for rate in self.play.rates or (0,):
                own = f", {' and '.join(self.play.troubled)} count {rate / PARTS:.2f}" if rate else ""
                yield f"the clock shows {state.now + 1}{own}", lambda r=rate: self._tick(state, r)
        for name, node in state.nodes:
            yield from self._acts(state, name, node)
        for request in dict.fromkeys(state.under_way):
            for lag in self.play.dates:
                for draw in self.play.draws:
                    late = f" (Date {state.now - lag})" if lag else ""
                    text = f"the app reads for {describe(request)}{late}"
                    yield text, lambda r=request, la=lag, d=draw: self._handle(state, r, la, d)
            if state.faults.lose:
                yield f"{describe(request)} is lost", lambda r=request: self._spend(state, "lose", under_way=without(state.under_way, r))
        for number in dict.fromkeys(state.pending):
            pending = self._pendings[number]
            yield f"the app writes {coordinator.describe(pending.change)}", lambda n=number: self._write(state, n)
            if state.faults.again and not isinstance(pending.request, Scan):
                label = f"the answer to that write is lost: {coordinator.describe(pending.change)}"
                yield label, lambda n=number: self._look_again(state, n)
        for answer in dict.fromkeys(state.answers):
            yield f"{answer.node} has the answer {answer.seq}{describe_answer(answer)}", lambda a=answer: self._arrive(state, a)
            if state.faults.lose:
                yield f"the answer {answer.seq} is lost", lambda a=answer: self._lose(state, a)
        if state.faults.scan:
            for lag in self.play.dates:
                for draw in self.play.draws:
                    label = f"the sweep reads (Date {state.now - lag})"
                    yield label, lambda la=lag, d=draw: self._handle(self._spend(state, "scan"), Scan(), la, d)
        if state.faults.revoke and (epoch := coordinator.open_epoch(self.rows(state))):
            request = Revoke(epoch)
            yield f"turn {epoch} is revoked", lambda: self._spend(state, "revoke", under_way=(*state.under_way, request))

        if state.faults.forget:
            yield "an operator forgets the claim", lambda: self._spend(state, "forget", under_way=(*state.under_way, Forget()))

    def _acts(self, state: State, name: str, node: Node) -> Iterator[tuple[str, Callable[[], State]]]:
        if not node.up:
            if node.reports:
                yield f"{name} starts again", lambda: self._restart(state, name, node)
                if state.faults.promote:
                    yield f"{name} starts again, as primary", lambda: self._restart(self._spend(state, "promote"), name, node, leads=True)
            return
        if node.reports:
            yield f"{name} sends report {node.me.seq + 1}", lambda: self._send(state, name)
        if node.runs:
            if state.faults.finish:
                for risen in (True, False):
                    label = f"{name} finishes{'' if risen else ' at the sequence it had'}"
                    yield label, lambda r=risen: self._finish(state, name, node, r)
            if state.faults.fail:
                yield f"{name} fails", lambda: self._over(self._spend(state, "fail"), name)
        elif node.me.held is not None:
            yield f"{name} has done with its turn", lambda: self._over(state, name)
        if name in self.play.troubled and state.faults.promote and node.role == "secondary":
            yield f"{name} becomes primary", lambda: self._promote(state, name, node)
        if state.faults.demote and node.role == "primary":
            yield f"{name} becomes secondary", lambda: self._with(self._spend(state, "demote"), name, role="secondary", term=highest(state))
        if name in self.play.troubled and state.faults.crash:
            yield f"{name} crashes", lambda: self._crash(state, name, node)

    def _over(self, state: State, name: str) -> State:
        node = dict(state.nodes)[name]
        return self._with(state, name, runs=False, me=node_rules.end_turn(node.me), said=node.last)

    def _spend(self, state: State, what: str, **changes: Any) -> State:
        return state._replace(faults=state.faults._replace(**{what: getattr(state.faults, what) - 1}), **changes)

    def _with(self, state: State, name: str, **changes: Any) -> State:
        nodes = tuple((each, node._replace(**changes) if each == name else node) for each, node in state.nodes)
        return state._replace(nodes=nodes)

    def _local(self, now: int, name: str, node: Node) -> float:
        """Return the reading of a machine's clock at a true second."""
        return node.clock / PARTS if self.play.rates and name in self.play.troubled else local(now)

    def _tick(self, state: State, rate: int = 0) -> State:
        """Advance the clock by a second. A replica whose time is over stops then at the latest."""
        now = state.now + 1
        nodes = []
        for name, node in state.nodes:
            if name in self.play.troubled:
                node = node._replace(clock=node.clock + rate)
            here = self._local(now, name, node)
            if node.orphan is not None and here >= node.orphan.until:
                node = node._replace(orphan=None)
            if node.runs and node_rules.stop_reason(node.me, here, primary=node.role == "primary"):
                node = node._replace(runs=False, me=node_rules.end_turn(node.me))
            nodes.append((name, node))
        return state._replace(now=now, nodes=tuple(nodes))

    # -- replicas

    def _send(self, state: State, name: str, *, free: bool = False, ready: bool | None = None) -> State:
        node = dict(state.nodes)[name]
        me = node_rules.start_report(node.me, self._local(state.now, name, node))
        taking = me.held.epoch if me.held is not None else 0
        report = ReplicaReport(name, node.life, me.seq, node.role, node.term, taking, node.said, ready=not free if ready is None else ready)
        state = self._with(state, name, me=me, reports=node.reports - (not free))
        return self._tidy(state._replace(under_way=(*state.under_way, report)))

    def _arrive(self, state: State, answer: Answer) -> State:
        state = state._replace(answers=without(state.answers, answer))
        node = dict(state.nodes)[answer.node]
        if not node.up or node.life != answer.life:
            return state
        if answer.refused:
            return self._refused(state, answer.node, node, answer.refused)
        turn = (answer.epoch, answer.limit / 1000) if answer.epoch else None
        heard = node_rules.ReportReply(turn, frozenset(answer.revoked))
        here = self._local(state.now, answer.node, node)
        me, act = node_rules.apply_answer(node.me, answer.seq, heard, here, may=node.role == "secondary")
        if isinstance(act, node_rules.BeginTurn):
            self._check_begun(state, answer)
            return self._with(state, answer.node, me=me, runs=True)
        if isinstance(act, node_rules.StopTurn) and node.runs:
            return self._with(state, answer.node, me=node_rules.end_turn(me), runs=False)
        return self._with(state, answer.node, me=me)

    def _refused(self, state: State, name: str, node: Node, why: str) -> State:
        """The replica stops its checkpoint and starts over; or it ends, as another process has its name."""
        if why == "unknown-replica":
            return self._with(state, name, life=node.life + 1, me=node_rules.restart(node.me), runs=False)
        return self._with(state, name, up=False, me=node_rules.ReplicaState(), runs=False)

    def _check_begun(self, state: State, answer: Answer) -> None:
        holder, handed = coordinator.handed(self.rows(state), answer.epoch)
        if holder not in ("", answer.node) or not handed:
            raise Violation(f"never handed out: {answer.node} begins turn {answer.epoch}")

    def _finish(self, state: State, name: str, node: Node, risen: bool) -> State:
        assert node.me.held is not None
        last = node.last + len(state.nodes) if risen else node.last
        if not last:
            last = 1 + [each for each, _ in state.nodes].index(name)
        state = self._with(self._spend(state, "finish"), name, runs=False, last=last)
        return state._replace(under_way=(*state.under_way, Publish(name, node.me.held.epoch, last)))

    def _promote(self, state: State, name: str, node: Node) -> State:
        # The body ends before the member acts as primary.
        state = self._over(state, name) if node.runs else state
        return self._with(self._spend(state, "promote"), name, role="primary", term=highest(state) + 1)

    def _crash(self, state: State, name: str, node: Node) -> State:
        orphan = node.me.held if node.runs else node.orphan
        return self._tidy(self._with(self._spend(state, "crash"), name, up=False, me=node_rules.ReplicaState(), runs=False, orphan=orphan))

    def _restart(self, state: State, name: str, node: Node, *, leads: bool = False) -> State:
        state_of_node = {"role": "primary" if leads else "secondary", "term": highest(state) + leads, "said": node.last}
        return self._send(self._with(state, name, up=True, life=node.life + 1, **state_of_node), name)

    # -- the app

    def _handle(self, state: State, request: Request, lag: int, draw: float) -> State:
        date = (START + state.now - lag) * 1000
        asked = (state.store, request, date, draw)
        found = self._decided.get(asked)
        if found is None:
            found = self._decided[asked] = coordinator.decide(self.play, self.rows(state), request, date, draw)
        change, answer = found
        state = state._replace(under_way=without(state.under_way, request))
        if change is not None:
            number = self._pendings.number(Pending(request, change, answer))
            state = state._replace(pending=(*state.pending, number))
            return self._ordered(state) if self.play.split else self._write(state, number)
        return self._answered(state, answer)

    def _write(self, state: State, number: int) -> State:
        """Apply what was decided: it still holds, or it would not be pending."""
        before, pending = self.rows(state), self._pendings[number]
        after = {**before, **{rk: new for rk, _, new in pending.change.rows}}
        coordinator.check_latest(before, after, pending.request)
        if pending.change.broken:
            raise Violation(pending.change.broken)
        state = state._replace(store=self._stored(after), pending=without(state.pending, number))
        kept = []
        for each in state.pending:
            other = self._pendings[each]
            if all(expected == ANY or after.get(rk) == expected for rk, expected, _ in other.change.rows):
                kept.append(each)
            elif not isinstance(other.request, Scan):
                # Refused: it reads again.
                state = state._replace(under_way=(*state.under_way, other.request))
        return self._tidy(self._answered(state._replace(pending=tuple(kept)), pending.answer))

    def _look_again(self, state: State, number: int) -> State:
        """Its write may be applied at any later time, and its instance handles the request once more."""
        pending = self._pendings[number]
        late = self._pendings.number(Pending(Scan(), pending.change, None))
        rest = without(state.pending, number)
        return self._ordered(self._spend(state, "again", pending=(*rest, late), under_way=(*state.under_way, pending.request)))

    def _answered(self, state: State, answer: Answer | None) -> State:
        if answer is not None and self._awaited(state, answer.node, answer.life, answer.seq):
            return self._ordered(state._replace(answers=(*state.answers, answer)))
        return self._ordered(state)

    def _awaited(self, state: State, name: str, life: int, seq: int) -> bool:
        node = dict(state.nodes)[name]
        latest = node.me.seq == seq and node.me.sent is not None
        return node.up and node.life == life and (latest or not self.play.latest_only)

    def _lose(self, state: State, answer: Answer) -> State:
        state = self._spend(state, "lose", answers=without(state.answers, answer))
        return self._with(state, answer.node, me=node_rules.report_failed(dict(state.nodes)[answer.node].me))

    def _tidy(self, state: State) -> State:
        """Without what has no effect any more: answers that nobody awaits, reports that came too late."""
        answers = tuple(each for each in state.answers if self._awaited(state, each.node, each.life, each.seq))
        rows = self.rows(state)
        under_way = tuple(
            each
            for each in state.under_way
            if not isinstance(each, ReplicaReport)
            or not coordinator.over(rows, each)
            or self._awaited(state, each.node, each.life, each.seq)
        )
        return self._ordered(state._replace(answers=answers, under_way=under_way))

    def _ordered(self, state: State) -> State:
        return state._replace(
            under_way=tuple(sorted(state.under_way, key=repr)) if len(state.under_way) > 1 else state.under_way,
            pending=tuple(sorted(state.pending)),
            answers=tuple(sorted(state.answers)),
        )


class Numbers[T]:
    """Values by number, so that a state is small."""

    def __init__(self) -> None:
        self._known: dict[T, int] = {}
        self._values: list[T] = []

    def number(self, value: T) -> int:
        found = self._known.setdefault(value, len(self._values))
        if found == len(self._values):
            self._values.append(value)
        return found

    def __getitem__(self, number: int) -> T:
        return self._values[number]


def without[T](found: tuple[T, ...], one: T) -> tuple[T, ...]:
    """`found` without one of those equal to `one`."""
    at = found.index(one) if one in found else len(found)
    return (*found[:at], *found[at + 1 :])


def highest(state: State) -> int:
    return max(node.term for _, node in state.nodes)


def describe_answer(answer: Answer) -> str:
    turn = f": turn {answer.epoch}, {answer.limit} ms" if answer.epoch else ""
    return turn + (f", revoked {answer.revoked}" if answer.revoked else "")


def describe(request: Request) -> str:
    match request:
        case ReplicaReport(name, life, seq, role, term, taking, _):
            former = f" of process {life}" if life > 1 else ""
            return f"report {seq}{former} of {name} ({role} {term}{f', taking {taking}' if taking else ''})"
        case Publish(name, epoch, sequence):
            return f"the publish of {name} ({epoch}: {sequence})"
        case Revoke(epoch):
            return f"the revocation of {epoch}"
        case Forget():
            return "the claim to be forgotten"
        case _:
            return "the sweep"
