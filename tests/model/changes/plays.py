"""The plays of changes that overtake each other, and the world that judges them: production's changes, posts and cancels of one event.

R1: what was acknowledged is never replaced by a request that was certainly received earlier, or so much earlier that it is too old.
R2: no event is stored under the id of a cancelled one by a request that was certainly received before the cancel.
R3: a request is refused as overtaken only if a later one changes the same member.
R4: a cancel is carried out, whatever was received later.
P1: from every state, without further faults, everything comes to an end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from shared.core.errors import OutcomeUnknown, Problem
from shared.engine.effects import Get
from shared.scheduler.changes.collapsing import standing
from shared.scheduler.changes.verbs import condition
from shared.scheduler.facets import FACETS
from shared.scheduler.keys import Address, event_row, id_partition, index_key, index_partition, shard_key
from shared.scheduler.properties.receipts import MEMBERS, Received, noted
from shared.scheduler.protocol import changing, ingest
from shared.scheduler.shard import gate
from shared.scheduler.timings import CHANGES_FOR
from shared.storage.names import EVENTS, IDS, LEDGER, SHARDS
from shared.web.arrivals import EVER, Receipt
from tests.model.checking.checker import Violation
from tests.model.checking.state import Budget, Now, Play, State, Until
from tests.model.shards.actors import CHANNEL, DUE, TENANT, entry, owner, sweep
from tests.model.shards.plays import A1, always
from tests.model.shards.world import World

X: Final = "x"
TOO_OLD: Final = round(CHANGES_FOR * 1000) + 1


@dataclass
class Came:
    """An arrival whose age the actor reads on the world's clock."""

    known: Receipt
    at: int = 0
    age: float = 0.0

    def receipt(self) -> Receipt:
        return self.known


@dataclass(frozen=True)
class Request:
    """A request: when it was received, and the members that it changes. at: the time of the world at which it comes."""

    name: str
    low: int
    high: int
    process: str
    number: int
    members: frozenset[str] = frozenset({"payload"})
    at: int = 0

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.low, self.high, self.process, self.number)

    def is_after(self, other: Request) -> bool:
        """Return True if this request must not be replaced by the other one."""
        return self.receipt.is_after(other.receipt) or self.at - other.at >= TOO_OLD

    def received(self) -> tuple[Came, Received]:
        came = Came(self.receipt, self.at)
        return came, Received(came, self.members)  # type: ignore[arg-type]

    @property
    def change(self) -> dict[str, Any]:
        """The properties that it sets, each to its own name."""
        return {prop: self.name for member, prop in SHOWN.items() if member in self.members}


SHOWN: Final = {"payload": "body", "expires": "note"}
"""The members that the world looks at, and the properties that it has for them."""
PAYLOAD, EXPIRES = frozenset({"payload"}), frozenset({"expires"})
OLD = Request("old", 0, 9, "A", 1)
NEW = Request("new", 20, 29, "B", 1)
NEXT = Request("next", 0, 9, "A", 2)
"""Received by the process of `OLD` after it."""
BLUR = Request("blur", 15, 25, "C", 1)
"""Nobody knows which of this and `NEW` was first. `OLDER` is before `NEW`, and perhaps after this."""
OLDER = Request("older", 10, 19, "D", 1)
LAST = Request("last", 40, 49, "C", 1, EXPIRES)
LOST_OLD = Request("old", 0, EVER, "A", 1)
LATE_NEW = Request("new", 0, EVER, "B", 1, at=TOO_OLD)
"""A change for which, as for `LOST_OLD`, the processes know no bounds of storage's time. It comes when that one is too old."""


def timed(steps: Any, came: Came) -> Any:
    """Run `steps` like `yield from`, and set the age of the request after each read of a row."""
    try:
        effect = next(steps)
        while True:
            answer = yield effect
            if isinstance(effect, Get):
                now = yield Now()
                came.age = (now - came.at) / 1000
            effect = steps.send(answer)
    except StopIteration as stop:
        return stop.value


def patcher(request: Request, size: int = 1) -> Any:
    """PATCH without `If-Match`. size: of the payload; a larger one moves the event."""
    if request.at:
        yield Until(request.at)
    came, received = request.received()
    change = {**request.change, "size": size, **received.noted()}
    steps = changing.edit_or_move(A1, change, request.name, condition(X, {}, by=received))
    try:
        answer = yield from timed(steps, came)
    except Problem as refused:
        return ((refused.code, request.name),)
    except OutcomeUnknown:
        return ()
    return (("changed", request.name),) if isinstance(answer, changing.Done) else ()


def mover(request: Request, due: int) -> Any:
    """PATCH of the due time and the payload."""
    came, received = request.received()
    steps = changing.move(A1, due, {**request.change, **received.noted()}, request.name, condition(X, {}, by=received))
    try:
        answer = yield from timed(steps, came)
    except Problem as refused:
        return ((refused.code, request.name),)
    except OutcomeUnknown:
        return ()
    return (("changed", request.name),) if isinstance(answer, changing.Done) else ()


def poster(request: Request) -> Any:
    """`Collapsing._one` of an id whose event has ended: it takes the id over, or finds that it was overtaken."""
    came, received = request.received()
    for generation in range(1, 4):
        name = f"{request.name}{generation}"
        opened = ingest.OpenShard(shard_key(TENANT, name), name, 0, FACETS)
        yield from ingest.file_shard(opened.shard, 0, sent=False)
        here = Address(opened.shard, event_row(0))
        known = yield from timed(changing.reuse_id(TENANT, X, "hash", here, lambda props: standing(received, props) == "over"), came)
        if isinstance(known, ingest.KnownId):
            return ((standing(received, known.row.props), request.name),)
        props = {**entry(X, **request.change).props, **received.noted()}
        if (yield from ingest.append(opened, [ingest.Entry(event_row(0), props, 1)])).stored:
            return (("changed", request.name),)
    return ()


def canceller(request: Request) -> Any:
    """DELETE."""
    _, received = request.received()
    answer = yield from changing.cancel(A1, 0, request.name, receipt=received.noted())
    return (("cancelled", request.name),) if isinstance(answer, changing.Done) else (("not cancelled", request.name),)


class ChangeWorld(World):
    """The store, the clock and the faults of the shard protocol's world, with the rules of changes."""

    def check(self, state: State) -> None:
        requests = {request.name: request for request in REQUESTS}
        facts = state.acked | GIVEN.get(self.play.name, frozenset())
        live = [dict(props) for (table, _, rk), _, props in state.store if table == EVENTS and rk != gate.GATE and props is not None]
        live = [row for row in live if row["state"] in ("scheduled", "moving")]
        for fact, name in facts:
            if fact == "changed":
                for row in live:
                    self._kept(requests, requests[name], row)
            elif fact == "cancelled":
                for row in live:
                    self._not_before(requests[name], requests.get(row["body"]))
            elif fact in ("changed-meanwhile", "stands"):
                mine = requests[name]
                if not any(other.receipt.is_after(mine.receipt) and other.members & mine.members for other in self._played(requests)):
                    raise Violation(f"R3: {name} is refused, and no later request changes the same")
            elif fact == "not cancelled":
                raise Violation("R4: the cancel is not carried out")
        super().check(state)

    def _played(self, requests: dict[str, Request]) -> list[Request]:
        given = {name for fact, name in GIVEN.get(self.play.name, frozenset()) if fact == "changed"}
        return [requests[name] for name in {*self.play.starts, *given}]

    @staticmethod
    def _kept(requests: dict[str, Request], mine: Request, row: dict[str, Any]) -> None:
        for member, prop in SHOWN.items():
            if member not in mine.members:
                continue
            found = requests.get(row.get(prop, ""))
            if found is None or mine.is_after(found):
                raise Violation(f"R1: {member} is that of {row.get(prop)}, although {mine.name} was acknowledged")

    @staticmethod
    def _not_before(cancel: Request, found: Request | None) -> None:
        if found is None or not found.receipt.is_after(cancel.receipt):
            raise Violation(f"R2: the event lives, although {cancel.name} was acknowledged: {found}")


def _waits(**more: Any) -> frozenset[Any]:
    """A resting shard with an event that waits."""
    index = {"state": "resting", "wake": 0, "bucket": "197001010000", "tenant": TENANT}
    held = gate.Gate("resting", "o0", 1, 1, index_key(A1.shard, 0), "197001010000", gate.Counts(1))
    row = {"id": X, "state": "scheduled", "due": DUE, "channel": CHANNEL, "size": 1, "body": "first", "note": "first", **more}
    return frozenset(
        {
            ((EVENTS, A1.shard, "gate"), 1, tuple(sorted(held.props().items()))),
            ((EVENTS, A1.shard, A1.row), 1, tuple(sorted(row.items()))),
            ((SHARDS, index_partition(A1.shard), index_key(A1.shard, 0)), 1, tuple(sorted(index.items()))),
            ((IDS, id_partition(TENANT, X), X), 1, (("at", A1.text), ("hash", "former"))),
        }
    )


def _ended(state: str, request: Request) -> frozenset[Any]:
    """A finished shard whose event has ended; the last one to change it was `request`."""
    held = gate.Gate("done", "o0", 1, 1, index_key(A1.shard, 0), "197001010000", gate.Counts(1, **{state: 1}))
    row = {"id": X, "state": state, "due": 0, "channel": CHANNEL, "body": request.name, **noted(request.receipt)}
    return frozenset(
        {
            ((EVENTS, A1.shard, "gate"), 1, tuple(sorted(held.props().items()))),
            ((EVENTS, A1.shard, A1.row), 1, tuple(sorted(row.items()))),
            ((LEDGER, TENANT, f"197001010000:{A1.shard}"), 1, (("dead", 0),)),
            ((IDS, id_partition(TENANT, X), X), 1, (("at", A1.text), ("hash", "former"))),
        }
    )


WHOLE_OLD, WHOLE_NEW, WHOLE_LAST, CANCEL = (
    Request("old post", 0, 9, "A", 1, MEMBERS),
    Request("new post", 20, 29, "B", 1, MEMBERS),
    Request("last post", 40, 49, "C", 1, MEMBERS),
    Request("cancel", 20, 29, "D", 1, MEMBERS),
)
BLURRED = Request("blurred post", 25, 35, "C", 1, MEMBERS)
"""Received at about the time of `CANCEL`."""
GIVEN: Final[dict[str, frozenset[tuple[str, str]]]] = {
    "after the end": frozenset({("changed", "new post")}),
    "after a cancel": frozenset({("cancelled", "cancel")}),
}
"""Changes that were acknowledged before a play begins."""


def play(name: str, budget: Budget, requests: dict[Request, Callable[[], Any]], **options: Any) -> Play:
    starts: Any = {request.name: ("writer", make, always) for request, make in requests.items()}
    options.setdefault("stored", _waits())
    options.setdefault("times", (DUE,))
    return Play(
        name, budget._replace(owners=0, sweeps=0), starts, owner=owner, sweep=sweep, due={X: frozenset({0, DUE, 80_000})}, **options
    )


REQUESTS: Final = (OLD, NEW, NEXT, BLUR, OLDER, LAST, WHOLE_OLD, WHOLE_NEW, WHOLE_LAST, CANCEL, BLURRED)
PLAYS: dict[str, Callable[[int], Play]] = {
    # Two processes change the payload; answers are lost, and a process crashes.
    "edits": lambda level: play("edits", Budget(lost=1 + level, crash=1), {OLD: lambda: patcher(OLD), NEW: lambda: patcher(NEW)}),
    # One process does.
    "one process": lambda level: play(
        "one process", Budget(lost=1 + level, crash=1), {OLD: lambda: patcher(OLD), NEXT: lambda: patcher(NEXT)}
    ),
    # The later change moves the event, and the earlier one too.
    "moves": lambda level: play(
        "moves",
        Budget(lost=1 + level, crash=1),
        {OLD: lambda: mover(OLD, 80_000), NEW: lambda: mover(NEW, 90_000)},
    ),
    # The later change makes the event larger and moves it.
    "larger": lambda level: play("larger", Budget(lost=1 + level, crash=1), {OLD: lambda: patcher(OLD), NEW: lambda: patcher(NEW, 2)}),
    # A change of another member comes in between, which is the last one that was received.
    "parts": lambda level: play(
        "parts",
        Budget(lost=1 + level, crash=1),
        {OLD: lambda: patcher(OLD), NEW: lambda: patcher(NEW), LAST: lambda: patcher(LAST)},
    ),
    "other members": lambda level: play(
        "other members", Budget(lost=1 + level, crash=1), {OLD: lambda: patcher(OLD), LAST: lambda: patcher(LAST)}
    ),
    # Nobody knows of two requests which was first, and a third was received before one of them.
    "blurred": lambda level: play(
        "blurred",
        Budget(lost=1 + level, crash=1),
        {NEW: lambda: patcher(NEW), BLUR: lambda: patcher(BLUR), OLDER: lambda: patcher(OLDER)},
    ),
    # The processes know nothing of storage's time, and the earlier request goes on until it is too old.
    "too old": lambda level: play(
        "too old",
        Budget(lost=1 + level, crash=1),
        {LOST_OLD: lambda: patcher(LOST_OLD), LATE_NEW: lambda: patcher(LATE_NEW)},
        times=(0, TOO_OLD),
    ),
    # A cancel is carried out, although a later change is stored.
    "cancel": lambda level: play(
        "cancel",
        Budget(lost=1 + level, crash=1),
        {CANCEL: lambda: canceller(CANCEL), OLD: lambda: patcher(OLD), WHOLE_LAST: lambda: patcher(WHOLE_LAST)},
    ),
    # The event of the later post has been delivered when the earlier one comes, and others follow.
    "after the end": lambda level: play(
        "after the end",
        Budget(lost=1 + level, crash=1),
        {WHOLE_OLD: lambda: poster(WHOLE_OLD), WHOLE_LAST: lambda: poster(WHOLE_LAST)},
        stored=_ended("delivered", WHOLE_NEW),
    ),
    "after a cancel": lambda level: play(
        "after a cancel",
        Budget(lost=1 + level, crash=1),
        {WHOLE_OLD: lambda: poster(WHOLE_OLD), BLURRED: lambda: poster(BLURRED)},
        stored=_ended("cancelled", CANCEL),
    ),
}
