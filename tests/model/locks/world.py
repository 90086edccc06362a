"""One lock, its callers, and requests that overtake each other: every state is explored.

L1: no two callers believe at a time that they hold the lock.
L2: the token of a new grant is greater than that of every grant before.
L3: no caller gets the lock while another one, which asks in time, has waited for longer.
L4: from every state, without further faults, every living caller gets the lock.
L5: a caller that repeats its request while nobody else got the lock gets the same grant.
L6: a revoked grant is renewed no more.
L7: an attempt has one grant at most, and none once its release was answered.

Time goes on in steps. A holder's clock is as slow, and that of storage as fast, as bounded drift permits; two times of storage
may come from machines whose clocks differ by a second. A request whose caller has given it up may still be carried out, and a write whose
answer was lost may be applied later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from shared.engine.effects import LOST, Get, Write
from shared.engine.validity import outlasting
from shared.locks import protocol
from shared.locks.rows import LockRow, parse_lock
from shared.locks.rules import Held, LockRequest, Waiting, is_over
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Row, WriteRefused
from tests.model.checking.checker import FROM_HERE, Violation
from tests.model.checking.machine import Machines

WAIT: Final = 4000
SLOWEST: Final = outlasting(1)
"""Seconds of storage's clock in a second of the slowest holder's."""
WALL: Final = 10**9
"""The time of storage at the start of a play, in milliseconds."""
OPERATOR: Final = -1
"""The caller of requests that no caller makes."""


@dataclass(frozen=True)
class LockPlay:
    """callers: number. held: the first of them has the lock from the start, and the others wait in order. waiting: callers wait. lost:
    writes and answers that are lost. slow: answers that arrive late. stray: requests that are given up. delayed: writes that are applied
    late. crashes: of callers. leaves: waiters that leave. revokes: by an operator. removals: of an old row; meanwhile no request is under
    way for a whole step. renewals: of all callers together. tries: grants that a caller asks for. steps: of time, after which it stands
    still; a step has `step` milliseconds. ttl: validity of grants. skews: by which times of storage differ. walls: errors of wall clocks,
    None: they stand still."""

    name: str
    callers: int = 2
    held: bool = False
    waiting: bool = False
    lost: int = 0
    slow: int = 0
    stray: int = 0
    delayed: int = 0
    crashes: int = 0
    leaves: int = 0
    revokes: int = 0
    removals: int = 0
    renewals: int = 1
    tries: int = 1
    steps: int = 2
    step: int = 2000
    ttl: int = 2000
    skews: tuple[int, ...] = (0, 1000)
    walls: tuple[int, ...] | None = None

    @property
    def belief(self) -> float:
        """Milliseconds of storage's clock for which the slowest holder relies on a grant."""
        return self.ttl * SLOWEST


class Caller(NamedTuple):
    """A caller. machine: of its request, -1 for none. call: the kind of it. sent: its SEND. nonce: number of its attempt. token: of the
    grant that it has, valid from `since`. version: ETag of the latest answer. queued: its place among all that came to wait, 0 for none.
    asked: SEND of the last request that was answered with `waiting`."""

    machine: int = -1
    call: str = ""
    sent: int = 0
    nonce: int = 1
    token: int = 0
    since: int = 0
    version: str = ""
    queued: int = 0
    asked: int = 0
    releasing: bool = False
    done: bool = False
    dead: bool = False


class LockState(NamedTuple):
    """row: properties, version and time of the lock's row. strays: requests that nobody waits for, by machine and caller. late: writes that
    may still be applied. highest: token. arrivals: callers that came to wait. before: version of a row that was removed. spent: attempts,
    as (holder, nonce), that were granted or whose release was answered."""

    now: int
    row: tuple[Any, int, int] | None
    callers: tuple[Caller, ...]
    lost: int
    slow: int
    stray: int
    delayed: int
    crashes: int
    leaves: int
    revokes: int
    removals: int
    renewals: int
    strays: tuple[tuple[int, int], ...] = ()
    late: tuple[Any, ...] = ()
    highest: int = 0
    arrivals: int = 0
    before: int = 0
    spent: tuple[tuple[str, str], ...] = ()


def call(request: LockRequest, version: str, wall: int) -> Generator[Any, Any, Any]:
    """Serve a request as `LockService.ask` does."""
    if version:
        etag = yield from protocol.renew("p", "x", version)
        if etag is not None:
            return "held", request.token, etag
    asked = yield from protocol.ask("p", "x", request, wall, create=True)
    match asked.outcome:
        case Held():
            return "held", asked.outcome.lock.token, asked.etag
        case Waiting():
            return "waiting", 0, ""
    return asked.outcome, 0, ""


def release(number: int, nonce: int, token: int, wall: int) -> Generator[Any, Any, Any]:
    """Serve the release of a lock."""
    yield from protocol.release("p", "x", protocol.Attempt(name(number), str(nonce), token), wall, create=True)
    return "released", 0, ""


def operator(steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Serve a request that no caller makes."""
    yield from steps
    return "", 0, ""


def name(number: int) -> str:
    return "abc"[number] if number >= 0 else "the operator"


@dataclass
class LockWorld:
    """A play as the checker walks it."""

    play: LockPlay
    machines: Machines = field(default_factory=Machines)
    _ends_well: set[Hashable] = field(default_factory=set)
    _following: bool = False
    """True while L4 is tried: the callers do not remember then who came first."""

    def initial(self) -> LockState:
        play = self.play
        faults = (play.lost, play.slow, play.stray, play.delayed, play.crashes, play.leaves, play.revokes, play.removals, play.renewals)
        state = LockState(0, None, (Caller(),) * play.callers, *faults)
        for number in range(play.callers if play.held else 0):
            state = self._serve(state, number, "ask")
        return state

    def key(self, state: LockState) -> Hashable:
        return state

    # -- steps

    def successors(self, state: LockState) -> Iterator[tuple[str, Callable[[], LockState]]]:
        busy = state.strays or any(each.machine >= 0 for each in state.callers)
        if state.now < self.play.steps * self.play.step and not (self.play.removals and busy):
            yield "time passes", lambda: state._replace(now=state.now + self.play.step)
        if state.revokes and state.row is not None:
            less = state._replace(revokes=state.revokes - 1)
            yield "revokes the lock", lambda: self._operate(less, ("revoke",), lambda: protocol.revoke("p", "x", "n", "o"))
        if state.removals and state.row is not None:
            row, fewer = self._read(state), state._replace(removals=state.removals - 1)
            assert row is not None
            yield "removes old rows", lambda: self._operate(fewer, ("remove", state.row, state.now), lambda: protocol.remove("p", [row]))
        for write in state.late:
            yield "a late write arrives", lambda write=write: self._arrive(state, write)
        for stray in state.strays:
            rest = state._replace(strays=_without(state.strays, stray))
            for label, then in self._effect(rest, stray[0], stray[1]):
                yield (
                    f"a request of {name(stray[1])} that nobody waits for: {label}",
                    lambda then=then, stray=stray: self._go_on(then(), stray),
                )
        for number, caller in enumerate(state.callers):
            if not caller.dead:
                for label, step in self._steps_of(state, number, caller):
                    yield f"{name(number)}: {label}", step

    def _operate(self, state: LockState, asked: Hashable, steps: Callable[[], Generator[Any, Any, Any]]) -> LockState:
        machine = self.machines.spawn(asked, lambda: operator(steps()))
        return self._go_on((state, machine), (machine, OPERATOR))

    def _go_on(self, after: tuple[LockState, int], stray: tuple[int, int]) -> LockState:
        state, machine = after
        if self.machines[machine].ended:
            return state
        return state._replace(strays=tuple(sorted((*state.strays, (machine, stray[1])))))

    def _steps_of(self, state: LockState, number: int, caller: Caller) -> Iterator[tuple[str, Callable[[], LockState]]]:
        if state.crashes and (caller.token or caller.machine >= 0 or caller.queued):
            yield "crashes", lambda: self._crash(state, number, caller)
        if caller.machine < 0:
            yield from self._begin(state, number, caller)
            return
        if self.machines[caller.machine].ended:
            yield "its answer arrives", lambda: self._answered(state, number, caller)
            return
        for label, then in self._effect(state, caller.machine, number):
            yield label, lambda then=then: self._moved(then(), number)
            if state.lost:
                yield f"{label}; if this ends the request, the answer is lost", lambda then=then: self._moved(then(), number, lost=True)
            if state.slow:
                yield f"{label}; if this ends the request, the answer is late", lambda then=then: self._moved(then(), number, slow=True)
        if state.stray:
            strays = tuple(sorted((*state.strays, (caller.machine, number))))
            yield (
                "gives its request up",
                lambda: _with(state._replace(stray=state.stray - 1, strays=strays), number, caller._replace(machine=-1)),
            )

    def _moved(self, after: tuple[LockState, int], number: int, *, lost: bool = False, slow: bool = False) -> LockState:
        """Go on with a request."""
        state, machine = after
        ended = self.machines[machine].ended
        if lost and ended and state.lost:
            return _with(state._replace(lost=state.lost - 1), number, state.callers[number]._replace(machine=-1))
        state = _with(state, number, state.callers[number]._replace(machine=machine))
        if slow and ended:
            return state._replace(slow=state.slow - 1)
        return self._answered(state, number, state.callers[number]) if ended else state

    def _begin(self, state: LockState, number: int, caller: Caller) -> Iterator[tuple[str, Callable[[], LockState]]]:
        if caller.done:
            return
        if caller.releasing:
            yield "releases", lambda: self._send(state, number, caller, "release")
            return
        if not caller.token:
            for wall in self.play.walls or (0,):
                label = f"asks a process whose clock is {wall} ms wrong" if wall else "asks"
                yield label, lambda wall=wall: self._send(state, number, caller, "ask", wall)
            if state.leaves and (caller.queued or any(waits == number for _, waits in state.strays)):
                fewer, leaving = state._replace(leaves=state.leaves - 1), caller._replace(queued=0, releasing=True)
                yield "gives its attempt up", lambda: self._send(_with(fewer, number, leaving), number, leaving, "release")
            return
        if not self._believes(state, caller):
            # It has noticed by its own clock that the grant is over.
            yield "has lost the lock", lambda: _with(state, number, self._ended(caller))
            return
        if state.renewals:
            less = state._replace(renewals=state.renewals - 1)
            yield "renews", lambda: self._send(less, number, caller, "renew")
        over = caller._replace(releasing=True)
        yield "releases", lambda: self._send(_with(state, number, over), number, over, "release")

    def _send(self, state: LockState, number: int, caller: Caller, kind: str, wall: int = 0) -> LockState:
        if kind == "release":
            asked = (kind, number, caller.nonce, caller.token)
            at = 0 if self.play.walls is None else WALL + state.now
            machine = self.machines.spawn((*asked, at), lambda: release(number, caller.nonce, caller.token, at))
        else:
            renews = kind == "renew"
            wait = WAIT if self.play.waiting and not renews else 0
            request = LockRequest(name(number), str(caller.nonce), self.play.ttl, wait, caller.token if renews else 0)
            version = caller.version if renews else ""
            at = 0 if self.play.walls is None else WALL + state.now + wall
            machine = self.machines.spawn((kind, request, version, at), lambda: call(request, version, at))
        return _with(state, number, caller._replace(machine=machine, call=kind, sent=state.now))

    def _crash(self, state: LockState, number: int, caller: Caller) -> LockState:
        strays = state.strays
        if caller.machine >= 0 and not self.machines[caller.machine].ended:
            strays = tuple(sorted((*strays, (caller.machine, number))))
        return _with(state._replace(crashes=state.crashes - 1, strays=strays), number, Caller(queued=caller.queued, dead=True))

    def _since(self, state: LockState, caller: Caller) -> int:
        return caller.sent

    def _ended(self, caller: Caller) -> Caller:
        last = caller.nonce >= self.play.tries
        return Caller(nonce=caller.nonce if last else caller.nonce + 1, done=last)

    def _answered(self, state: LockState, number: int, caller: Caller) -> LockState:
        outcome, token, version = self.machines[caller.machine].result
        caller = caller._replace(machine=-1)
        if outcome == "held":
            if caller.call == "ask" and caller.token not in (0, token):
                raise Violation(f"L5: {name(number)} has token {caller.token}, and the repeated request gets {token}")
            state = _with(state, number, caller._replace(token=token, since=self._since(state, caller), version=version, queued=0))
            self._judge(state)
            return state
        if outcome == "waiting":
            arrived = 0 if caller.queued else 1
            place = caller.queued or state.arrivals + 1
            return _with(state._replace(arrivals=state.arrivals + arrived), number, caller._replace(queued=place, asked=caller.sent))
        if outcome in ("released", "lock-lost"):
            over = self._spend(state, name(number), str(caller.nonce)) if outcome == "released" else state
            return _with(over, number, self._ended(caller))
        # It asks again later, and gets the lock if no other caller has it then.
        return _with(state, number, caller)

    # -- storage

    def _effect(self, state: LockState, machine: int, number: int) -> Iterator[tuple[str, Callable[[], tuple[LockState, int]]]]:
        effect = self.machines[machine].effect
        if isinstance(effect, Get):
            for skew in self.play.skews if state.row is not None else (0,):
                label = "reads" if not skew else f"reads on a machine that is {skew} ms ahead"
                yield label, lambda skew=skew: (state, self.machines.resume(machine, self._read(state, skew)))
            return
        assert isinstance(effect, Write)
        [op] = effect.ops

        def applied() -> tuple[LockState, int]:
            after, answer = self._write(state, op)
            return after, self.machines.resume(machine, answer)

        yield "writes", applied
        if state.lost:
            less = state._replace(lost=state.lost - 1)
            yield "writes, and the answer is lost", lambda: (self._write(less, op)[0], self.machines.resume(machine, LOST))
            yield "loses its write", lambda: (less, self.machines.resume(machine, LOST))
        if state.delayed:
            late = tuple(sorted((*state.late, _packed(op))))
            yield (
                "its write is late",
                lambda: (
                    state._replace(delayed=state.delayed - 1, late=late),
                    self.machines.resume(machine, LOST),
                ),
            )

    def _read(self, state: LockState, skew: int = 0) -> Row | None:
        if state.row is None:
            return None
        props, version, at = state.row
        return Row("p", "x", dict(props), str(version), WALL + at, WALL + state.now + skew)

    def _arrive(self, state: LockState, write: Any) -> LockState:
        return self._write(state._replace(late=_without(state.late, write)), _unpacked(write))[0]

    def _write(self, state: LockState, op: Any) -> tuple[LockState, Applied | WriteRefused]:
        before = state.row
        if isinstance(op, Insert):
            if before is not None:
                return state, WriteRefused(0, "exists")
            props = op.props
        else:
            if before is None or op.etag not in (ANY, str(before[1])):
                return state, WriteRefused(0, "missing" if before is None else "changed")
            if isinstance(op, Delete):
                return state._replace(row=None, before=before[1]), Applied([""])
            props = {**dict(before[0]), **op.props} if isinstance(op, Merge) else op.props
        version = (before[1] if before is not None else state.before) + 1
        after = state._replace(row=(tuple(sorted(props.items())), version, state.now))
        self._judge_write(state, after)
        lock = self._lock(after)
        if lock.state == "held":
            after = self._spend(after, lock.holder, lock.nonce)
        return after._replace(highest=max(after.highest, lock.token)), Applied([str(version)])

    def _spend(self, state: LockState, holder: str, nonce: str) -> LockState:
        return state._replace(spent=tuple(sorted({*state.spent, (holder, nonce)})))

    def _lock(self, state: LockState) -> LockRow:
        row = self._read(state)
        assert row is not None
        return parse_lock(row)

    # -- judges

    def _believes(self, state: LockState, caller: Caller) -> bool:
        return caller.token > 0 and not caller.releasing and state.now - caller.since < self.play.belief

    def _judge(self, state: LockState) -> None:
        holders = [name(number) for number, each in enumerate(state.callers) if self._believes(state, each)]
        if len(holders) > 1:
            raise Violation(f"L1: {' and '.join(holders)} hold the lock at a time")

    def _judge_write(self, before: LockState, after: LockState) -> None:
        new = self._lock(after)
        old = self._lock(before) if before.row is not None else None
        if old is not None and old.state == "revoked" and new.state != "free" and new.token == old.token and new.renewed != old.renewed:
            raise Violation("L6: a revoked grant is renewed")
        if old is not None and new.state == "held" and (new.holder, new.nonce, new.token) == (old.holder, old.nonce, old.token):
            return
        if new.state != "held":
            return
        if new.token <= before.highest:
            raise Violation(f"L2: a new grant has token {new.token} after {before.highest}")
        if old is not None and old.state == "held" and (new.holder, new.nonce) == (old.holder, old.nonce):
            raise Violation(f"L5: {new.holder} gets a new token for the grant that it has")
        if (new.holder, new.nonce) in before.spent:
            raise Violation(f"L7: {new.holder} gets the lock for an attempt that has ended")
        if self._following:
            return
        winner = after.callers["abc".index(new.holder)]
        for number, each in enumerate(after.callers):
            earlier = each.queued and (not winner.queued or each.queued < winner.queued)
            if name(number) != new.holder and earlier and not each.dead and after.now - each.asked < WAIT:
                raise Violation(f"L3: {new.holder} gets the lock before {name(number)}, which has waited for longer")

    def check(self, state: LockState) -> None:
        self._judge(state)
        none = dict.fromkeys(("now", "lost", "slow", "stray", "delayed", "crashes", "leaves", "revokes", "removals", "renewals"), 0)
        quiet = state._replace(**none, strays=(), late=(), row=_aged(state), callers=_fresh(state), highest=_token(state), spent=())
        if quiet in self._ends_well:
            return
        self._following = True
        try:
            self._follow(quiet)
        finally:
            self._following = False
        self._ends_well.add(quiet)

    def _follow(self, state: LockState) -> None:
        """Let every caller that lives get the lock and release it, one after the other, with a step of time between two rounds."""
        missing = {number for number, each in enumerate(state.callers) if not each.dead and not each.done}
        for _ in range(30):
            for number in sorted(missing):
                state = self._serve(state, number, "ask")
                if state.callers[number].token:
                    state = _with(state, number, state.callers[number]._replace(releasing=True))
                    state = self._serve(state, number, "release")
                if state.callers[number].done or state.callers[number].nonce > self.play.tries:
                    missing.discard(number)
            if not missing:
                return
            state = state._replace(now=state.now + self.play.step)
        raise Violation(f"L4: {', '.join(map(name, sorted(missing)))} never gets the lock", [f"{FROM_HERE}, in turn)"])

    def _serve(self, state: LockState, number: int, kind: str) -> LockState:
        state = self._send(state, number, state.callers[number], kind)
        while (machine := state.callers[number].machine) >= 0:
            _, then = next(iter(self._effect(state, machine, number)))  # without a fault
            state = self._moved(then(), number)
        return state


def _aged(state: LockState) -> Any:
    """Return the row with times relative to now, so that states that differ only in the time are one."""
    if state.row is None:
        return None
    props, _, at = state.row
    lock = parse_lock(Row("p", "x", dict(props), "", WALL + at, WALL + state.now))
    waiters = tuple(replace(each, asked=each.asked - state.now, since=0) for each in lock.waiters)
    aged = replace(lock, renewed=lock.renewed - state.now, granted=0, waiters=waiters, ended=())
    over = is_over(lock, WALL + state.now)
    return tuple(sorted((replace(aged, renewed=1) if over else aged).props().items())), 1, 0


def _token(state: LockState) -> int:
    return int(dict(state.row[0])["token"]) if state.row is not None else 0


def _fresh(state: LockState) -> tuple[Caller, ...]:
    """Return the callers without their requests. A caller that has had the lock asks with a new nonce."""
    found = []
    for each in state.callers:
        lost = each.token or each.releasing
        found.append(Caller(nonce=each.nonce + bool(lost), done=each.done, dead=each.dead))
    return tuple(found)


def _with(state: LockState, number: int, caller: Caller) -> LockState:
    return state._replace(callers=(*state.callers[:number], caller, *state.callers[number + 1 :]))


def _without(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    at = items.index(item)
    return (*items[:at], *items[at + 1 :])


def _packed(op: Any) -> tuple[Any, ...]:
    return type(op), op.rk, tuple(sorted(op.props.items())), getattr(op, "etag", "")


def _unpacked(packed: tuple[Any, ...]) -> Any:
    kind, rk, props, etag = packed
    return Insert(rk, dict(props)) if kind is Insert else kind(rk, dict(props), etag)
